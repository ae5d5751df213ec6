"""What a check knows of memory: arrays that the caller gave, and the unit's RAM as it is used."""

from collections.abc import Mapping
from typing import Any

from abi.isa import RAM_BYTES

__all__ = ["MemoryImage", "TrackedRam"]


class MemoryImage:
    """Global memory before a block, as far as it is known; all else reads as zeros.

    Args:
        arrays: contents by device address. Of two that overlap, the later one holds.
    """

    def __init__(self, arrays: Mapping[int, bytes] | None = None) -> None:
        self._arrays = dict(arrays or {})

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes from a device address on."""
        raw = bytearray(nbytes)
        for start, contents in self._arrays.items():
            low, high = max(start, address), min(start + len(contents), address + nbytes)
            if low < high:
                raw[low - address : high - address] = contents[low - start : high - start]
        return bytes(raw)

    def knows(self, address: int) -> bool:
        """Whether a byte is known."""
        return any(
            start <= address < start + len(contents) for start, contents in self._arrays.items()
        )


class TrackedRam(bytearray):
    """The scalar unit's RAM, zero at first, which notes the bytes that slices touch.

    Attributes: `touched`, `unset`: a byte for each; 1 where it was read or written, and where it
    was read before it was written.
    """

    def __init__(self) -> None:
        super().__init__(RAM_BYTES)
        self.touched = bytearray(RAM_BYTES)
        self.unset = bytearray(RAM_BYTES)
        self._written = bytearray(RAM_BYTES)

    def __getitem__(self, key: Any) -> Any:
        span = range(RAM_BYTES)[key]
        for at in span if isinstance(span, range) else (span,):
            self.touched[at] = 1
            self.unset[at] |= not self._written[at]
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        span = range(RAM_BYTES)[key]
        for at in span if isinstance(span, range) else (span,):
            self.touched[at] = self._written[at] = 1
        super().__setitem__(key, value)
