"""Random RV32IM programs that terminate, and what QEMU (`unicorn`) makes of them.

A program is segments: pointers into the RAM and a loop count are set, then a body of random
instructions runs a few times; branches and jumps in it lead forward. x28 and x29 point into the
RAM, x30 to the segment, x31 counts. At the end all registers and the RAM are stored through the
window.
"""

import random
from dataclasses import dataclass

from unicorn import UC_ARCH_RISCV, UC_HOOK_BLOCK, UC_MODE_RISCV32, Uc
from unicorn.riscv_const import UC_RISCV_REG_X0

from abi.address import HBM_BASE
from abi.isa import (
    ARGUMENTS_BASE,
    INSTRUCTIONS,
    RAM_BASE,
    RAM_BYTES,
    WINDOW_BASE,
    WINDOW_REGISTER,
    Format,
)
from runtime.toolchain.assembler import Assembler

__all__ = ["DUMP_RAM", "DUMP_REGISTERS", "Outcome", "Program", "Reference", "random_program"]

POINTERS = (28, 29)
SEGMENT, COUNT = 30, 31
FREE = tuple(range(28))
"""Registers that random instructions write."""

CORNERS = (0, 1, 2, 3, 31, 32, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFE, 0xFFFF_FFFF)
COMPUTE = [one.name for one in INSTRUCTIONS.values() if one.format is Format.REGISTER]
IMMEDIATE = [one.name for one in INSTRUCTIONS.values() if one.format is Format.IMMEDIATE]
SHIFT = [one.name for one in INSTRUCTIONS.values() if one.format is Format.SHIFT]
BRANCH = [one.name for one in INSTRUCTIONS.values() if one.format is Format.BRANCH]
LOADS = {"lb": 1, "lbu": 1, "lh": 2, "lhu": 2, "lw": 4}
STORES = {"sb": 1, "sh": 2, "sw": 4}

DUMP_RAM = 0xC000
"""Offset in global memory where the RAM is stored."""

DUMP_REGISTERS = DUMP_RAM + 0xF800
"""Offset where the registers are stored, x0 not."""

_WINDOW = HBM_BASE + DUMP_RAM - 0x7FFF_0000


@dataclass(frozen=True)
class Program:
    """Code, and the addresses between which the random part lies."""

    code: bytes
    first: int
    end: int
    overhead: int
    """Instructions outside the random part."""


@dataclass(frozen=True)
class Outcome:
    """x0 to x31, the RAM, and how many instructions the random part took."""

    registers: tuple[int, ...]
    ram: bytes
    instructions: int


