"""Flags: in which order the pipes may touch a buffer.

The accesses of a buffer in one run of its region fall into phases, each by one pipe. From each
phase to the next there is a flag: set by the last command of the one, awaited by the first
command of the other. If the region repeats, one more flag leads from the last phase back to the
first; it starts with as many counts as the buffer has slots, so that several runs are under way
at a time. A pipe works in order, so accesses of one pipe need none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from abi.core import FLAGS, CommandOpcode, Pipe
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Buffer, Command, Node, commands_in

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
    primed: list[Primed] = []
    used = 0
    for buffer in buffers_of(nodes):
        # The region's own list, or that of the stage for what was made outside of all loops.
        region = buffer.region
        items = nodes if region.parent is None else region.nodes
        phases = _phases(items, buffer)
        if len(phases) < 2:
            continue
        edges = list(pairwise(phases))
        if region.repeats:
            edges.append((phases[-1], phases[0]))
            primed.append(Primed(used + len(edges) - 1, buffer.slots))
        for before, after in edges:
            if used == FLAGS:
                raise CompileError(
                    f"tiles that pass from pipe to pipe must need at most {FLAGS} flags: put a "
                    f"barrier between parts of the kernel ({buffer.name} has none left)"
                )
            _after(items, before, used)
            _before(items, after, used)
            used += 1
    return primed


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


def _nop(phase: _Phase) -> Command:
    return Command(phase.pipe, CommandOpcode.NOP, {}, (), "flags")


def _before(items: list[Node], phase: _Phase, flag: int) -> None:
    """The phase waits for the flag: at its first command, or a NOP in front of a loop."""
    if not isinstance(phase.first, Command):
        nop = _nop(phase)
        items.insert(items.index(phase.first), nop)
        phase.first = nop
    phase.first.wait.append(flag)


def _after(items: list[Node], phase: _Phase, flag: int) -> None:
    """The phase sets the flag: at its last command, or a NOP behind a loop."""
    if not isinstance(phase.last, Command):
        nop = _nop(phase)
        items.insert(items.index(phase.last) + 1, nop)
        phase.last = nop
    phase.last.give.append(flag)
