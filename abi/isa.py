"""Instructions of the scalar unit: RV32IM, and what issues work to the pipes.

One table, from which come the RTL decoder, assembler, disassembler, interpreter and the docs.
The base is RV32I 2.1 with M 2.0 (The RISC-V Instruction Set Manual, Volume I); our own are in
the space that it leaves for custom extensions (custom-0, opcode 0x0B).
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from abi.core import FLAGS, Pipe

__all__ = [
    "ARGUMENTS_BASE",
    "BASE_REGISTERS",
    "CODE_BASE",
    "CONTROL_BARRIER",
    "CONTROL_EXIT",
    "CUSTOM_0",
    "INSTRUCTIONS",
    "RAM_BASE",
    "RAM_BYTES",
    "REGISTER_NAMES",
    "WINDOW_BASE",
    "WINDOW_REGISTER",
    "Format",
    "Instruction",
    "Special",
]

CODE_BASE = 0x0000_0000
"""Scalar address of the kernel's first byte; execution starts at its entry. Loads may read it."""

RAM_BASE = 0x1000_0000
"""Scalar address of the unit's own RAM, which holds stack and variables."""

RAM_BYTES = 8192
"""Size of that RAM. The stack pointer (x2) starts at its end."""

ARGUMENTS_BASE = 0x2000_0000
"""Scalar address of the argument block, read only; x10 (a0) starts with it."""

WINDOW_BASE = 0x8000_0000
"""Scalar addresses from here on are bytes behind base register `WINDOW_REGISTER`."""

BASE_REGISTERS = 16
"""Base registers: device addresses that commands refer to."""

WINDOW_REGISTER = 15
"""The base register behind the window to global memory."""

CUSTOM_0 = 0x0B
"""Major opcode of our own instructions."""

CONTROL_BARRIER = 0
CONTROL_EXIT = 1


class Special(IntEnum):
    """What `npu.get` reads."""

    BLOCK = 0
    """Number of this block in the grid: x + GRID_X * (y + GRID_Y * z)."""

    BLOCK_X = 1
    BLOCK_Y = 2
    BLOCK_Z = 3
    GRID_X = 4
    GRID_Y = 5
    GRID_Z = 6
    CORE = 7
    """Number of this core."""

    CORES = 8
    """Cores of the chip."""

    CYCLES = 9
    """Low 32 bits of the core's cycle counter (CORE_CYCLES)."""

    ARGUMENT_BYTES = 10
    """Size of the argument block."""


class Format(Enum):
    """How operands lie in the instruction word, and how they are written."""

    REGISTER = "rd, rs1, rs2"
    IMMEDIATE = "rd, rs1, immediate"
    SHIFT = "rd, rs1, shift"
    LOAD = "rd, immediate(rs1)"
    STORE = "rs2, immediate(rs1)"
    BRANCH = "rs1, rs2, target"
    UPPER = "rd, immediate"
    JUMP = "rd, target"
    NONE = ""
    GET = "rd, special"
    WORD = "pipe, index, rs1"
    PAIR = "pipe, index, rs1, rs2"
    BASE = "base, rs1, rs2"
    FLAG = "pipe, flag"
    ISSUE = "pipe, rs1"


@dataclass(frozen=True)
class Instruction:
    """One instruction: a word w is this one if `w & mask == match`."""

    name: str
    format: Format
    match: int
    mask: int
    meaning: str


REGISTER_NAMES = (
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
)  # fmt: skip
"""ABI names of x0 to x31."""

_OPCODE = 0x7F
_FUNCT3 = 0x7 << 12
_FUNCT7 = 0x7F << 25
_RD = 0x1F << 7
_RS1 = 0x1F << 15
_RS2 = 0x1F << 20
_IMMEDIATE = 0xFFF << 20


def _r(name: str, funct3: int, funct7: int, meaning: str) -> Instruction:
    match = 0x33 | funct3 << 12 | funct7 << 25
    return Instruction(name, Format.REGISTER, match, _OPCODE | _FUNCT3 | _FUNCT7, meaning)


def _i(name: str, funct3: int, meaning: str) -> Instruction:
    return Instruction(name, Format.IMMEDIATE, 0x13 | funct3 << 12, _OPCODE | _FUNCT3, meaning)


