"""What the firmware can do: its own bus port, its event line, and time that passes."""

from typing import Protocol

__all__ = ["FirmwarePort", "PortError"]


class PortError(Exception):
    """A register access of the firmware was answered with SLVERR.

    Attributes: `address` (byte offset of the port) and `write`.
    """

    def __init__(self, address: int, *, write: bool) -> None:
        super().__init__(f"{'write to' if write else 'read of'} {address:#x} was refused")
        self.address = address
        self.write = write


class FirmwarePort(Protocol):
    """The device CPU's view of the chip. Addresses are byte offsets of the firmware port."""

    def read(self, address: int) -> int:
        """Read a 64-bit register; costs real bus cycles.

        Raises:
            PortError: the device answered with an error.
        """
        ...

    def write(self, address: int, value: int) -> None:
        """Write a 64-bit register; costs real bus cycles.

        Raises:
            PortError: the device answered with an error.
        """
        ...

    def wait(self, until: int) -> bool:
        """Sleep until the event line is high (True) or device time reaches `until` (False)."""
        ...

    def compute(self, cycles: int) -> None:
        """Let `cycles` pass: the cost of the program's own computing."""
        ...

    def now(self) -> int:
        """Device time in cycles."""
        ...

    def note(self, event: str, **fields: int) -> None:
        """Leave a note in the trace; costs no cycles (a debug probe, not a register)."""
        ...
