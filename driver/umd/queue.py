"""A queue as user mode sees it: its ring and its timeline."""

from abi.address import HOST_BASE
from abi.packet import PacketOpcode
from abi.semaphore import SEMAPHORE
from driver.bus import Bus
from driver.umd.ring import Ring

__all__ = ["Semaphore", "UserQueue"]

VALUE_OFFSET = SEMAPHORE.offset_of("value") // 8
TIMESTAMP_OFFSET = SEMAPHORE.offset_of("timestamp") // 8
STATUS_OFFSET = SEMAPHORE.offset_of("status") // 8


class Semaphore:
    """A timeline semaphore: one line of pinned host memory at `bus_address`.

    The device writes timestamp and status before the value, so both are read after it.
    """

    __slots__ = ("_barrier", "_load", "_store", "bus_address", "device_address")

    def __init__(self, bus: Bus, bus_address: int) -> None:
        self._load = bus.load
        self._store = bus.store
        self._barrier = bus.barrier
        self.bus_address = bus_address
        self.device_address = HOST_BASE + bus_address

    def _word(self, offset: int) -> int:
        return int.from_bytes(self._load(self.bus_address + offset, 8), "little")

    @property
    def value(self) -> int:
        """Work with a smaller or equal value is done."""
        return self._word(VALUE_OFFSET)

    @property
    def timestamp(self) -> int:
        """Device time of the last signal, in cycles."""
        return self._word(TIMESTAMP_OFFSET)

    @property
    def status(self) -> int:
        """Status word of the last signal; 0: success."""
        return self._word(STATUS_OFFSET)

    def signal(self, value: int, status: int = 0) -> None:
        """Signal in place of the device, which must no longer do so itself."""
        self._store(self.bus_address + STATUS_OFFSET, status.to_bytes(8, "little"))
        self._barrier()
        self._store(self.bus_address + VALUE_OFFSET, value.to_bytes(8, "little"))
        self._barrier()


class UserQueue:
    """A ring and the timeline that its SIGNAL packets move.

    Attributes: `ring`, `number`, `handle`, `timeline`, `submitted` (value of the last SIGNAL
    pushed).
    """

    def __init__(self, bus: Bus, ring: Ring, number: int, handle: int, semaphore: int) -> None:
        self.ring = ring
        self.number = number
        self.handle = handle
        self.timeline = Semaphore(bus, semaphore)
        self.submitted = 0

    def push(self, opcode: PacketOpcode, /, **fields: int) -> int:
        """Push a packet; returns its ring index."""
        return self.ring.push(opcode, **fields)

    def publish(self) -> int:
        """Push the timeline's SIGNAL and ring the doorbell once; returns the SIGNAL's value."""
        self.submitted += 1
        self.push(
            PacketOpcode.SIGNAL,
            semaphore=self.timeline.device_address,
            value=self.submitted,
            interrupt=1,
        )
        self.ring.publish()
        return self.submitted

    @property
    def pending(self) -> bool:
        """Whether packets were pushed that are not yet published."""
        return self.ring.written != self.ring.published

    def discard_pending(self) -> None:
        """Take back what was pushed but not published; its timeline value is skipped."""
        if self.pending:
            self.ring.discard_pending()
            self.submitted += 1

    def restart(self) -> None:
        """The queue was made anew: its indices start at 0, the timeline goes on."""
        self.ring.restart()
