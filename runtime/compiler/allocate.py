"""Places for buffers: which lines of L1, L0A, L0B, L0C, the bias buffer and UB each takes.

A buffer that one pipe alone uses lives from its first to its last access, and others of that pipe
may lie on its lines before and after. One that passes from pipe to pipe lives as long as its stage,
with two slots if its region repeats, so that one is filled while the other is worked at.
"""

from dataclasses import dataclass

from abi.core import Pipe
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Buffer, Loop, Memory, Node, When, commands_in
from runtime.compiler.synchronise import buffers_of, pipes_of

__all__ = ["DOUBLE", "CoreBuffers", "allocate"]

DOUBLE = 2
"""Slots of a buffer that passes from pipe to pipe in a region that repeats."""


@dataclass(frozen=True)
class CoreBuffers:
    """Lines of each buffer of a core."""

    l1: int
    l0a: int
    l0b: int
    l0c: int
    bias: int
    ub: int

    def lines(self, memory: Memory) -> int:
        """Lines of one of them."""
        return {
            Memory.L1: self.l1,
            Memory.L0A: self.l0a,
            Memory.L0B: self.l0b,
            Memory.L0C: self.l0c,
            Memory.BIAS: self.bias,
            Memory.UB: self.ub,
        }[memory]


@dataclass(frozen=True)
class _Span:
    buffer: Buffer
    pipes: set[Pipe]
    first: int
    last: int


def allocate(stages: list[list[Node]], core: CoreBuffers) -> dict[Memory, int]:
    """Set `slots`, `stride` and `line` of all buffers; returns the lines that each memory needs.

    Raises:
        CompileError: they do not fit.
    """
    seen: dict[Buffer, set[int]] = {}
    for number, nodes in enumerate(stages):
        for buffer in buffers_of(nodes):
            seen.setdefault(buffer, set()).add(number)
    used: dict[Memory, int] = {}
    for memory in Memory:
        lasting = [b for b, where in seen.items() if b.memory is memory and len(where) > 1]
        bottom = 0
        for buffer in lasting:
            buffer.line, buffer.stride = bottom, buffer.lines
            bottom += buffer.lines
        top = bottom
        for nodes in stages:
            own = [b for b in buffers_of(nodes) if b.memory is memory and b not in lasting]
            top = max(top, _place(nodes, own, bottom, core.lines(memory)))
        if top > core.lines(memory):
            raise CompileError(_too_much(memory, list(seen), top, core.lines(memory)))
        used[memory] = top
    return used


def _place(nodes: list[Node], buffers: list[Buffer], bottom: int, limit: int) -> int:
    passed = [b for b in buffers if len(set().union(*(pipes_of(n, b) for n in nodes))) > 1]
    for buffer in passed:
        if buffer.region.repeats and buffer.slots == 1 and not buffer.single:
            buffer.slots = DOUBLE
    top = bottom
    halves = [b for b in passed if b.memory is Memory.L0C and b.slots == DOUBLE]
    if halves:
        # The two halves of L0C are banks of their own: the Cube fills one, FIXPIPE drains one.
        for buffer in halves:
            buffer.line, buffer.stride = top, limit // 2
            top += buffer.lines
        if top > limit // 2:
            return limit // 2 + top
        top += limit // 2
    for buffer in passed:
        if buffer not in halves:
            buffer.line, buffer.stride = top, buffer.lines
            top += buffer.lines * buffer.slots
    alone = sorted(
        (_span(nodes, buffer) for buffer in buffers if buffer not in passed),
        key=lambda span: (span.first, span.last),
    )
    placed: list[_Span] = []
    highest = top
    for span in alone:
        busy = sorted(
            (other.buffer.line, other.buffer.line + other.buffer.lines)
            for other in placed
            if other.last >= span.first or other.pipes != span.pipes
        )
        line = top
        for start, end in busy:
            if start - line >= span.buffer.lines:
                break
            line = max(line, end)
        span.buffer.line, span.buffer.stride = line, span.buffer.lines
        highest = max(highest, line + span.buffer.lines)
        placed.append(span)
    return highest


def _span(nodes: list[Node], buffer: Buffer) -> _Span:
    """From the first to the last access; all of a loop that uses what was made outside of it."""
    times: list[int] = []

    def visit(region_nodes: list[Node], clock: int) -> int:
        for node in region_nodes:
            begin = clock
            clock += 1
            if isinstance(node, Loop | When):
                clock = visit(node.body.nodes, clock)
                crosses = not buffer.region.inside(node.body)
                if crosses and pipes_of(node, buffer):
                    times.extend((begin, clock))
            elif any(
                access.buffer is buffer
                for command in commands_in(node)
                for access in command.accesses
            ):
                times.append(begin)
        return clock + 1

    visit(nodes, 0)
    pipes = set().union(*(pipes_of(node, buffer) for node in nodes))
    return _Span(buffer, pipes, min(times), max(times))


def _too_much(memory: Memory, buffers: list[Buffer], needed: int, limit: int) -> str:
    parts = ", ".join(f"{b.name} {b.slots} x {b.lines}" for b in buffers if b.memory is memory)
    return f"tiles in {memory.value} must fit its {limit} lines, not {needed} ({parts})"
