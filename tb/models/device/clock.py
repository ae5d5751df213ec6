"""Device time of the model: an integer that jumps from event to event."""

import heapq
from collections.abc import Callable, Iterator

__all__ = ["EventClock", "Timer"]

Process = Iterator[int]
"""A unit's activity as a generator: each item is a number of cycles that pass."""


class Timer:
    """A planned action; `cancel` makes it void."""

    __slots__ = ("action", "survives")

    def __init__(self, action: Callable[[], None], survives: bool) -> None:
        self.action: Callable[[], None] | None = action
        self.survives = survives

    def cancel(self) -> None:
        """Do not run the action."""
        self.action = None


class EventClock:
    """Runs planned actions in the order of their times, and of their planning at equal times."""

    def __init__(self) -> None:
        self.now = 0
        self._planned: list[tuple[int, int, Timer]] = []
        self._serial = 0

    def after(self, cycles: int, action: Callable[[], None], *, survives: bool = False) -> Timer:
        """Plan `action` for `cycles` from now; one that `survives` is not the chip's to forget."""
        timer = Timer(action, survives)
        self._serial += 1
        heapq.heappush(self._planned, (self.now + max(cycles, 0), self._serial, timer))
        return timer

    def process(self, activity: Process) -> None:
        """Run a unit's activity until its generator ends."""

        def step() -> None:
            for cycles in activity:
                self.after(cycles, step)
                return

        self.after(0, step)

    def clear(self) -> None:
        """Forget everything planned: the chip was reset."""
        self._planned = [plan for plan in self._planned if plan[2].survives]
        heapq.heapify(self._planned)

    def run(self, until: int, stop: Callable[[], bool] | None = None) -> None:
        """Let time pass to `until`, or until `stop()` holds after an action."""
        while self._planned and self._planned[0][0] <= until:
            time, _, timer = heapq.heappop(self._planned)
            if timer.action is None:
                continue
            self.now = max(self.now, time)
            timer.action()
            if stop is not None and stop():
                return
        self.now = max(self.now, until)
