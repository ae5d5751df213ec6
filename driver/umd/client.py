"""User mode's typed view of the KMD: packs the fixed structures of each call."""

from dataclasses import dataclass

from driver.bus import Bus
from driver.kmd.ioctl import IOCTLS, IoctlCode, MemoryKind
from driver.kmd.memory import ALIGNMENT
from driver.kmd.queues import READ_INDEX_OFFSET, SEMAPHORE_OFFSET, WRITE_INDEX_OFFSET
from driver.kmd.session import Session
from driver.kmd.wait import DEFAULT_LIMIT, DEFAULT_TIMEOUT
from driver.umd.doorbell import Doorbell
from driver.umd.queue import UserQueue
from driver.umd.ring import Ring

__all__ = ["Allocation", "Client"]


@dataclass(frozen=True)
class Allocation:
    """Memory of this session. `bus_address` is 0 for HBM."""

    handle: int
    device_address: int
    bus_address: int
    nbytes: int


class Client:
    """The calls of the KMD."""

    def __init__(self, session: Session, bus: Bus) -> None:
        self.session = session
        self.bus = bus

    def call(self, code: IoctlCode, **fields: int) -> dict[str, int]:
        """Make a call with the fields of its structure; returns those of the result."""
        given, result = IOCTLS[code]
        return result.unpack_bytes(self.session.ioctl(code, given.pack_bytes(fields)))

    def allocate(self, nbytes: int, kind: MemoryKind, alignment: int = ALIGNMENT) -> Allocation:
        """Take memory.

        Raises:
            OutOfMemoryError: there is none.
        """
        got = self.call(IoctlCode.ALLOCATE, nbytes=nbytes, kind=kind, alignment=alignment)
        return Allocation(got["handle"], got["device_address"], got["bus_address"], nbytes)

    def free(self, handle: int) -> None:
        """Give memory back."""
        self.call(IoctlCode.FREE, handle=handle)

    def create_queue(
        self, *, depth_log2: int, priority: int, task_timeout: int, block_timeout: int
    ) -> UserQueue:
        """Make a queue with 2**depth_log2 slots.

        Raises:
            OutOfMemoryError: all queues are in use.
        """
        got = self.call(
            IoctlCode.CREATE_QUEUE,
            depth_log2=depth_log2,
            priority=priority,
            task_timeout=task_timeout,
            block_timeout=block_timeout,
        )
        handle, indices = got["handle"], got["indices"]

        def wait_space(index: int, timeout: int) -> None:
            self.call(IoctlCode.WAIT_SPACE, handle=handle, index=index, timeout=timeout)

        ring = Ring(
            self.bus,
            ring=got["ring"],
            write_index=indices + WRITE_INDEX_OFFSET,
            read_index=indices + READ_INDEX_OFFSET,
            depth=1 << depth_log2,
            doorbell=Doorbell(got["queue"], self.session.map_doorbell(handle)),
            wait_space=wait_space,
        )
        return UserQueue(self.bus, ring, got["queue"], handle, indices + SEMAPHORE_OFFSET)

    def destroy_queue(self, handle: int) -> None:
        """Abort a queue's work and give it back."""
        self.call(IoctlCode.DESTROY_QUEUE, handle=handle)

    def reset_queue(self, handle: int) -> bool:
        """Clear a queue's fault; True: its indices start at 0 again."""
        return bool(self.call(IoctlCode.RESET_QUEUE, handle=handle)["recreated"])

    def query_queue(self, handle: int) -> dict[str, int]:
        """State and first fault of a queue: the fields of RESPONSE_QUEUE."""
        return self.call(IoctlCode.QUERY_QUEUE, handle=handle)

    def wait(
        self,
        handle: int,
        semaphore: int,
        value: int,
        timeout: int = DEFAULT_TIMEOUT,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        """Wait until the semaphore at bus address `semaphore` is at least `value`.

        Raises:
            NpuError: see driver.kmd.wait.
        """
        self.call(
            IoctlCode.WAIT,
            handle=handle,
            semaphore=semaphore,
            value=value,
            timeout=timeout,
            limit=limit,
        )

    def reset_device(self) -> None:
        """Reset the device; everything of the former generation becomes stale."""
        self.call(IoctlCode.RESET_DEVICE)
