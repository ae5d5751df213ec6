"""A probe for traces of the host side. Without a sink a probe costs one test of a variable.

Points and spans are named by the step that they stand for: `api` spans for calls of the runtime,
`ring`, `doorbell`, `interrupt` and `wake` points for what the driver does. Times are device cycles.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

__all__ = ["TraceSink", "attach", "detach", "enabled", "point", "span"]


class TraceSink(Protocol):
    """Where probes go."""

    def point(self, time: int, track: str, name: str, arguments: dict[str, int]) -> None:
        """Something happened at `time` (cycles)."""
        ...

    def begin(self, time: int, track: str, name: str, arguments: dict[str, int]) -> None:
        """A span of `track` starts; spans of a track nest."""
        ...

    def end(self, time: int, track: str, name: str) -> None:
        """The innermost open span of `track` ends."""
        ...


_sink: TraceSink | None = None
_clock: Callable[[], int] = int


class _NoSpan:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Span:
    def __init__(self, track: str, name: str, arguments: dict[str, int]) -> None:
        self._track, self._name, self._arguments = track, name, arguments

    def __enter__(self) -> None:
        if _sink is not None:
            _sink.begin(_clock(), self._track, self._name, self._arguments)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _sink is not None:
            _sink.end(_clock(), self._track, self._name)


_NO_SPAN = _NoSpan()


def attach(sink: TraceSink, clock: Callable[[], int]) -> None:
    """Send probes to `sink`; `clock` gives device time in cycles (`bus.now`)."""
    global _sink, _clock
    _sink, _clock = sink, clock


def detach() -> None:
    """Stop tracing."""
    global _sink
    _sink = None


def enabled() -> bool:
    """Whether a sink is attached."""
    return _sink is not None


def point(track: str, name: str, **arguments: int) -> None:
    """Something happened."""
    if _sink is not None:
        _sink.point(_clock(), track, name, arguments)


def span(track: str, name: str, **arguments: int) -> _Span | _NoSpan:
    """A context manager around something that takes time."""
    return _NO_SPAN if _sink is None else _Span(track, name, arguments)