def _shift(name: str, funct3: int, funct7: int, meaning: str) -> Instruction:
    match = 0x13 | funct3 << 12 | funct7 << 25
    return Instruction(name, Format.SHIFT, match, _OPCODE | _FUNCT3 | _FUNCT7, meaning)


def _load(name: str, funct3: int, meaning: str) -> Instruction:
    return Instruction(name, Format.LOAD, 0x03 | funct3 << 12, _OPCODE | _FUNCT3, meaning)


def _store(name: str, funct3: int, meaning: str) -> Instruction:
    return Instruction(name, Format.STORE, 0x23 | funct3 << 12, _OPCODE | _FUNCT3, meaning)


def _branch(name: str, funct3: int, meaning: str) -> Instruction:
    return Instruction(name, Format.BRANCH, 0x63 | funct3 << 12, _OPCODE | _FUNCT3, meaning)


def _custom(name: str, form: Format, funct3: int, zero: int, meaning: str) -> Instruction:
    match = CUSTOM_0 | funct3 << 12
    return Instruction(name, form, match, _OPCODE | _FUNCT3 | zero, meaning)


def _control(name: str, code: int, meaning: str) -> Instruction:
    return Instruction(name, Format.NONE, CUSTOM_0 | 7 << 12 | code << 20, 0xFFFF_FFFF, meaning)


_PIPE_BITS = 3
_FLAG_BITS = (FLAGS - 1).bit_length()
_FLAG_ZERO = _RD | _RS1 | (_IMMEDIATE & ~((1 << 20 + _FLAG_BITS + _PIPE_BITS) - (1 << 20)))

