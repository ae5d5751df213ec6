"""Records: structures with a fixed bit layout, whose fields each carry owners and a meaning.

A `Record` is an Amaranth `StructLayout`: RTL uses it as a shape, software packs and unpacks
plain integers and bytes with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from amaranth.hdl import Shape, signed, unsigned
from amaranth.lib import data

__all__ = ["Field", "Owner", "Record", "reserved"]


class Owner(Enum):
    """Who touches a field."""

    UMD = "UMD"
    KMD = "KMD"
    FW = "firmware"
    HW = "hardware"
    HOST = "host"
    NONE = "nobody"


@dataclass(frozen=True)
class Field:
    """One field: its shape (bits, a signed width as `-bits`, or an enum), owners and meaning.

    `fills` writes it, `interprets` checks and understands it, `consumes` acts on it. `reset` is
    the value after reset, or the value that `pack` uses when none is given.
    """

    name: str
    shape: int | type[IntEnum]
    fills: Owner
    interprets: Owner
    consumes: Owner
    meaning: str
    reset: int = 0
    bits: int = 0

    @property
    def amaranth_shape(self) -> Any:
        """The shape that RTL sees."""
        if isinstance(self.shape, int):
            return signed(-self.shape) if self.shape < 0 else unsigned(self.shape)
        return unsigned(self.bits or Shape.cast(self.shape).width)

    @property
    def width(self) -> int:
        """Width in bits."""
        if isinstance(self.shape, int):
            return abs(self.shape)
        return self.bits or int(Shape.cast(self.shape).width)

    @property
    def is_signed(self) -> bool:
        """Whether the field is a two's complement number."""
        return isinstance(self.shape, int) and self.shape < 0


def reserved(name: str, bits: int) -> Field:
    """A field that must be zero; the interpreter of its record refuses anything else."""
    return Field(name, bits, Owner.NONE, Owner.NONE, Owner.NONE, "Reserved, must be zero.")


class Record(data.StructLayout):
    """A named layout. Fields are listed from bit 0 upwards.

    Raises:
        ValueError: the fields do not fill exactly `bits`.
    """

    def __init__(self, name: str, meaning: str, *fields: Field, bits: int | None = None) -> None:
        super().__init__({field.name: field.amaranth_shape for field in fields})
        if bits is not None and self.size != bits:
            raise ValueError(f"record {name} must have {bits} bits, not {self.size!r}")
        self.name = name
        self.meaning = meaning
        self.fields = {field.name: field for field in fields}
        self._places: list[tuple[str, int, int, Field]] = []
        offset = 0
        for field in fields:
            self._places.append((field.name, offset, (1 << field.width) - 1, field))
            offset += field.width
        self.reset = self.pack()

    @property
    def nbytes(self) -> int:
        """Size in bytes, rounded up."""
        return (int(self.size) + 7) // 8

    def offset_of(self, name: str) -> int:
        """Bit offset of a field."""
        return int(self[name].offset)

    def pack(self, values: Mapping[str, int] | None = None, /, **more: int) -> int:
        """Pack fields into an integer; fields not named take their reset value.

        Raises:
            KeyError: a name is no field of the record.
            ValueError: a value does not fit its field.
        """
        given = {**(values or {}), **more}
        word = 0
        for name, offset, mask, field in self._places:
            value = int(given.pop(name, field.reset))
            low, high = (-(mask >> 1) - 1, mask >> 1) if field.is_signed else (0, mask)
            if not low <= value <= high:
                raise ValueError(
                    f"{self.name}.{name} must be between {low:#x} and {high:#x}, not {value!r}"
                )
            word |= (value & mask) << offset
        if given:
            raise KeyError(f"{self.name} has no field {sorted(given)[0]!r}")
        return word

    def pack_bytes(self, values: Mapping[str, int] | None = None, /, **more: int) -> bytes:
        """Pack fields into little-endian bytes."""
        return self.pack(values, **more).to_bytes(self.nbytes, "little")

    def unpack(self, word: int) -> dict[str, int]:
        """The fields of an integer, by name."""
        result = {}
        for name, offset, mask, field in self._places:
            value = (word >> offset) & mask
            if field.is_signed and value > mask >> 1:
                value -= mask + 1
            result[name] = value
        return result

    def unpack_bytes(self, raw: bytes) -> dict[str, int]:
        """The fields of little-endian bytes, by name.

        Raises:
            ValueError: `raw` has another length than the record.
        """
        if len(raw) != self.nbytes:
            raise ValueError(f"{self.name} has {self.nbytes} bytes, not {len(raw)!r}")
        return self.unpack(int.from_bytes(raw, "little"))
