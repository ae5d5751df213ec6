"""Random programs of npu.* instructions and accesses to all regions of memory."""

import random
from collections.abc import Sequence

from abi.command_rules import ALLOWED, AT_LEAST_1, broken_rule
from abi.core import COMMANDS, FLAGS, OPCODE_PIPE, PIPES, CommandOpcode, Pipe
from abi.isa import ARGUMENTS_BASE, RAM_BASE, RAM_BYTES, WINDOW_BASE, WINDOW_REGISTER, Special
from runtime.toolchain.assembler import Assembler
from tb.blocks.core.scalar.bench import DATA, DATA_BYTES

__all__ = ["random_command", "random_kernel"]

VALUES = tuple(range(5, 18))
"""Registers with random values."""

POINTER, LOW, HIGH = 28, 29, 30
LOADS = {"lb": 1, "lbu": 1, "lh": 2, "lhu": 2, "lw": 4}
STORES = {"sb": 1, "sh": 2, "sw": 4}
SPECIALS = [special for special in Special if special is not Special.CYCLES]
DUMP = DATA_BYTES - 128


def random_command(opcode: CommandOpcode) -> int:
    """A valid command with random fields."""
    while True:
        fields = {"opcode": int(opcode)}
        for name, field in COMMANDS[opcode].fields.items():
            if name == "opcode" or name.startswith("reserved"):
                continue
            value = random.choice((0, 1, (1 << field.width) - 1, random.getrandbits(field.width)))
            if name in ALLOWED.get(opcode, {}):
                value = random.choice(list(ALLOWED[opcode][name]))
            if name in AT_LEAST_1.get(opcode, ()):
                value = value or 1
            fields[name] = int(value) - (field.is_signed << field.width - 1)
        command = COMMANDS[opcode].pack(fields)
        if broken_rule(OPCODE_PIPE.get(opcode, Pipe.MTE2), command) is None:
            return command


class _Kernel:
    """Writes a random program; remembers what it has staged."""

    def __init__(self, code_bytes: int, argument_bytes: int) -> None:
        self.asm = Assembler()
        self._code_bytes = code_bytes
        self._argument_bytes = argument_bytes
        self._staged: dict[Pipe, list[int]] = {pipe: [0] * 8 for pipe in PIPES}

    def base(self, index: int, address: int) -> None:
        """Set a base register."""
        self.asm.li(LOW, address & 0xFFFF_FFFF)
        self.asm.li(HIGH, address >> 32)
        self.asm.emit("npu.base", index, LOW, HIGH)

    def access(self) -> None:
        """A load or store of any size."""
        load = random.random() < 0.7
        name, size = random.choice(list((LOADS if load else STORES).items()))
        # Often in the same few lines.
        regions: list[tuple[int, int]] = [(WINDOW_BASE, random.choice((256, DUMP)))]
        regions += [(RAM_BASE, RAM_BYTES)]
        if load:
            regions += [(0, self._code_bytes), (ARGUMENTS_BASE, self._argument_bytes)]
        start, nbytes = random.choice(regions)
        address = start + random.randrange(nbytes // size) * size
        offset = random.randint(-2048, 2047)
        self.asm.li(POINTER, (address - offset) & 0xFFFF_FFFF)
        self.asm.emit(name, random.choice(VALUES), offset, POINTER)

    def issue(self) -> None:
        """Stage what differs from the last command of the pipe, or everything; issue it."""
        opcode = random.choice(tuple(CommandOpcode))
        pipe = OPCODE_PIPE.get(opcode, random.choice(PIPES))
        staged, command = self._staged[pipe], random_command(opcode)
        words = [command >> 32 * i & 0xFFFF_FFFF for i in range(8)]
        mixed = [
            words[0],
            *(random.choice(pair) for pair in zip(words[1:], staged[1:], strict=True)),
        ]
        raw = sum(word << 32 * i for i, word in enumerate(mixed))
        if broken_rule(pipe, raw) is None:
            words = mixed
        self._stage(pipe, words)
        self.asm.li(LOW, words[0])
        self.asm.emit("npu.issue", pipe, LOW)

    def _stage(self, pipe: Pipe, words: Sequence[int]) -> None:
        staged = self._staged[pipe]
        for i in random.sample(range(1, 8), 7):
            if words[i] == staged[i] and random.random() < 0.8:
                continue
            self.asm.li(LOW, words[i])
            if i < 7 and random.random() < 0.5:
                self.asm.li(HIGH, words[i + 1])
                self.asm.emit("npu.pair", pipe, i, LOW, HIGH)
                staged[i + 1] = words[i + 1]
            else:
                self.asm.emit("npu.word", pipe, i, LOW)
            staged[i] = words[i]

    def flag(self) -> None:
        """npu.wait or npu.set."""
        pipe = random.choice(tuple(Pipe))
        self.asm.emit(random.choice(("npu.wait", "npu.set")), pipe, random.randrange(FLAGS))


def random_kernel(steps: int, argument_bytes: int) -> bytes:
    """A program of about 5 instructions a step; the window is `DATA`, where it ends with its
    registers."""
    kernel = _Kernel(4 * steps, argument_bytes)
    asm = kernel.asm
    kernel.base(WINDOW_REGISTER, DATA)
    for _ in range(steps):
        match random.choices(range(6), (10, 6, 5, 2, 2, 1))[0]:
            case 0:
                kernel.access()
            case 1:
                kernel.issue()
            case 2:
                kernel.flag()
            case 3:
                kernel.base(random.randrange(WINDOW_REGISTER), random.getrandbits(48))
            case 4:
                asm.emit("npu.get", random.choice(VALUES), random.choice(SPECIALS))
            case _:
                asm.emit(random.choice(("fence", "npu.barrier")))
    asm.li(POINTER, WINDOW_BASE + DUMP)
    for register in range(32):
        asm.emit("sw", register, 4 * register, POINTER)
    asm.emit("npu.exit")
    return asm.assemble()
