"""What can be done with a simulated machine's clock, whichever simulator turns it.

Time is counted in rising edges of `clk` since reset was released. The clock stands still between
calls, right after a rising edge has settled. An operation submitted there drives its valid signals
from there on; the earliest edge that can take it is the next one. A response is taken at the edge
where valid and ready are 1, and is seen at the stop after that edge.
"""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from tb.engine.hosting import Hosting

__all__ = [
    "BUSES",
    "COCOTB",
    "DONE",
    "EVENT",
    "FINISHED",
    "FIRMWARE",
    "HOST",
    "MESSAGE",
    "NEVER",
    "RUN",
    "UNTIL",
    "Clockwork",
    "SimulationEndedError",
]

# Reasons to stop, as bits; `Stop` in machine.h holds the same numbers. Plain integers, since these
# are tested once for every register access.
DONE: Final = 1
"""A bus operation ended."""
MESSAGE: Final = 2
"""Interrupt messages wait (only if watched)."""
EVENT: Final = 4
"""The firmware's event line is high (only if watched)."""
RUN: Final = 8
"""The firmware's run line has changed."""
UNTIL: Final = 16
"""The cycle asked for is reached."""
COCOTB: Final = 32
"""cocotb needs control first (never returned by `Clockwork.run`)."""
FINISHED: Final = 64
"""The simulation has ended (never returned by `Clockwork.run`)."""

BUSES: Final = ("host", "fw")
"""Prefixes of the register ports of a machine top; the index is the port's number."""

HOST: Final = 0
"""Number of the host's register port."""
FIRMWARE: Final = 1
"""Number of the firmware's register port."""

NEVER: Final = 2**63 - 1
"""A cycle that is never reached."""


class SimulationEndedError(RuntimeError):
    """The simulator has ended the simulation; no clock will run any more."""


class Clockwork(Protocol):
    """The clock of a machine, its register ports and its events.

    Attribute: `hosting`, in which the clock's user can hand awaitables to cocotb.
    """

    hosting: Hosting

    def now(self) -> int:
        """Device time in cycles."""
        ...

    def submit(self, port: int, write: bool, address: int, data: int, strobe: int) -> None:
        """Start an operation on a port that has none in flight.

        `address` in bytes; `data` 64 bits and `strobe` 8 bits (both for writes only).
        """
        ...

    def result(self, port: int) -> tuple[int | None, int] | None:
        """Take the result of an ended operation: (AXI response, data read), else None.

        The response is None if the device gave no answer within the bus timeout.
        """
        ...

    def run(self, until: int, watch: int) -> int:
        """Run the clock until a reason to stop holds; returns the reasons.

        DONE and RUN always stop the clock, UNTIL at cycle `until`, MESSAGE and EVENT if they are
        bits of `watch`. A reason that holds already stops it before the first cycle. RUN is
        reported once; DONE until the result is taken; MESSAGE until the messages are.

        Raises:
            SimulationEndedError: the simulator has finished.
        """
        ...

    def transact(
        self,
        port: int,
        write: bool,
        address: int,
        data: int,
        strobe: int,
        until: int,
        watch: int,
    ) -> tuple[int | None, int] | int:
        """`submit` and `run` in one: the result if nothing but the operation's end stopped the
        clock (it may be returned so, and is taken then), else the reasons, as from `run`.

        Raises:
            SimulationEndedError: the simulator has finished.
        """
        ...

    def messages(self) -> list[tuple[int, int]]:
        """Take the interrupt messages as (vector, cycle), in order of arrival."""
        ...

    def firmware_event(self) -> bool:
        """Whether the firmware's event line is high."""
        ...

    def firmware_runs(self) -> bool:
        """Whether the firmware is released from reset."""
        ...

    def traces(self) -> npt.NDArray[np.uint64]:
        """Take the trace records: shape (n, 2), uint64; cycle and payload of each."""
        ...

    def set_tracing(self, on: bool) -> None:
        """Collect trace records or not; device cycles do not depend on it."""
        ...

    def set_bus_timeout(self, cycles: int) -> None:
        """An operation submitted from now on ends without a response after `cycles`."""
        ...

    def reset(self, cycles: int = 8) -> None:
        """Hold `rst` for `cycles` edges; operations and messages are forgotten, time is 0 after."""
        ...

    def host_memory(self) -> npt.NDArray[np.uint8]:
        """All bytes of host memory, shape (nbytes,), without a copy.

        Raises:
            LookupError: the machine has no `host_dram`, or it is not open to Python.
        """
        ...
