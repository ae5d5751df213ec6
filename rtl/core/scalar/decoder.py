"""The decoder of the scalar unit, made from the table of instructions."""

from collections.abc import Sequence
from enum import IntEnum

from amaranth import C, Cat, Module, Mux
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import Pipe
from abi.isa import INSTRUCTIONS, Format, Instruction, Special
from rtl.core.scalar.alu import AluOperation

__all__ = ["Decoder", "Kind"]


class Kind(IntEnum):
    """What the unit does with an instruction."""

    ILLEGAL = 0
    COMPUTE = 1
    ADDRESS = 2
    BRANCH = 3
    JUMP = 4
    JUMP_REGISTER = 5
    LOAD = 6
    STORE = 7
    MULTIPLY = 8
    DIVIDE = 9
    FENCE = 10
    BREAK = 11
    GET = 12
    WORD = 13
    PAIR = 14
    BASE = 15
    WAIT = 16
    SET = 17
    ISSUE = 18
    BARRIER = 19
    EXIT = 20


_Effect = tuple[Kind, AluOperation]

_COMPUTE: dict[str, AluOperation] = {
    "lui": AluOperation.ADD,
    "addi": AluOperation.ADD,
    "slti": AluOperation.LESS,
    "sltiu": AluOperation.LESS_UNSIGNED,
    "xori": AluOperation.XOR,
    "ori": AluOperation.OR,
    "andi": AluOperation.AND,
    "slli": AluOperation.SHIFT_LEFT,
    "srli": AluOperation.SHIFT_RIGHT,
    "srai": AluOperation.SHIFT_RIGHT_SIGNED,
    "add": AluOperation.ADD,
    "sub": AluOperation.SUBTRACT,
    "sll": AluOperation.SHIFT_LEFT,
    "slt": AluOperation.LESS,
    "sltu": AluOperation.LESS_UNSIGNED,
    "xor": AluOperation.XOR,
    "srl": AluOperation.SHIFT_RIGHT,
    "sra": AluOperation.SHIFT_RIGHT_SIGNED,
    "or": AluOperation.OR,
    "and": AluOperation.AND,
}

_BRANCH: dict[str, AluOperation] = {
    "beq": AluOperation.EQUAL,
    "bne": AluOperation.EQUAL,
    "blt": AluOperation.LESS,
    "bge": AluOperation.LESS,
    "bltu": AluOperation.LESS_UNSIGNED,
    "bgeu": AluOperation.LESS_UNSIGNED,
}

_OTHER: dict[str, Kind] = {
    "auipc": Kind.ADDRESS,
    "jal": Kind.JUMP,
    "jalr": Kind.JUMP_REGISTER,
    **dict.fromkeys(("lb", "lh", "lw", "lbu", "lhu"), Kind.LOAD),
    **dict.fromkeys(("sb", "sh", "sw"), Kind.STORE),
    **dict.fromkeys(("mul", "mulh", "mulhsu", "mulhu"), Kind.MULTIPLY),
    **dict.fromkeys(("div", "divu", "rem", "remu"), Kind.DIVIDE),
    "fence": Kind.FENCE,
    "ecall": Kind.BREAK,
    "ebreak": Kind.BREAK,
    "npu.get": Kind.GET,
    "npu.word": Kind.WORD,
    "npu.pair": Kind.PAIR,
    "npu.base": Kind.BASE,
    "npu.wait": Kind.WAIT,
    "npu.set": Kind.SET,
    "npu.issue": Kind.ISSUE,
    "npu.barrier": Kind.BARRIER,
    "npu.exit": Kind.EXIT,
}

_EFFECTS: dict[str, _Effect] = {
    **{name: (Kind.COMPUTE, operation) for name, operation in _COMPUTE.items()},
    **{name: (Kind.BRANCH, operation) for name, operation in _BRANCH.items()},
    **{name: (kind, AluOperation.ADD) for name, kind in _OTHER.items()},
}
assert _EFFECTS.keys() == INSTRUCTIONS.keys()
assert [int(special) for special in Special] == list(range(len(Special)))

_OPCODE = (0, 7)
_FUNCT3 = (12, 3)


