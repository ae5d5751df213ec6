"""`driver.bus.Bus` on the simulated machine, with faults on request."""

from dataclasses import dataclass
from random import Random
from threading import current_thread, get_ident

import numpy as np
import numpy.typing as npt

from abi.address import BAR0_BASE, BAR2_BASE, CONFIG_BASE
from driver.bus import BusError, Region
from driver.errors import HostThreadError
from tb.engine.actors import Actors
from tb.engine.clockwork import HOST
from tb.engine.hostmem import HostMemory, StoreBuffer

__all__ = ["HostBus"]

_BASES = {Region.CONFIG: CONFIG_BASE, Region.BAR0: BAR0_BASE, Region.BAR2: BAR2_BASE}


@dataclass
class _LostWrites:
    region: Region
    low: int
    high: int
    count: int


class HostBus:
    """The host CPU's side of the machine; used from inside actors. Operations that let time pass
    raise HostThreadError in any operating-system thread but the one that made the bus.

    A load from a shared structure takes `load_cycles`, so that a program that polls memory lets
    time pass. An MMIO write does not drain the store buffer: only `barrier` does.
    """

    def __init__(
        self,
        actors: Actors,
        memory: HostMemory,
        *,
        bases: dict[Region, int] | None = None,
        seed: int,
        load_cycles: int = 1,
        drain_window: int = 512,
    ) -> None:
        bases = _BASES if bases is None else bases
        self._bases = [bases[region] for region in Region]
        self._actors = actors
        self._clockwork = actors.clockwork
        self._memory = memory
        self._load_cycles = load_cycles
        self.store_buffer = StoreBuffer(memory, Random(seed), window=drain_window)
        self._lost_writes: list[_LostWrites] = []
        self._lost_messages: dict[int, int] = {}
        self._thread = get_ident()
        actors.settle_memory = self.store_buffer.settle
        actors.on_message = self._receives

    def _refuse_thread(self) -> HostThreadError:
        return HostThreadError(
            "the machine must be called from its own host threads, not from the operating-system "
            f"thread {current_thread().name!r}: start them with "
            "tb.engine.host.current_machine().actors.spawn(name, function)"
        )

    # ---- registers ----

    def read(self, region: Region, offset: int, size: int = 8) -> int:
        """Read `size` (4 or 8) bytes at an aligned offset.

        Raises:
            BusError: the device answered with an error, or not at all.
            ValueError: size or alignment is wrong.
        """
        if get_ident() != self._thread:
            raise self._refuse_thread()
        if size == 8 and not offset & 7:
            response, data = self._actors.transact(HOST, False, self._bases[region] + offset)
        elif size == 4 and not offset & 3:
            address = self._bases[region] + (offset & ~7)
            response, data = self._actors.transact(HOST, False, address)
            data = data >> 8 * (offset & 4) & 0xFFFF_FFFF
        else:
            raise ValueError(f"access must be 4 or 8 aligned bytes, not {size!r} at {offset:#x}")
        if response != 0:
            raise BusError(region, offset, write=False, response=response)
        return data

    def write(self, region: Region, offset: int, value: int, size: int = 8) -> None:
        """Write `size` (4 or 8) bytes at an aligned offset.

        Raises:
            BusError: the device answered with an error, or not at all.
            ValueError: size, alignment or value is wrong.
        """
        if get_ident() != self._thread:
            raise self._refuse_thread()
        if size not in (4, 8) or offset % size:
            raise ValueError(f"access must be 4 or 8 aligned bytes, not {size!r} at {offset:#x}")
        if value < 0 or value >> 8 * size:
            raise ValueError(f"value must fit in {size} bytes, not {value!r}")
        if self._lost_writes and self._loses(region, offset):
            return
        if size == 8:
            strobe = 0xFF
        else:
            value <<= 8 * (offset & 4)
            strobe = 0x0F << (offset & 4)
        address = self._bases[region] + (offset & ~7)
        response, _ = self._actors.transact(HOST, True, address, value, strobe)
        if response != 0:
            raise BusError(region, offset, write=True, response=response)

    # ---- memory ----

    def allocate_pages(self, count: int) -> int:
        """Take `count` contiguous 4 KiB pages; returns the bus address.

        Raises:
            MemoryError: no such run of pages is free.
        """
        return self._memory.allocate(count)

    def free_pages(self, address: int, count: int) -> None:
        """Give pages back.

        Raises:
            ValueError: they are not in use.
        """
        self._memory.free(address, count)

    def host_view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """A zero-copy view of host memory, shape (nbytes,), uint8.

        Raises:
            ValueError: the range leaves host memory.
        """
        return self._memory.view(address, nbytes)

    def store(self, address: int, data: bytes) -> None:
        """Store to a shared structure through the store buffer.

        Raises:
            ValueError: the range leaves host memory.
        """
        if get_ident() != self._thread:
            raise self._refuse_thread()
        self._actors.preempt()
        self.store_buffer.store(address, data, self._clockwork.now())
        self._actors.unsettled = True

    def load(self, address: int, nbytes: int) -> bytes:
        """Load from a shared structure; sees the CPU's own earlier stores.

        Raises:
            ValueError: the range leaves host memory.
        """
        if get_ident() != self._thread:
            raise self._refuse_thread()
        self._actors.preempt()
        found = self.store_buffer.load(address, nbytes)
        if self._load_cycles:
            self._actors.sleep(self._clockwork.now() + self._load_cycles)
        return found

    def barrier(self) -> None:
        """Every earlier `store` reaches memory now."""
        if get_ident() != self._thread:
            raise self._refuse_thread()
        self._actors.preempt()
        self.store_buffer.drain()

    # ---- time and interrupts ----

    def wait_interrupt(self, vectors: int, until: int) -> int:
        """Take messages of the bit mask `vectors`; waits for one; 0 at device time `until`."""
        if get_ident() != self._thread:
            raise self._refuse_thread()
        return self._actors.wait_messages(vectors, until)

    def now(self) -> int:
        """Device time in cycles."""
        return self._clockwork.now()

    # ---- faults on request ----

    def lose_writes(self, region: Region, low: int, high: int, count: int = 1) -> None:
        """The next `count` writes to offsets `low <= offset < high` vanish on their way."""
        self._lost_writes.append(_LostWrites(region, low, high, count))

    def lose_messages(self, vector: int, count: int = 1) -> None:
        """The next `count` interrupt messages of `vector` vanish on their way."""
        self._lost_messages[vector] = self._lost_messages.get(vector, 0) + count

    def end_faults(self) -> None:
        """Nothing is lost any more."""
        self._lost_writes.clear()
        self._lost_messages.clear()

    def _loses(self, region: Region, offset: int) -> bool:
        for fault in self._lost_writes:
            if fault.region == region and fault.low <= offset < fault.high:
                fault.count -= 1
                if not fault.count:
                    self._lost_writes.remove(fault)
                return True
        return False

    def _receives(self, vector: int) -> bool:
        left = self._lost_messages.get(vector, 0)
        if left:
            self._lost_messages[vector] = left - 1
        return not left
