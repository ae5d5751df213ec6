"""Parameters of the firmware: what its computing costs, and how often it does what."""

from dataclasses import dataclass, field, fields

from abi.core import BLOCK_LIMIT

__all__ = ["CostTable", "FirmwareConfig"]


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """Cycles of the device CPU for each action, register accesses not included."""

    turn: int = 12
    """A turn of the main loop."""

    pick: int = 6
    """One decision of the scheduler."""

    check: int = 16
    """Checking the fields of a packet."""

    dispatch: int = 8
    """Handing a packet to an engine."""

    block: int = 6
    """Handing a block of a grid to a core."""

    complete: int = 8
    """Book-keeping for a finished packet."""

    fault: int = 40
    """Recording a fault."""

    request: int = 40
    """Understanding and answering a mailbox request."""

    boot: int = 200
    """Setting up after reset."""


@dataclass(frozen=True, kw_only=True)
class FirmwareConfig:
    """Intervals in cycles, limits in counts.

    Raises:
        ValueError: a value is below 1.
    """

    costs: CostTable = field(default_factory=CostTable)

    heartbeat_interval: int = 20_000
    """Longest time between two writes of the heartbeat while the firmware lives."""

    heartbeat_spacing: int = 1_000
    """Shortest time between two writes of the heartbeat."""

    state_spacing: int = 500
    """Shortest time between two writes of FIRMWARE_STATE that only change task or queue."""

    wait_recheck: int = 4096
    """A waiting queue loads its semaphore again after this time: the host may signal too."""

    close_recheck: int = 128
    """How often a queue that is being destroyed is looked at."""

    starvation_share: int = 8
    """Of this many contended grants of a resource, one goes to who waits longest."""

    core_quantum: int = 50_000
    """A task gives a core back after this time if one of the same or a lower band waits for it."""

    block_limit: int = BLOCK_LIMIT
    """A block that keeps a better band without a core waiting for longer is noted in the trace."""

    steps_per_turn: int = 4
    """Scheduling decisions before events are looked at again."""

    requests_per_turn: int = 2
    """Mailbox requests served before packets have their turn."""

    quiesce_limit: int = 200_000
    """At boot: cycles within which work of an earlier program must drain."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{item.name} must be at least 1, not {value!r}")
