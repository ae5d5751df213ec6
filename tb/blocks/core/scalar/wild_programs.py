"""Random programs that go wrong: wild addresses, bases, jumps, words, commands and placements.

A program runs forward through random steps. Most ends in a fault; one that does not comes to
its end, where it stores its registers through the window. Registers 29 to 31 are scratch.
"""

import random
from dataclasses import dataclass, field, replace

from abi.address import HBM_BASE, LINE_BYTES
from abi.core import FLAGS, OPCODE_PIPE, CommandOpcode, Pipe
from abi.isa import (
    ARGUMENTS_BASE,
    BASE_REGISTERS,
    CUSTOM_0,
    INSTRUCTIONS,
    RAM_BASE,
    RAM_BYTES,
    WINDOW_BASE,
    WINDOW_REGISTER,
    Format,
    Special,
)
from rtl.memory.port import LineError
from runtime.toolchain.assembler import Assembler
from runtime.toolchain.operands import encode
from tb.blocks.core.scalar.bench import ARGUMENTS, CODE, DATA, DATA_BYTES, MEMORY_BYTES
from tb.blocks.core.scalar.random_kernels import random_command

__all__ = ["WildProgram", "wild_program"]

VALUES = tuple(range(29))
"""Registers that steps write, and that are compared in the end."""

LOW, HIGH, POINTER = 29, 30, 31
DUMP = DATA_BYTES - 128
DATA_LINE = 40
"""Line of the code that holds data."""

