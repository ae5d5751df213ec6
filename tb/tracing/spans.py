"""When the pipes of the cores worked, and when two of them did at the same time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from abi.core import Pipe
from abi.trace import PIPES_PER_CORE, TraceCode, TraceSource
from tb.tracing.events import HardwareEvent

__all__ = ["Span", "hidden_share", "pipe_spans"]

Span = tuple[int, int]
"""A first cycle, and the cycle behind the last one."""

TRANSFERS = (Pipe.MTE2, Pipe.MTE3, Pipe.FIXPIPE)
"""The pipes that move bytes from and to global memory."""


def pipe_spans(events: Iterable[HardwareEvent]) -> dict[tuple[int, Pipe], list[Span]]:
    """The commands of each core's pipes, from their begin to their end, in order of time."""
    spans: defaultdict[tuple[int, Pipe], list[Span]] = defaultdict(list)
    begun: dict[int, int] = {}
    for event in events:
        if event.source is not TraceSource.PIPE:
            continue
        if event.code is TraceCode.BEGIN:
            begun[event.instance] = event.cycle
        elif event.instance in begun:
            core, pipe = divmod(event.instance, PIPES_PER_CORE)
            spans[core, Pipe(pipe)].append((begun.pop(event.instance), event.cycle))
    return spans


def hidden_share(events: Iterable[HardwareEvent]) -> float:
    """Of the cycles in which a core moves bytes from or to global memory, how many its Cube hides:
    both have a command in work. All cores are summed up.

    Raises:
        ValueError: no core moved a byte.
    """
    spans = pipe_spans(events)
    moving = hidden = 0
    for core in {core for core, _ in spans}:
        transfers = _union([span for pipe in TRANSFERS for span in spans.get((core, pipe), [])])
        moving += sum(end - start for start, end in transfers)
        hidden += _overlap(transfers, _union(spans.get((core, Pipe.CUBE), [])))
    if not moving:
        raise ValueError("events must have a command that moves bytes, not none")
    return hidden / moving


def _union(spans: Iterable[Span]) -> list[Span]:
    """Spans that do not touch, in order, that cover the same cycles."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _overlap(one: Sequence[Span], other: Sequence[Span]) -> int:
    """Cycles that both cover; neither overlaps itself."""
    total = i = j = 0
    while i < len(one) and j < len(other):
        total += max(0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total
