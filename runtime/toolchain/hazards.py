"""Finds races, deadlocks and wrong flags in what a block of a kernel does.

The scalar unit is interpreted; pipes execute nothing, so what a kernel loads from global memory
is what it was before. What is found holds for this block, with these arguments, and with what
memory is known or assumed to hold (`assumptions`). A race is two
accesses to the same line of a buffer, or the same byte of global memory, of which one is a write
and neither is surely before the other. Pipes are in order by themselves. Contention is two pipes
that take one flag in no sure order: then the other findings hold for one of several courses only.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from abi.core import FLAG_MAXIMUM, FLAGS, PIPES, Pipe
from runtime.toolchain.assumptions import Assumption, assumptions_of
from runtime.toolchain.block_trace import (
    INSTRUCTION_LIMIT,
    BlockTrace,
    Command,
    ScalarAccess,
    trace_block,
)
from runtime.toolchain.events import Exit, Paused, Trap
from runtime.toolchain.footprint import (
    Buffer,
    BufferOverflowError,
    Footprint,
    footprint,
    lines_in,
)
from runtime.toolchain.happens_before import (
    QUEUE_DEPTH,
    Execution,
    FlagUse,
    Order,
    execute,
    order_of,
)
from runtime.toolchain.memory_image import MemoryImage

__all__ = ["Finding", "FindingKind", "HazardReport", "Place", "check_block", "check_trace"]


class FindingKind(Enum):
    """What is wrong."""

    RACE = "race"
    DEADLOCK = "deadlock"
    CONTENTION = "contention"
    FLAG_LEFT = "flag left"
    FLAG_OVERFLOW = "flag overflow"
    BUFFER_OVERFLOW = "buffer overflow"
    TRAP = "trap"
    TOO_LONG = "too long"


@dataclass(frozen=True, order=True)
class Place:
    """An instruction, and the pipe that does its work."""

    pc: int
    pipe: Pipe

    def __str__(self) -> str:
        return f"{self.pipe.name} at pc {self.pc:#x}"


@dataclass
class Finding:
    """One thing that is wrong; `count` times at the same places."""

    kind: FindingKind
    places: tuple[Place, ...]
    text: str
    buffer: Buffer | None = None
    """Buffer of a race; None is global memory."""

    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.kind.value}: {self.text}{times}"


@dataclass
class HazardReport:
    """What was found, and what was taken for granted: of commands in `notes`, of the values that
    the scalar unit loads in `assumptions`."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    commands: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def of(self, kind: FindingKind) -> list[Finding]:
        """Findings of a kind."""
        return [finding for finding in self.findings if finding.kind is kind]

    def __str__(self) -> str:
        condition = ", if memory holds what is assumed" if self.assumptions else ""
        lines = [str(finding) for finding in self.findings] or [f"no hazards{condition}"]
        lines += [f"assumed: {assumption}" for assumption in self.assumptions]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def check_block(
    code: bytes,
    *,
    entry: int = 0,
    arguments: bytes = b"",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (0, 0, 0),
    memory: MemoryImage | None = None,
    sizes: Mapping[Buffer, int] | None = None,
    flags_left: Mapping[int, int] | None = None,
    queue_depth: int = QUEUE_DEPTH,
    limit: int = INSTRUCTION_LIMIT,
) -> HazardReport:
    """Check one block of a kernel.

    Args:
        code, entry, arguments, grid, block: the kernel and its block.
        memory: what is known of global memory before the block; all else reads as zeros.
        sizes: lines of each buffer; without, lines of 16 bits.
        flags_left: counts that flags may have in the end; the others must be 0.
        queue_depth: commands that a queue holds.
        limit: instructions after which it is given up.
    """
    trace = trace_block(
        code, entry=entry, arguments=arguments, grid=grid, block=block, memory=memory, limit=limit
    )
    return check_trace(trace, sizes=sizes, flags_left=flags_left, queue_depth=queue_depth)


def check_trace(
    trace: BlockTrace,
    *,
    sizes: Mapping[Buffer, int] | None = None,
    flags_left: Mapping[int, int] | None = None,
    queue_depth: int = QUEUE_DEPTH,
) -> HazardReport:
    """Check what a block did; arguments as those of `check_block`."""
    return _Checker(trace, sizes or {}, flags_left or {}, queue_depth).check()


