"""Boot: vectors, firmware, handshake."""

from abi.mailbox import FirmwarePhase, MessageKind
from abi.status import Status
from abi.version import ABI_MAJOR, ABI_MINOR
from driver.bus import Bus
from driver.errors import FirmwareCrashError, FirmwareStallError, VersionMismatchError
from driver.kmd.interrupts import Interrupts
from driver.kmd.mailbox import Mailbox
from driver.registers import Registers

__all__ = ["boot"]

BOOT_TIMEOUT = 1_000_000
"""Cycles that the firmware has to reach each phase."""

POLL = 500
"""Cycles between two looks at the firmware's phase: it sends no interrupt before the handshake."""


def boot(bus: Bus, registers: Registers, interrupts: Interrupts) -> Mailbox:
    """Start the firmware of a freshly reset device and shake hands.

    Raises:
        FirmwareStallError, FirmwareCrashError: it does not come up.
        VersionMismatchError: firmware and driver speak different ABI majors.
    """
    interrupts.enable()
    mailbox = Mailbox(bus, registers, interrupts)
    registers.bar0.control.update(firmware_run=1)
    _await_phase(bus, registers, FirmwarePhase.WAITING_FOR_HANDSHAKE)
    response = mailbox.call(
        MessageKind.HANDSHAKE, timeout=BOOT_TIMEOUT, abi_major=ABI_MAJOR, abi_minor=ABI_MINOR
    )
    if response["status"] == Status.VERSION_MISMATCH or response["abi_major"] != ABI_MAJOR:
        raise VersionMismatchError(
            f"the driver speaks ABI {ABI_MAJOR}.{ABI_MINOR}, the firmware "
            f"{response['abi_major']}.{response['abi_minor']}"
        )
    _await_phase(bus, registers, FirmwarePhase.RUNNING)
    return mailbox


def _await_phase(bus: Bus, registers: Registers, phase: FirmwarePhase) -> None:
    deadline = bus.now() + BOOT_TIMEOUT
    while (state := registers.bar0.firmware_state.fields())["phase"] != phase:
        if state["phase"] == FirmwarePhase.CRASHED:
            raise FirmwareCrashError(f"the firmware crashed at boot, code {state['code']:#x}")
        if bus.now() >= deadline:
            raise FirmwareStallError(
                f"the firmware must reach phase {phase.name} within {BOOT_TIMEOUT} cycles, "
                f"but stays in phase {state['phase']}"
            )
        bus.wait_interrupt(0, bus.now() + POLL)
