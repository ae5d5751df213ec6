"""Kernels written by hand, with all the flags that they need and none that they do not."""

from collections.abc import Callable

from abi.core import COMMANDS, CommandOpcode, Local, MoveTarget, Pipe, StoreOutput
from abi.isa import WINDOW_BASE, WINDOW_REGISTER
from abi.vector import VectorOperation
from runtime.toolchain.assembler import Assembler

__all__ = ["KERNELS", "gemm", "mixed", "scale"]

BASE_HIGH = 1
"""High word of device addresses: all lie in HBM."""

TILE_LINES = 16
SLOTS = 2


def _words(asm: Assembler, opcode: CommandOpcode, pipe: Pipe, **fields: int) -> int:
    """Stage words 1 to 7 of a command; returns word 0."""
    packed = COMMANDS[opcode].pack({"opcode": int(opcode), **fields})
    for index in range(1, 8):
        asm.li("t6", packed >> 32 * index & 0xFFFF_FFFF)
        asm.emit("npu.word", pipe, index, "t6")
    return packed & 0xFFFF_FFFF


def _base(asm: Assembler, number: int, low: int) -> None:
    asm.li("t5", low)
    asm.li("t6", BASE_HIGH)
    asm.emit("npu.base", number, "t5", "t6")


def _slot(asm: Assembler, counter: str, to: str, lines: int) -> None:
    """to = lines * (counter mod 2)."""
    asm.emit("andi", to, counter, 1)
    asm.li("t6", lines)
    asm.emit("mul", to, to, "t6")


