"""Fixtures `machine` and `device`: the model, unless pytest itself is hosted in a simulator.

A host attaches its bus before it calls pytest and brings fixtures of the same names; `machine`
offers at least `bus` and `faults`, with the methods of `tb.models.device.machine.FaultHooks`.
"""

import os
from collections.abc import Iterator
from typing import Any

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


STARTERS = ("test_on_rtl.py", "test_determinism.py", "test_trace.py")
"""Files whose tests start simulators themselves, and so are not run inside one."""

collect_ignore = list(STARTERS) if hosted() else []

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


@pytest.fixture
def engine(machine: Any) -> Any:
    """The engine's view of the simulated RTL (`tb.engine.host.Machine`): actors, clock, memory."""
    if isinstance(machine, ModelMachine):
        pytest.skip("asks the RTL; tb/fullstack/test_on_rtl.py runs it there")
    return machine.machine


@pytest.fixture
def seed() -> int:
    """Seed of random scenarios: that of the machine (`glassnpu pytest --seed`), else 1."""
    value = int(os.environ.get("GLASSNPU_SEED", "1"))
    print(f"seed {value}")
    return value
