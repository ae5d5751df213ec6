"""Blocking code inside a cocotb task: a greenlet that hands awaitables to the task."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

__all__ = ["Hosting"]

T = TypeVar("T")


class Hosting:
    """Runs one synchronous function, and all greenlets that it starts, inside one cocotb task."""

    def __init__(self) -> None:
        self._task: greenlet | None = None
        self._waiter: greenlet | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a greenlet and await what it hands over."""
        self._task = getcurrent()
        outcome: list[T] = []
        hosted = greenlet(lambda: outcome.append(function()))
        awaitable = hosted.switch()
        while not hosted.dead:
            waiter, self._waiter = self._waiter, None
            if waiter is None:
                raise RuntimeError("a greenlet left the hosted program without an awaitable")
            try:
                value = await awaitable
            except BaseException as error:
                awaitable = waiter.throw(error)
            else:
                awaitable = waiter.switch(value)
        return outcome[0]

    def hand(self, awaitable: Awaitable[Any]) -> Any:
        """Await something from hosted code; other cocotb tasks and the simulator run meanwhile.

        Raises:
            RuntimeError: the caller is not hosted.
        """
        if self._task is None or getcurrent() is self._task:
            raise RuntimeError("only code inside the hosting greenlet can wait for the simulator")
        self._waiter = getcurrent()
        return self._task.switch(awaitable)
