"""Emits what the hand-made kernels have in common: bases, flags, commands from registers."""

from collections.abc import Iterable

from abi.core import COMMANDS, OPCODE_PIPE, CommandOpcode, Pipe
from abi.isa import Special
from runtime.toolchain.assembler import Assembler

__all__ = ["Emitter"]

POINTER_BYTES = 8
WORD_MASK = (1 << 32) - 1


class Emitter(Assembler):
    """An assembler with such sequences. Registers t5 and t6 are its own."""

    def bases(self, count: int) -> None:
        """Base registers 0 to `count` - 1 become the pointers in the argument block."""
        for base in range(count):
            self.emit("lw", "t5", POINTER_BYTES * base, "a0")
            self.emit("lw", "t6", POINTER_BYTES * base + 4, "a0")
            self.emit("npu.base", base, "t5", "t6")

    def prime(self, counts: Iterable[tuple[int, int]]) -> None:
        """Add a count to each of some flags: then the first waits for room are like all others."""
        for flag, count in counts:
            for _ in range(count):
                self.emit("npu.set", Pipe.SCALAR, flag)

    def span(self, first: str, end: str, special: Special, length: int, total: int) -> None:
        """[first, end): this block's part of `total`, in parts of `length`."""
        self.emit("npu.get", first, special)
        self.li("t5", length)
        self.emit("mul", first, first, "t5")
        self.emit("add", end, first, "t5")
        self.li("t5", total)
        self.cap(end, end, "t5")

    def cap(self, rd: str, rs: str, limit: str) -> None:
        """rd = the smaller of rs and limit, signed."""
        label = f"cap_{self.address}"
        if rd != rs:
            self.mv(rd, rs)
        self.emit("blt", rd, limit, label)
        self.mv(rd, limit)
        self.label(label)

    def add_constant(self, rd: str, rs: str, value: int) -> None:
        """rd = rs + value."""
        if -2048 <= value < 2048:
            self.emit("addi", rd, rs, value)
        else:
            self.li("t5", value)
            self.emit("add", rd, rs, "t5")

    def toggle(self, rd: str, value: int) -> None:
        """rd ^= value."""
        if value < 2048:
            self.emit("xori", rd, rd, value)
        else:
            self.li("t5", value)
            self.emit("xor", rd, rd, "t5")

    def halves(self, rd: str, low: str, high: str) -> None:
        """rd = low | high << 16; low must not be rd."""
        self.emit("slli", rd, high, 16)
        self.emit("or", rd, rd, low)

    def low_word(self, opcode: CommandOpcode, **fields: int) -> int:
        """Word 0 of a command."""
        return COMMANDS[opcode].pack({"opcode": int(opcode), **fields}) & WORD_MASK

    def issue(
        self,
        opcode: CommandOpcode,
        *,
        wait: Iterable[int] = (),
        give: Iterable[int] = (),
        **fields: int,
    ) -> None:
        """Issue a command whose other words are set; `fields` are those of word 0."""
        self.li("t5", self.low_word(opcode, **fields))
        self.issue_from("t5", opcode, wait=wait, give=give)

    def issue_from(
        self,
        rs: str,
        opcode: CommandOpcode,
        *,
        wait: Iterable[int] = (),
        give: Iterable[int] = (),
    ) -> None:
        """Issue a command with word 0 from a register."""
        pipe = OPCODE_PIPE[opcode]
        for flag in wait:
            self.emit("npu.wait", pipe, flag)
        for flag in give:
            self.emit("npu.set", pipe, flag)
        self.emit("npu.issue", pipe, rs)
