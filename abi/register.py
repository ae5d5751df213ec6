"""Registers: 64-bit words with fields, access and reset value, placed in frozen maps."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from abi.record import Field, Record

__all__ = ["Access", "Place", "Register", "RegisterMap"]

REGISTER_BYTES = 8


class Access(Enum):
    """How software may use a register."""

    RW = "read and write"
    RO = "read only"
    """A write is answered with SLVERR."""

    WO = "write only"
    """A write triggers; a read is answered with SLVERR."""

    W1C = "write 1 to clear"
    """Hardware sets bits, software clears those where it writes 1."""


class Register(Record):
    """A register: a record of at most 64 bits; bits beyond its fields read as zero."""

    def __init__(self, name: str, access: Access, meaning: str, *fields: Field) -> None:
        super().__init__(name, meaning, *fields)
        if self.size > 64:
            raise ValueError(f"register {name} must have at most 64 bits, not {self.size!r}")
        self.access = access


@dataclass(frozen=True)
class Place:
    """A register, or an array of `count` of them, at a byte offset of a map."""

    name: str
    offset: int
    register: Register
    count: int = 1
    stride: int = REGISTER_BYTES

    def address(self, index: int = 0) -> int:
        """Byte offset of element `index`.

        Raises:
            IndexError: there is no such element.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"{self.name} has elements 0 to {self.count - 1}, not {index!r}")
        return self.offset + index * self.stride


class RegisterMap:
    """A frozen map of registers in an address space of `nbytes` bytes.

    Raises:
        ValueError: two places overlap, or one is misaligned or outside.
    """

    def __init__(self, name: str, meaning: str, nbytes: int, *places: Place) -> None:
        self.name = name
        self.meaning = meaning
        self.nbytes = nbytes
        self._places = {place.name: place for place in places}
        taken: dict[int, str] = {}
        for place in places:
            for index in range(place.count):
                address = place.address(index)
                if address % REGISTER_BYTES or not 0 <= address <= nbytes - REGISTER_BYTES:
                    raise ValueError(f"{name}.{place.name} must lie inside, not at {address:#x}")
                if address in taken:
                    raise ValueError(f"{name}.{place.name} overlaps {taken[address]}")
                taken[address] = place.name

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    def __getitem__(self, name: str) -> Place:
        return self._places[name]

    def address(self, name: str, index: int = 0) -> int:
        """Byte offset of a register."""
        return self._places[name].address(index)