def gemm(steps: int = 6, credits: int = SLOTS, *, settle: bool = True) -> bytes:
    """C (16 x 16, int32) = sum over `steps` of A tiles (16 x 64) times B tiles (64 x 16).

    L1 and L0 hold two tiles of each. Flags: 0 L1 is full, 1 L1 is free, 2 L0 is full, 3 L0 is
    free, 4 C is ready. The scalar unit primes the flags of free slots and takes them back.
    """
    asm = Assembler()
    _base(asm, 0, 0x10000)
    _base(asm, 1, 0x20000)
    _base(asm, 2, 0x30000)
    for _ in range(credits):
        asm.emit("npu.set", Pipe.SCALAR, 1)
        asm.emit("npu.set", Pipe.SCALAR, 3)
    asm.li("s0", 0)
    asm.li("s1", steps)
    asm.label("loop")
    # A to L1 lines 0 and 16, B to L1 lines 128 and 192.
    asm.emit("npu.wait", Pipe.MTE2, 1)
    for base, rows, first in ((0, 16, 0), (1, 64, 128)):
        word = _words(
            asm, CommandOpcode.LOAD, Pipe.MTE2, base=base, target=Local.L1, row_bytes=64,
            rows=rows, stride=64, pitch=1, planes=1,
        )  # fmt: skip
        _slot(asm, "s0", "t0", rows)
        asm.emit("addi", "t0", "t0", first)
        asm.li("t1", rows * 64)
        asm.emit("mul", "t1", "t1", "s0")
        asm.emit("npu.word", Pipe.MTE2, 1, "t1")
        asm.li("t1", 1 << 16)
        asm.emit("add", "t0", "t0", "t1")
        asm.emit("npu.word", Pipe.MTE2, 2, "t0")
        if base == 1:
            asm.emit("npu.set", Pipe.MTE2, 0)
        asm.li("t2", word)
        asm.emit("npu.issue", Pipe.MTE2, "t2")
    # L1 to L0A lines 0 and 16, L0B lines 0 and 64.
    asm.emit("npu.wait", Pipe.MTE1, 0)
    asm.emit("npu.wait", Pipe.MTE1, 3)
    for target, rows, first in ((MoveTarget.L0A, 16, 0), (MoveTarget.L0B, 64, 128)):
        word = _words(
            asm, CommandOpcode.MOVE, Pipe.MTE1, target=target, source_pitch=1, pitch=1,
            row_lines=1, rows=rows,
        )  # fmt: skip
        _slot(asm, "s0", "t0", rows)
        asm.emit("addi", "t1", "t0", first)
        asm.li("t2", 1 << 16)
        asm.emit("add", "t1", "t1", "t2")
        asm.emit("add", "t0", "t0", "t2")
        asm.emit("npu.pair", Pipe.MTE1, 1, "t1", "t0")
        if target is MoveTarget.L0B:
            asm.emit("npu.set", Pipe.MTE1, 1)
            asm.emit("npu.set", Pipe.MTE1, 2)
        asm.li("t2", word)
        asm.emit("npu.issue", Pipe.MTE1, "t2")
    word = _words(
        asm, CommandOpcode.MMAD, Pipe.CUBE, a_pitch=1, b_pitch=1, c_pitch=1, rows=16, k_tiles=4,
        n_tiles=1,
    )  # fmt: skip
    asm.li("t2", 1 << 16)
    for index, rows in ((1, 16), (2, 64)):
        _slot(asm, "s0", "t0", rows)
        asm.emit("add", "t0", "t0", "t2")
        asm.emit("npu.word", Pipe.CUBE, index, "t0")
    asm.emit("sltu", "t0", "zero", "s0")
    asm.emit("slli", "t0", "t0", 8)
    asm.li("t2", word)
    asm.emit("or", "t2", "t2", "t0")
    asm.emit("npu.wait", Pipe.CUBE, 2)
    asm.emit("npu.set", Pipe.CUBE, 3)
    asm.emit("addi", "s0", "s0", 1)
    asm.emit("bne", "s0", "s1", "more")
    asm.emit("npu.set", Pipe.CUBE, 4)
    asm.label("more")
    asm.emit("npu.issue", Pipe.CUBE, "t2")
    asm.emit("beq", "s0", "s1", "done")
    asm.j("loop")
    asm.label("done")
    asm.command(
        CommandOpcode.STORE, wait=(4,), base=2, target=Local.MEMORY, output=StoreOutput.WORD,
        c_pitch=1, columns=16, rows=16, stride=64,
    )  # fmt: skip
    # Not before: the scalar unit would take what the last tiles wait for.
    if settle:
        asm.emit("npu.barrier")
    for _ in range(credits):
        asm.emit("npu.wait", Pipe.SCALAR, 1)
        asm.emit("npu.wait", Pipe.SCALAR, 3)
    asm.emit("npu.exit")
    return asm.assemble()


