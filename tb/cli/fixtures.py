"""pytest fixtures for tests that `glassnpu pytest` hosts in the machine."""

from collections.abc import Iterator

import pytest

from runtime import Device
from tb.engine.host import Machine, current_machine
from tb.machine.faults import MachineFaults

__all__ = ["HostedMachine", "device", "machine"]


class HostedMachine:
    """The machine of a hosted test.

    Attributes: `bus` (the driver's), `faults`, `machine` (the engine's view: actors, clock).
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bus = machine.bus
        self.faults = MachineFaults(machine)


@pytest.fixture
def machine() -> Iterator[HostedMachine]:
    """The simulated machine, fresh from reset: memory zero, device time 0, no fault injected."""
    machine = HostedMachine(current_machine())
    machine.machine.reset()
    yield machine
    machine.faults.end()


@pytest.fixture
def device(machine: HostedMachine) -> Iterator[Device]:
    """An open device on a machine fresh from reset."""
    with Device(machine.bus) as opened:
        yield opened
