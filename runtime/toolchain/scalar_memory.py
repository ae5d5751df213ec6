"""Memory as the scalar unit's loads and stores see it: regions, held lines, and what fails.

The order of the checks is that of the hardware: the scalar address's alignment, the region, the
device address's alignment, whether the device has such an address, and what memory answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.isa import ARGUMENTS_BASE, CODE_BASE, RAM_BASE, RAM_BYTES, WINDOW_BASE, WINDOW_REGISTER
from abi.status import Status
from runtime.toolchain.events import MemoryFaultError, StopError, Trap

__all__ = ["Accessed", "Placed", "Read", "ScalarMemory", "Write"]

CODE_LIMIT = RAM_BASE - CODE_BASE
"""Bytes of code that have scalar addresses."""

Read = Callable[[int, int], bytes]
Write = Callable[[int, bytes], None]
Accessed = Callable[[int, bool, int, int], None]


@dataclass(frozen=True)
class Placed:
    """Code or arguments in global memory: device address and bytes, as the core's registers say."""

    address: int
    nbytes: int


class _Line(IntEnum):
    """The regions whose loads go through a line that is held."""

    CODE = 0
    ARGUMENTS = 1
    WINDOW = 2


class ScalarMemory:
    """Loads and stores of the scalar unit.

    Loads from global memory go through one held line for code, arguments and the window each. A
    held line shows what memory was when it was read; `drop` forgets all three. A store through
    the window forgets the window's line if that is the one it hits, but not the two others.

    Args:
        ram: the unit's RAM.
        bases: the base registers; the window is behind the last one.
        read: `read(device address, nbytes)` of whole lines, 64-aligned.
        write: `write(device address, bytes)`. Both may raise `MemoryFaultError`.
        accessed: `accessed(pc, is a store, device address, nbytes)`, for what goes through the
            window, before a store and after a load.

    Attributes: `code`, `arguments`: bytes, or where they lie in global memory.
    """

    def __init__(
        self,
        ram: bytearray,
        bases: Sequence[int],
        read: Read,
        write: Write,
        accessed: Accessed,
    ) -> None:
        self.code: bytes | Placed = b""
        self.arguments: bytes | Placed = b""
        self._ram = ram
        self._bases = bases
        self._read, self._write, self._accessed = read, write, accessed
        self._held: list[tuple[int, bytes] | None] = [None] * len(_Line)

    @property
    def code_bytes(self) -> int:
        """Bytes of code that have addresses."""
        return min(_size(self.code), CODE_LIMIT)

    @property
    def argument_bytes(self) -> int:
        """Bytes of the argument block."""
        return _size(self.arguments)

    def drop(self) -> None:
        """Forget the held lines."""
        self._held[:] = [None] * len(_Line)

    def load(self, pc: int, address: int, nbytes: int) -> bytes:
        """Bytes at a scalar address.

        Raises:
            StopError: the access fails.
        """
        if address % nbytes:
            raise _fails(Status.MISALIGNED, pc, address)
        if address >= WINDOW_BASE:
            device = self._device(pc, address, nbytes)
            raw = self._from_line(_Line.WINDOW, pc, device, nbytes)
            self._accessed(pc, False, device, nbytes)
            return raw
        if 0 <= address - RAM_BASE < RAM_BYTES:
            return bytes(self._ram[address - RAM_BASE : address - RAM_BASE + nbytes])
        if address >= ARGUMENTS_BASE:
            line, source, offset = _Line.ARGUMENTS, self.arguments, address - ARGUMENTS_BASE
            size = self.argument_bytes
        else:
            line, source, offset = _Line.CODE, self.code, address - CODE_BASE
            size = self.code_bytes
        if offset + nbytes > size:
            raise _fails(Status.ADDRESS_FAULT, pc, address, "no readable region")
        if isinstance(source, Placed):
            return self._from_line(line, pc, source.address + offset, nbytes)
        return source[offset : offset + nbytes]

    def store(self, pc: int, address: int, raw: bytes) -> None:
        """Write bytes at a scalar address.

        Raises:
            StopError: the access fails.
        """
        if address % len(raw):
            raise _fails(Status.MISALIGNED, pc, address)
        if 0 <= address - RAM_BASE < RAM_BYTES:
            self._ram[address - RAM_BASE : address - RAM_BASE + len(raw)] = raw
            return
        if address < WINDOW_BASE:
            raise _fails(Status.ADDRESS_FAULT, pc, address, "no writable region")
        device = self._device(pc, address, len(raw))
        line = self._line_at(pc, device)
        held = self._held[_Line.WINDOW]
        if held is not None and held[0] == line:
            self._held[_Line.WINDOW] = None
        self._accessed(pc, True, device, len(raw))
        try:
            self._write(device, raw)
        except MemoryFaultError as fault:
            raise _fails(fault.status, pc, line) from fault

    def missing_code(self, pc: int) -> StopError | None:
        """Why an instruction that the code's size includes cannot be fetched, if that is so."""
        if pc >= self.code_bytes // 4 * 4 or not isinstance(self.code, Placed):
            return None
        try:
            line = self._line_at(pc, self.code.address + pc)
            self._read(line, LINE_BYTES)
        except MemoryFaultError as fault:
            return _fails(fault.status, pc, line)
        except StopError as stop:
            return stop
        return None

    def _device(self, pc: int, address: int, nbytes: int) -> int:
        """Device address behind the window."""
        device = self._bases[WINDOW_REGISTER] + address - WINDOW_BASE
        if device % nbytes:
            raise _fails(Status.MISALIGNED, pc, device, "the window's base is misaligned")
        return device

    def _line_at(self, pc: int, device: int) -> int:
        """Address of the line around a device address."""
        line = device & -LINE_BYTES
        if line >> ADDRESS_BITS:
            raise _fails(Status.ADDRESS_FAULT, pc, line, f"beyond {ADDRESS_BITS} bits")
        return line

    def _from_line(self, which: _Line, pc: int, device: int, nbytes: int) -> bytes:
        line = self._line_at(pc, device)
        held = self._held[which]
        if held is None or held[0] != line:
            try:
                held = (line, self._read(line, LINE_BYTES))
            except MemoryFaultError as fault:
                raise _fails(fault.status, pc, line) from fault
            self._held[which] = held
        return held[1][device - line : device - line + nbytes]


def _size(region: bytes | Placed) -> int:
    return region.nbytes if isinstance(region, Placed) else len(region)


def _fails(status: Status, pc: int, address: int, reason: str = "") -> StopError:
    return StopError(Trap(status, pc, address, reason=reason))
