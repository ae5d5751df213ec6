"""The host's memory: pages that the device can reach, and the CPU's store buffer in front."""

from bisect import insort
from collections import deque
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from abi.address import PAGE_BYTES
from tb.engine.clockwork import NEVER

__all__ = ["HostMemory", "StoreBuffer"]

_WORD = 8


class HostMemory:
    """A page allocator over all bytes of host memory (`data`, shape (nbytes,), uint8).

    A bus address is the offset of the byte. Page 0 is never given out, so 0 is no valid address.
    """

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self.pages = data.nbytes // PAGE_BYTES
        self._free = [(1, self.pages - 1)]  # (first page, count), in order, never touching

    def clear(self) -> None:
        """Zeros everywhere, all pages free."""
        self.data[:] = 0
        self._free = [(1, self.pages - 1)]

    def allocate(self, count: int) -> int:
        """The bus address of the first run of `count` free pages.

        Raises:
            ValueError: `count` is not positive.
            MemoryError: no such run is free.
        """
        if count < 1:
            raise ValueError(f"count must be a positive number of pages, not {count!r}")
        for index, (first, free) in enumerate(self._free):
            if free >= count:
                rest = [(first + count, free - count)] if free > count else []
                self._free[index : index + 1] = rest
                return first * PAGE_BYTES
        raise MemoryError(f"no {count} contiguous free pages of host memory")

    def free(self, address: int, count: int) -> None:
        """Give `count` pages back.

        Raises:
            ValueError: they are not pages of host memory, or one of them is free already.
        """
        first, rest = divmod(address, PAGE_BYTES)
        if rest or count < 1 or first < 1 or first + count > self.pages:
            raise ValueError(f"pages must lie in host memory, not {count!r} at {address:#x}")
        for start, free in self._free:
            if start < first + count and first < start + free:
                raise ValueError(f"pages must be in use, not free already: {address:#x}")
        insort(self._free, (first, count))
        joined: list[tuple[int, int]] = []
        for start, free in self._free:
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + free)
            else:
                joined.append((start, free))
        self._free = joined

    def view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """The bytes themselves, shape (nbytes,), uint8.

        Raises:
            ValueError: the range leaves host memory.
        """
        if address < 0 or nbytes < 0 or address + nbytes > self.data.nbytes:
            raise ValueError(
                f"range must lie in host memory of {self.data.nbytes} bytes, "
                f"not {nbytes!r} bytes at {address:#x}"
            )
        return self.data[address : address + nbytes]


@dataclass
class _Store:
    due: int
    address: int
    data: bytes


class StoreBuffer:
    """Stores that have not reached memory: a weakly ordered CPU.

    Each store is cut at 8-byte words; every piece reaches memory at a time of its own, up to
    `window` cycles later, drawn from `random`. Pieces of one word keep their order.
    """

    def __init__(self, memory: HostMemory, random: Random, *, window: int = 512) -> None:
        self._memory = memory
        self._random = random
        self._window = window
        self._stores: deque[_Store] = deque()

    def store(self, address: int, data: bytes, now: int) -> None:
        """Store at device time `now`.

        Raises:
            ValueError: the range leaves host memory.
        """
        self._memory.view(address, len(data))
        at = 0
        while at < len(data):
            size = min(len(data) - at, _WORD - (address + at) % _WORD)
            piece = _Store(now + self._random.randrange(self._window), address + at, b"")
            piece.data = data[at : at + size]
            word = piece.address // _WORD
            for older in self._stores:
                if older.address // _WORD == word:
                    piece.due = max(piece.due, older.due)
            self._stores.append(piece)
            at += size

    def load(self, address: int, nbytes: int) -> bytes:
        """Load; stores in the buffer are seen.

        Raises:
            ValueError: the range leaves host memory.
        """
        found = bytearray(self._memory.view(address, nbytes).tobytes())
        for piece in self._stores:
            low = max(address, piece.address)
            high = min(address + nbytes, piece.address + len(piece.data))
            if low < high:
                part = piece.data[low - piece.address : high - piece.address]
                found[low - address : high - address] = part
        return bytes(found)

    def settle(self, now: int) -> int:
        """Let what is due reach memory; returns when something is due next, or NEVER."""
        if not self._stores:
            return NEVER
        waiting: deque[_Store] = deque()
        for piece in self._stores:
            if piece.due <= now:
                self._reach(piece)
            else:
                waiting.append(piece)
        self._stores = waiting
        return min((piece.due for piece in waiting), default=NEVER)

    def drain(self) -> None:
        """Let everything reach memory, in order."""
        while self._stores:
            self._reach(self._stores.popleft())

    def _reach(self, piece: _Store) -> None:
        view = self._memory.data[piece.address : piece.address + len(piece.data)]
        view[:] = np.frombuffer(piece.data, np.uint8)