_TABLE = (
    Instruction("lui", Format.UPPER, 0x37, _OPCODE, "rd = immediate << 12"),
    Instruction("auipc", Format.UPPER, 0x17, _OPCODE, "rd = pc + (immediate << 12)"),
    Instruction("jal", Format.JUMP, 0x6F, _OPCODE, "rd = pc + 4; pc = target"),
    Instruction(
        "jalr", Format.LOAD, 0x67, _OPCODE | _FUNCT3, "rd = pc + 4; pc = (rs1 + immediate) & ~1"
    ),
    _branch("beq", 0, "if rs1 == rs2: pc = target"),
    _branch("bne", 1, "if rs1 != rs2: pc = target"),
    _branch("blt", 4, "if rs1 < rs2, signed: pc = target"),
    _branch("bge", 5, "if rs1 >= rs2, signed: pc = target"),
    _branch("bltu", 6, "if rs1 < rs2, unsigned: pc = target"),
    _branch("bgeu", 7, "if rs1 >= rs2, unsigned: pc = target"),
    _load("lb", 0, "rd = byte at rs1 + immediate, sign extended"),
    _load("lh", 1, "rd = half word at rs1 + immediate, sign extended"),
    _load("lw", 2, "rd = word at rs1 + immediate"),
    _load("lbu", 4, "rd = byte at rs1 + immediate"),
    _load("lhu", 5, "rd = half word at rs1 + immediate"),
    _store("sb", 0, "byte at rs1 + immediate = rs2"),
    _store("sh", 1, "half word at rs1 + immediate = rs2"),
    _store("sw", 2, "word at rs1 + immediate = rs2"),
    _i("addi", 0, "rd = rs1 + immediate"),
    _i("slti", 2, "rd = rs1 < immediate, signed"),
    _i("sltiu", 3, "rd = rs1 < immediate, unsigned"),
    _i("xori", 4, "rd = rs1 ^ immediate"),
    _i("ori", 6, "rd = rs1 | immediate"),
    _i("andi", 7, "rd = rs1 & immediate"),
    _shift("slli", 1, 0, "rd = rs1 << shift"),
    _shift("srli", 5, 0, "rd = rs1 >> shift, unsigned"),
    _shift("srai", 5, 0x20, "rd = rs1 >> shift, signed"),
    _r("add", 0, 0, "rd = rs1 + rs2"),
    _r("sub", 0, 0x20, "rd = rs1 - rs2"),
    _r("sll", 1, 0, "rd = rs1 << (rs2 & 31)"),
    _r("slt", 2, 0, "rd = rs1 < rs2, signed"),
    _r("sltu", 3, 0, "rd = rs1 < rs2, unsigned"),
    _r("xor", 4, 0, "rd = rs1 ^ rs2"),
    _r("srl", 5, 0, "rd = rs1 >> (rs2 & 31), unsigned"),
    _r("sra", 5, 0x20, "rd = rs1 >> (rs2 & 31), signed"),
    _r("or", 6, 0, "rd = rs1 | rs2"),
    _r("and", 7, 0, "rd = rs1 & rs2"),
    _r("mul", 0, 1, "rd = low word of rs1 * rs2"),
    _r("mulh", 1, 1, "rd = high word of rs1 * rs2, signed"),
    _r("mulhsu", 2, 1, "rd = high word of rs1 * rs2, signed by unsigned"),
    _r("mulhu", 3, 1, "rd = high word of rs1 * rs2, unsigned"),
    _r("div", 4, 1, "rd = rs1 / rs2, signed, towards zero"),
    _r("divu", 5, 1, "rd = rs1 / rs2, unsigned"),
    _r("rem", 6, 1, "rd = remainder of rs1 / rs2, signed"),
    _r("remu", 7, 1, "rd = remainder of rs1 / rs2, unsigned"),
    Instruction(
        "fence",
        Format.NONE,
        0x0F,
        _OPCODE | _FUNCT3,
        "earlier loads and stores are done; the "
        "scalar unit's copy of a line of global memory is dropped",
    ),
    Instruction("ecall", Format.NONE, 0x73, 0xFFFF_FFFF, "stops with BREAKPOINT"),
    Instruction("ebreak", Format.NONE, 0x0010_0073, 0xFFFF_FFFF, "stops with BREAKPOINT"),
    _custom("npu.get", Format.GET, 0, _RS1, "rd = a special value"),
    _custom(
        "npu.word",
        Format.WORD,
        1,
        _RD | _RS2 | 1 << 31,
        "word `index` (1 to 7) of the next command of `pipe` = rs1; it stays for later commands",
    ),
    _custom(
        "npu.pair",
        Format.PAIR,
        2,
        _RD | 1 << 31,
        "words `index` and `index` + 1 (1 to 6) of the next command of `pipe` = rs1, rs2",
    ),
    _custom(
        "npu.base",
        Format.BASE,
        3,
        _FUNCT7 | 1 << 11,
        "base register = rs1 + (rs2 << 32), a device address",
    ),
    _custom(
        "npu.wait",
        Format.FLAG,
        4,
        _FLAG_ZERO,
        "the next command of `pipe` waits for the flag and takes one of its count; of the scalar "
        "unit itself: wait for it now",
    ),
    _custom(
        "npu.set",
        Format.FLAG,
        5,
        _FLAG_ZERO,
        "the next command of `pipe` adds one to the flag when it has ended; of the scalar unit "
        "itself: add one now",
    ),
    _custom(
        "npu.issue",
        Format.ISSUE,
        6,
        _RD | (_IMMEDIATE & ~((1 << 20 + _PIPE_BITS) - (1 << 20))),
        "queue a command on `pipe`: word 0 is rs1, the others as set; waits while its queue is "
        "full",
    ),
    _control("npu.barrier", CONTROL_BARRIER, "wait until all pipes have ended all commands"),
    _control("npu.exit", CONTROL_EXIT, "end the block once all pipes have ended all commands"),
)

INSTRUCTIONS: dict[str, Instruction] = {instruction.name: instruction for instruction in _TABLE}
"""All instructions by name; no two match the same word.

Fields of our own: npu.get: special at bit 20, 12 bits. npu.word, npu.pair: index at bit 25,
3 bits; pipe at bit 28, 3 bits. npu.base: the base register in rd, 4 bits. npu.wait, npu.set: flag
at bit 20, 5 bits; pipe at bit 25, 3 bits. npu.issue: pipe at bit 20, 3 bits. The scalar unit is
pipe `Pipe.SCALAR`, for npu.wait and npu.set only. All other bits are zero. A word that matches
nothing, or names no pipe, index or special, is an illegal instruction.
"""

assert len(Pipe) <= 1 << _PIPE_BITS
