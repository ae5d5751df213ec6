"""Status codes, and on which side each fault lies."""

from enum import Enum, IntEnum

__all__ = ["Engine", "Side", "Status", "side_of"]


class Side(Enum):
    """On which side a fault lies."""

    HOST = "HOST"
    """What was submitted is wrong."""

    FIRMWARE = "FIRMWARE"
    """The firmware did not process it."""

    DEVICE = "DEVICE"
    """The hardware failed while it executed."""


class Engine(IntEnum):
    """The unit that detected a fault."""

    NONE = 0
    DOORBELL = 1
    FETCHER = 2
    FIRMWARE = 3
    DMA = 4
    CORE = 5
    COMPLETION = 6
    INTERRUPT = 7
    MAILBOX = 8
    HOST_INTERFACE = 9


class Status(IntEnum):
    """Outcome of a packet, descriptor, command or message. 0 is success."""

    OK = 0x00

    # HOST: the submission is wrong.
    BAD_OPCODE = 0x10
    BAD_FIELD = 0x11
    BAD_DESCRIPTOR = 0x12
    ADDRESS_FAULT = 0x13
    DOORBELL_VIOLATION = 0x14
    BAD_COMMAND = 0x15
    MISALIGNED = 0x16
    BUFFER_OVERFLOW = 0x17
    DEPENDENCY_FAILED = 0x18
    BAD_SEQUENCE = 0x19
    BAD_MESSAGE = 0x1A
    NO_RESOURCE = 0x1B
    VERSION_MISMATCH = 0x1C
    DOORBELL_LOST = 0x1D
    WAIT_TIMEOUT = 0x1E

    # FIRMWARE: it did not process the submission.
    FIRMWARE_CRASH = 0x20
    FIRMWARE_STALL = 0x21

    # DEVICE: the hardware failed while it executed.
    BUS_ERROR = 0x30
    KERNEL_TIMEOUT = 0x31
    FLAG_DEADLOCK = 0x32
    FLAG_OVERFLOW = 0x33
    INTERRUPT_LOST = 0x34
    ABORTED = 0x35
    DEVICE_HANG = 0x36

    # HOST: the kernel's own code is wrong.
    ILLEGAL_INSTRUCTION = 0x40
    BREAKPOINT = 0x41


def side_of(status: int) -> Side:
    """The side on which a status other than OK lies.

    Raises:
        ValueError: `status` is no fault.
    """
    match Status(status) >> 4:
        case 1 | 4:
            return Side.HOST
        case 2:
            return Side.FIRMWARE
        case 3:
            return Side.DEVICE
    raise ValueError(f"status must be a fault, not {status!r}")