class _Body:
    """Writes a segment's random instructions."""

    def __init__(self, asm: Assembler, pointers: dict[int, int], start: int, length: int) -> None:
        self._asm = asm
        self._pointers = pointers
        self._start = start
        self._end = asm.address + 4 * length
        while asm.address < self._end:
            self._one()

    def _target(self) -> int:
        return min(self._asm.address + 4 * random.randint(1, 8), self._end)

    def _one(self) -> None:
        emit = self._asm.emit
        kind = random.choices(
            ("compute", "immediate", "shift", "upper", "load", "store", "branch", "jump", "fence"),
            (40, 14, 8, 6, 14, 10, 8, 2, 1),
        )[0]
        rd, rs1, rs2 = random.choice(FREE), random.randrange(32), random.randrange(32)
        match kind:
            case "compute":
                emit(random.choice(COMPUTE), rd, rs1, rs2)
            case "immediate":
                value = random.choice((0, 1, -1, 2047, -2048, random.randint(-2048, 2047)))
                emit(random.choice(IMMEDIATE), rd, rs1, value)
            case "shift":
                emit(random.choice(SHIFT), rd, rs1, random.randrange(32))
            case "upper":
                value = random.choice((0, 0x7FFFF, 0x80000, 0xFFFFF, random.getrandbits(20)))
                emit(random.choice(("lui", "auipc")), rd, value)
            case "load" | "store":
                sizes = LOADS if kind == "load" else STORES
                name = random.choice(list(sizes))
                pointer, at = random.choice(list(self._pointers.items()))
                size = sizes[name]
                lowest, highest = max(0, at - 2048), min(RAM_BYTES - size, at + 2047)
                address = random.randint(-(-lowest // size), highest // size) * size
                emit(name, rd if kind == "load" else rs2, address - at, pointer)
            case "branch":
                emit(random.choice(BRANCH), rs1, random.choice((rs1, rs2, rs2)), self._target())
            case "jump" if random.random() < 0.5:
                emit("jal", rd, self._target())
            case "jump":
                odd = random.randrange(2)
                emit("jalr", rd, self._target() - self._start + odd, SEGMENT)
            case "fence":
                emit("fence")


def random_program(length: int = 2000) -> Program:
    """A program whose random part has at least `length` words."""
    asm = Assembler()
    window = _WINDOW % (1 << 64)
    asm.li(1, window & 0xFFFF_FFFF)
    asm.li(2, window >> 32)
    asm.emit("npu.base", WINDOW_REGISTER, 1, 2)
    asm.li(2, RAM_BASE + RAM_BYTES)
    first = asm.address
    while asm.address < first + 4 * length:
        for register in random.sample(FREE[1:], 6):
            asm.li(register, random.choice((*CORNERS, random.getrandbits(32))))
        pointers = {register: random.randrange(RAM_BYTES) for register in POINTERS}
        for register, at in pointers.items():
            asm.li(register, RAM_BASE + at)
        start = asm.address
        asm.emit("auipc", SEGMENT, 0)
        asm.emit("addi", COUNT, 0, random.randint(1, 3))
        loop = asm.address
        _Body(asm, pointers, start, random.randint(20, 100))
        asm.emit("addi", COUNT, COUNT, -1)
        asm.emit("bne", COUNT, 0, loop)
    end = asm.address
    for register in range(1, 32):
        asm.emit("sw", register, 4 * register - 2048, 0)
    asm.li(1, RAM_BASE)
    asm.li(2, WINDOW_BASE + 0x7FFF_0000)
    asm.li(3, RAM_BASE + RAM_BYTES)
    outside = (first + asm.address - end) // 4
    loop = asm.address
    asm.emit("lw", 4, 0, 1)
    asm.emit("sw", 4, 0, 2)
    asm.emit("addi", 1, 1, 4)
    asm.emit("addi", 2, 2, 4)
    asm.emit("bne", 1, 3, loop)
    asm.emit("npu.exit")
    return Program(asm.assemble(), first, end, outside + 5 * (RAM_BYTES // 4) + 1)


class Reference:
    """Runs the random parts of programs on QEMU; the RAM stays from one to the next."""

    def __init__(self) -> None:
        self._ram = bytes(RAM_BYTES)

    def run(self, program: Program) -> Outcome:
        """What has to be in registers and RAM when the random part has ended."""
        machine = Uc(UC_ARCH_RISCV, UC_MODE_RISCV32)
        machine.mem_map(0, -(-len(program.code) // 4096) * 4096)
        machine.mem_write(0, program.code)
        machine.mem_map(RAM_BASE, RAM_BYTES)
        machine.mem_write(RAM_BASE, self._ram)
        window = _WINDOW % (1 << 64)
        registers = {1: window & 0xFFFF_FFFF, 2: RAM_BASE + RAM_BYTES, 10: ARGUMENTS_BASE}
        for register, value in registers.items():
            machine.reg_write(UC_RISCV_REG_X0 + register, value)
        executed = 0

        def count(_machine: Uc, _address: int, size: int, _data: object) -> None:
            nonlocal executed
            executed += size // 4

        machine.hook_add(UC_HOOK_BLOCK, count)
        machine.emu_start(program.first, program.end)
        self._ram = bytes(machine.mem_read(RAM_BASE, RAM_BYTES))
        values = tuple(machine.reg_read(UC_RISCV_REG_X0 + i) & 0xFFFF_FFFF for i in range(32))
        return Outcome(values, self._ram, executed)
