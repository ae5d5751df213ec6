"""What a block of a kernel does to the rest of the core, as the interpreter reports it."""

from dataclasses import dataclass

from abi.core import Pipe
from abi.status import Status

__all__ = [
    "Barrier",
    "Event",
    "Exit",
    "FlagSet",
    "FlagWait",
    "Issue",
    "MemoryFaultError",
    "Paused",
    "StopError",
    "Trap",
]


@dataclass(frozen=True, slots=True)
class Issue:
    """npu.issue of a valid command."""

    pipe: Pipe
    command: bytes
    """Its 32 bytes."""

    base: int
    """Device address in the base register that the command names."""

    wait: int
    """Mask of the flags that it takes when it starts."""

    set: int
    """Mask of the flags that it adds one to when it has ended."""

    pc: int


@dataclass(frozen=True, slots=True)
class FlagWait:
    """The scalar unit takes one of a flag; the caller goes on once there is one."""

    flag: int
    pc: int


@dataclass(frozen=True, slots=True)
class FlagSet:
    """The scalar unit adds one to a flag."""

    flag: int
    pc: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """The caller goes on once all pipes have ended all commands."""

    pc: int


@dataclass(frozen=True, slots=True)
class Exit:
    """The block ends once all pipes have ended all commands."""

    pc: int


@dataclass(frozen=True, slots=True)
class Trap:
    """The block fails."""

    status: Status
    pc: int
    address: int
    """Scalar or device address of a failing access, else 0."""

    pipe: Pipe = Pipe.SCALAR
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Paused:
    """The limit of instructions is reached; nothing has happened."""

    pc: int


Event = Issue | FlagWait | FlagSet | Barrier | Exit | Trap | Paused


class MemoryFaultError(Exception):
    """A global memory callback refuses an access: the block traps with it.

    Args:
        status: ADDRESS_FAULT or BUS_ERROR.
        address: device address that failed.
    """

    def __init__(self, status: Status, address: int) -> None:
        super().__init__(f"{status.name} at {address:#x}")
        self.status = status
        self.address = address


class StopError(Exception):
    """Leaves the interpreter's loop with an event."""

    def __init__(self, event: Event) -> None:
        self.event = event
