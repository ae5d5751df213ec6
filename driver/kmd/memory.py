"""Device memory and pinned host memory, as the KMD hands them out."""

from bisect import bisect_right, insort

from abi.address import PAGE_BYTES
from driver.bus import Bus
from driver.errors import InvalidArgumentError, OutOfMemoryError, StaleHandleError
from driver.registers import Registers

__all__ = ["ALIGNMENT", "HbmAllocator", "HostPages"]

ALIGNMENT = 256
"""Default alignment of HBM allocations in bytes: four lines."""


class HbmAllocator:
    """First-fit allocator of one address range; freed blocks coalesce at once.

    Args:
        base: first device address.
        nbytes: size of the range.
    """

    def __init__(self, base: int, nbytes: int) -> None:
        self._free: list[tuple[int, int]] = [(base, nbytes)]  # (address, bytes), ascending
        self._used: dict[int, int] = {}
        self.nbytes = nbytes

    @property
    def used_bytes(self) -> int:
        """Bytes handed out, with their padding."""
        return sum(self._used.values())

    @property
    def allocations(self) -> int:
        """Number of live allocations."""
        return len(self._used)

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free block."""
        return max((size for _, size in self._free), default=0)

    def allocate(self, nbytes: int, alignment: int = ALIGNMENT) -> int:
        """Take `nbytes` (rounded up to ALIGNMENT); returns the device address.

        Raises:
            OutOfMemoryError: no free block is large enough.
        """
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        for i, (start, room) in enumerate(self._free):
            address = -(-start // alignment) * alignment
            behind = start + room - address - size
            if behind < 0:
                continue
            rest = [(start, address - start), (address + size, behind)]
            self._free[i : i + 1] = [block for block in rest if block[1]]
            self._used[address] = size
            return address
        free = sum(size for _, size in self._free)
        raise OutOfMemoryError(
            f"device memory: {nbytes} bytes asked for, {free} of {self.nbytes} bytes free, "
            f"largest block {self.largest_free}"
        )

    def free(self, address: int) -> None:
        """Give an allocation back.

        Raises:
            InvalidArgumentError: nothing is allocated there (for example, freed twice).
        """
        size = self._used.pop(address, None)
        if size is None:
            raise InvalidArgumentError(
                f"address must be that of a live allocation, not {address:#x}"
            )
        i = bisect_right(self._free, (address, 0))
        insort(self._free, (address, size))
        if i + 1 < len(self._free) and address + size == self._free[i + 1][0]:
            size += self._free.pop(i + 1)[1]
            self._free[i] = (address, size)
        if i and sum(self._free[i - 1]) == address:
            before = self._free[i - 1][0]
            self._free[i - 1 : i + 1] = [(before, address + size - before)]


class HostPages:
    """Pinned host memory, and the window of it that the device may reach.

    The window is the smallest that covers all pages in use; the KMD moves it as pages come and
    go, so that the device reaches nothing that was never granted or has been given back.

    It serves one generation: a reset ends it, also while host threads are inside its calls.

    Args:
        registers: of this generation; they refuse every access after it.
        quarantined: pages that former generations never gave back.
    """

    def __init__(self, bus: Bus, registers: Registers, *, quarantined: int = 0) -> None:
        self._bus = bus
        self._window = registers.bar0.host_window
        self._runs: dict[int, int] = {}
        self._leaving: dict[int, int] = {}  # Until the window is moved, the device reaches them.
        self._granted = (0, 0)
        self._released = False
        self.quarantined = quarantined
        """Pages never given back, because the device may still write to them."""

    @property
    def pages(self) -> int:
        """Pages in use."""
        return sum(self._runs.values()) + sum(self._leaving.values())

    def allocate(self, count: int) -> int:
        """Pin `count` contiguous zeroed pages; returns their bus address.

        Raises:
            OutOfMemoryError: no such run of pages is free.
            StaleHandleError: the device was reset meanwhile; nothing is kept.
        """
        self._check()
        try:
            address = self._bus.allocate_pages(count)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"host memory: no run of {count} free pages ({self.pages} pinned)"
            ) from error
        self._bus.host_view(address, count * PAGE_BYTES)[:] = 0
        self._runs[address] = count
        try:
            self._grant()
        except BaseException:
            if self._runs.pop(address, None) is not None:  # Else the reset gave it back.
                self._bus.free_pages(address, count)
            raise
        return address

    def free(self, address: int) -> None:
        """Take the pages out of the window and give them back.

        Raises:
            InvalidArgumentError: no pinned run begins there.
            StaleHandleError: the device was reset, which gives all pages back.
        """
        self._check()
        count = self._runs.pop(address, None)
        if count is None:
            raise InvalidArgumentError(f"address must be that of pinned pages, not {address:#x}")
        self._leaving[address] = count
        self._grant()  # Where it fails, the reset gives the pages back.
        del self._leaving[address]
        self._bus.free_pages(address, count)

    def release(self, *, drained: bool) -> None:
        """After a device reset: give all pages back, or, if not `drained`, quarantine them."""
        for address, count in (self._runs | self._leaving).items():
            if drained:
                self._bus.free_pages(address, count)
            else:
                self.quarantined += count
        self._runs.clear()
        self._leaving.clear()
        self._released = True

    def _check(self) -> None:
        if self._released:
            raise StaleHandleError("the device was reset: its pages were given back")

    def _grant(self) -> None:
        base = min(self._runs, default=0) // PAGE_BYTES
        limit = max((a // PAGE_BYTES + n for a, n in self._runs.items()), default=0)
        if (base, limit) != self._granted:
            self._window.set(base=base, limit=limit)
            self._granted = (base, limit)
