"""The ordered reset of the device."""

from abi.status import Engine
from driver.bus import Bus, BusError
from driver.errors import DeviceHangError
from driver.kmd.interrupts import Interrupts
from driver.registers import Registers

__all__ = ["reset_hardware"]

RESET_TIMEOUT = 1_000_000
"""Cycles that the reset has to drain and finish."""

POLL = 200


def reset_hardware(bus: Bus, registers: Registers, interrupts: Interrupts) -> bool:
    """Reset the chip; True if all host transactions had drained.

    The caller has already stopped submissions. Order: vectors masked, firmware held, reset with
    its bounded drain in hardware, bus mastering off. Afterwards BARs answer, but nothing of the
    device moves until it is booted again.

    Raises:
        DeviceHangError: the reset does not end.
    """
    bar0 = registers.bar0
    registers.config.identity.update(memory_enable=1)
    interrupts.mask()
    bar0.control.update(firmware_run=0)
    bar0.reset.write(1)
    deadline = bus.now() + RESET_TIMEOUT
    while _busy(registers):
        if bus.now() >= deadline:
            raise DeviceHangError(
                f"the reset did not end within {RESET_TIMEOUT} cycles", engine=Engine.HOST_INTERFACE
            )
        bus.wait_interrupt(0, bus.now() + POLL)
    drained = bool(bar0.reset_state.field("drained"))
    registers.config.identity.update(bus_master=0)
    # Messages that were on their way belong to the former life.
    bus.wait_interrupt((1 << len(interrupts.received)) - 1, bus.now())
    return drained


def _busy(registers: Registers) -> bool:
    try:
        return bool(registers.bar0.reset_state.field("busy"))
    except BusError:  # While the chip is isolated, no register answers.
        return True
