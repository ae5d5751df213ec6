"""The face of the KMD to user mode: numbered calls with fixed structures, copied in once."""

from enum import IntEnum

from abi.mailbox import RESPONSE_QUEUE
from abi.record import Field, Owner, Record, reserved

__all__ = ["IOCTLS", "IoctlCode", "MemoryKind"]

UMD, KMD = Owner.UMD, Owner.KMD


class IoctlCode(IntEnum):
    """Numbers of the calls."""

    ALLOCATE = 1
    FREE = 2
    CREATE_QUEUE = 3
    DESTROY_QUEUE = 4
    RESET_QUEUE = 5
    QUERY_QUEUE = 6
    WAIT = 7
    WAIT_SPACE = 8
    RESET_DEVICE = 9


class MemoryKind(IntEnum):
    """Where an allocation lies."""

    HBM = 0
    """Device memory."""

    HOST = 1
    """Pinned host memory, whole pages."""


def _given(name: str, bits: int, meaning: str) -> Field:
    return Field(name, bits, UMD, KMD, KMD, meaning)


def _result(name: str, bits: int, meaning: str) -> Field:
    return Field(name, bits, KMD, UMD, UMD, meaning)


NOTHING = Record("Nothing", "No fields.", reserved("reserved", 64))
HANDLE = Record("Handle", "Names an object.", _given("handle", 64, "Handle of the object."))
ALLOCATE = Record(
    "ALLOCATE",
    "Takes memory.",
    _given("nbytes", 64, "Bytes, at least 1."),
    _given("kind", 8, "MemoryKind."),
    reserved("reserved", 24),
    _given("alignment", 32, "HBM: alignment in bytes, a power of two."),
)
ALLOCATED = Record(
    "ALLOCATED",
    "Memory that was taken.",
    _result("handle", 64, "Handle."),
    _result("device_address", 64, "Where the device sees it."),
    _result("bus_address", 64, "HOST: its bus address; HBM: zero."),
)
CREATE_QUEUE = Record(
    "CREATE_QUEUE",
    "Makes a queue.",
    _given("depth_log2", 8, "The ring has 2**depth_log2 slots."),
    _given("priority", 8, "Band, 0 (first) to 3."),
    reserved("reserved", 48),
    _given("task_timeout", 64, "Absolute cap of one task in cycles."),
    _given("block_timeout", 64, "Cycles in which a block must end a command."),
)
CREATED = Record(
    "CREATED",
    "A queue that was made.",
    _result("handle", 64, "Handle."),
    _result("queue", 8, "Number; also that of its doorbell page."),
    reserved("reserved", 56),
    _result("ring", 64, "Bus address of slot 0."),
    _result("indices", 64, "Bus address of the index page."),
)
RESET = Record(
    "RESET", "A queue that was reset.", _result("recreated", 64, "1: its indices start at 0.")
)
WAIT = Record(
    "WAIT",
    "Waits for a semaphore in pinned memory.",
    _given("handle", 64, "Handle of the queue whose interrupt tells of it."),
    _given("semaphore", 64, "Bus address."),
    _given("value", 64, "Value to reach."),
    _given("timeout", 64, "Cycles without retired work."),
    _given("limit", 64, "Cycles in total."),
)
WAIT_SPACE = Record(
    "WAIT_SPACE",
    "Waits for room in a ring.",
    _given("handle", 64, "Handle of the queue."),
    _given("index", 64, "Read index to reach."),
    _given("timeout", 64, "Cycles without retired work."),
)

IOCTLS: dict[IoctlCode, tuple[Record, Record]] = {
    IoctlCode.ALLOCATE: (ALLOCATE, ALLOCATED),
    IoctlCode.FREE: (HANDLE, NOTHING),
    IoctlCode.CREATE_QUEUE: (CREATE_QUEUE, CREATED),
    IoctlCode.DESTROY_QUEUE: (HANDLE, NOTHING),
    IoctlCode.RESET_QUEUE: (HANDLE, RESET),
    IoctlCode.QUERY_QUEUE: (HANDLE, RESPONSE_QUEUE),
    IoctlCode.WAIT: (WAIT, NOTHING),
    IoctlCode.WAIT_SPACE: (WAIT_SPACE, NOTHING),
    IoctlCode.RESET_DEVICE: (NOTHING, NOTHING),
}
"""Structure that goes in, and structure that comes out."""