LOADS = {"lb": 1, "lbu": 1, "lh": 2, "lhu": 2, "lw": 4}
STORES = {"sb": 1, "sh": 2, "sw": 4}
COMPUTE = [one for one in INSTRUCTIONS.values() if one.format is Format.REGISTER]
IMMEDIATE = [one for one in INSTRUCTIONS.values() if one.format is Format.IMMEDIATE]
BRANCH = [one.name for one in INSTRUCTIONS.values() if one.format is Format.BRANCH]
CORNERS = (0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
TOP = 1 << 48
END = HBM_BASE + MEMORY_BYTES


@dataclass
class WildProgram:
    """A program, where it lies, and which lines of memory fail.

    Attributes: `dump`, the address of the code that stores the registers.
    """

    code: bytes
    arguments: bytes
    dump: int
    entry: int = 0
    inputs: dict[str, int] = field(default_factory=dict)
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (0, 0, 0)
    failing: list[tuple[int, int, LineError]] = field(default_factory=list)

    def without(self, pc: int) -> "WildProgram | None":
        """The same program, which stores its registers instead of what is at `pc`."""
        if pc % 4 or not 0 <= pc < self.dump or self.inputs or self.entry:
            return None
        jump = encode(INSTRUCTIONS["jal"], (0, self.dump - pc)).to_bytes(4, "little")
        code = self.code[:pc] + jump + self.code[pc + 4 :]
        # The end may lie in a line of code that fails.
        failing = [each for each in self.failing if not CODE <= each[0] < CODE + DATA_LINE * 64]
        return replace(self, code=code, failing=failing)


class _Writer:
    """Writes the steps of a program."""

    def __init__(self, draw: random.Random, argument_bytes: int) -> None:
        self.draw = draw
        self.asm = Assembler()
        self._argument_bytes = argument_bytes
        self._labels = 0

    def step(self) -> None:
        """Append a step; about one of eight is wild."""
        steps = (
            (self._compute, 16),
            (self._access, 12),
            (self._share, 6),
            (self._branch, 4),
            (self._command, 4),
            (self._stage, 6),
            (self._special, 3),
            (self._base, 3),
            (self._wild_access, 3),
            (self._wild_base, 2),
            (self._wild_jump, 2),
            (self._wild_word, 2),
        )
        makers, weights = zip(*steps, strict=True)
        self.draw.choices(makers, weights)[0]()

    def dump(self) -> int:
        """Append the end: registers to the window. Returns its address."""
        address = self.asm.address
        self._set_base(WINDOW_REGISTER, DATA)
        self.asm.li(POINTER, WINDOW_BASE + DUMP)
        for register in VALUES:
            self.asm.emit("sw", register, 4 * register, POINTER)
        self.asm.emit("npu.exit")
        return address

    def _value(self) -> int:
        return self.draw.choice((self.draw.choice(CORNERS), self.draw.getrandbits(32)))

    def _set_base(self, index: int, address: int) -> None:
        self.asm.li(LOW, address & 0xFFFF_FFFF)
        self.asm.li(HIGH, address >> 32 & 0xFFFF_FFFF)
        self.asm.emit("npu.base", index, LOW, HIGH)

    def _compute(self) -> None:
        choose, emit = self.draw.choice, self.asm.emit
        rd, first = choose(VALUES), self.draw.randrange(32)
        match self.draw.randrange(4):
            case 0:
                self.asm.li(choose(VALUES[1:]), self._value())
            case 1:
                emit(choose(IMMEDIATE).name, rd, first, self.draw.randint(-2048, 2047))
            case 2:
                emit(choose(("lui", "auipc")), rd, self.draw.getrandbits(20))
            case _:
                emit(choose(COMPUTE).name, rd, first, self.draw.randrange(32))

    def _emit_access(self, name: str, address: int) -> None:
        offset = self.draw.randint(-2048, 2047)
        self.asm.li(POINTER, (address - offset) & 0xFFFF_FFFF)
        self.asm.emit(name, self.draw.choice(VALUES), offset, POINTER)

    def _access(self) -> None:
        """A load or store that is fine, if the window is."""
        name, size = self.draw.choice([*LOADS.items(), *STORES.items()])
        regions = [(WINDOW_BASE, 256), (RAM_BASE, RAM_BYTES), (RAM_BASE, 16)]
        if name in LOADS:
            regions.append((ARGUMENTS_BASE, self._argument_bytes))
        start, nbytes = self.draw.choice(regions)
        self._emit_access(name, start + self.draw.randrange(nbytes // size) * size)

    def _share(self) -> None:
        """Arguments or the code's data, as that and through the window: what is held of a line?"""
        choose = self.draw.choice
        code = self.draw.random() < 0.5
        own, device = (
            (DATA_LINE * LINE_BYTES, CODE + DATA_LINE * LINE_BYTES)
            if code
            else (ARGUMENTS_BASE, ARGUMENTS)
        )
        self._set_base(WINDOW_REGISTER, device)
        word = 4 * self.draw.randrange(16)
        for _ in range(self.draw.randint(4, 9)):
            match self.draw.randrange(8):
                case 0:
                    self.asm.emit(choose(("fence", "npu.barrier")))
                case 1 | 2:
                    self._emit_access("lw", own + word)
                case 3 | 4 | 5:
                    self._emit_access("sw", WINDOW_BASE + word)
                case _:
                    self._emit_access("lw", WINDOW_BASE + word)

    def _branch(self) -> None:
        """Forward, over an instruction."""
        label, self._labels = f"b{self._labels}", self._labels + 1
        if self.draw.random() < 0.7:
            pair = self.draw.randrange(32), self.draw.randrange(32)
            self.asm.emit(self.draw.choice(BRANCH), *pair, label)
        elif self.draw.random() < 0.5:
            self.asm.emit("jal", self.draw.choice(VALUES), label)
        else:
            self.asm.la(POINTER, label)
            self.asm.emit("jalr", self.draw.choice(VALUES), self.draw.randrange(2), POINTER)
        self._compute()
        self.asm.label(label)

    def _command(self) -> None:
        opcode = self.draw.choice(tuple(CommandOpcode))
        command = random_command(opcode)
        if self.draw.random() < 0.1:
            command ^= 1 << self.draw.randrange(256)
        pipe = OPCODE_PIPE.get(opcode, Pipe.CUBE)
        for index in range(1, 8):
            self.asm.li(LOW, command >> 32 * index & 0xFFFF_FFFF)
            self.asm.emit("npu.word", pipe, index, LOW)
        self.asm.li(LOW, command & 0xFFFF_FFFF)
        self.asm.emit("npu.issue", pipe, LOW)

    def _stage(self) -> None:
        """What the next command takes along: words, flags; or a NOP that takes it."""
        pipe = self.draw.randrange(6)
        match self.draw.randrange(4):
            case 0:
                pair = self.draw.choice(VALUES), self.draw.choice(VALUES)
                self.asm.emit("npu.pair", pipe, self.draw.randint(1, 6), *pair)
            case 1:
                self.asm.li(LOW, CommandOpcode.NOP)
                self.asm.emit("npu.issue", pipe, LOW)
            case _:
                name = self.draw.choice(("npu.wait", "npu.set"))
                self.asm.emit(name, self.draw.choice(tuple(Pipe)), self.draw.randrange(FLAGS))

    def _special(self) -> None:
        self.asm.emit("npu.get", self.draw.choice(VALUES), self.draw.choice(tuple(Special)))

    def _base(self) -> None:
        """Any register, the window's so that it is fine for bytes at least."""
        index = self.draw.randrange(BASE_REGISTERS)
        fine = DATA + self.draw.choice((0, 64, 1, 2, self.draw.randrange(0x1000)))
        self._set_base(index, fine if index == WINDOW_REGISTER else self.draw.getrandbits(48))

    def _wild_access(self) -> None:
        edges = (
            *(RAM_BASE, RAM_BASE + RAM_BYTES, ARGUMENTS_BASE, 0x3000_0000, 0x7FFF_FFFF, 0, 1 << 28),
            *(ARGUMENTS_BASE + self._argument_bytes, WINDOW_BASE, WINDOW_BASE + 0x1FF, 0xFFFF_FFFF),
            self.draw.getrandbits(32),
        )
        name = self.draw.choice([*LOADS, *STORES])
        address = self.draw.choice(edges) + self.draw.choice((-4, -2, -1, 0, 1, 2, 3, 4))
        self._emit_access(name, address & 0xFFFF_FFFF)

    def _wild_base(self) -> None:
        """Mostly the window's: beyond 48 bits, or an access beyond them, or beyond memory."""
        places = (TOP, TOP - 64, TOP - 100, TOP - 1, END - 64, END - 3, HBM_BASE - 4, 0, 1 << 63)
        address = self.draw.choice((*places, self.draw.getrandbits(64)))
        self._set_base(self.draw.choice((WINDOW_REGISTER, 3)), address)
        if self.draw.random() < 0.7:
            self._emit_access(
                self.draw.choice([*LOADS, *STORES]),
                WINDOW_BASE + self.draw.choice((0, 1, 2, 60, 64, 96, 128, 0x7FFF_FFFC)),
            )

    def _wild_jump(self) -> None:
        """Misaligned or out of the code; branches that may not be taken."""
        choose = self.draw.choice
        match self.draw.randrange(3):
            case 0:
                target = choose((2, 6, 0x6000, RAM_BASE, ARGUMENTS_BASE, WINDOW_BASE, 0xFFFF_FFFE))
                self.asm.li(POINTER, target)
                self.asm.emit("jalr", choose(VALUES), choose((0, 1)), POINTER)
            case 1:
                distance = choose((6, 2046, -2, 0x4000, -0x8000))
                self.asm.word(encode(INSTRUCTIONS["jal"], (choose(VALUES), distance)))
            case _:
                pair = self.draw.randrange(32), self.draw.randrange(32)
                branch = INSTRUCTIONS[choose(BRANCH)]
                self.asm.word(encode(branch, (*pair, choose((6, -2, 2046, -4096)))))

    def _wild_word(self) -> None:
        word = self.draw.getrandbits(32)
        match self.draw.randrange(3):
            case 0:
                word = word & ~0x7F | CUSTOM_0
            case 1:
                word = self.draw.choice((0, 0xFFFF_FFFF, 0x73, 0x0010_0073))
        # No jump that leads back, for it might never end.
        self.asm.word(word if word & 0x7F not in (0x63, 0x67, 0x6F) else word & ~0x7F)


def wild_program(draw: random.Random, steps: int) -> WildProgram:
    """A program of so many steps, mostly well placed."""
    arguments = draw.randbytes(draw.choice((64, 67, 128)))
    writer = _Writer(draw, len(arguments))
    writer._set_base(WINDOW_REGISTER, DATA)
    for _ in range(steps):
        writer.step()
    dump = writer.dump()
    code = writer.asm.assemble().ljust(DATA_LINE * LINE_BYTES, b"\0")
    assert len(code) == DATA_LINE * LINE_BYTES, "a program must end before its data"
    program = WildProgram(code + draw.randbytes(LINE_BYTES), arguments, dump)
    program.grid = (draw.getrandbits(32), draw.getrandbits(16), draw.getrandbits(16))
    program.block = (draw.getrandbits(32), draw.getrandbits(16), draw.getrandbits(16))
    if draw.random() < 0.2:
        place = draw.choice(
            (ARGUMENTS, CODE + LINE_BYTES * draw.randrange(20), CODE + DATA_LINE * 64)
        )
        error = draw.choice((LineError.BUS, LineError.ADDRESS))
        program.failing.append((place, 64, error))
    if draw.random() < 0.2:
        _misplace(draw, program)
    return program


def _misplace(draw: random.Random, program: WildProgram) -> None:
    """Entry, sizes and addresses that do not fit."""
    choices: dict[str, tuple[int, ...]] = {
        "entry": (4, 2, 7, len(program.code), 0x1000_0000, 0xFFFF_FFFC),
        "code": (CODE + 4, CODE + 32, TOP, TOP - 64, TOP + 8, END - 64, END, 1 << 63),
        "code_bytes": (0, 1, 3, 64, 65, 67, 70, 0xFFFF_FFFF),
        "arguments": (ARGUMENTS + 8, ARGUMENTS + 32, END - 64, END, TOP, TOP - 64, TOP | 1),
        "argument_bytes": (0, 1, 66, 0x2000, 0xFFFF_FFFF),
    }
    for name in draw.sample(list(choices), draw.choice((1, 2, 3))):
        value = draw.choice(choices[name])
        if name == "entry":
            program.entry = value
        else:
            program.inputs[name] = value
