"""Waits: for a semaphore's value or for room in a ring. All limits are device cycles."""

from collections.abc import Callable

from driver import tracing
from driver.bus import Bus
from driver.kmd.diagnose import PROBE_CYCLES, Diagnosis
from driver.kmd.interrupts import Interrupts
from driver.kmd.queues import READ_INDEX_OFFSET, Queue, Queues
from driver.registers import Registers

__all__ = ["DEFAULT_LIMIT", "DEFAULT_TIMEOUT", "Waiter"]

DEFAULT_TIMEOUT = 2_000_000
"""Cycles without retired work after which a wait gives up."""

DEFAULT_LIMIT = 10_000_000_000
"""Cycles after which a wait gives up even if work still retires."""

LONGEST_SLICE = 100_000
SHORTEST_SLICE = 1_000
SPACE_SLICE = 1_000
"""Cycles between two looks at a read index: it is published without an interrupt."""

INTERRUPT_GRACE = 20_000
"""Cycles that a message may take behind the value that it announces."""


class Waiter:
    """Waits for the device.

    A wait looks at the value, sleeps until an interrupt or the end of a slice, and looks again.
    Its timeout starts anew whenever work retired; the value is read once more before it raises.
    """

    def __init__(
        self,
        bus: Bus,
        registers: Registers,
        interrupts: Interrupts,
        queues: Queues,
    ) -> None:
        self._bus = bus
        self._bar0 = registers.bar0
        self._interrupts = interrupts
        self._queues = queues
        self._diagnosis = Diagnosis(bus, registers, interrupts, queues)

    def wait_value(
        self, queue: Queue, semaphore: int, value: int, timeout: int, limit: int
    ) -> None:
        """Wait until the semaphore at bus address `semaphore` is at least `value`.

        Raises:
            InterruptLostError: the value is reached and stays valid, but its interrupt was lost.
            NpuError: nothing retired for `timeout` cycles, or `limit` cycles are over, with the
                side and unit that is to blame.
        """
        load = self._bus.load

        def reached() -> bool:
            return int.from_bytes(load(semaphore, 8), "little") >= value

        received = self._interrupts.received
        start = self._bus.now()
        deadline = start + timeout
        slice_cycles = min(LONGEST_SLICE, max(SHORTEST_SLICE, timeout // 8))
        watch = _Watch(self._diagnosis, queue)
        while True:
            seen = received[queue.vector]
            if reached():
                break
            end = min(self._bus.now() + slice_cycles, deadline, start + limit)
            if self._interrupts.wait(queue.vector, end, seen):
                continue
            if reached():
                self._check_interrupt(queue, value, timeout, seen)
                break
            if watch.look():
                deadline = self._bus.now() + timeout
            if self._bus.now() >= min(deadline, start + limit) and self._give_up(
                queue, reached, timeout, watch
            ):
                break
        tracing.point("wake", "value", queue=queue.number, value=value)

    def wait_space(self, queue: Queue, index: int, timeout: int) -> None:
        """Wait until the published read index is at least `index`.

        Raises:
            NpuError: as `wait_value`.
        """

        def reached() -> bool:
            return self._queues.load_index(queue, READ_INDEX_OFFSET) >= index

        deadline = self._bus.now() + timeout
        watch = _Watch(self._diagnosis, queue)
        while not reached():
            # The read index grows without a message, so the vector is left to its own waiters.
            self._bus.wait_interrupt(0, min(deadline, self._bus.now() + SPACE_SLICE))
            if watch.look():
                deadline = self._bus.now() + timeout
            if self._bus.now() >= deadline and self._give_up(queue, reached, timeout, watch):
                return

    def _check_interrupt(self, queue: Queue, value: int, timeout: int, seen: int) -> None:
        """The value came without its message: give the message some time, then complain."""
        deadline = self._bus.now() + max(timeout, INTERRUPT_GRACE)
        while True:
            if self._interrupts.wait(queue.vector, self._bus.now() + INTERRUPT_GRACE, seen):
                return
            pending = self._interrupts.pending(queue.vector)
            if not pending or self._bus.now() >= deadline:
                raise self._diagnosis.lost_interrupt(queue, value, pending=pending)

    def _give_up(
        self, queue: Queue, reached: Callable[[], bool], timeout: int, watch: "_Watch"
    ) -> bool:
        """Watch the device for a probe interval; True if the value came, else raise."""
        beats = self._bar0.heartbeat.read()
        watch.look()
        self._bus.wait_interrupt(0, self._bus.now() + PROBE_CYCLES)
        moving = watch.look()
        if reached():
            return True
        raise self._diagnosis.explain(queue, timeout, beats, moving=moving)


class _Watch:
    """Notices progress from one look to the next, and faults that no waiting cures."""

    def __init__(self, diagnosis: Diagnosis, queue: Queue) -> None:
        self._diagnosis = diagnosis
        self._queue = queue
        self._seen: tuple[int, ...] = ()
        self._behind = 0

    def look(self) -> bool:
        """Whether work retired since the last look.

        Raises:
            NpuError: the queue has faulted, the firmware has crashed, or a doorbell was behind at
                two looks in a row.
        """
        certain = self._diagnosis.certain(self._queue)
        if certain is not None:
            raise certain
        behind = self._diagnosis.doorbell_behind(self._queue)
        if behind > 0 and behind == self._behind:
            raise self._diagnosis.doorbell_lost(self._queue)
        self._behind = behind
        seen, self._seen = self._seen, self._diagnosis.progress(self._queue)
        return seen != () and seen != self._seen
