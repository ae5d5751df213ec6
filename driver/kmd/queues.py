"""User queues: their numbers, memory and life in the firmware."""

from dataclasses import dataclass

from abi.address import HOST_BASE, PACKET_BYTES, PAGE_BYTES
from abi.geometry import MAXIMUM_DEPTH_LOG2
from abi.mailbox import MessageKind
from abi.status import Engine, Status, side_of
from driver.bus import Bus
from driver.errors import (
    FirmwareError,
    InvalidArgumentError,
    NpuError,
    OutOfMemoryError,
    SubmissionError,
)
from driver.kmd.mailbox import Mailbox
from driver.kmd.memory import HostPages
from driver.registers import Registers

__all__ = ["READ_INDEX_OFFSET", "SEMAPHORE_OFFSET", "WRITE_INDEX_OFFSET", "Queue", "Queues"]

WRITE_INDEX_OFFSET = 0
"""Where the write index lies in a queue's index page."""

READ_INDEX_OFFSET = 64
"""Where the device publishes the read index in a queue's index page."""

SEMAPHORE_OFFSET = 128
"""Where the queue's timeline semaphore lies in its index page."""

PRIORITIES = 4
DESTROY_TIMEOUT = 4_000_000
"""Cycles that the firmware has to abort and drain a queue's work."""


