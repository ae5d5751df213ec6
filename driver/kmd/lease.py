"""The bus, as one generation of the device may use it."""

import numpy as np
import numpy.typing as npt

from driver.bus import Bus, BusError, Region
from driver.errors import StaleHandleError

__all__ = ["Lease"]


class Lease:
    """A bus that refuses everything once its generation has ended.

    A host thread may be inside any operation while another resets or closes the device. Its
    operation ends with the error given to `end`, not with an answer from the device's next life.

    Attributes: `waiting`, host threads inside `wait_interrupt`.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ended: tuple[type[StaleHandleError], str] | None = None
        self.now = bus.now
        self.waiting = 0

    def end(self, kind: type[StaleHandleError], message: str) -> None:
        """End the generation: every operation raises this error from now on."""
        self._ended = kind, message

    def _check(self) -> None:
        if self._ended is not None:
            kind, message = self._ended
            raise kind(message)

    def read(self, region: Region, offset: int, size: int = 8) -> int:
        """See `Bus.read`."""
        self._check()
        try:
            value = self._bus.read(region, offset, size)
        except BusError:
            self._check()  # A chip in reset answers with errors.
            raise
        self._check()
        return value

    def write(self, region: Region, offset: int, value: int, size: int = 8) -> None:
        """See `Bus.write`."""
        self._check()
        try:
            self._bus.write(region, offset, value, size)
        except BusError:
            self._check()
            raise
        self._check()

    def allocate_pages(self, count: int) -> int:
        """See `Bus.allocate_pages`."""
        self._check()
        return self._bus.allocate_pages(count)

    def free_pages(self, address: int, count: int) -> None:
        """See `Bus.free_pages`."""
        self._check()
        self._bus.free_pages(address, count)

    def host_view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """See `Bus.host_view`."""
        self._check()
        return self._bus.host_view(address, nbytes)

    def store(self, address: int, data: bytes) -> None:
        """See `Bus.store`."""
        self._check()
        self._bus.store(address, data)

    def load(self, address: int, nbytes: int) -> bytes:
        """See `Bus.load`."""
        self._check()
        data = self._bus.load(address, nbytes)
        self._check()
        return data

    def barrier(self) -> None:
        """See `Bus.barrier`."""
        self._check()
        self._bus.barrier()

    def wait_interrupt(self, vectors: int, until: int) -> int:
        """See `Bus.wait_interrupt`."""
        self._check()
        self.waiting += 1
        try:
            taken = self._bus.wait_interrupt(vectors, until)
        finally:
            self.waiting -= 1
        self._check()
        return taken