def scale(steps: int = 5) -> bytes:
    """y = 3 x on fp32 vectors of 256, two at a time in UB; a slot's first use waits for nothing.

    Inputs are at UB lines 0 and 16, results at 64 and 80. Flags: 0 input is full, 1 input is
    free, 2 result is full, 3 result is free.
    """
    asm = Assembler()
    _base(asm, 0, 0x10000)
    _base(asm, 1, 0x20000)
    asm.li("s0", 0)
    asm.li("s1", steps)
    asm.li("s2", steps - SLOTS)
    asm.li("s3", SLOTS)
    asm.label("loop")
    asm.emit("slli", "s4", "s0", 10)
    asm.emit("andi", "s5", "s0", 1)
    asm.emit("slli", "s5", "s5", 4)
    asm.li("t0", 1 << 16)
    asm.emit("or", "s5", "s5", "t0")
    asm.emit("addi", "s6", "s5", 64)
    asm.emit("bltu", "s0", "s3", "fresh")
    asm.emit("npu.wait", Pipe.MTE2, 1)
    asm.emit("npu.wait", Pipe.VECTOR, 3)
    asm.label("fresh")
    asm.emit("bgeu", "s0", "s2", "last")
    asm.emit("npu.set", Pipe.VECTOR, 1)
    asm.emit("npu.set", Pipe.MTE3, 3)
    asm.label("last")
    for opcode, pipe, base, line in (
        (CommandOpcode.LOAD, Pipe.MTE2, 0, "s5"),
        (CommandOpcode.VECTOR, Pipe.VECTOR, 0, "s6"),
        (CommandOpcode.SAVE, Pipe.MTE3, 1, "s6"),
    ):
        if opcode is CommandOpcode.VECTOR:
            word = _words(
                asm, opcode, pipe, operation=VectorOperation.FMUL, a_step=1, b_immediate=1,
                columns=256, rows=1, immediate=0x4040_0000,
            )  # fmt: skip
            asm.emit("npu.pair", pipe, 1, "s6", "s5")
        else:
            target = Local.UB if opcode is CommandOpcode.LOAD else Local.MEMORY
            word = _words(asm, opcode, pipe, base=base, target=target, row_bytes=1024, rows=1,
                          planes=1)  # fmt: skip
            asm.emit("npu.pair", pipe, 1, "s4", line)
        if pipe is not Pipe.MTE2:
            asm.emit("npu.wait", pipe, 0 if pipe is Pipe.VECTOR else 2)
        if pipe is not Pipe.MTE3:
            asm.emit("npu.set", pipe, 0 if pipe is Pipe.MTE2 else 2)
        asm.li("t2", word)
        asm.emit("npu.issue", pipe, "t2")
    asm.emit("addi", "s0", "s0", 1)
    asm.emit("beq", "s0", "s1", "done")
    asm.j("loop")
    asm.label("done")
    asm.emit("npu.exit")
    return asm.assemble()


def mixed(*, fences: bool = True) -> bytes:
    """The scalar unit takes part: it stores a row that is loaded, and reads a result by itself.

    Flags: 0 loaded, 1 computed, 2 saved (taken by the scalar unit), 3 saved to L1, 4 stored by the
    scalar unit.
    """
    asm = Assembler()
    _base(asm, 0, 0x10000)
    _base(asm, WINDOW_REGISTER, 0x10000)
    asm.li("s0", WINDOW_BASE)
    asm.li("t0", 0x3F80_0000)
    asm.emit("sw", "t0", 0, "s0")
    asm.emit("lw", "t1", 256, "s0")
    asm.command(
        CommandOpcode.LOAD, give=(0,), target=Local.UB, row_bytes=64, rows=1, planes=1, fill=1
    )
    asm.command(
        CommandOpcode.VECTOR, wait=(0,), give=(1,), operation=VectorOperation.FADD, a_step=1,
        b_step=1, columns=16, rows=1, line=1,
    )  # fmt: skip
    asm.command(
        CommandOpcode.SAVE, wait=(1,), give=(2,), target=Local.MEMORY, line=1, row_bytes=64,
        rows=1, planes=1, offset=256,
    )  # fmt: skip
    asm.command(
        CommandOpcode.SAVE, give=(3,), target=Local.L1, line=1, row_bytes=64, rows=1, planes=1
    )
    asm.command(CommandOpcode.MOVE, wait=(3,), target=MoveTarget.BIAS, row_lines=1, rows=1)
    asm.emit("npu.wait", Pipe.SCALAR, 2)
    if fences:
        asm.emit("fence")
    asm.emit("lw", "t1", 260, "s0")
    asm.command(
        CommandOpcode.LOAD, wait=(4,), target=Local.UB, row_bytes=64, rows=1, planes=1, line=9,
        offset=128,
    )  # fmt: skip
    asm.emit("sw", "t1", 132, "s0")
    asm.emit("npu.set", Pipe.SCALAR, 4)
    asm.emit("npu.barrier")
    asm.emit("lw", "t1", 256, "s0")
    asm.command(
        CommandOpcode.SAVE, target=Local.MEMORY, line=2, row_bytes=64, rows=1, planes=1, offset=320
    )
    asm.emit("npu.exit")
    return asm.assemble()


KERNELS: dict[str, Callable[[], bytes]] = {"gemm": gemm, "scale": scale, "mixed": mixed}
