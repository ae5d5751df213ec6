"""Deterministic scheduling of blocking programs over one clock.

Host threads and the firmware are actors: greenlets that block in a bus operation, sleep until a
cycle, or wait for a message, the firmware's event line or one another. Exactly one runs at a time,
and the clock stands still while one does. When none is ready the clock runs until something happens
for one of them. Among several that are ready, a seeded generator chooses.
"""

from collections.abc import Callable
from random import Random

from greenlet import GreenletExit, getcurrent, greenlet

from tb.engine.clockwork import (
    BUSES,
    EVENT,
    MESSAGE,
    NEVER,
    RUN,
    Clockwork,
    SimulationEndedError,
)

__all__ = ["Actor", "Actors", "NothingCanHappenError"]


class NothingCanHappenError(RuntimeError):
    """No actor can ever go on; the message says who waits for what."""


class Actor:
    """One program. Attributes: `name`, `waits_for` (text, empty while it can run), `done`."""

    def __init__(self, name: str, body: Callable[[], object]) -> None:
        self.name = name
        self.waits_for = ""
        self.done = False
        self.error: BaseException | None = None
        self.body = body
        self.until = NEVER
        self.vectors = 0
        self.event = False
        self.joins: Actor | None = None
        self.port: int | None = None
        self.ready = True
        self.killed = False
        self.thrown: BaseException | None = None
        self.result: tuple[int | None, int] = (None, 0)
        self.greenlet: greenlet


