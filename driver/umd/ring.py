"""The ring of a queue, from the producer's side."""

from collections.abc import Callable

from abi.address import PACKET_BYTES
from abi.packet import PacketOpcode
from driver import tracing
from driver.bus import Bus
from driver.errors import (
    DeviceError,
    FirmwareError,
    InvalidArgumentError,
    RingFullError,
    SubmissionError,
)
from driver.umd.doorbell import Doorbell
from driver.umd.packets import encoder

__all__ = ["Ring"]


class Ring:
    """A ring of packets in host memory. Indices are 64 bits and only grow.

    Order of a submission: slots, barrier, write index, barrier, doorbell. Used by one thread at a
    time.

    Args:
        ring, write_index, read_index: bus addresses.
        depth: slots, a power of two.
        wait_space: waits until the read index has reached its first argument, at most its second
            argument's cycles without progress.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        ring: int,
        write_index: int,
        read_index: int,
        depth: int,
        doorbell: Doorbell,
        wait_space: Callable[[int, int], None],
    ) -> None:
        self._store = bus.store
        self._load = bus.load
        self._barrier = bus.barrier
        self._ring = ring
        self._write_address = write_index
        self._read_address = read_index
        self._mask = depth - 1
        self.depth = depth
        self._doorbell = doorbell
        self._wait_space = wait_space
        self.restart()

    def restart(self) -> None:
        """Begin at index 0: the queue was made anew."""
        self.written = 0
        """Index of the next packet."""
        self.published = 0
        """Packets before this have been rung for."""
        self._read = 0

    def discard_pending(self) -> None:
        """Take back what was pushed but not published: its slots are written anew later."""
        self.written = self.published

    def room(self) -> int:
        """Free slots, as far as the device has published its read index."""
        self._read = int.from_bytes(self._load(self._read_address, 8), "little")
        return self.depth - (self.written - self._read)

    def has_room(self, count: int) -> bool:
        """Whether `count` slots are free."""
        return self.depth - (self.written - self._read) >= count or self.room() >= count

    def wait_room(self, count: int, timeout: int) -> None:
        """Wait until `count` slots are free; what was pushed must be published.

        Raises:
            InvalidArgumentError: the ring has fewer slots than that.
            RingFullError: the device freed none for `timeout` cycles.
        """
        if count > self.depth:
            raise InvalidArgumentError(
                f"an operation must have at most {self.depth} packets, the depth of its ring, "
                f"not {count!r}"
            )
        if self.has_room(count):
            return
        try:
            self._wait_space(self.written + count - self.depth, timeout)
        except (SubmissionError, FirmwareError, DeviceError) as error:
            raise RingFullError(
                f"the ring of {self.depth} packets stayed full: {error.message}",
                side=error.side,
                status=error.status,
                engine=error.engine,
                instance=error.instance,
                queue=error.queue,
                packet=error.packet,
                address=error.address,
                pipe=error.pipe,
                pc=error.pc,
                block_number=error.block_number,
                in_flight=error.in_flight,
            ) from error
        self.room()

    def push(self, opcode: PacketOpcode, /, **fields: int) -> int:
        """Write a packet into the next slot, which must be free; returns its ring index.

        Raises:
            ValueError, KeyError: a field does not fit; nothing was written.
        """
        index = self.written
        packet = encoder(opcode)(index, **fields)
        self._store(self._ring + (index & self._mask) * PACKET_BYTES, packet)
        self.written = index + 1
        tracing.point("ring", opcode.name, index=index)
        return index

    def ring_again(self) -> None:
        """Repeat the last doorbell, which the device has lost."""
        self._doorbell.ring(self.published)

    def publish(self) -> None:
        """Make all pushed packets visible and ring once."""
        if self.published == self.written:
            return
        self._barrier()
        self._store(self._write_address, self.written.to_bytes(8, "little"))
        self._barrier()
        self.published = self.written
        self._doorbell.ring(self.written)
