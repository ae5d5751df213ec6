"""Several host threads on the model: greenlets that take turns at every bus operation."""

from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from tb.models.device.machine import ModelMachine

__all__ = ["HostThread", "HostThreads"]

TURN = 200
"""Longest wait for an interrupt, in cycles, before others have their turn."""


class HostThread:
    """A thread. Attributes: `name`, `done`, `error` (what its body raised, or None)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = False
        self.error: BaseException | None = None
        self.greenlet: greenlet


class HostThreads:
    """Threads over a model machine; the caller of `join` is one of them.

    An operation has its effect, then a seeded choice says who goes on: a thread may find that
    much has happened when its operation returns.

    Attributes: `bus`, the machine's bus (`driver.bus.Bus`) for all of them.
    """

    def __init__(self, machine: ModelMachine, *, seed: int = 1) -> None:
        self.bus: Any = _SharedBus(machine, self.yield_turn)
        self._random = Random(seed)
        self._main = getcurrent()
        self._alive: list[greenlet] = [self._main]

    def spawn(self, name: str, body: Callable[[], object]) -> HostThread:
        """Start a thread; it runs when it is chosen."""
        thread = HostThread(name)

        def life() -> None:
            try:
                body()
            except BaseException as error:
                thread.error = error
            thread.done = True
            self._alive.remove(thread.greenlet)

        thread.greenlet = greenlet(life, parent=self._main)
        self._alive.append(thread.greenlet)
        return thread

    def join(self, thread: HostThread) -> None:
        """Wait for the end of a thread.

        Raises:
            BaseException: what the thread raised.
        """
        while not thread.done:
            self.yield_turn()
        if thread.error is not None:
            raise thread.error

    def yield_turn(self) -> None:
        """Let the seed choose who goes on."""
        chosen = self._random.choice(self._alive)
        if chosen is not getcurrent():
            chosen.switch()


class _SharedBus:
    """A `ModelBus` that gives turns away behind each operation."""

    def __init__(self, machine: ModelMachine, yield_turn: Callable[[], None]) -> None:
        self._bus = machine.bus
        self._yield_turn = yield_turn

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._bus, name)
        if name not in ("read", "write", "load", "store", "barrier"):
            return operation

        def shared(*arguments: Any, **named: Any) -> Any:
            try:
                return operation(*arguments, **named)
            finally:
                self._yield_turn()

        return shared

    def wait_interrupt(self, vectors: int, until: int) -> int:
        """See `Bus.wait_interrupt`."""
        while True:
            taken = self._bus.wait_interrupt(vectors, min(until, self._bus.now() + TURN))
            self._yield_turn()
            if taken or self._bus.now() >= until:
                return taken
