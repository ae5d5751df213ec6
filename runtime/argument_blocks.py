"""Argument blocks of kernels in pinned memory, used again once their launch is done."""

from collections import deque

from abi.address import HOST_BASE, LINE_BYTES, PAGE_BYTES
from driver.kmd.ioctl import MemoryKind
from driver.umd.client import Allocation, Client
from runtime.heap import Block, Heap

__all__ = ["ArgumentPool"]


class ArgumentPool:
    """Hands out blocks of a power of two of lines."""

    def __init__(self, client: Client, heap: Heap) -> None:
        self._client = client
        self._heap = heap
        self._free: dict[int, list[int]] = {}
        self._pages: list[Block] = []
        self._busy: deque[Block] = deque()

    def take(self, data: bytes) -> Block:
        """A block that holds `data`, at least 1 byte. The caller submits work that uses it, then
        calls `give_back`.

        Raises:
            OutOfMemoryError: no pinned memory is free.
        """
        size = LINE_BYTES
        while size < len(data):
            size *= 2
        free = self._free.setdefault(size, [])
        self._collect(bool(free))
        if not free:
            nbytes = max(size, PAGE_BYTES)
            page = self._heap.allocate(nbytes, MemoryKind.HOST)
            self._pages.append(page)
            base = page.allocation.bus_address
            free += [base + at for at in reversed(range(0, nbytes, size))]
        address = free.pop()
        # The doorbell's barrier makes it visible before the packet is.
        self._client.bus.store(address, data)
        allocation = Allocation(0, HOST_BASE + address, address, size)
        generation = self._client.session.generation
        return Block(allocation, generation, lambda: free.append(address))

    def give_back(self, block: Block) -> None:
        """Use the block again as soon as the submitted work on it is done."""
        self._busy.append(block)

    def _collect(self, enough: bool) -> None:
        """Take back the oldest blocks that are idle; if that is not enough, all that are."""
        while self._busy and self._busy[0].idle():
            self._busy.popleft().release()
        if enough or not self._busy:
            return
        waiting = deque[Block]()
        for block in self._busy:
            if block.idle():
                block.release()
            else:
                waiting.append(block)
        self._busy = waiting