@dataclass(eq=False)
class Queue:
    """A queue that the firmware serves; `ring` and `indices` are bus addresses."""

    number: int
    vector: int
    depth_log2: int
    priority: int
    pasid: int
    task_timeout: int
    block_timeout: int
    ring: int
    indices: int

    @property
    def ring_pages(self) -> int:
        """Pages of the ring."""
        return max(1, (PACKET_BYTES << self.depth_log2) // PAGE_BYTES)


class Queues:
    """All queues of the device."""

    def __init__(
        self, bus: Bus, registers: Registers, mailbox: Mailbox, pages: HostPages, count: int
    ) -> None:
        self._bus = bus
        self._bar0 = registers.bar0
        self._mailbox = mailbox
        self._pages = pages
        self._free = list(range(count))
        self.live: list[Queue] = []
        self._unanswered: list[Queue] = []

    def create(
        self, *, depth_log2: int, priority: int, pasid: int, task_timeout: int, block_timeout: int
    ) -> Queue:
        """Make a queue with 2**depth_log2 slots.

        Raises:
            InvalidArgumentError: a size is out of range.
            OutOfMemoryError: no queue or page is free.
            NpuError: the firmware refused it: nothing is kept. Or it does not answer: it may serve
                the queue later, so number and pages stay taken until it has answered.
        """
        if not 1 <= depth_log2 <= MAXIMUM_DEPTH_LOG2:
            raise InvalidArgumentError(
                f"depth_log2 must be between 1 and {MAXIMUM_DEPTH_LOG2}, not {depth_log2!r}"
            )
        if not 0 <= priority < PRIORITIES:
            raise InvalidArgumentError(
                f"priority must be between 0 and {PRIORITIES - 1}, not {priority!r}"
            )
        for name, cycles in (("task_timeout", task_timeout), ("block_timeout", block_timeout)):
            if cycles < 1:
                raise InvalidArgumentError(f"{name} must be at least 1, not {cycles!r}")
        self._end_unanswered()
        if not self._free:
            raise OutOfMemoryError(
                f"all {len(self.live)} queues of the device are in use; destroy a stream first"
            )
        # Taken before anything waits: another host thread may create a queue meanwhile.
        number = self._free.pop(0)
        vector = 1 + number
        queue = Queue(
            number,
            vector,
            depth_log2,
            priority,
            pasid,
            task_timeout,
            block_timeout,
            ring=0,
            indices=0,
        )
        try:
            queue.ring = self._pages.allocate(queue.ring_pages)
            try:
                queue.indices = self._pages.allocate(1)
                try:
                    self._start(queue)
                except FirmwareError:
                    self._unanswered.append(queue)
                    raise
                except BaseException:
                    self._pages.free(queue.indices)
                    raise
            except BaseException:
                if queue not in self._unanswered:
                    self._pages.free(queue.ring)
                raise
        except BaseException:
            if queue not in self._unanswered:
                self._free.append(number)
                self._free.sort()
            raise
        self.live.append(queue)
        return queue

    def destroy(self, queue: Queue) -> None:
        """Abort and drain a queue's work and give its memory back.

        Raises:
            NpuError: the firmware does not answer. The device may still write to the queue's
                pages, so they stay pinned until the device is reset.
        """
        self.live.remove(queue)
        self._stop(queue)
        self._give_back(queue)

    def _end_unanswered(self) -> None:
        """Destroy the queues that the firmware may have made without its answer in time.

        Requests are served in order, so any answer means that the queue is gone.
        """
        while self._unanswered:
            self._mailbox.call(
                MessageKind.DESTROY_QUEUE,
                timeout=DESTROY_TIMEOUT,
                queue=self._unanswered[-1].number,
            )
            self._give_back(self._unanswered.pop())

    def _give_back(self, queue: Queue) -> None:
        self._pages.free(queue.ring)
        self._pages.free(queue.indices)
        self._free.append(queue.number)
        self._free.sort()

    def reset(self, queue: Queue) -> bool:
        """Clear a queue's fault; True: it had to be made anew, so that its indices start at 0.

        Raises:
            NpuError: the firmware does not answer.
        """
        published = self.load_index(queue, WRITE_INDEX_OFFSET)
        rung = self._bar0.queue_doorbell[queue.number].read()
        if rung == published and not self._bar0.queue_state[queue.number].field("fault"):
            response = self._mailbox.call(MessageKind.RESET_QUEUE, queue=queue.number)
            if response["status"] == Status.OK:
                return False
        self._stop(queue)
        # Packets of the former life would carry valid sequence numbers.
        self._bus.host_view(queue.ring, PACKET_BYTES << queue.depth_log2)[:] = 0
        for offset in (WRITE_INDEX_OFFSET, READ_INDEX_OFFSET):
            self._bus.store(queue.indices + offset, bytes(8))
        self._bus.barrier()
        self._start(queue)
        return True

    def query(self, queue: Queue) -> dict[str, int]:
        """State and first fault of a queue: the fields of RESPONSE_QUEUE.

        Raises:
            NpuError: the firmware does not answer.
        """
        return self._mailbox.request(MessageKind.QUERY_QUEUE, queue=queue.number)

    def load_index(self, queue: Queue, offset: int) -> int:
        """An index in the queue's index page."""
        return int.from_bytes(self._bus.load(queue.indices + offset, 8), "little")

    def hardware_fault(self, queue: Queue) -> NpuError | None:
        """The queue's doorbell or fetch fault, as the hardware shows it."""
        state = self._bar0.queue_state[queue.number].fields()
        if not state["fault"]:
            return None
        status = Status(state["status"])
        violation = status is Status.DOORBELL_VIOLATION
        fetched = self._bar0.queue_fetched[queue.number].read()
        return SubmissionError(
            f"a doorbell of {state['address']} moved backwards or past the ring's depth"
            if violation
            else "a packet could not be fetched",
            side=side_of(status),
            status=status,
            engine=Engine.DOORBELL if violation else Engine.FETCHER,
            instance=queue.number,
            queue=queue.number,
            packet=None if violation else fetched,
            address=None if violation else state["address"],
        )

    def _start(self, queue: Queue) -> None:
        self._mailbox.request(
            MessageKind.CREATE_QUEUE,
            queue=queue.number,
            depth_log2=queue.depth_log2,
            priority=queue.priority,
            vector=queue.vector,
            pasid=queue.pasid,
            ring=HOST_BASE + queue.ring,
            read_index=HOST_BASE + queue.indices + READ_INDEX_OFFSET,
            task_timeout=queue.task_timeout,
            block_timeout=queue.block_timeout,
        )

    def _stop(self, queue: Queue) -> None:
        self._mailbox.request(
            MessageKind.DESTROY_QUEUE, timeout=DESTROY_TIMEOUT, queue=queue.number
        )
