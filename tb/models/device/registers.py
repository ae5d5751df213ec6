"""A block of registers that behaves as its map says: access rights, strobes, reset values."""

from collections.abc import Callable

from abi.record import Owner
from abi.register import Access, Place, Register, RegisterMap

__all__ = ["RegisterFile", "SlaveError"]

WORD = (1 << 64) - 1
BYTE_MASKS = [sum(0xFF << (8 * i) for i in range(8) if strobe >> i & 1) for strobe in range(256)]


class SlaveError(Exception):
    """The access is answered with SLVERR."""


def _writable(register: Register) -> int:
    """Bits that a write changes: fields of an RW register that hardware or nobody fills stay."""
    if register.access is not Access.RW:
        return (1 << register.size) - 1
    return sum(
        ((1 << field.width) - 1) << register.offset_of(name)
        for name, field in register.fields.items()
        if field.fills not in (Owner.HW, Owner.NONE)
    )


class RegisterFile:
    """Registers of one map.

    `on_read[name](index)` supplies the value of a read-only register; `on_write[name](index,
    value)` sees a write after it is stored (RW) or instead of that (WO), and may raise
    `SlaveError` to refuse it. Without a reader, the value is the stored word.
    """

    def __init__(self, register_map: RegisterMap) -> None:
        self.map = register_map
        self.on_read: dict[str, Callable[[int], int]] = {}
        self.on_write: dict[str, Callable[[int, int], None]] = {}
        self._decode: dict[int, tuple[Place, int]] = {
            place.address(index): (place, index)
            for place in register_map
            for index in range(place.count)
        }
        self._masks = {place.name: _writable(place.register) for place in register_map}
        self.words: dict[str, list[int]] = {}
        self.reset()

    def reset(self) -> None:
        """All words take their reset values."""
        for place in self.map:
            self.words[place.name] = [place.register.reset] * place.count

    def _place(self, offset: int) -> tuple[Place, int]:
        found = self._decode.get(offset)
        if found is None:
            raise SlaveError
        return found

    def read(self, offset: int) -> int:
        """Read the word at a byte offset.

        Raises:
            SlaveError: nothing there, or write only.
        """
        place, index = self._place(offset)
        if place.register.access is Access.WO:
            raise SlaveError
        reader = self.on_read.get(place.name)
        return self.words[place.name][index] if reader is None else reader(index)

    def write(self, offset: int, value: int, strobe: int = 0xFF) -> None:
        """Write the strobed bytes of the word at a byte offset.

        Raises:
            SlaveError: nothing there, read only, or refused.
        """
        place, index = self._place(offset)
        mask = BYTE_MASKS[strobe] & self._masks[place.name]
        writer = self.on_write.get(place.name)
        words = self.words[place.name]
        match place.register.access:
            case Access.RO:
                raise SlaveError
            case Access.W1C:
                words[index] &= ~(value & mask)
            case Access.RW:
                words[index] = (words[index] & ~mask) | (value & mask)
                value = words[index]
            case Access.WO:
                value &= mask
        if writer is not None:
            writer(index, value)
