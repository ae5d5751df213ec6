"""The boundary between the driver and its machine, shaped like a PCIe function.

Whoever hosts the program (the co-simulation, Icarus, later another process or a board) attaches a
`Bus`; the driver and the runtime find it with `attached_bus()`. Nothing else passes between them.
"""

from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Bus", "BusError", "Region", "attach_bus", "attached_bus", "detach_bus"]


class Region(IntEnum):
    """The address spaces of the function."""

    CONFIG = 0
    BAR0 = 1
    BAR2 = 2


class BusError(Exception):
    """The device answered a register access with an error response, or not at all.

    Attributes: `region`, `offset` (bytes), `write`, and `response`, the AXI response code
    (2 = SLVERR, 3 = DECERR, None = no answer within the bus timeout).
    """

    def __init__(self, region: Region, offset: int, *, write: bool, response: int | None) -> None:
        kind = "write to" if write else "read of"
        answer = {2: "SLVERR", 3: "DECERR", None: "no response"}.get(response, repr(response))
        super().__init__(f"{kind} {region.name}+{offset:#x} was answered with {answer}")
        self.region = region
        self.offset = offset
        self.write = write
        self.response = response


class Bus(Protocol):
    """What a host CPU can do with the function. All calls block; time is in device cycles."""

    def read(self, region: Region, offset: int, size: int = 8) -> int:
        """Read `size` (4 or 8) bytes. A read pushes all earlier posted writes.

        Raises:
            BusError: the device answered with an error.
        """
        ...

    def write(self, region: Region, offset: int, value: int, size: int = 8) -> None:
        """Write `size` (4 or 8) bytes.

        Raises:
            BusError: the device answered with an error.
        """
        ...

    def allocate_pages(self, count: int) -> int:
        """Take `count` contiguous 4 KiB pages that the device can reach; returns the bus address.

        Raises:
            MemoryError: no such run of pages is free.
        """
        ...

    def free_pages(self, address: int, count: int) -> None:
        """Give pages back."""
        ...

    def host_view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """A zero-copy uint8 view, shape (nbytes,), of host memory at a bus address."""
        ...

    def store(self, address: int, data: bytes) -> None:
        """Store to a shared control structure (ring, index) through the CPU's store buffer.

        Stores may reach memory late and out of order until `barrier`.
        """
        ...

    def load(self, address: int, nbytes: int) -> bytes:
        """Load from a shared control structure; sees this CPU's own earlier stores."""
        ...

    def barrier(self) -> None:
        """Every earlier `store` reaches memory before any later store or register write."""
        ...

    def wait_interrupt(self, vectors: int, until: int) -> int:
        """Wait for a message on any vector of the bit mask `vectors`.

        Returns the mask of vectors whose messages arrived (they are taken), or 0 when device
        time reaches `until` (absolute, cycles) first.
        """
        ...

    def now(self) -> int:
        """Device time in cycles."""
        ...


_attached: list[Bus] = []


def attach_bus(bus: Bus) -> None:
    """Make `bus` the machine that the driver finds."""
    _attached.append(bus)


def detach_bus(bus: Bus) -> None:
    """Undo `attach_bus`."""
    _attached.remove(bus)


def attached_bus() -> Bus:
    """The machine attached last.

    Raises:
        RuntimeError: no machine is attached: the program runs outside `glassnpu run`.
    """
    if not _attached:
        raise RuntimeError(
            "no machine is attached: start the program with `glassnpu run`, `glassnpu shell` "
            "or `glassnpu pytest`"
        )
    return _attached[-1]
