"""Doorbells, the fetcher and packet SRAM."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from abi.address import PACKET_BYTES, SRAM_SLOTS_PER_QUEUE
from abi.geometry import MAXIMUM_DEPTH_LOG2, QUEUES
from abi.registers_firmware import QUEUE_BLOCK
from abi.registers_queue import QUEUE_CONTROL, QUEUE_READ_INDEX_ADDRESS, QUEUE_RING, QUEUE_STATE
from abi.status import Status
from tb.models.device.clock import EventClock
from tb.models.device.memory import DeviceMemory, MemoryFaultError
from tb.models.device.registers import RegisterFile, SlaveError
from tb.models.device.timing import ModelTiming

__all__ = ["QueueUnit"]

WORD = (1 << 64) - 1
ADDRESS = (1 << 48) - 1


@dataclass
class _Queue:
    enabled: bool = False
    doorbell: int = 0
    requested: int = 0
    fetched: int = 0
    consumed: int = 0
    outstanding: int = 0
    published: int = 0
    publishing: bool = False
    fault: Status = Status.OK
    fault_address: int = 0

    @property
    def busy(self) -> bool:
        return self.outstanding > 0 or self.publishing


class QueueUnit:
    """The queues' hardware. `event(name)` raises a firmware event.

    Attributes for tests: `drop_doorbells`, the number of coming doorbells that vanish.
    """

    def __init__(
        self,
        clock: EventClock,
        memory: DeviceMemory,
        timing: ModelTiming,
        event: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._timing = timing
        self._event = event
        self.drop_doorbells = 0
        self.registers = RegisterFile(QUEUE_BLOCK)
        for name in ("doorbell", "fetched", "state"):
            self.registers.on_read[name] = getattr(self, f"read_{name}")
        self.registers.on_read["available"] = lambda _: self._mask(
            lambda queue: queue.fetched != queue.consumed
        )
        self.registers.on_read["faulted"] = lambda _: self._mask(lambda queue: queue.fault != 0)
        self.registers.on_write["control"] = self._control
        self.registers.on_write["consumed"] = self._consume
        self.reset()

    def reset(self) -> None:
        """All queues are off."""
        self.registers.reset()
        self.refused = 0
        self.queues = [_Queue() for _ in range(QUEUES)]
        self.sram = [[0] * 8 for _ in range(QUEUES * SRAM_SLOTS_PER_QUEUE)]

    def _mask(self, condition: Callable[[_Queue], bool]) -> int:
        return sum(1 << i for i, queue in enumerate(self.queues) if condition(queue))

    def read_doorbell(self, index: int) -> int:
        """Word of QUEUE_DOORBELL."""
        return self.queues[index].doorbell

    def read_fetched(self, index: int) -> int:
        """Word of QUEUE_FETCHED."""
        return self.queues[index].fetched

    def read_consumed(self, index: int) -> int:
        """Word of QUEUE_CONSUMED."""
        return self.queues[index].consumed

    def read_state(self, index: int) -> int:
        """Word of QUEUE_STATE."""
        queue = self.queues[index]
        return QUEUE_STATE.pack(
            busy=queue.busy,
            fault=queue.fault != 0,
            status=queue.fault,
            address=queue.fault_address,
        )

    def read_sram(self, offset: int) -> int:
        """A word of packet SRAM.

        Raises:
            SlaveError: outside.
        """
        slot, word = divmod(offset // 8, 8)
        if offset % 8 or slot >= len(self.sram):
            raise SlaveError
        return self.sram[slot][word]

    def ring(self, offset: int, value: int, strobe: int) -> None:
        """A write to BAR2 at a byte offset.

        Raises:
            SlaveError: no doorbell there, not all strobes, or the queue is off or faulted.
        """
        index, inside = divmod(offset, 4096)
        queue = self.queues[index] if index < QUEUES else None
        if queue is None or inside:
            raise SlaveError
        if strobe != 0xFF or not queue.enabled or queue.fault:
            self.refused += 1
            raise SlaveError
        if self.drop_doorbells:
            self.drop_doorbells -= 1
            return
        depth = 1 << self._ring(index)["depth_log2"]
        if value < queue.doorbell or (value - queue.fetched) & WORD > depth:
            self._fail(index, Status.DOORBELL_VIOLATION, value & ADDRESS)
            return
        queue.doorbell = value
        self._event("doorbell")
        self._fetch(index)

    def _ring(self, index: int) -> dict[str, int]:
        return QUEUE_RING.unpack(self.registers.words["ring"][index])

    def _fail(self, index: int, status: Status, address: int) -> None:
        queue = self.queues[index]
        if not queue.fault:
            queue.fault, queue.fault_address = status, address
            self._event("queue_fault")

    def _control(self, index: int, word: int) -> None:
        if not QUEUE_CONTROL.unpack(word)["enable"]:
            self.queues[index].enabled = False
        elif not self.queues[index].enabled:
            self._clock.after(self._timing.start_queue, partial(self._start, index))

    def _start(self, index: int) -> None:
        """Begin a queue's new life once nothing of its former one is on its way."""
        words = self.registers.words
        if not words["control"][index] or self.queues[index].enabled:
            return
        if self.queues[index].busy:
            self._clock.after(self._timing.start_queue, partial(self._start, index))
            return
        self.queues[index] = _Queue(enabled=True)
        words["consumed"][index] = 0
        ring, publish = self._ring(index), words["read_index_address"][index]
        end = ring["address"] + (PACKET_BYTES << ring["depth_log2"])
        for wrong, status, address in (
            (ring["address"] % PACKET_BYTES, Status.MISALIGNED, ring["address"]),
            (publish % PACKET_BYTES, Status.MISALIGNED, publish),
            (ring["depth_log2"] > MAXIMUM_DEPTH_LOG2, Status.BAD_FIELD, ring["depth_log2"]),
            (end > ADDRESS + 1, Status.ADDRESS_FAULT, ring["address"]),
        ):
            if wrong:
                self._fail(index, status, address)
                return

    def _consume(self, index: int, value: int) -> None:
        self.queues[index].consumed = value
        self._fetch(index)

    def _fetch(self, index: int) -> None:
        queue = self.queues[index]
        while (
            queue.enabled
            and not queue.fault
            and queue.requested < queue.doorbell
            and (queue.requested - queue.consumed) & WORD < SRAM_SLOTS_PER_QUEUE
        ):
            packet = queue.requested
            queue.requested += 1
            queue.outstanding += 1
            self._clock.after(
                self._timing.host_latency // 3 + 2 * queue.outstanding,
                partial(self._read, index, queue, packet),
            )

    def _read(self, index: int, queue: _Queue, packet: int) -> None:
        ring = self._ring(index)
        slot = packet & ((1 << ring["depth_log2"]) - 1)
        words: list[int] | None = None
        fault: MemoryFaultError | None = None
        try:
            raw = self._memory.read(ring["address"] + slot * PACKET_BYTES, PACKET_BYTES)
            words = [int(word) for word in raw.view("<u8")]
        except MemoryFaultError as error:
            fault = error
        self._clock.after(
            self._timing.host_latency - self._timing.host_latency // 3,
            lambda: self._arrive(index, queue, packet, words, fault),
        )

    def _arrive(
        self,
        index: int,
        queue: _Queue,
        packet: int,
        words: list[int] | None,
        fault: MemoryFaultError | None,
    ) -> None:
        queue.outstanding -= 1
        if queue.fault:
            return
        if words is None:
            if fault is not None:
                self._fail(index, fault.status, fault.address)
            return
        slot = packet % SRAM_SLOTS_PER_QUEUE
        self.sram[index * SRAM_SLOTS_PER_QUEUE + slot] = words
        queue.fetched = packet + 1
        self._event("fetched")
        self._publish(index, queue)

    def _publish(self, index: int, queue: _Queue) -> None:
        if queue.publishing or queue.published == queue.fetched:
            return
        queue.publishing = True
        address = QUEUE_READ_INDEX_ADDRESS.unpack(
            self.registers.words["read_index_address"][index]
        )["address"]
        value = queue.fetched

        def done() -> None:
            queue.publishing = False
            queue.published = value
            try:
                self._memory.write_word(address, value)
            except MemoryFaultError as error:
                self._fail(index, error.status, error.address)
            self._publish(index, queue)

        self._clock.after(self._timing.host_latency, done)