class Actors:
    """The scheduler. All methods but `run` are called from inside actors.

    `idle_limit` is the longest time in cycles without any actor going on while somebody waits for
    the hardware without a deadline.
    """

    def __init__(self, clockwork: Clockwork, *, seed: int, idle_limit: int = 50_000_000) -> None:
        self.clockwork = clockwork
        self.random = Random(seed)
        self.idle_limit = idle_limit
        self.on_message: Callable[[int], bool] = lambda _vector: True
        """Called with each message's vector; False loses the message."""
        self.on_run_change: Callable[[bool], None] = lambda _runs: None
        """Called when the firmware's run line has changed."""
        self.settle_memory: Callable[[int], int] = lambda _now: NEVER
        """Called with the time before the clock runs, while `unsettled`; returns when it wants to
        be called next, or NEVER if there is nothing left."""
        self.unsettled = False
        self._pending = 0
        self._actors: list[Actor] = []
        self._ready: list[Actor] = []
        self._failed: list[Actor] = []
        self._port_users: list[list[Actor]] = [[] for _ in BUSES]
        self._current: Actor
        self._main: Actor
        self._hub: greenlet
        self._until = NEVER
        self._watch = 0
        self._stale = False

    # ---- life of actors ----

    def spawn(self, name: str, body: Callable[[], object]) -> Actor:
        """Start an actor; it runs when the scheduler chooses it.

        An exception in it is kept in `error`, and raised by `join`, or by `run` if nobody joins.
        """
        actor = Actor(name, body)
        actor.greenlet = greenlet(lambda: self._life(actor), parent=self._hub)
        self._actors.append(actor)
        self._ready.append(actor)
        return actor

    def _life(self, actor: Actor) -> None:
        try:
            if not actor.killed:
                actor.body()
        except GreenletExit:
            pass
        except (KeyboardInterrupt, SystemExit, SimulationEndedError) as error:
            # These concern the program as a whole, whichever actor they hit.
            if actor is not self._main:
                self.fail(error)
            actor.error = error
        except BaseException as error:
            actor.error = error
            self._failed.append(actor)
        actor.done = True
        self._actors.remove(actor)
        self._stale = True
        for other in self._actors:
            if other.joins is actor:
                self._wake(other)

    def run(self, body: Callable[[], object]) -> None:
        """Run `body` as the actor `main` and all that it spawns, until `main` ends.

        Raises:
            BaseException: what `main`, or an actor that nobody joined, raised.
            NothingCanHappenError: no actor can ever go on.
        """
        self._hub = getcurrent()
        self._main = main = self.spawn("main", body)
        try:
            while not main.done:
                self._switch_to_next()
        finally:
            self._end_all()
        if main.error is not None:
            raise main.error
        if self._failed:
            raise self._failed[0].error or AssertionError("a failed actor has an error")

    def fail(self, error: BaseException) -> None:
        """Raise `error` in `main`, at its next return from a wait."""
        self._main.thrown = error
        if not self._main.ready:
            if self._main.port is not None:
                self._abandon(self._main)
            self._wake(self._main)

    def _end_all(self) -> None:
        for actor in list(self._actors):
            actor.killed = True
            if actor.greenlet:
                actor.greenlet.throw(GreenletExit)
            else:
                self._actors.remove(actor)
        self._ready.clear()

    def kill(self, actor: Actor) -> None:
        """End an actor at its next return from a wait; a bus operation in flight ends first."""
        actor.killed = True
        if actor.port is None and not actor.ready:
            self._wake(actor)

    def throw(self, actor: Actor, error: BaseException) -> None:
        """Raise `error` in an actor that waits, at once; a bus operation in flight ends first."""
        actor.thrown = error
        if actor.port is None and not actor.ready:
            self._wake(actor)

    def join(self, actor: Actor) -> None:
        """Wait for the end of an actor.

        Raises:
            BaseException: what the actor raised.
        """
        while not actor.done:
            self._current.joins = actor
            self._block(f"the end of {actor.name}")
        if actor in self._failed and actor.error is not None:
            self._failed.remove(actor)
            raise actor.error

    @property
    def current(self) -> Actor:
        """The actor that runs."""
        return self._current

    # ---- waiting ----

    def now(self) -> int:
        """Device time in cycles."""
        return self.clockwork.now()

    def transact(
        self, port: int, write: bool, address: int, data: int = 0, strobe: int = 0xFF
    ) -> tuple[int | None, int]:
        """One operation on a register port: (AXI response, or None without an answer, data).

        Actors that share a port take turns in the order in which they asked.
        """
        users = self._port_users[port]
        if users or self._ready:
            return self._transact_in_turn(port, write, address, data, strobe)
        # The common case, without the scheduler: nobody is ready before the response.
        if self._stale:
            self._refresh()
        until = self._until
        clockwork = self.clockwork
        if self.unsettled:
            until = min(until, self._settle())
        me = self._current
        try:
            outcome = clockwork.transact(port, write, address, data, strobe, until, self._watch)
        except BaseException:
            users.append(me)
            me.port = port
            self._abandon(me)
            raise
        if isinstance(outcome, tuple):
            return outcome
        users.append(me)
        me.port = port
        try:
            self._after_stop(outcome)
            if me.port is not None:
                self._block_in_operation(write, address)
        except BaseException:
            self._abandon(me)
            raise
        return me.result

    def _transact_in_turn(
        self, port: int, write: bool, address: int, data: int, strobe: int
    ) -> tuple[int | None, int]:
        me = self._current
        users = self._port_users[port]
        users.append(me)
        try:
            while users[0] is not me:
                self._block(f"its turn on register port {BUSES[port]}")
            me.port = port
            self.clockwork.submit(port, write, address, data, strobe)
            self._block_in_operation(write, address)
        except BaseException:
            if me.port is not None:
                self._abandon(me)
            elif me in users:
                users.remove(me)
            raise
        return me.result

    def _block_in_operation(self, write: bool, address: int) -> None:
        kind = "a write" if write else "a read"
        name = BUSES[self._current.port or 0]
        self._block(f"the answer to {kind} of {address:#x} on register port {name}")

    def sleep(self, until: int) -> None:
        """Wait until device time `until`."""
        while self.clockwork.now() < until:
            self._block(f"cycle {until}", until=until)

    def wait_messages(self, vectors: int, until: int) -> int:
        """Take the latched messages of the mask `vectors`, waiting for one; 0 at time `until`."""
        while True:
            self._take_messages()
            if taken := self._pending & vectors:
                self._pending &= ~taken
                return taken
            if self.clockwork.now() >= until:
                return 0
            self._block(f"a message of {vectors:#x}", until=until, vectors=vectors)

    def wait_event(self, until: int) -> bool:
        """Wait for the firmware's event line: True; False at time `until`."""
        while not self.clockwork.firmware_event():
            if self.clockwork.now() >= until:
                return False
            self._block("the firmware's event line", until=until, event=True)
        return True

    def wait_for(self, what: str, until: int = NEVER) -> None:
        """Wait until somebody calls `wake`, or time `until`; it may return early: check again."""
        self._block(what, until=until)

    def wake(self, actor: Actor) -> None:
        """Let an actor in `wait_for` or `sleep` look again."""
        if not actor.ready and actor.port is None:
            self._wake(actor)

    def preempt(self) -> None:
        """A point where another ready actor may be chosen to run first."""
        if self._ready:
            me = self._current
            self._ready.append(me)
            self._switch_to_next()
            self._check(me)

    # ---- the machinery ----

    def _wake(self, actor: Actor) -> None:
        if not actor.ready:
            actor.ready = True
            actor.waits_for = ""
            actor.until, actor.vectors, actor.event, actor.joins = NEVER, 0, False, None
            self._stale = True
            self._ready.append(actor)

    def _block(
        self, what: str, *, until: int = NEVER, vectors: int = 0, event: bool = False
    ) -> None:
        me = self._current
        self._check(me)
        me.waits_for, me.until, me.vectors, me.event = what, until, vectors, event
        me.ready = False
        self._stale = True
        self._switch_to_next()
        self._check(me)

    def _check(self, me: Actor) -> None:
        if me.thrown is not None:
            error, me.thrown = me.thrown, None
            raise error
        if me.killed and me.port is None:
            raise GreenletExit

    def _abandon(self, actor: Actor) -> None:
        """Leave an operation in flight to nobody: its answer is dropped."""
        if actor.port is None:
            return
        users = self._port_users[actor.port]
        nobody = Actor(f"nobody (left by {actor.name})", lambda: None)
        nobody.port, actor.port = actor.port, None
        users[users.index(actor)] = nobody

    def _switch_to_next(self) -> None:
        """Let the next ready actor run; returns when the caller is chosen again."""
        ready = self._ready
        while not ready:
            try:
                self._run_clock()
            except BaseException as error:
                # Whichever actor turned the clock is not to blame.
                self.fail(error)
        chosen = ready.pop(self.random.randrange(len(ready)) if len(ready) > 1 else 0)
        chosen.ready = True
        self._current = chosen
        if chosen.greenlet is not getcurrent():
            chosen.greenlet.switch()

    def _settle(self) -> int:
        due = self.settle_memory(self.clockwork.now())
        self.unsettled = due != NEVER
        return due

    def _refresh(self) -> None:
        self._until = min((actor.until for actor in self._actors), default=NEVER)
        self._watch = MESSAGE if any(actor.vectors for actor in self._actors) else 0
        if any(actor.event for actor in self._actors):
            self._watch |= EVENT
        self._stale = False

    def _run_clock(self) -> None:
        if self._stale:
            self._refresh()
        clockwork = self.clockwork
        now = clockwork.now()
        until = self._until
        if self.unsettled:
            until = min(until, self._settle())
        in_flight = any(users and users[0].port is not None for users in self._port_users)
        if until == NEVER and not in_flight:
            if not self._watch:
                raise NothingCanHappenError(f"nothing can happen any more\n{self.waiting()}")
            until = now + self.idle_limit
            reason = clockwork.run(until, self._watch)
            if clockwork.now() >= until:
                raise NothingCanHappenError(
                    f"nothing happened for {self.idle_limit} cycles\n{self.waiting()}"
                )
        else:
            reason = clockwork.run(until, self._watch)
        self._after_stop(reason)

    def _after_stop(self, reason: int) -> None:
        """Find the actors that can go on."""
        clockwork = self.clockwork
        for port, users in enumerate(self._port_users):
            if users and users[0].port == port:
                result = clockwork.result(port)
                if result is not None:
                    owner = users.pop(0)
                    owner.port, owner.result = None, result
                    self._wake(owner)
                    if users:
                        self._wake(users[0])
        now = clockwork.now()
        self._take_messages()
        event = clockwork.firmware_event()
        for actor in self._actors:
            if not actor.ready and (
                actor.until <= now or actor.vectors & self._pending or (actor.event and event)
            ):
                self._wake(actor)
        if reason & RUN:
            self.on_run_change(clockwork.firmware_runs())

    def _take_messages(self) -> None:
        for vector, _cycle in self.clockwork.messages():
            if self.on_message(vector):
                self._pending |= 1 << vector

    def forget_hardware(self) -> None:
        """The machine was reset: latched messages and abandoned operations are gone.

        Raises:
            RuntimeError: an actor waits for an operation in flight.
        """
        self._pending = 0
        for users in self._port_users:
            if any(user in self._actors for user in users):
                raise RuntimeError(f"a reset needs all register ports at rest\n{self.waiting()}")
            users.clear()

    def waiting(self) -> str:
        """Who waits for what, one actor a line."""
        return "\n".join(
            f"  {actor.name} waits for {actor.waits_for}" if actor.waits_for else f"  {actor.name}"
            for actor in self._actors
        )
