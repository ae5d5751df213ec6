"""What things cost in the model, in cycles; near the RTL, not equal to it."""

from dataclasses import dataclass

__all__ = ["ModelTiming"]


@dataclass(frozen=True, kw_only=True)
class ModelTiming:
    """Costs in cycles, widths in bytes a cycle."""

    host_read: int = 12
    """A register read of the host."""

    host_write: int = 8
    """A register write of the host."""

    firmware_read: int = 6
    """A register read of the firmware."""

    firmware_write: int = 6
    """A register write of the firmware."""

    host_latency: int = 80
    """A line from host memory, or a write's response."""

    hbm_latency: int = 30
    """A line from HBM, or a write's response."""

    host_width: int = 32
    """Host link."""

    hbm_width: int = 64
    """HBM."""

    interrupt: int = 40
    """An MSI-X message until its response."""

    drain: int = 40
    """A reset until the host link is quiet; what is under way goes on."""

    isolate: int = 24
    """A reset from then on: registers answer with SLVERR."""

    start_queue: int = 6
    """From QUEUE_CONTROL.enable until doorbells are accepted."""

    command: int = 16
    """A command of a core that moves no data."""
