"""Which transfers the Cube hides, by the trace."""

import pytest

from abi.core import Pipe
from abi.trace import PIPES_PER_CORE, TraceCode, TraceSource
from tb.tracing.events import HardwareEvent
from tb.tracing.spans import hidden_share, pipe_spans


def events(*spans: tuple[int, Pipe, int, int]) -> list[HardwareEvent]:
    """Begin and end of commands: core, pipe, first cycle, cycle behind the last."""
    found = []
    for core, pipe, start, end in spans:
        instance = PIPES_PER_CORE * core + pipe
        for cycle, code in ((start, TraceCode.BEGIN), (end, TraceCode.END)):
            found.append(HardwareEvent(cycle, TraceSource.PIPE, instance, code, 0))
    found.append(HardwareEvent(5, TraceSource.CORE, 0, TraceCode.BEGIN, 0))
    return sorted(found, key=lambda event: event.cycle)


def test_spans_of_pipes() -> None:
    spans = pipe_spans(events((0, Pipe.MTE2, 0, 10), (1, Pipe.CUBE, 3, 7), (0, Pipe.MTE2, 10, 12)))
    assert spans == {(0, Pipe.MTE2): [(0, 10), (10, 12)], (1, Pipe.CUBE): [(3, 7)]}


def test_what_the_cube_hides() -> None:
    cube = [(0, Pipe.CUBE, 100, 150), (0, Pipe.CUBE, 160, 300)]
    # 20 of the load's 80 cycles come before the Cube, 10 lie between its commands.
    assert hidden_share(events((0, Pipe.MTE2, 80, 160), *cube)) == 50 / 80
    # Two pipes in the same cycle count once; MTE1 moves nothing from or to memory.
    together = events(
        (0, Pipe.MTE2, 200, 250), (0, Pipe.FIXPIPE, 240, 260), (0, Pipe.MTE3, 300, 320),
        (0, Pipe.MTE1, 0, 50), *cube,
    )  # fmt: skip
    assert hidden_share(together) == 60 / 80


def test_each_core_hides_its_own() -> None:
    spans = (0, Pipe.CUBE, 0, 100), (1, Pipe.MTE2, 0, 50), (0, Pipe.MTE2, 0, 150)
    assert hidden_share(events(*spans)) == 100 / 200


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a command that moves bytes, not none"):
        hidden_share(events((0, Pipe.CUBE, 0, 10)))
