"""What a run leaves behind for its trace, from all layers, in cycles of device time."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from abi.trace import TRACE_EVENT, TraceCode, TraceSource

__all__ = ["FirmwareNote", "HardwareEvent", "HostEvent", "HostRecorder", "hardware_events"]

FirmwareNote = tuple[int, str, dict[str, int]]
"""Cycle, event, fields: as `FirmwareBus.notes`."""


@dataclass(frozen=True)
class HostEvent:
    """A probe of driver or runtime. `kind`: "point", "begin" or "end"."""

    cycle: int
    kind: str
    track: str
    name: str
    arguments: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class HardwareEvent:
    """An event of the RTL."""

    cycle: int
    source: TraceSource
    instance: int
    code: TraceCode
    argument: int


class HostRecorder:
    """A `driver.tracing.TraceSink` that keeps everything. Attribute: `events`."""

    def __init__(self) -> None:
        self.events: list[HostEvent] = []

    def point(self, time: int, track: str, name: str, arguments: dict[str, int]) -> None:
        """Something happened."""
        self.events.append(HostEvent(time, "point", track, name, arguments))

    def begin(self, time: int, track: str, name: str, arguments: dict[str, int]) -> None:
        """A span starts."""
        self.events.append(HostEvent(time, "begin", track, name, arguments))

    def end(self, time: int, track: str, name: str) -> None:
        """The innermost span of the track ends."""
        self.events.append(HostEvent(time, "end", track, name))


def hardware_events(records: npt.NDArray[np.uint64]) -> list[HardwareEvent]:
    """The events of `Clockwork.traces()`, shape (n, 2): cycle and payload.

    Raises:
        ValueError: a payload names no source or code of the contract.
    """
    events = []
    for cycle, payload in records.tolist():
        fields = TRACE_EVENT.unpack(payload)
        events.append(
            HardwareEvent(
                cycle,
                TraceSource(fields["source"]),
                fields["instance"],
                TraceCode(fields["code"]),
                fields["argument"],
            )
        )
    return events
