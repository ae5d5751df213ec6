"""Fixtures `machine` and `device`: the model, unless pytest itself is hosted in a simulator.

A host attaches its bus before it calls pytest and brings fixtures of the same names; `machine`
offers at least `bus` and `faults`, with the methods of `tb.models.device.machine.FaultHooks`.
"""

from collections.abc import Iterator

import pytest

from driver.bus import attach_bus, attached_bus, detach_bus
from firmware.main import main
from runtime import Device
from tb.models.device import ModelMachine


def hosted() -> bool:
    """Whether a machine is attached: pytest runs inside it."""
    try:
        attached_bus()
    except RuntimeError:
        return False
    return True


if not hosted():

    @pytest.fixture
    def machine() -> Iterator[ModelMachine]:
        """A freshly powered machine, attached."""
        model = ModelMachine(main)
        attach_bus(model.bus)
        yield model
        detach_bus(model.bus)

    @pytest.fixture
    def device(machine: ModelMachine) -> Iterator[Device]:
        """The machine's device, open."""
        opened = Device(machine.bus)
        yield opened
        opened.close()
