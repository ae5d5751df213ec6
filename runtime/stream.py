"""Streams: work that runs in the order in which it was submitted."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from abi.packet import PacketOpcode
from abi.semaphore import STATUS_WORD
from abi.status import Engine, Status
from driver import tracing
from driver.errors import (
    DeviceHangError,
    DoorbellLostError,
    FirmwareError,
    InterruptLostError,
    InvalidArgumentError,
    NpuError,
    StaleHandleError,
    SubmissionError,
    WaitTimeoutError,
    fault_from_status,
)
from driver.kmd.wait import DEFAULT_TIMEOUT
from driver.umd.queue import Semaphore
from runtime.arguments import check_device, check_integer, refuse
from runtime.heap import Block

if TYPE_CHECKING:
    from runtime.device import Device
    from runtime.event import Event

__all__ = ["Packet", "Stream", "check_timeout"]

Packet = tuple[PacketOpcode, dict[str, int]]
"""Opcode and fields of a packet."""

DEPTH = 256
LARGEST_DEPTH = 1 << 16
TASK_TIMEOUT = 1_000_000_000
"""Absolute cap of one task, in cycles, unless the stream was made with another."""

BLOCK_TIMEOUT = 1_500_000
"""Cycles in which a block of a kernel must end a command, unless the stream was made with others:
six times `BLOCK_LIMIT`, and shorter than a wait's timeout, so that a block that is stuck is
reported as such."""

GRIDS_KEPT = 64
"""Grids of kernels that are kept before those of ended ones are looked for."""

_TRANSIENT = (
    InterruptLostError,
    WaitTimeoutError,
    DoorbellLostError,
    FirmwareError,
    DeviceHangError,
)
"""Errors after which the stream's queue itself is sound: the wait may be repeated."""

TURN = 100
"""Cycles between two looks of a host thread that waits for its turn."""

_numbers = count()


