"""pytest fixtures for tests that `glassnpu pytest` hosts in the machine."""

from collections.abc import Iterator

import pytest

from runtime import Device
from tb.engine.host import Machine, current_machine

__all__ = ["device", "machine"]


@pytest.fixture
def machine() -> Machine:
    """The simulated machine, fresh from reset: memory zero, device time 0, no fault injected."""
    machine = current_machine()
    machine.reset()
    return machine


@pytest.fixture
def device(machine: Machine) -> Iterator[Device]:
    """An open device on a machine fresh from reset."""
    with Device(machine.bus) as opened:
        yield opened
