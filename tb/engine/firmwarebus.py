"""`firmware.port.FirmwarePort` on the simulated machine, with faults on request."""

from firmware.port import PortError
from tb.engine.actors import Actor, Actors
from tb.engine.clockwork import FIRMWARE

__all__ = ["FirmwareBus", "FirmwareBusError", "InjectedCrashError", "Note"]

Note = tuple[int, str, dict[str, int]]
"""A note in the trace: cycle, event, fields."""


class InjectedCrashError(Exception):
    """What `Machine.crash_firmware` raises inside the firmware: it fails no program."""


class FirmwareBusError(PortError):
    """A register access of the firmware failed: a bug of the firmware, or of the chip.

    Attributes: `address` (bytes), `write`, `response` (AXI code; None = no answer in time).
    """

    def __init__(self, address: int, *, write: bool, response: int | None) -> None:
        kind = "write to" if write else "read of"
        answer = {2: "SLVERR", 3: "DECERR", None: "no response"}.get(response, repr(response))
        super().__init__(address, write=write)
        self.args = (f"the firmware's {kind} {address:#x} was answered with {answer}",)
        self.response = response


class FirmwareBus:
    """The device CPU's view of the chip; used from inside the firmware's actor.

    Attributes: `notes` (the trace notes), `slowness` (computing takes so many times longer).
    """

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._stalled_until = 0
        self._sleeper: Actor | None = None
        self.slowness = 1
        self.notes: list[Note] = []

    # ---- the port ----

    def read(self, address: int) -> int:
        """Read a 64-bit register.

        Raises:
            FirmwareBusError: the access failed.
        """
        response, data = self._actors.transact(FIRMWARE, False, address)
        self._stand_still()
        if response != 0:
            raise FirmwareBusError(address, write=False, response=response)
        return data

    def write(self, address: int, value: int) -> None:
        """Write a 64-bit register.

        Raises:
            FirmwareBusError: the access failed.
        """
        response, _ = self._actors.transact(FIRMWARE, True, address, value)
        self._stand_still()
        if response != 0:
            raise FirmwareBusError(address, write=True, response=response)

    def wait(self, until: int) -> bool:
        """Sleep until the event line is high (True) or device time reaches `until` (False)."""
        happened = self._actors.wait_event(until)
        self._stand_still()
        return happened

    def compute(self, cycles: int) -> None:
        """Let `cycles` pass, times `slowness`."""
        self._actors.sleep(self._actors.now() + cycles * self.slowness)
        self._stand_still()

    def now(self) -> int:
        """Device time in cycles."""
        return self._actors.now()

    def note(self, event: str, **fields: int) -> None:
        """Leave a note in the trace."""
        self.notes.append((self._actors.now(), event, fields))

    # ---- faults on request ----

    def stall(self, until: int) -> None:
        """The firmware stands still, at its next return from the port, until device time `until`.

        Its accesses in flight end; nothing else of it happens.
        """
        self._stalled_until = until

    def resume(self) -> None:
        """The firmware goes on."""
        self._stalled_until = 0
        if self._sleeper is not None:
            self._actors.wake(self._sleeper)

    def _stand_still(self) -> None:
        while self._actors.now() < self._stalled_until:
            self._sleeper = self._actors.current
            try:
                self._actors.wait_for("the end of its stall", self._stalled_until)
            finally:
                self._sleeper = None
