"""Makes programs of the scalar unit, by calls or from text."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from abi.core import COMMANDS, OPCODE_PIPE, CommandOpcode, Pipe
from abi.isa import INSTRUCTIONS, Instruction
from runtime.toolchain.operands import (
    FORMAT_SLOTS,
    NAMED,
    Kind,
    OperandError,
    Slot,
    encode,
    register_number,
)

__all__ = ["Assembler", "AssemblyError", "Operand"]

Operand = int | str
"""A number, an enum member, or the name of a register, label, pipe or special value."""

WORD_BYTES = 4
WORD_MASK = 0xFFFF_FFFF
TEMPORARIES = ("t5", "t6")


class AssemblyError(ValueError):
    """A program that cannot be assembled; the message says where and why."""


@dataclass(frozen=True)
class _Pending:
    """A word whose value waits for the labels."""

    instruction: Instruction | None
    values: tuple[Operand, ...]
    part: str
    place: str


class Assembler:
    """Collects instructions; labels may be used before they are defined.

    >>> asm = Assembler()
    >>> asm.li("a0", 3)
    >>> asm.label("loop")
    >>> asm.emit("addi", "a0", "a0", -1)
    >>> asm.emit("bne", "a0", "zero", "loop")
    >>> asm.emit("npu.exit")
    >>> code = asm.assemble()

    Operands come in the order of the format's text (`abi.isa.Format`): a load is
    `emit("lw", rd, immediate, rs1)`. A branch or jump takes a label or an address.
    """

    def __init__(self) -> None:
        self._words: list[_Pending] = []
        self._labels: dict[str, int] = {}
        self._place = ""

    @property
    def address(self) -> int:
        """Address of the next word, in bytes from the start of the program."""
        return WORD_BYTES * len(self._words)

    @property
    def labels(self) -> dict[str, int]:
        """Address of each label defined so far."""
        return dict(self._labels)

    def at(self, place: str) -> None:
        """Say in errors that what follows stands at `place` (such as "line 3")."""
        self._place = place

    def label(self, name: str) -> None:
        """Define a label here.

        Raises:
            AssemblyError: it is defined already, or is no name.
        """
        if not name.replace(".", "_").replace("$", "_").isidentifier():
            raise self._error(f"label must be a name, not {name!r}")
        if name in self._labels:
            raise self._error(f"label {name} is defined twice")
        self._labels[name] = self.address

    def emit(self, name: str, *operands: Operand) -> None:
        """Append one instruction of `abi.isa`.

        Raises:
            AssemblyError: there is no such instruction, or an operand does not fit it.
        """
        instruction = INSTRUCTIONS.get(name)
        if instruction is None:
            raise self._error(f"there is no instruction {name!r}")
        slots = FORMAT_SLOTS[instruction.format]
        if len(operands) != len(slots):
            raise self._error(
                f"{name} has {len(slots)} operands ({instruction.format.value}), "
                f"not {len(operands)}"
            )
        pending = _Pending(instruction, operands, "", self._place)
        if not any(slot.kind is Kind.TARGET for slot in slots):
            self._encode(pending, self.address)
        self._words.append(pending)

    def word(self, value: Operand) -> None:
        """Append a word of data: a number of 32 bits, or the address of a label."""
        if not isinstance(value, str) and not -(1 << 31) <= value <= WORD_MASK:
            raise self._error(f"word must have 32 bits, not {value!r}")
        self._words.append(_Pending(None, (value,), "", self._place))

    def li(self, rd: Operand, value: int) -> None:
        """rd = a number of 32 bits, signed or unsigned; one or two instructions."""
        if not -(1 << 31) <= value <= WORD_MASK:
            raise self._error(f"li must have a number of 32 bits, not {value!r}")
        low = (value & 0xFFF) - ((value & 0x800) << 1)
        high = (value - low >> 12) & 0xFFFFF
        if high == 0:
            self.emit("addi", rd, "zero", low)
            return
        self.emit("lui", rd, high)
        if low:
            self.emit("addi", rd, rd, low)

    def la(self, rd: Operand, label: str) -> None:
        """rd = address of a label in the program; two instructions."""
        for name, part in (("lui", "high"), ("addi", "low")):
            values = (rd, label) if part == "high" else (rd, rd, label)
            self._words.append(_Pending(INSTRUCTIONS[name], values, part, self._place))

    def mv(self, rd: Operand, rs1: Operand) -> None:
        """rd = rs1."""
        self.emit("addi", rd, rs1, 0)

    def nop(self) -> None:
        """Nothing."""
        self.emit("addi", "zero", "zero", 0)

    def invert(self, rd: Operand, rs1: Operand) -> None:
        """rd = ~rs1; `not` in text."""
        self.emit("xori", rd, rs1, -1)

    def neg(self, rd: Operand, rs1: Operand) -> None:
        """rd = -rs1."""
        self.emit("sub", rd, "zero", rs1)

    def j(self, target: Operand) -> None:
        """Jump."""
        self.emit("jal", "zero", target)

    def call(self, target: Operand) -> None:
        """Jump, with the return address in ra."""
        self.emit("jal", "ra", target)

    def ret(self) -> None:
        """Jump to ra."""
        self.emit("jalr", "zero", 0, "ra")

    def beqz(self, rs1: Operand, target: Operand) -> None:
        """Branch if rs1 is zero."""
        self.emit("beq", rs1, "zero", target)

    def bnez(self, rs1: Operand, target: Operand) -> None:
        """Branch if rs1 is not zero."""
        self.emit("bne", rs1, "zero", target)

    def command(
        self,
        opcode: CommandOpcode,
        *,
        pipe: Pipe | None = None,
        wait: Iterable[int] = (),
        give: Iterable[int] = (),
        **fields: int,
    ) -> None:
        """Issue a command whose fields are known now; uses t5 and t6.

        All eight words are set. `pipe` is needed for a NOP only. `wait` and `give` are the flags
        that it takes and adds one to.

        Raises:
            AssemblyError: a field does not fit, or a NOP names no pipe.
        """
        target = OPCODE_PIPE.get(opcode, pipe)
        if target is None:
            raise self._error("a NOP needs a pipe, not None")
        try:
            packed = COMMANDS[opcode].pack({"opcode": int(opcode), **fields})
        except (KeyError, ValueError) as error:
            raise self._error(str(error.args[0])) from error
        words = [packed >> 32 * index & WORD_MASK for index in range(8)]
        for flag in wait:
            self.emit("npu.wait", target, flag)
        for flag in give:
            self.emit("npu.set", target, flag)
        low, high = TEMPORARIES
        for index in (2, 4, 6):
            sources = [self._constant(rd, words[index + at]) for at, rd in enumerate((low, high))]
            self.emit("npu.pair", target, index, *sources)
        self.emit("npu.word", target, 1, self._constant(low, words[1]))
        self.emit("npu.issue", target, self._constant(low, words[0]))

    def assemble(self) -> bytes:
        """The program, little-endian.

        Raises:
            AssemblyError: a label is not defined, or a target is too far away.
        """
        words = []
        for index, pending in enumerate(self._words):
            words.append(self._encode(pending, WORD_BYTES * index))
        return b"".join(word.to_bytes(WORD_BYTES, "little") for word in words)

    def _constant(self, rd: str, value: int) -> str:
        """A register that holds a number: zero, or rd after an li."""
        if value == 0:
            return "zero"
        self.li(rd, value)
        return rd

    def _encode(self, pending: _Pending, address: int) -> int:
        self._place = pending.place or self._place
        if pending.instruction is None:
            return self._address_of(pending.values[0]) & WORD_MASK
        slots = FORMAT_SLOTS[pending.instruction.format]
        try:
            values = []
            for slot, operand in zip(slots, pending.values, strict=True):
                if pending.part and isinstance(operand, str) and slot.kind is Kind.NUMBER:
                    values.append(self._part(pending.part, operand))
                elif slot.kind is Kind.TARGET:
                    values.append(self._distance(pending, slot, operand, address))
                else:
                    values.append(self._value(slot, operand))
            return encode(pending.instruction, values)
        except OperandError as error:
            raise self._error(f"{pending.instruction.name}: {error}") from error

    def _part(self, part: str, label: str) -> int:
        value = self._address_of(label)
        low = (value & 0xFFF) - ((value & 0x800) << 1)
        return low if part == "low" else value - low >> 12

    def _value(self, slot: Slot, operand: Operand) -> int:
        if not isinstance(operand, str):
            return int(operand)
        if slot.kind is Kind.REGISTER:
            return register_number(operand)
        names: type[IntEnum] | None = NAMED.get(slot.kind)
        if names is None:
            raise OperandError(f"{slot.name} must be a number, not {operand!r}")
        try:
            return names[operand.upper()].value
        except KeyError:
            known = ", ".join(names.__members__)
            raise OperandError(f"{slot.name} must be one of {known}, not {operand!r}") from None

    def _distance(self, pending: _Pending, slot: Slot, operand: Operand, address: int) -> int:
        distance = self._address_of(operand) - address
        if not slot.low <= distance <= slot.high:
            name = pending.instruction.name if pending.instruction else ""
            raise self._error(
                f"{name} at {address:#x}: {operand} is {distance} bytes away, "
                f"must be between {slot.low} and {slot.high}"
            )
        return distance

    def _address_of(self, operand: Operand) -> int:
        if not isinstance(operand, str):
            return int(operand)
        if operand not in self._labels:
            raise self._error(f"label {operand} is not defined")
        return self._labels[operand]

    def _error(self, text: str) -> AssemblyError:
        return AssemblyError(f"{self._place}: {text}" if self._place else text)
