"""Flags: in which order the pipes may touch a buffer.

The accesses of a buffer in one run of its region fall into phases, each by one pipe. From each
phase to the next there is a flag: set by the last command of the one, awaited by the first
command of the other. If the region repeats, one more flag leads from the last phase back to the
first; it starts with as many counts as the buffer has slots, so that several runs are under way
at a time. A pipe works in order, so accesses of one pipe need none, and of two flags from one pipe
to another the one that the other implies is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from abi.core import FLAGS, CommandOpcode, Pipe
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Buffer, Command, FlagUse, Loop, Node, commands_in
from runtime.compiler.scalar import Constant

__all__ = ["Primed", "buffers_of", "synchronise"]


@dataclass(frozen=True)
class Primed:
    """A flag that starts, and ends, with `count`."""

    flag: int
    count: int


@dataclass(eq=False)
class _Phase:
    pipe: Pipe
    first: Node
    last: Node


@dataclass(eq=False)
class _Edge:
    """The end of one phase comes before the start of another; both lie in `items`.

    Attributes:
        runs: 0: in the same run of the region; else so many runs later.
    """

    buffer: Buffer
    items: list[Node]
    before: _Phase
    after: _Phase
    runs: int

    def implies(self, other: "_Edge") -> bool:
        """Whether `other` holds if this one does."""
        return (
            self.items is other.items
            and (self.before.pipe, self.after.pipe) == (other.before.pipe, other.after.pipe)
            and (self.runs > 0) == (other.runs > 0)
            and self.runs <= other.runs
            and _not_before(self.items, self.before.last, other.before.last)
            and _not_before(self.items, other.after.first, self.after.first)
        )


def _not_before(items: list[Node], one: Node, other: Node) -> bool:
    """Whether all of a node comes after another, or it is that very command."""
    return items.index(one) > items.index(other) or (one is other and isinstance(one, Command))


def buffers_of(nodes: Iterable[Node]) -> list[Buffer]:
    """All buffers that the commands of some nodes use, in order of their first use."""
    found: dict[Buffer, None] = {}
    for node in nodes:
        for command in commands_in(node):
            for access in command.accesses:
                found[access.buffer] = None
    return list(found)


def pipes_of(node: Node, buffer: Buffer) -> set[Pipe]:
    """The pipes that access a buffer in a node."""
    return {
        command.pipe
        for command in commands_in(node)
        if any(access.buffer is buffer for access in command.accesses)
    }


def synchronise(nodes: list[Node]) -> list[Primed]:
    """Add flags to the commands of a stage; returns those that have to be primed.

    Raises:
        CompileError: more flags than there are, or a loop in which several pipes use a tile that
            was made outside of it.
    """
    needed: list[_Edge] = []
    for edge in _edges(nodes):
        if not any(other.implies(edge) for other in needed):
            needed = [other for other in needed if not edge.implies(other)]
            needed.append(edge)
    if len(needed) > FLAGS:
        raise CompileError(
            f"tiles that pass from pipe to pipe must need at most {FLAGS} flags: put a "
            f"barrier between parts of the kernel ({needed[FLAGS].buffer.name} has none left)"
        )
    for flag, edge in enumerate(needed):
        _after(edge, flag)
        _before(edge, flag)
    return [Primed(flag, edge.runs) for flag, edge in enumerate(needed) if edge.runs]


def _edges(nodes: list[Node]) -> list[_Edge]:
    """From each phase of a buffer to the next one."""
    found: list[_Edge] = []
    for buffer in buffers_of(nodes):
        # The region's own list, or that of the stage for what was made outside of all loops.
        region = buffer.region
        items = nodes if region.parent is None else region.nodes
        phases = _phases(items, buffer)
        if len(phases) < 2:
            continue
        found += [_Edge(buffer, items, before, after, 0) for before, after in pairwise(phases)]
        if region.repeats:
            found.append(_Edge(buffer, items, phases[-1], phases[0], buffer.slots))
    return found


def _phases(items: list[Node], buffer: Buffer) -> list[_Phase]:
    phases: list[_Phase] = []
    for node in items:
        pipes = pipes_of(node, buffer)
        if not pipes:
            continue
        if len(pipes) > 1:
            names = ", ".join(sorted(pipe.name for pipe in pipes))
            raise CompileError(
                f"tile {buffer.name} must be made inside the loop in which {names} use it in turn"
            )
        (pipe,) = pipes
        if phases and phases[-1].pipe is pipe:
            phases[-1].last = node
        else:
            phases.append(_Phase(pipe, node, node))
    return phases


def _inside(node: Node, buffer: Buffer) -> list[Command]:
    """The commands of a buffer in a loop, if each of the loop's runs comes to them, and there is
    at least one."""
    if not isinstance(node, Loop):
        return []
    # Only numbers: bounds of other scalars may be what a tile of that size promises where it is.
    start, stop = node.start, node.stop
    if not (isinstance(start, Constant) and isinstance(stop, Constant)):
        return []
    if start.value >= stop.value:
        return []
    commands = [inner for inner in commands_in(node) if _uses(inner, buffer)]
    return commands if all(inner in node.body.nodes for inner in commands) else []


def _uses(command: Command, buffer: Buffer) -> bool:
    return any(access.buffer is buffer for access in command.accesses)


def _nop(phase: _Phase) -> Command:
    return Command(phase.pipe, CommandOpcode.NOP, {}, (), "flags")


def _before(edge: _Edge, flag: int) -> None:
    """The later phase waits for the flag: at its first command, in the first run of a loop, or at
    a NOP in front of a loop. A NOP empties its pipe first."""
    phase = edge.after
    first = phase.first
    if isinstance(first, Loop) and (inside := _inside(first, edge.buffer)):
        # Not 0 in all runs but the first one.
        inside[0].wait.append(FlagUse(flag, first.index - first.start))
        return
    if not isinstance(first, Command):
        first = _nop(phase)
        edge.items.insert(edge.items.index(phase.first), first)
        phase.first = first
    first.wait.append(FlagUse(flag))


def _after(edge: _Edge, flag: int) -> None:
    """The earlier phase sets the flag: at its last command, in the last run of a loop, or at a NOP
    behind a loop."""
    phase = edge.before
    last = phase.last
    if isinstance(last, Loop) and (inside := _inside(last, edge.buffer)):
        inside[-1].give.append(FlagUse(flag, last.index + last.step < last.stop))
        return
    if not isinstance(last, Command):
        last = _nop(phase)
        edge.items.insert(edge.items.index(phase.last) + 1, last)
        phase.last = last
    last.give.append(FlagUse(flag))
