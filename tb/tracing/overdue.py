"""Which blocks kept a more urgent kernel waiting for too long, by the firmware's notes."""

from collections.abc import Iterable

from tb.tracing.events import FirmwareNote

__all__ = ["overdue_blocks"]


def overdue_blocks(notes: Iterable[FirmwareNote]) -> list[str]:
    """A line for each such block, in the order of time."""
    return [
        f"cycle {cycle}: a better band waits since {fields['waited']} cycles for core "
        f"{fields['core']}; it runs block {fields['block']} of packet {fields['packet']} of "
        f"queue {fields['queue']}"
        for cycle, event, fields in notes
        if event == "overdue"
    ]
