"""The order that flags, queues and barriers enforce between the commands of a block.

Clocks are vectors (Mattern, "Virtual Time and Global States of Distributed Systems", 1989): entry
p counts the commands of pipe p that have surely ended, and the last entry the steps that the
scalar unit has surely done. A pipe starts and ends its commands in order, but may start one
while the one before is in flight. A command that takes a flag starts after the gives that it
cannot do without: of one giver and one taker, take n comes after give n. Where several pipes give
or take a flag, only those gives count without which too few could have happened, whatever the
other pipes do; that order is found by repetition, from less to more.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from abi.core import FLAGS, PIPES, Pipe
from runtime.toolchain.block_trace import BlockTrace, Command
from runtime.toolchain.events import Barrier, Exit, FlagSet, FlagWait

__all__ = [
    "QUEUE_DEPTH",
    "Clock",
    "Execution",
    "FlagUse",
    "Order",
    "execute",
    "flags_of",
    "order_of",
]

QUEUE_DEPTH = 4
"""Commands that wait in front of a pipe before npu.issue waits."""

Clock = tuple[int, ...]
ZERO: Clock = (0,) * len(Pipe)
SCALAR = int(Pipe.SCALAR)
MAXIMUM_PASSES = 16


def flags_of(mask: int) -> list[int]:
    """Flags in a mask."""
    return [flag for flag in range(FLAGS) if mask >> flag & 1]


@dataclass
class Execution:
    """One possible order of all that happens.

    Attributes:
        happened: commands (started and ended at once) and numbers of scalar steps, in order.
        counts: what is left of each flag.
        blocked: what waits for ever, in words, with the pipe and pc; empty if all has ended.
        ended: the scalar unit came to its last step.
    """

    happened: list[Command | int] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0] * FLAGS)
    blocked: list[tuple[Pipe, int, str]] = field(default_factory=list)
    ended: bool = False


def execute(trace: BlockTrace, queue_depth: int = QUEUE_DEPTH) -> Execution:
    """Run a block without time: whatever can happen does, until nothing can."""
    run = Execution()
    queues: dict[Pipe, deque[Command]] = {pipe: deque() for pipe in PIPES}
    at = 0
    moved = True
    while moved:
        moved = False
        for queue in queues.values():
            while queue and all(run.counts[flag] for flag in flags_of(queue[0].issue.wait)):
                command = queue.popleft()
                for flag in flags_of(command.issue.wait):
                    run.counts[flag] -= 1
                for flag in flags_of(command.issue.set):
                    run.counts[flag] += 1
                run.happened.append(command)
                moved = True
        while at < len(trace.steps) and _blocking(trace, at, run, queues, queue_depth) is None:
            step = trace.steps[at]
            if isinstance(step, Command):
                queues[step.pipe].append(step)
            elif isinstance(step, FlagWait):
                run.counts[step.flag] -= 1
            elif isinstance(step, FlagSet):
                run.counts[step.flag] += 1
            run.happened.append(at)
            at += 1
            moved = True
    run.ended = at == len(trace.steps)
    if not run.ended:
        run.blocked.append(
            (Pipe.SCALAR, trace.steps[at].pc, str(_blocking(trace, at, run, queues, queue_depth)))
        )
    for pipe, queue in queues.items():
        if queue:
            lacking = [flag for flag in flags_of(queue[0].issue.wait) if not run.counts[flag]]
            names = " and ".join(f"flag {flag}" for flag in lacking)
            run.blocked.append((pipe, queue[0].pc, f"waits for {names}"))
    return run


def _blocking(
    trace: BlockTrace, at: int, run: Execution, queues: dict[Pipe, deque[Command]], depth: int
) -> str | None:
    """Why the scalar unit cannot do its next step now."""
    step = trace.steps[at]
    if isinstance(step, Command) and len(queues[step.pipe]) >= depth:
        return f"waits for a place in the queue of {step.pipe.name}"
    if isinstance(step, FlagWait) and not run.counts[step.flag]:
        return f"waits for flag {step.flag}"
    if isinstance(step, Barrier | Exit) and any(queues.values()):
        busy = ", ".join(pipe.name for pipe, queue in queues.items() if queue)
        return f"waits until {busy} has ended its commands"
    return None


@dataclass(frozen=True)
class FlagUse:
    """A give or a take of a flag: by a command, or by the scalar unit in a step."""

    pipe: int
    index: int
    pc: int


@dataclass
class Order:
    """What is surely before what.

    Attributes:
        starts, ends: clocks of each command of each pipe, at its start and its end.
        steps: clock of each scalar step.
        gives, takes: of each flag, by pipe, in the pipe's order.
    """

    starts: dict[int, list[Clock]]
    ends: dict[int, list[Clock]]
    steps: dict[int, Clock]
    gives: list[dict[int, list[FlagUse]]]
    takes: list[dict[int, list[FlagUse]]]

    def give_clock(self, give: FlagUse) -> Clock:
        """What has surely happened when a give has."""
        if give.pipe == SCALAR:
            return _with(self.steps[give.index], SCALAR, give.index + 1)
        return self.ends[give.pipe][give.index]

    def take_clock(self, take: FlagUse) -> Clock:
        """What has surely happened when a take happens."""
        if take.pipe == SCALAR:
            return self.steps[take.index]
        return self.starts[take.pipe][take.index]

    def shared(self) -> list[int]:
        """Flags that several pipes give or take."""
        return [
            flag for flag in range(FLAGS) if len(self.gives[flag]) > 1 or len(self.takes[flag]) > 1
        ]

    def contending(self, flag: int) -> list[tuple[FlagUse, FlagUse]]:
        """For each two pipes that take a flag, their first takes in no sure order."""
        found = []
        pipes = sorted(self.takes[flag])
        for number, pipe in enumerate(pipes):
            for other in pipes[number + 1 :]:
                others = self.takes[flag][other]
                for take in self.takes[flag][pipe]:
                    before = bisect_left(
                        others, self.take_clock(take)[other], key=lambda each: each.index
                    )
                    after = bisect_left(
                        others, take.index + 1, key=lambda each: self.take_clock(each)[take.pipe]
                    )
                    if before < after:
                        found.append((take, others[before]))
                        break
        return found

    def largest_count(self, flag: int) -> tuple[int, FlagUse] | None:
        """The most that a flag may count up to, and the give after which it may."""
        largest = None
        for pipe, gives in self.gives[flag].items():
            for number, give in enumerate(gives):
                clock = self.give_clock(give)
                count = number + 1
                for other, others in self.gives[flag].items():
                    if other != pipe:
                        count += self._gives_without(others, pipe, give.index)
                for taker, takes in self.takes[flag].items():
                    known = give.index + 1 if taker == pipe else clock[taker]
                    count -= bisect_left(takes, known, key=lambda take: take.index)
                if largest is None or count > largest[0]:
                    largest = (count, give)
        return largest

    def _gives_without(self, gives: list[FlagUse], pipe: int, index: int) -> int:
        """Gives of another pipe that may happen before something of `pipe` has ended."""
        return bisect_left(gives, index + 1, key=lambda give: self.give_clock(give)[pipe])

    def sure_gives(self, flag: int, take: FlagUse, number: int) -> list[FlagUse]:
        """The last give of each pipe that a take, its pipe's `number`-th, surely comes after."""
        gives, takes = self.gives[flag], self.takes[flag]
        clock = self.take_clock(take)
        for taker, others in takes.items():
            if taker != take.pipe:
                number += bisect_left(others, clock[taker], key=lambda other: other.index)
        found = []
        for pipe, own in gives.items():
            low, high = 0, len(own)
            while low < high:
                middle = (low + high) // 2
                without = middle + sum(
                    self._possible(others, other, own[middle], take)
                    for other, others in gives.items()
                    if other != pipe
                )
                if without <= number:
                    low = middle + 1
                else:
                    high = middle
            if low:
                found.append(own[low - 1])
        return found

    def _possible(self, gives: list[FlagUse], pipe: int, give: FlagUse, take: FlagUse) -> int:
        """Gives of a pipe that may happen without `give` and before `take`."""
        count = self._gives_without(gives, give.pipe, give.index)
        if pipe == take.pipe:
            before = bisect_left(gives, take.index, key=lambda other: other.index)
        else:
            before = self._gives_without(gives, take.pipe, take.index)
        return min(count, before)


