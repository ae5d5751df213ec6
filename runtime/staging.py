"""Pinned staging memory, through which copies of pageable host memory pass."""

import numpy as np
import numpy.typing as npt

from abi.address import PAGE_BYTES
from driver.kmd.ioctl import MemoryKind
from driver.umd.client import Client
from runtime.heap import Block, Heap

__all__ = ["CHUNK_BYTES", "StagingPool"]

CHUNK_BYTES = 256 * 1024
"""Largest piece of a staged copy: the DMA moves one while the host fills the next."""

LIMIT_BYTES = 4 << 20
"""Staging memory in use at a time; beyond it, copies wait for earlier ones."""


class StagingPool:
    """Blocks of pinned memory, reused once the copies through them are done."""

    def __init__(self, client: Client, heap: Heap) -> None:
        self._client = client
        self._heap = heap
        self._free: dict[int, list[Block]] = {}
        self._busy: list[Block] = []
        self._bytes = 0

    def take(self, nbytes: int) -> tuple[Block, npt.NDArray[np.uint8]]:
        """A block of at least `nbytes` (at most CHUNK_BYTES) and a uint8 view of `nbytes` of it.

        The caller submits work that uses it, then calls `give_back`.

        Raises:
            OutOfMemoryError: no pinned memory is free.
            NpuError: the pool is used up and the oldest copy does not end.
        """
        size = PAGE_BYTES
        while size < nbytes:
            size *= 2
        self._collect()
        ready = self._free.setdefault(size, [])
        while not ready and self._bytes + size > LIMIT_BYTES and self._busy:
            for stream, value in list(self._busy[0].uses.items()):
                stream.finish(value)
            self._collect()
            self._trim(LIMIT_BYTES - size)
        if ready:
            block = ready.pop()
        else:
            block = self._heap.allocate(size, MemoryKind.HOST)
            self._bytes += size
        view = self._client.session.mmap(block.allocation.handle)
        return block, view[:nbytes]

    def give_back(self, block: Block) -> None:
        """Reuse the block as soon as the submitted work on it is done."""
        self._busy.append(block)

    def _collect(self) -> None:
        busy, self._busy = self._busy, []
        for block in busy:
            if block.idle():
                self._free[block.allocation.nbytes].append(block)
            else:
                self._busy.append(block)

    def _trim(self, target: int) -> None:
        """Give unused blocks back to the host until at most `target` bytes are held."""
        for size, blocks in self._free.items():
            while blocks and self._bytes > target:
                self._heap.free(blocks.pop())
                self._bytes -= size