class Stream:
    """A queue of the device. Operations of a stream run in order, those of several in parallel.

    A fault ends the stream's work: everything submitted behind it is skipped, and every call
    raises the first error until `reset`. Host threads may share a stream: an operation's packets
    stay together, and those of two threads run in some order.

    Args:
        device: the device that runs it.
        depth: slots of its ring, a power of two from 2 to 65536.
        priority: 0 (first) to 3.
        task_timeout: cycles after which any single task is aborted.
        block_timeout: cycles after which a kernel is aborted if one of its blocks has not ended a
            command for so long, or up to an eighth longer. Who raises it waits with a longer
            `timeout`, too.

    Raises:
        InvalidArgumentError: an argument breaks its rule.
        OutOfMemoryError: all queues of the device are in use.
    """

    def __init__(
        self,
        device: "Device",
        *,
        depth: int = DEPTH,
        priority: int = 0,
        task_timeout: int = TASK_TIMEOUT,
        block_timeout: int = BLOCK_TIMEOUT,
    ) -> None:
        check_device("device", device)
        slots = check_integer("depth", depth, 2, LARGEST_DEPTH)
        if slots & (slots - 1):
            raise refuse("depth", "be a power of two", depth)
        check_integer("priority", priority, 0, 3)
        check_integer("task_timeout", task_timeout, 1, (1 << 63) - 1)
        check_integer("block_timeout", block_timeout, 1, (1 << 63) - 1)
        device.check_open()
        self.device = device
        self.generation = device.generation
        self._client = device.client
        self._queue = self._client.create_queue(
            depth_log2=slots.bit_length() - 1,
            priority=priority,
            task_timeout=task_timeout,
            block_timeout=block_timeout,
        )
        self.number = next(_numbers)
        self._error: NpuError | None = None
        self._batches = 0
        self._destroyed = False
        self._busy = False
        self._recorded: dict[Semaphore, tuple[int, Block]] = {}
        self._grids: dict[int, tuple[int, tuple[int, int, int]]] = {}
        """By ring index of each KERNEL: timeline value that completes it, and its grid."""
        device.streams.append(self)

    # State.

    @property
    def error(self) -> NpuError | None:
        """The first error, which ended the stream's work, or None. Never waits for work."""
        if self._error is None and not self._destroyed and not self.is_stale:
            self._look()
        return self._error

    @property
    def queue(self) -> int:
        """Number of its hardware queue."""
        return self._queue.number

    @property
    def submitted_packets(self) -> int:
        """Packets published since its queue was made."""
        return self._queue.ring.published

    def is_done(self, value: int) -> bool:
        """Whether its timeline has reached `value`, or never will (destroyed, device reset)."""
        if self._destroyed or self.device.closed or self.generation != self.device.generation:
            return True
        return self._queue.timeline.value >= value

    def check(self) -> None:
        """Refuse a stream that takes no more work.

        Raises:
            StaleHandleError: it was destroyed, or its device was closed or reset.
            NpuError: its first error.
        """
        self._check_alive()
        self._look()
        if self._error is not None:
            raise self._error

    def _look(self) -> None:
        if self._error is None and (word := self._queue.timeline.status):
            self._fail(self._fault(word))

    def _check_alive(self) -> None:
        self.device.check_current(self.generation)
        if self._destroyed:
            raise StaleHandleError("the stream was destroyed")

    # Submission.

    def submit(self, packets: Sequence[Packet], blocks: Iterable[Block] = ()) -> int:
        """Submit the packets of one operation; returns the timeline value that completes it.

        `blocks` is the memory that they use. Outside a batch the doorbell is rung at once.

        Raises:
            InvalidArgumentError: more packets than the ring has slots, or one that its kind has
                no room for; nothing was submitted.
            RingFullError: the ring stayed full; nothing was submitted.
            NpuError: see `check`.
        """
        if not isinstance(packets, Sequence):
            raise refuse("packets", "be a sequence of (opcode, fields)", packets)
        with self._alone():
            self.check()
            value = self._push(packets)
            for block in blocks:
                block.uses[self] = value
            if self._batches:
                self._client.bus.barrier()  # Another host thread may be the one that publishes.
            else:
                self._publish()
        return value

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One host thread at a time fills the ring: every access to memory lets others run."""
        bus = self._client.bus
        while self._busy:
            bus.wait_interrupt(0, bus.now() + TURN)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _push(self, packets: Sequence[Packet]) -> int:
        """Write packets into the ring; returns the timeline value that will complete them."""
        queue, ring = self._queue, self._queue.ring
        room = len(packets) + 1  # One slot stays free for the timeline's SIGNAL.
        if not ring.has_room(room):
            self._publish()
            try:
                ring.wait_room(room, DEFAULT_TIMEOUT)
            except StaleHandleError:
                raise
            except NpuError as error:
                self._note_transient(error)
                raise
        before = ring.written
        try:
            for opcode, fields in packets:
                index = queue.push(opcode, **fields)
                if opcode is PacketOpcode.KERNEL:
                    self._note_grid(index, fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            ring.written = before  # None of an operation's packets stays behind.
            raise InvalidArgumentError(
                f"packets must be (opcode, fields) as the contract has them: {error}, "
                f"not {packets!r}"
            ) from error
        return queue.submitted + 1

    def _note_grid(self, index: int, fields: dict[str, int]) -> None:
        """Keep the grid of a kernel until it is done: a fault names its block by a number."""
        if len(self._grids) >= GRIDS_KEPT and not self._queue.timeline.status:
            done = self._queue.timeline.value
            self._grids = {i: kept for i, kept in self._grids.items() if kept[0] > done}
        grid = (fields["grid_x"], fields["grid_y"], fields["grid_z"])
        self._grids[index] = (self._queue.submitted + 1, grid)

    def flush(self) -> None:
        """Publish what a batch has gathered so far: one SIGNAL, one doorbell.

        Raises:
            NpuError: the device refused the doorbell.
        """
        if self._queue.pending:
            with self._alone():
                self._publish()

    def _publish(self) -> None:
        if not self._queue.pending:
            return
        try:
            self._queue.publish()
        except SubmissionError as error:
            fault = self._find_fault() or error
            self._fail(fault)
            raise fault from error

    @contextmanager
    def batch(self) -> Iterator["Stream"]:
        """Gather operations and ring once, at the end. Waiting for the stream inside it, or a
        full ring, rings earlier. If the block raises, what was gathered still runs."""
        self.check()
        self._batches += 1
        try:
            yield self
        finally:
            self._batches -= 1
            if not self._batches and not self._destroyed and not self.is_stale:
                self.flush()

    @property
    def is_stale(self) -> bool:
        """Whether its device was closed or reset."""
        return self.device.closed or self.generation != self.device.generation

    # Waiting.

    def synchronize(self, timeout: int | None = None) -> None:
        """Wait until everything submitted is done.

        `timeout`: cycles without retired work after which it gives up.

        Raises:
            InterruptLostError: all is done and valid, but the interrupt was lost.
            NpuError: the first fault of the stream, or why the device makes no progress.
        """
        cycles = check_timeout(timeout)
        with tracing.span("api", "stream.synchronize", queue=self._queue.number):
            self._check_alive()
            if self._error is not None:
                raise self._error
            self.flush()
            self.finish(self._queue.submitted, cycles)
            self.check()

    def finish(self, value: int, timeout: int = DEFAULT_TIMEOUT) -> None:
        """Wait until the timeline has reached `value`, whether or not the work failed.

        Raises:
            NpuError: why it does not come.
        """
        if self.is_done(value):
            return
        if value > self._queue.submitted:
            self.flush()
        self.wait_semaphore(self._queue.timeline, value, timeout)

    def wait_semaphore(self, semaphore: Semaphore, value: int, timeout: int) -> None:
        """Wait for a semaphore that this stream signals.

        Raises:
            NpuError: why the value does not come.
        """
        try:
            self._client.wait(self._queue.handle, semaphore.bus_address, value, timeout=timeout)
        except StaleHandleError:
            raise  # The stream is gone with its device; there is nothing to note.
        except NpuError as error:
            self._locate(error)
            if isinstance(error, _TRANSIENT):
                self._note_transient(error)
            else:
                self._fail(error)
            raise

    def query(self) -> bool:
        """Whether everything submitted is done; never waits.

        Raises:
            NpuError: the first error of the stream.
        """
        self.check()
        return not self._queue.pending and self.is_done(self._queue.submitted)

    # Events.

    def record(self, event: "Event") -> None:
        """Record an event: it happens when everything submitted so far is done.

        Raises:
            InvalidArgumentError: no event, or one of another device.
            NpuError: see `check`.
        """
        self.device.check_event("event", event).record(self)

    def wait(self, event: "Event") -> None:
        """Let later work of this stream wait for the event's last record; the host does not wait.

        An event that was never recorded holds nothing up.

        Raises:
            InvalidArgumentError: no event, or one of another device.
            NpuError: see `check`.
        """
        with tracing.span("api", "stream.wait", queue=self._queue.number):
            self.check()
            self.device.check_event("event", event)
            target = event.target()
            if target is not None:
                semaphore, value = target
                packet = {"semaphore": semaphore.device_address, "value": value}
                self.submit([(PacketOpcode.WAIT, packet)], [event.block])

    def push_event(self, semaphore: Semaphore, value: int, block: Block) -> None:
        """Submit the SIGNAL of an event."""
        packet = {"semaphore": semaphore.device_address, "value": value, "interrupt": 1}
        self.submit([(PacketOpcode.SIGNAL, packet)], [block])
        for earlier, entry in list(self._recorded.items()):
            done = entry[1].released or earlier.value >= entry[0]
            if done and self._recorded.get(earlier) is entry:
                del self._recorded[earlier]
        self._recorded[semaphore] = value, block

    # Faults and the end.

    def reset(self) -> None:
        """Drop unfinished work and clear the error; the stream takes work again.

        Events that dropped work would have recorded fail with ABORTED. The hardware queue is made
        anew where its fault asks for that.

        Raises:
            StaleHandleError: it was destroyed, or its device was closed or reset.
            NpuError: the firmware does not answer; then only `Device.reset` helps.
        """
        with tracing.span("api", "stream.reset", queue=self._queue.number):
            self._check_alive()
            queue = self._queue
            queue.discard_pending()
            if self._client.reset_queue(queue.handle):
                queue.restart()
            self._grids.clear()
            self._abandon_events()
            queue.timeline.signal(queue.submitted)
            self._error = None
            self.device.programs.forget(self)

    def destroy(self) -> None:
        """Finish the stream's work and give its queue back. A second call does nothing.

        Raises:
            NpuError: its work failed or does not end; the queue is given back even then.
        """
        if self._destroyed or self.is_stale:
            return
        try:
            if self._error is None:
                self.synchronize()
        finally:
            self._client.destroy_queue(self._queue.handle)
            self._abandon_events()  # While it counts as alive, no line of them is reused.
            self._destroyed = True
            self.device.forget_stream(self)

    def _abandon_events(self) -> None:
        """Events that can no longer be signalled by the device fail, so that nobody waits."""
        status = STATUS_WORD.pack(
            status=Status.ABORTED, engine=Engine.FIRMWARE, queue=self._queue.number
        )
        recorded, self._recorded = self._recorded, {}
        for semaphore, (value, block) in recorded.items():
            # The line of an event that is gone may be another event's by now.
            if not block.released and semaphore.value < value and not block.released:
                semaphore.signal(value, status)

    def _note_transient(self, error: NpuError) -> None:
        """Note an error that leaves the queue sound. A lost doorbell is rung again: what the
        caller does with the error, the work goes on."""
        if error.status is Status.DOORBELL_LOST:
            self._queue.ring.ring_again()
        self.device.note(error)

    def _fail(self, error: NpuError) -> None:
        if self._error is None:
            self._error = error
        self.device.note(error)

    def _fault(self, word: int) -> NpuError:
        """The error for a status word, with what the firmware knows besides."""
        try:
            return self._find_fault() or fault_from_status(word)
        except NpuError:
            return fault_from_status(word)

    def _find_fault(self) -> NpuError | None:
        state = self._client.query_queue(self._queue.handle)
        if not state["status_word"]:
            return None
        fault = fault_from_status(
            state["status_word"],
            packet=state["fault_packet"],
            address=state["fault_address"],
            pipe=state["pipe"],
            detail=state["detail"],
            block=state["block"],
        )
        self._locate(fault)
        return fault

    def _locate(self, error: NpuError) -> None:
        """Give a failed block its coordinates."""
        if error.packet in self._grids:
            error.locate(self._grids[error.packet][1])

    def __repr__(self) -> str:
        return f"Stream(queue={self._queue.number})"


def check_timeout(timeout: int | None) -> int:
    """A timeout in cycles; None: the default."""
    if timeout is None:
        return DEFAULT_TIMEOUT
    return check_integer("timeout", timeout, 1, (1 << 62) - 1)