def _with(clock: Clock, pipe: int, value: int) -> Clock:
    return (*clock[:pipe], value, *clock[pipe + 1 :])


def _join(first: Clock, second: Clock) -> Clock:
    return tuple(map(max, first, second))


def order_of(trace: BlockTrace, run: Execution) -> Order:
    """The sure order of what happened in an execution."""
    order = _uses(trace, run)
    shared = set(order.shared())
    _pass(trace, run, order, None, shared)
    passes = 1
    while shared and passes < MAXIMUM_PASSES:
        following = Order({}, {}, {}, order.gives, order.takes)
        _pass(trace, run, following, order, shared)
        if following.starts == order.starts and following.steps == order.steps:
            break
        order, passes = following, passes + 1
    return order


def _uses(trace: BlockTrace, run: Execution) -> Order:
    order = Order({}, {}, {}, [{} for _ in range(FLAGS)], [{} for _ in range(FLAGS)])
    for item in run.happened:
        if isinstance(item, Command):
            use = FlagUse(int(item.pipe), item.index, item.pc)
            for flag in flags_of(item.issue.wait):
                order.takes[flag].setdefault(use.pipe, []).append(use)
            for flag in flags_of(item.issue.set):
                order.gives[flag].setdefault(use.pipe, []).append(use)
            continue
        step = trace.steps[item]
        if isinstance(step, FlagSet | FlagWait):
            uses = order.gives if isinstance(step, FlagSet) else order.takes
            uses[step.flag].setdefault(SCALAR, []).append(FlagUse(SCALAR, item, step.pc))
    return order


