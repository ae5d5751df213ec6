"""Events: points in a stream's work that others wait for and that time is measured between."""

from typing import TYPE_CHECKING
from weakref import finalize

from driver import tracing
from driver.errors import NotFinishedError, NpuError, StaleHandleError, fault_from_status
from driver.umd.queue import Semaphore
from runtime.arguments import check_device
from runtime.stream import Stream, check_timeout

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["Event"]


class Event:
    """A timeline semaphore of its own: each record signals its next value.

    Args:
        device: the device of the streams that record it.

    Raises:
        InvalidArgumentError: `device` is none.
        OutOfMemoryError: no pinned memory is free.
    """

    def __init__(self, device: "Device") -> None:
        check_device("device", device)
        device.check_open()
        self.device = device
        self.block, self._semaphore = device.take_semaphore()
        self._value = 0
        self._stream: Stream | None = None
        finalize(self, device.heap.abandon, self.block).atexit = False

    def record(self, stream: Stream | None = None) -> None:
        """Happen when everything submitted to `stream` (default: the default stream) is done.

        A later record replaces this one for those who wait afterwards.

        Raises:
            InvalidArgumentError: no stream, or one of another device.
            NpuError: the stream takes no work.
        """
        with tracing.span("api", "event.record"):
            self._check()
            target = self.device.check_stream("stream", stream)
            value = self._value + 1
            target.push_event(self._semaphore, value, self.block)
            self._value = value
            self._stream = target

    def query(self) -> bool:
        """Whether the last record has happened; True if there was none. Never waits.

        Raises:
            NpuError: the work before it failed.
        """
        self._check()
        if self._semaphore.value < self._value:
            return False
        self._raise_failure()
        return True

    def synchronize(self, timeout: int | None = None) -> None:
        """Wait until the last record has happened; returns at once if there was none.

        `timeout`: cycles without retired work after which it gives up.

        Raises:
            NpuError: the work before it failed, or why the device makes no progress.
        """
        cycles = check_timeout(timeout)
        with tracing.span("api", "event.synchronize"):
            self._check()
            if self._stream is None:
                return
            if self._semaphore.value < self._value:
                self._stream.flush()
                self._stream.wait_semaphore(self._semaphore, self._value, cycles)
            self._raise_failure()

    def elapsed_cycles(self, end: "Event") -> int:
        """Cycles from this event's last record to that of `end`, as the device stamped them.

        Raises:
            InvalidArgumentError: `end` is no event, or one of another device.
            NotFinishedError: one of the two was not recorded or has not happened.
            NpuError: the work before one of them failed.
        """
        self.device.check_event("end", end)
        self._check()
        return end._stamp("end") - self._stamp("start")

    @property
    def cycle(self) -> int:
        """Device time, in cycles, at which the last record happened.

        Raises:
            NotFinishedError: it was not recorded or has not happened.
            NpuError: the work before it failed.
        """
        self._check()
        return self._stamp("the event")

    def _stamp(self, name: str) -> int:
        if not self._value:
            raise NotFinishedError(f"{name} must be recorded before time is measured")
        if self._semaphore.value < self._value:
            raise NotFinishedError(f"{name} must have happened before time is measured")
        self._raise_failure()
        return self._semaphore.timestamp

    def target(self) -> tuple[Semaphore, int] | None:
        """Semaphore and value of the last record, or None.

        Raises:
            StaleHandleError: the event was destroyed, or its device was closed or reset.
        """
        self._check()
        if self._stream is None:
            return None
        self._stream.flush()
        return self._semaphore, self._value

    def destroy(self) -> None:
        """Give it back once its last record has happened. A second call does nothing."""
        if not self.block.freed:
            self.device.heap.free(self.block)

    def _check(self) -> None:
        self.device.check_current(self.block.generation)
        if self.block.freed:
            raise StaleHandleError("the event was destroyed")

    def _raise_failure(self) -> None:
        status = self._semaphore.status
        if not status:
            return
        error: NpuError | None = None if self._stream is None else self._stream.error
        error = error or fault_from_status(status)
        self.device.note(error)
        raise error
