"""Writes a run's events in the Chrome trace format, which Perfetto and chrome://tracing open.

Source of the format: Google, "Trace Event Format", 2016.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from abi.core import Pipe
from abi.trace import PIPES_PER_CORE, TraceCode, TraceSource
from tb.tracing.events import FirmwareNote, HardwareEvent, HostEvent

__all__ = ["chrome_trace"]

HOST, FIRMWARE, DEVICE = 1, 2, 3
PROCESSES = {HOST: "1 host", FIRMWARE: "2 firmware", DEVICE: "3 device"}

HOST_TRACKS = ("api", "mailbox", "ring", "doorbell", "interrupt", "wake")

HARDWARE_TRACKS = {
    TraceSource.DOORBELL: "doorbell",
    TraceSource.FETCHER: "fetch",
    TraceSource.DMA: "DMA channel",
    TraceSource.CORE: "core",
    TraceSource.PIPE: "pipe",
    TraceSource.COMPLETION: "completion",
    TraceSource.INTERRUPT: "MSI-X vector",
    TraceSource.MAILBOX: "mailbox",
}

CYCLES_PER_MICROSECOND = 1000


class _Writer:
    """Collects trace events; tracks get numbers as they appear."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._tracks: dict[tuple[int, str], int] = {}
        for process, name in PROCESSES.items():
            self.events.append(
                {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
            )

    def track(self, process: int, name: str) -> int:
        """The number of a track."""
        key = process, name
        if key not in self._tracks:
            self._tracks[key] = len(self._tracks) + 1
            place = {"ph": "M", "pid": process, "tid": self._tracks[key]}
            self.events.append(place | {"name": "thread_name", "args": {"name": name}})
        return self._tracks[key]

    def span(
        self, process: int, track: str, name: str, start: int, end: int, arguments: dict[str, Any]
    ) -> None:
        """Something that took from `start` to `end` (cycles)."""
        self.events.append(
            {
                "ph": "X",
                "pid": process,
                "tid": self.track(process, track),
                "name": name,
                "ts": start / CYCLES_PER_MICROSECOND,
                "dur": (end - start) / CYCLES_PER_MICROSECOND,
                "args": {"cycle": start, "cycles": end - start, **arguments},
            }
        )

    def point(
        self, process: int, track: str, name: str, cycle: int, arguments: dict[str, Any]
    ) -> None:
        """Something that happened at `cycle`."""
        self.events.append(
            {
                "ph": "i",
                "s": "t",
                "pid": process,
                "tid": self.track(process, track),
                "name": name,
                "ts": cycle / CYCLES_PER_MICROSECOND,
                "args": {"cycle": cycle, **arguments},
            }
        )


def _host(writer: _Writer, events: Sequence[HostEvent], end: int) -> None:
    for track in HOST_TRACKS:
        writer.track(HOST, track)
    stacks: dict[str, list[HostEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "point":
            writer.point(HOST, event.track, event.name, event.cycle, event.arguments)
        elif event.kind == "begin":
            stacks[event.track].append(event)
        else:
            begun = stacks[event.track].pop()
            writer.span(HOST, event.track, begun.name, begun.cycle, event.cycle, begun.arguments)
    for track, stack in stacks.items():
        for begun in stack:
            arguments = {**begun.arguments, "unfinished": 1}
            writer.span(HOST, track, begun.name, begun.cycle, end, arguments)


def _firmware(writer: _Writer, notes: Sequence[FirmwareNote], end: int) -> None:
    open_packets: dict[int, tuple[int, dict[str, int]]] = {}
    for cycle, event, fields in notes:
        queue = fields.get("queue")
        if event == "begin" and queue is not None:
            open_packets[queue] = cycle, fields
        elif event == "end" and queue in open_packets:
            start, begun = open_packets.pop(queue)
            name = f"packet {fields['packet']}"
            writer.span(FIRMWARE, f"queue {queue}", name, start, cycle, {**begun, **fields})
        else:
            track = "events" if queue is None else f"queue {queue} events"
            writer.point(FIRMWARE, track, event, cycle, fields)
    for queue, (start, begun) in open_packets.items():
        name = f"packet {begun['packet']}"
        writer.span(FIRMWARE, f"queue {queue}", name, start, end, {**begun, "unfinished": 1})


def _hardware_track(event: HardwareEvent) -> str:
    if event.source is TraceSource.PIPE:
        core, pipe = divmod(event.instance, PIPES_PER_CORE)
        return f"core {core} pipe {Pipe(pipe).name}"
    return f"{HARDWARE_TRACKS[event.source]} {event.instance}"


def _hardware(writer: _Writer, events: Sequence[HardwareEvent], end: int) -> None:
    begun: dict[str, HardwareEvent] = {}
    for event in events:
        track = _hardware_track(event)
        name = HARDWARE_TRACKS[event.source]
        if event.code is TraceCode.EVENT:
            writer.point(DEVICE, track, name, event.cycle, {"argument": event.argument})
        elif event.code is TraceCode.BEGIN:
            begun[track] = event
        elif track in begun:
            start = begun.pop(track)
            arguments = {"argument": start.argument, "status": event.argument & 0xFF}
            writer.span(DEVICE, track, name, start.cycle, event.cycle, arguments)
    for track, start in begun.items():
        arguments = {"argument": start.argument, "unfinished": 1}
        writer.span(DEVICE, track, HARDWARE_TRACKS[start.source], start.cycle, end, arguments)


def chrome_trace(
    *,
    host: Sequence[HostEvent],
    firmware: Sequence[FirmwareNote],
    hardware: Sequence[HardwareEvent],
    end: int,
    dropped: int | None,
) -> dict[str, Any]:
    """The trace as JSON values. `end`: last cycle; `dropped`: events that the chip lost,
    None if that is not known.

    Times are microseconds of device time; `args.cycle` has the exact cycle. Spans that never
    ended reach to `end` and carry `unfinished`.
    """
    writer = _Writer()
    _host(writer, host, end)
    _firmware(writer, firmware, end)
    _hardware(writer, hardware, end)
    return {
        "traceEvents": writer.events,
        "displayTimeUnit": "ns",
        "otherData": {"cycles": end, "dropped": dropped},
    }