def _pass(
    trace: BlockTrace, run: Execution, order: Order, known: Order | None, shared: set[int]
) -> None:
    """Compute all clocks; of shared flags, with what is `known` already."""
    order.starts |= {int(pipe): [] for pipe in PIPES}
    order.ends |= {int(pipe): [] for pipe in PIPES}
    taken: list[dict[int, int]] = [{} for _ in range(FLAGS)]
    scalar = ZERO

    def after_take(flag: int, pipe: int, clock: Clock) -> Clock:
        number = taken[flag].get(pipe, 0)
        taken[flag][pipe] = number + 1
        if flag not in shared:
            ((_, gives),) = order.gives[flag].items()
            return _join(clock, order.give_clock(gives[number]))
        if known is not None:
            for give in known.sure_gives(flag, order.takes[flag][pipe][number], number):
                clock = _join(clock, order.give_clock(give))
        return clock

    for item in run.happened:
        if isinstance(item, Command):
            pipe = int(item.pipe)
            starts, ends = order.starts[pipe], order.ends[pipe]
            start = _with(order.steps[item.step], SCALAR, item.step)
            if starts:
                start = _join(start, starts[-1])
            for flag in flags_of(item.issue.wait):
                start = after_take(flag, pipe, start)
            starts.append(start)
            ends.append(_with(_join(start, ends[-1]) if ends else start, pipe, item.index + 1))
            continue
        step = trace.steps[item]
        scalar = _with(scalar, SCALAR, item)
        if isinstance(step, FlagWait):
            scalar = after_take(step.flag, SCALAR, scalar)
        elif isinstance(step, Barrier | Exit):
            for ends in order.ends.values():
                scalar = _join(scalar, ends[-1]) if ends else scalar
        order.steps[item] = scalar