class _Checker:
    def __init__(
        self,
        trace: BlockTrace,
        sizes: Mapping[Buffer, int],
        flags_left: Mapping[int, int],
        queue_depth: int,
    ) -> None:
        self._trace = trace
        self._left = flags_left
        self._run: Execution = execute(trace, queue_depth)
        self._order: Order = order_of(trace, self._run)
        self._report = HazardReport(commands=sum(map(len, trace.commands.values())))
        self._races: dict[tuple[Place, Place, Buffer | None], Finding] = {}
        self._prints: dict[Pipe, list[Footprint]] = {
            pipe: [self._footprint(command, sizes) for command in commands]
            for pipe, commands in trace.commands.items()
        }

    def check(self) -> HazardReport:
        self._check_end()
        self._check_flags()
        for number, first in enumerate(PIPES):
            for second in PIPES[number + 1 :]:
                self._check_pipes(first, second)
        self._check_scalar()
        self._report.findings += self._races.values()
        self._report.assumptions = assumptions_of(self._trace)
        return self._report

    def _add(self, kind: FindingKind, text: str, *places: Place) -> None:
        self._report.findings.append(Finding(kind, places, text))

    def _footprint(self, command: Command, sizes: Mapping[Buffer, int]) -> Footprint:
        place = Place(command.pc, command.pipe)
        try:
            touched = footprint(command.issue.command, command.issue.base, sizes)
        except BufferOverflowError as error:
            self._add(FindingKind.BUFFER_OVERFLOW, f"{place}: {error}", place)
            return Footprint()
        note = f"{place}: {touched.assumed}"
        if touched.assumed and note not in self._report.notes:
            self._report.notes.append(note)
        return touched

    def _check_end(self) -> None:
        last = self._trace.steps[-1]
        place = Place(last.pc, Pipe.SCALAR)
        if isinstance(last, Trap):
            reason = f": {last.reason}" if last.reason else ""
            place = Place(last.pc, last.pipe)
            where = f", address {last.address:#x}" if last.address else ""
            text = f"{place} stops with {last.status.name}{where}{reason}"
            self._add(FindingKind.TRAP, text, place)
        elif isinstance(last, Paused):
            text = f"{place}: the block did not exit within the limit of instructions"
            self._add(FindingKind.TOO_LONG, text, place)
        if self._run.blocked:
            places = [Place(pc, pipe) for pipe, pc, _ in self._run.blocked]
            reasons = [
                f"{place} {reason}"
                for place, (_, _, reason) in zip(places, self._run.blocked, strict=True)
            ]
            self._add(FindingKind.DEADLOCK, "; ".join(reasons), *places)

    def _check_flags(self) -> None:
        ended = self._run.ended and isinstance(self._trace.steps[-1], Exit)
        for flag in range(FLAGS):
            gives, takes = (
                self._uses(self._order.gives[flag]),
                self._uses(self._order.takes[flag]),
            )
            left, allowed = self._run.counts[flag], self._left.get(flag, 0)
            if ended and left != allowed:
                text = (
                    f"flag {flag} is {left} at exit, not {allowed}: given "
                    f"{sum(gives.values())} times by {self._names(gives)}, taken "
                    f"{sum(takes.values())} times by {self._names(takes)}"
                )
                self._add(FindingKind.FLAG_LEFT, text, *gives, *takes)
            largest = self._order.largest_count(flag)
            if largest is not None and largest[0] > FLAG_MAXIMUM:
                place = Place(largest[1].pc, Pipe(largest[1].pipe))
                text = f"flag {flag} may count up to {largest[0]} (most {FLAG_MAXIMUM}) by {place}"
                self._add(FindingKind.FLAG_OVERFLOW, text, place)
            for first, second in self._order.contending(flag):
                places = (Place(first.pc, Pipe(first.pipe)), Place(second.pc, Pipe(second.pipe)))
                text = f"{places[0]} and {places[1]} take flag {flag} in no order"
                self._add(FindingKind.CONTENTION, text, *places)
        for flag in self._order.shared():
            pipes = {
                word: ", ".join(Pipe(pipe).name for pipe in sorted(uses[flag]))
                for word, uses in (("given", self._order.gives), ("taken", self._order.takes))
            }
            self._report.notes.append(
                f"flag {flag} is given by {pipes['given'] or 'none'} and taken by "
                f"{pipes['taken'] or 'none'}: only the order that holds in any case is relied on"
            )

    @staticmethod
    def _uses(uses: Mapping[int, list[FlagUse]]) -> dict[Place, int]:
        counts: dict[Place, int] = {}
        for pipe, each in uses.items():
            for use in each:
                place = Place(use.pc, Pipe(pipe))
                counts[place] = counts.get(place, 0) + 1
        return counts

    @staticmethod
    def _names(places: Mapping[Place, int]) -> str:
        return ", ".join(map(str, sorted(places))) or "none"

    def _check_pipes(self, first: Pipe, second: Pipe) -> None:
        """Races between the commands of two pipes that ran."""
        starts = self._order.starts
        commands, others = self._trace.commands[first], self._trace.commands[second]
        other_starts = starts[second]
        for index, start in enumerate(starts[first]):
            # Commands of the other pipe that have surely ended before, or surely start after,
            # are ordered; those in between are not.
            begin = start[second]
            end = bisect_left(other_starts, index + 1, key=lambda clock: clock[first])
            mine = self._prints[first][index]
            for other in range(begin, end):
                for buffer, what in _conflicts(mine, self._prints[second][other]):
                    self._race(
                        Place(commands[index].pc, first),
                        Place(others[other].pc, second),
                        buffer,
                        what,
                    )

    def _check_scalar(self) -> None:
        """Races between commands and the scalar unit's own accesses."""
        for step in self._trace.steps:
            if not isinstance(step, ScalarAccess) or step.step not in self._order.steps:
                continue
            regions = (step.region,)
            mine = (
                Footprint(memory_writes=regions) if step.write else Footprint(memory_reads=regions)
            )
            seen = self._order.steps[step.seen]
            for pipe in PIPES:
                starts = self._order.starts[pipe]
                end = bisect_left(starts, step.step + 1, key=lambda clock: clock[Pipe.SCALAR])
                for index in range(seen[pipe], end):
                    for buffer, what in _conflicts(mine, self._prints[pipe][index]):
                        stale = "" if step.seen == step.step else ", in a line held since before"
                        self._race(
                            Place(step.pc, Pipe.SCALAR),
                            Place(self._trace.commands[pipe][index].pc, pipe),
                            buffer,
                            what + stale,
                        )

    def _race(self, first: Place, second: Place, buffer: Buffer | None, what: str) -> None:
        key = (first, second, buffer)
        if key in self._races:
            self._races[key].count += 1
            return
        where = "global memory" if buffer is None else buffer.value
        self._races[key] = Finding(
            FindingKind.RACE,
            (first, second),
            f"{first} and {second}, in no order, {what} of {where}",
            buffer,
        )


def _conflicts(first: Footprint, second: Footprint) -> Iterator[tuple[Buffer | None, str]]:
    """Buffers (None: global memory) that two footprints share, one of them writing."""
    pairs = (
        ("write", first.writes, "write", second.writes),
        ("write", first.writes, "read", second.reads),
        ("read", first.reads, "write", second.writes),
    )
    for mine, masks, theirs, other_masks in pairs:
        for buffer, mask in masks.items():
            both = mask & other_masks.get(buffer, 0)
            if both:
                ranges = ", ".join(
                    f"{low}" if low == high else f"{low} to {high}"
                    for low, high in lines_in(both)[:4]
                )
                yield buffer, f"{mine} and {theirs} lines {ranges}"
    regions = (
        ("write", first.memory_writes, "write", second.memory_writes),
        ("write", first.memory_writes, "read", second.memory_reads),
        ("read", first.memory_reads, "write", second.memory_writes),
    )
    for mine, own, theirs, others in regions:
        for region in own:
            for other in others:
                if region.overlaps(other):
                    low, high = max(region.start, other.start), min(region.end, other.end)
                    yield None, f"{mine} and {theirs} bytes between {low:#x} and {high - 1:#x}"
