"""Memory behind the address guard: HBM, and the granted window of host memory."""

import numpy as np
import numpy.typing as npt

from abi.address import ADDRESS_BITS, HBM_BASE, HOST_BASE, LINE_BYTES, PAGE_BYTES
from abi.status import Status

__all__ = ["DeviceMemory", "MemoryFaultError"]

Bytes = npt.NDArray[np.uint8]


class MemoryFaultError(Exception):
    """An access failed. Attributes: `status`, and `address` of the failing line."""

    def __init__(self, status: Status, address: int) -> None:
        super().__init__(f"{status.name} at {address:#x}")
        self.status = status
        self.address = address


class DeviceMemory:
    """What an initiator inside the chip reaches, by device address.

    `host` and `hbm` are uint8 arrays of shape (bytes,). `slverr` is an injected fault: bus
    addresses that answer with SLVERR.
    """

    def __init__(self, host_bytes: int, hbm_bytes: int) -> None:
        self.host = np.zeros(host_bytes, np.uint8)
        self.hbm = np.zeros(hbm_bytes, np.uint8)
        self.slverr: range = range(0)
        self.window = range(0)
        self.bus_master = False
        self.counters = dict.fromkeys(
            ("link_read_bytes", "link_write_bytes", "hbm_read_bytes", "hbm_write_bytes"), 0
        )

    def reset(self) -> None:
        """Close the window and clear the counters; contents stay."""
        self.window = range(0)
        self.counters = dict.fromkeys(self.counters, 0)

    def grant(self, base: int, limit: int) -> None:
        """Open host pages `base` up to `limit` (exclusive), as page numbers."""
        self.window = range(base * PAGE_BYTES, max(limit, base) * PAGE_BYTES)

    def is_host(self, address: int) -> bool:
        """Whether an address lies across the host link."""
        return address >= HOST_BASE

    def status_of(self, line: int) -> Status:
        """How an access to the line at a device address is answered."""
        if HBM_BASE <= line < HBM_BASE + len(self.hbm):
            return Status.OK
        bus = line - HOST_BASE
        if not 0 <= line < 1 << ADDRESS_BITS or bus not in self.window:
            return Status.ADDRESS_FAULT
        if not self.bus_master or bus >= len(self.host) or bus in self.slverr:
            return Status.BUS_ERROR
        return Status.OK

    def reachable_host(self) -> list[range]:
        """Ranges of bus addresses that answer, as the window and the faults stand."""
        if not self.bus_master:
            return []
        stop = min(self.window.stop, len(self.host))
        parts = [
            range(self.window.start, min(stop, self.slverr.start) if self.slverr else stop),
            range(max(self.window.start, self.slverr.stop), stop if self.slverr else 0),
        ]
        return [part for part in parts if part]

    def regions(self) -> dict[int, Bytes]:
        """What answers, as the window and the faults stand: arrays by device address."""
        regions = {HBM_BASE: self.hbm}
        for part in self.reachable_host():
            regions[HOST_BASE + part.start] = self.host[part.start : part.stop]
        return regions

    def _check(self, address: int, nbytes: int) -> None:
        last = address + nbytes - 1
        if self._whole(address, last):
            return
        for line in range(address & -LINE_BYTES, last + 1, LINE_BYTES):
            status = self.status_of(line)
            if status:
                raise MemoryFaultError(status, line & ((1 << ADDRESS_BITS) - 1))

    def _whole(self, address: int, last: int) -> bool:
        if address >= HBM_BASE and last < HBM_BASE + len(self.hbm):
            return True
        bus = range(address - HOST_BASE, last - HOST_BASE + 1)
        return (
            self.bus_master
            and bus.start in self.window
            and bus.stop - 1 in self.window
            and bus.stop <= len(self.host)
            and not (bus.start < self.slverr.stop and self.slverr.start < bus.stop)
        )

    def _view(self, address: int, nbytes: int, direction: str) -> Bytes:
        first, last = address // LINE_BYTES, (address + nbytes - 1) // LINE_BYTES
        target = "link" if self.is_host(address) else "hbm"
        self.counters[f"{target}_{direction}_bytes"] += (last - first + 1) * LINE_BYTES
        if self.is_host(address):
            return self.host[address - HOST_BASE : address - HOST_BASE + nbytes]
        return self.hbm[address - HBM_BASE : address - HBM_BASE + nbytes]

    def read(self, address: int, nbytes: int) -> Bytes:
        """A copy of `nbytes` bytes, shape (nbytes,), dtype uint8.

        Raises:
            MemoryFaultError: a line of the range cannot be read.
        """
        self._check(address, nbytes)
        return self._view(address, nbytes, "read").copy()

    def write(self, address: int, data: bytes | Bytes) -> None:
        """Write bytes.

        Raises:
            MemoryFaultError: a line of the range cannot be written; nothing is written then.
        """
        content = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        self._check(address, len(content))
        self._view(address, len(content), "write")[:] = content

    def read_word(self, address: int) -> int:
        """Read an aligned 64-bit word."""
        return int.from_bytes(self.read(address, 8).tobytes(), "little")

    def write_word(self, address: int, value: int) -> None:
        """Write an aligned 64-bit word."""
        self.write(address, value.to_bytes(8, "little"))

    def write_message(self, bus: int, data: int) -> bool:
        """Write an interrupt message of 4 bytes; the host window does not bind these. Returns
        whether it was answered without an error."""
        if bus + 4 > len(self.host) or bus in self.slverr:
            return False
        self.host[bus : bus + 4] = np.frombuffer(data.to_bytes(4, "little"), np.uint8)
        return True
