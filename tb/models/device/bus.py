"""The host's end of the model: `driver.bus.Bus`, with a store buffer per host thread."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from greenlet import getcurrent

from abi.address import PAGE_BYTES
from driver.bus import BusError, Region
from tb.models.device.registers import SlaveError

if TYPE_CHECKING:
    from tb.models.device.machine import ModelMachine

__all__ = ["ModelBus"]

LATEST_STORE = 400
"""Cycles after which a store without a barrier is in memory at the latest."""

SLVERR = 2


@dataclass(eq=False)
class _Store:
    owner: object
    address: int
    data: bytes

    def overlaps(self, address: int, nbytes: int) -> bool:
        return self.address < address + nbytes and address < self.address + len(self.data)


class ModelBus:
    """Implements `driver.bus.Bus`; page 0 of host memory is never handed out."""

    def __init__(self, machine: "ModelMachine", *, seed: int, lazy_stores: bool) -> None:
        self._machine = machine
        self._random = random.Random(seed)
        self._lazy = lazy_stores
        self._stores: list[_Store] = []
        pages = len(machine.chip.memory.host) // PAGE_BYTES
        self._free = np.ones(pages, np.bool_)
        self._free[0] = False

    def _access(
        self, region: Region, offset: int, size: int, write: bool, action: Callable[[int], int]
    ) -> int:
        if size not in (4, 8) or offset % size or offset < 0:
            raise ValueError(f"offset must be a multiple of size 4 or 8, not {(offset, size)!r}")
        machine = self._machine
        timing = machine.timing
        machine.run(timing.host_write if write else timing.host_read)
        try:
            if region is not Region.CONFIG:
                machine.host.check_open()
            return action(0x0F << (offset & 4) if size == 4 else 0xFF)
        except SlaveError:
            raise BusError(region, offset, write=write, response=SLVERR) from None

    def read(self, region: Region, offset: int, size: int = 8) -> int:
        """See `Bus.read`."""
        host = self._machine.host
        word = offset & -8

        def action(_: int) -> int:
            match region:
                case Region.CONFIG:
                    return host.config.read(word)
                case Region.BAR0:
                    return host.bar0.read(word)
                case _:
                    raise SlaveError

        value = self._access(region, offset, size, False, action)
        return value if size == 8 else value >> 8 * (offset & 4) & 0xFFFF_FFFF

    def write(self, region: Region, offset: int, value: int, size: int = 8) -> None:
        """See `Bus.write`."""
        if not 0 <= value < 1 << 8 * size:
            raise ValueError(f"value must fit {size} bytes, not {value!r}")
        host = self._machine.host
        word, shifted = offset & -8, value << 8 * (offset & 4) if size == 4 else value

        def action(strobe: int) -> int:
            match region:
                case Region.CONFIG:
                    host.config.write(word, shifted, strobe)
                case Region.BAR0:
                    host.bar0.write(word, shifted, strobe)
                case Region.BAR2:
                    host.ring(word, shifted, strobe)
            return 0

        self._access(region, offset, size, True, action)

    def allocate_pages(self, count: int) -> int:
        """See `Bus.allocate_pages`."""
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count!r}")
        run = 0
        for page in range(len(self._free)):
            run = run + 1 if self._free[page] else 0
            if run == count:
                first = page - count + 1
                self._free[first : page + 1] = False
                return first * PAGE_BYTES
        raise MemoryError(f"no {count} contiguous pages are free")

    def free_pages(self, address: int, count: int) -> None:
        """See `Bus.free_pages`.

        Raises:
            ValueError: not all of these pages are taken.
        """
        first = address // PAGE_BYTES
        pages = self._free[first : first + count]
        if address % PAGE_BYTES or not address or len(pages) != count or pages.any():
            raise ValueError(f"address must name {count} taken pages, not {address!r}")
        pages[:] = True

    def host_view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """See `Bus.host_view`."""
        host = self._machine.chip.memory.host
        if not 0 <= address <= address + nbytes <= len(host):
            raise ValueError(
                f"address must lie in host memory with {nbytes} bytes, not {address!r}"
            )
        return host[address : address + nbytes]

    def store(self, address: int, data: bytes) -> None:
        """See `Bus.store`."""
        entry = _Store(getcurrent(), address, bytes(data))
        self.host_view(address, len(data))
        self._stores.append(entry)
        if self._lazy:
            delay = self._random.randrange(1, LATEST_STORE)
            self._machine.clock.after(delay, lambda: self._commit(entry), survives=True)
        else:
            self._commit(entry)

    def _commit(self, entry: _Store) -> None:
        if entry not in self._stores:
            return
        for earlier in list(self._stores):
            if earlier is entry:
                break
            if earlier.overlaps(entry.address, len(entry.data)):
                self._commit(earlier)
        self._stores.remove(entry)
        self.host_view(entry.address, len(entry.data))[:] = np.frombuffer(entry.data, np.uint8)

    def load(self, address: int, nbytes: int) -> bytes:
        """See `Bus.load`."""
        raw = self.host_view(address, nbytes).copy()
        mine = getcurrent()
        for entry in self._stores:
            if entry.owner is mine and entry.overlaps(address, nbytes):
                for i, byte in enumerate(entry.data):
                    if 0 <= entry.address + i - address < nbytes:
                        raw[entry.address + i - address] = byte
        return raw.tobytes()

    def barrier(self) -> None:
        """See `Bus.barrier`."""
        mine = getcurrent()
        for entry in [store for store in self._stores if store.owner is mine]:
            self._commit(entry)

    def wait_interrupt(self, vectors: int, until: int) -> int:
        """See `Bus.wait_interrupt`."""
        machine = self._machine

        def mask() -> int:
            return vectors & sum(1 << v for v, count in enumerate(machine.arrived) if count)

        if not mask():
            machine.clock.run(until, stop=lambda: mask() != 0)
        taken = mask()
        for vector in range(len(machine.arrived)):
            if taken >> vector & 1:
                machine.arrived[vector] = 0
        return taken

    def now(self) -> int:
        """See `Bus.now`."""
        return self._machine.clock.now
