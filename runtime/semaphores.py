"""Lines of pinned memory for the semaphores of events, many to a page."""

from abi.address import LINE_BYTES, PAGE_BYTES
from driver.kmd.ioctl import MemoryKind
from driver.umd.client import Allocation, Client
from driver.umd.queue import Semaphore
from runtime.heap import Block, Heap

__all__ = ["SemaphorePool"]


class SemaphorePool:
    """Hands out semaphore lines; a line comes back once no device work can write to it."""

    def __init__(self, client: Client, heap: Heap) -> None:
        self._client = client
        self._heap = heap
        self._free: list[int] = []

    def take(self) -> tuple[Block, Semaphore]:
        """A semaphore with value 0, and the block that stands for its memory.

        Raises:
            OutOfMemoryError: no pinned memory is free.
        """
        self._heap.reap()
        if not self._free:
            page = self._heap.allocate(PAGE_BYTES, MemoryKind.HOST)
            base = page.allocation.bus_address
            self._free += [base + i for i in reversed(range(0, PAGE_BYTES, LINE_BYTES))]
        address = self._free.pop()
        bus = self._client.bus
        bus.store(address, bytes(LINE_BYTES))
        bus.barrier()
        semaphore = Semaphore(bus, address)
        allocation = Allocation(0, semaphore.device_address, address, LINE_BYTES)
        generation = self._client.session.generation
        return Block(allocation, generation, lambda: self._free.append(address)), semaphore
