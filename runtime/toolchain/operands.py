"""Operands of instructions: where their bits lie, what they may be and how they are written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from abi.core import FLAGS, PIPES, Pipe
from abi.isa import (
    BASE_REGISTERS,
    INSTRUCTIONS,
    REGISTER_NAMES,
    Format,
    Instruction,
    Special,
)

__all__ = [
    "FORMAT_SLOTS",
    "Decoded",
    "Kind",
    "OperandError",
    "Slot",
    "decode",
    "encode",
    "register_number",
]

WORD_BITS = 32


class OperandError(ValueError):
    """An operand that its instruction cannot have."""


class Kind(Enum):
    """What an operand names."""

    REGISTER = "a register"
    NUMBER = "a number"
    TARGET = "an address in the program, written to the word as its distance"
    PIPE = "a pipe"
    SPECIAL = "a special value"


@dataclass(frozen=True)
class Slot:
    """One operand of a format.

    Args:
        name: its name in the format's text.
        kind: what it names.
        pieces: (bit in the word, bits, bit in the value) of each piece of it.
        low, high: smallest and largest value.
        step: values are multiples of it.
    """

    name: str
    kind: Kind
    pieces: tuple[tuple[int, int, int], ...]
    low: int
    high: int
    step: int = 1

    def insert(self, value: int) -> int:
        """The word's bits for a value.

        Raises:
            OperandError: the value is out of range.
        """
        if not self.low <= value <= self.high or value % self.step:
            multiple = f" and a multiple of {self.step}" if self.step > 1 else ""
            raise OperandError(
                f"{self.name} must be between {self.low} and {self.high}{multiple}, not {value!r}"
            )
        word = 0
        for position, bits, shift in self.pieces:
            word |= (value >> shift & ((1 << bits) - 1)) << position
        return word

    def extract(self, word: int) -> int:
        """The value in a word, which may be out of range."""
        value = top = 0
        for position, bits, shift in self.pieces:
            value |= (word >> position & ((1 << bits) - 1)) << shift
            top = max(top, bits + shift)
        if self.low < 0 and value >> (top - 1):
            value -= 1 << top
        return value

    def accepts(self, value: int) -> bool:
        """Whether a value of these bits is one that the slot can have."""
        return self.low <= value <= self.high


def _register(name: str, position: int) -> Slot:
    return Slot(name, Kind.REGISTER, ((position, 5, 0),), 0, 31)


def _number(name: str, position: int, bits: int, low: int, high: int) -> Slot:
    return Slot(name, Kind.NUMBER, ((position, bits, 0),), low, high)


def _pipe(position: int, largest: Pipe) -> Slot:
    return Slot("pipe", Kind.PIPE, ((position, 3, 0),), 0, int(largest))


_RD, _RS1, _RS2 = _register("rd", 7), _register("rs1", 15), _register("rs2", 20)
_IMMEDIATE = _number("immediate", 20, 12, -2048, 2047)
_STORE = Slot("immediate", Kind.NUMBER, ((7, 5, 0), (25, 7, 5)), -2048, 2047)
_BRANCH = Slot(
    "target", Kind.TARGET, ((8, 4, 1), (25, 6, 5), (7, 1, 11), (31, 1, 12)), -4096, 4094, 2
)
_JUMP = Slot(
    "target",
    Kind.TARGET,
    ((21, 10, 1), (20, 1, 11), (12, 8, 12), (31, 1, 20)),
    -(1 << 20),
    (1 << 20) - 2,
    2,
)
_SPECIAL = Slot("special", Kind.SPECIAL, ((20, 12, 0),), 0, max(Special))
_WORKING_PIPE = max(PIPES)

FORMAT_SLOTS: dict[Format, tuple[Slot, ...]] = {
    Format.REGISTER: (_RD, _RS1, _RS2),
    Format.IMMEDIATE: (_RD, _RS1, _IMMEDIATE),
    Format.SHIFT: (_RD, _RS1, _number("shift", 20, 5, 0, 31)),
    Format.LOAD: (_RD, _IMMEDIATE, _RS1),
    Format.STORE: (_RS2, _STORE, _RS1),
    Format.BRANCH: (_RS1, _RS2, _BRANCH),
    Format.UPPER: (_RD, _number("immediate", 12, 20, 0, (1 << 20) - 1)),
    Format.JUMP: (_RD, _JUMP),
    Format.NONE: (),
    Format.GET: (_RD, _SPECIAL),
    Format.WORD: (_pipe(28, _WORKING_PIPE), _number("index", 25, 3, 1, 7), _RS1),
    Format.PAIR: (_pipe(28, _WORKING_PIPE), _number("index", 25, 3, 1, 6), _RS1, _RS2),
    Format.BASE: (_number("base", 7, 4, 0, BASE_REGISTERS - 1), _RS1, _RS2),
    Format.FLAG: (_pipe(25, Pipe.SCALAR), _number("flag", 20, 5, 0, FLAGS - 1)),
    Format.ISSUE: (_pipe(20, _WORKING_PIPE), _RS1),
}
"""Operands of each format, in the order in which they are written."""

NAMED: dict[Kind, type[IntEnum]] = {Kind.PIPE: Pipe, Kind.SPECIAL: Special}
"""Kinds whose values have names."""

_REGISTERS = {
    **{name: number for number, name in enumerate(REGISTER_NAMES)},
    **{f"x{number}": number for number in range(32)},
    "fp": 8,
}


def register_number(name: str) -> int:
    """Number of a register, from `x5` or `t0`.

    Raises:
        OperandError: there is no such register.
    """
    number = _REGISTERS.get(name.lower())
    if number is None:
        raise OperandError(f"register must be x0 to x31 or an ABI name, not {name!r}")
    return number


def encode(instruction: Instruction, values: Sequence[int]) -> int:
    """The word of an instruction; a target is given as its distance in bytes.

    Raises:
        OperandError: a value is out of range, or their number is wrong.
    """
    slots = FORMAT_SLOTS[instruction.format]
    if len(values) != len(slots):
        raise OperandError(
            f"{instruction.name} has {len(slots)} operands ({instruction.format.value}), "
            f"not {len(values)!r}"
        )
    word = instruction.match
    for slot, value in zip(slots, values, strict=True):
        word |= slot.insert(int(value))
    return word


@dataclass(frozen=True)
class Decoded:
    """An instruction with its operands, in the order of the format; targets are distances."""

    instruction: Instruction
    values: tuple[int, ...]
    named: dict[str, int] = field(compare=False)

    def __getitem__(self, name: str) -> int:
        return self.named[name]


def _by_opcode() -> dict[int, list[Instruction]]:
    table: dict[int, list[Instruction]] = {}
    for instruction in INSTRUCTIONS.values():
        table.setdefault(instruction.match & 0x7F, []).append(instruction)
    return table


_TABLE = _by_opcode()


def decode(word: int) -> Decoded | None:
    """The instruction of a word, or None if the word is illegal."""
    for instruction in _TABLE.get(word & 0x7F, ()):
        if word & instruction.mask == instruction.match:
            slots = FORMAT_SLOTS[instruction.format]
            values = tuple(slot.extract(word) for slot in slots)
            if not all(slot.accepts(value) for slot, value in zip(slots, values, strict=True)):
                return None
            names = (slot.name for slot in slots)
            return Decoded(instruction, values, dict(zip(names, values, strict=True)))
    return None