def _bits(field: tuple[int, int]) -> int:
    """The mask of a field."""
    return ((1 << field[1]) - 1) << field[0]


def _pattern(instruction: Instruction) -> str:
    """The instruction's word with `-` for free bits, as `m.Case` takes it."""
    return "".join(
        str(instruction.match >> bit & 1) if instruction.mask >> bit & 1 else "-"
        for bit in reversed(range(32))
    )


class Decoder(wiring.Component):
    """Decodes an instruction word.

    Members:
        word: 32 bits.
        kind: a `Kind`; ILLEGAL also for an npu.* that names no special, pipe or word.
        operation: an `AluOperation`; for branches the comparison, of which bit 12 of the word
            says whether it is inverted.
        immediate: 32 bits, sign extended.
        use_immediate: 1 bit; the second operand is the immediate, not rs2.
        from_zero: 1 bit; the first operand is zero, not rs1.

    Timing: combinational.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "word": In(32),
                "kind": Out(Kind),
                "operation": Out(AluOperation),
                "immediate": Out(32),
                "use_immediate": Out(1),
                "from_zero": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.d.comb += [self.operation.eq(AluOperation.ADD), self.kind.eq(Kind.ILLEGAL)]
        self._select(m, list(INSTRUCTIONS.values()), [_OPCODE, _FUNCT3])
        return m

    def _select(
        self, m: Module, group: Sequence[Instruction], fields: Sequence[tuple[int, int]]
    ) -> None:
        """Tell the instructions of a group apart, by one field after the other."""
        if fields:
            (start, width), mask = fields[0], _bits(fields[0])
            if not all(one.mask & mask == mask for one in group):
                self._select(m, group, fields[1:])
                return
            values = sorted({one.match >> start & (1 << width) - 1 for one in group})
            with m.Switch(self.word[start : start + width]):
                for value in values:
                    with m.Case(value):
                        part = [one for one in group if one.match & mask == value << start]
                        self._select(m, part, fields[1:])
            return
        with m.Switch(self.word):
            for one in group:
                with m.Case(_pattern(one)):
                    self._decode(m, one)

    def _decode(self, m: Module, one: Instruction) -> None:
        """Set the outputs for an instruction."""
        kind, operation = _EFFECTS[one.name]
        word = self.word
        wrong = self._wrong(one.format)
        m.d.comb += [
            self.kind.eq(kind if wrong is None else Mux(wrong, Kind.ILLEGAL, kind)),
            self.operation.eq(operation),
            self.from_zero.eq(one.name == "lui"),
        ]
        match one.format:
            case Format.IMMEDIATE | Format.SHIFT | Format.LOAD:
                m.d.comb += self.immediate.eq(word[20:].as_signed())
            case Format.STORE:
                m.d.comb += self.immediate.eq(Cat(word[7:12], word[25:]).as_signed())
            case Format.BRANCH:
                offset = Cat(C(0, 1), word[8:12], word[25:31], word[7], word[31])
                m.d.comb += self.immediate.eq(offset.as_signed())
            case Format.UPPER:
                m.d.comb += self.immediate.eq(Cat(C(0, 12), word[12:]))
            case Format.JUMP:
                offset = Cat(C(0, 1), word[21:31], word[20], word[12:20], word[31])
                m.d.comb += self.immediate.eq(offset.as_signed())
        immediate = (Format.IMMEDIATE, Format.SHIFT, Format.LOAD, Format.STORE, Format.UPPER)
        m.d.comb += self.use_immediate.eq(one.format in immediate)

    def _wrong(self, form: Format) -> Value | None:
        """Whether an operand of an instruction of our own names nothing."""
        word = self.word
        index, pipe = word[25:28], word[28:31]
        match form:
            case Format.GET:
                return word[20:] >= len(Special)
            case Format.WORD:
                return (index == 0) | (pipe >= Pipe.SCALAR)
            case Format.PAIR:
                return (index == 0) | (index == 7) | (pipe >= Pipe.SCALAR)
            case Format.FLAG:
                return word[25:28] > Pipe.SCALAR
            case Format.ISSUE:
                return word[20:23] >= Pipe.SCALAR
        return None
