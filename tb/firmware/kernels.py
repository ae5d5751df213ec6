"""Small kernels for tests of whoever runs them. Arguments lie one 64-bit word after the other."""

from abi.core import CommandOpcode, Local, MoveTarget, Pipe
from runtime.toolchain.assembler import Assembler

__all__ = ["arguments", "busy", "endless", "failing", "idle", "leak", "matmul", "squares", "stuck"]


def arguments(*words: int) -> bytes:
    """An argument block of 64-bit words."""
    return b"".join(word.to_bytes(8, "little") for word in words)


def _base(asm: Assembler, base: int, argument: int) -> None:
    """Base register = argument number `argument`."""
    asm.emit("lw", "t0", 8 * argument, "a0")
    asm.emit("lw", "t1", 8 * argument + 4, "a0")
    asm.emit("npu.base", base, "t0", "t1")


def _work(asm: Assembler, loops: int) -> None:
    """Pass time: two instructions a loop."""
    if loops:
        asm.li("t3", loops)
        asm.label("work")
        asm.emit("addi", "t3", "t3", -1)
        asm.bnez("t3", "work")


def endless() -> bytes:
    """Never ends."""
    asm = Assembler()
    asm.label("again")
    asm.j("again")
    return asm.assemble()


def idle(loops: int = 0) -> bytes:
    """Ends after some time."""
    asm = Assembler()
    _work(asm, loops)
    asm.emit("npu.exit")
    return asm.assemble()


def busy(rounds: int, loops: int, ends: bool = True) -> bytes:
    """Issues a command now and then; ends, or stays where it is."""
    asm = Assembler()
    asm.li("t4", rounds)
    asm.label("round")
    _work(asm, loops)
    asm.command(CommandOpcode.NOP, pipe=Pipe.CUBE)
    asm.emit("addi", "t4", "t4", -1)
    asm.bnez("t4", "round")
    if not ends:
        asm.label("again")
        asm.j("again")
    asm.emit("npu.exit")
    return asm.assemble()


def squares(loops: int = 0) -> bytes:
    """Argument 0: int32 array. Element b becomes b * b + 7, for each block b."""
    asm = Assembler()
    _work(asm, loops)
    _base(asm, 15, 0)
    asm.emit("npu.get", "t0", "block")
    asm.emit("mul", "t1", "t0", "t0")
    asm.emit("addi", "t1", "t1", 7)
    asm.emit("slli", "t0", "t0", 2)
    asm.emit("lui", "t2", 0x80000)
    asm.emit("add", "t2", "t2", "t0")
    asm.emit("sw", "t1", 0, "t2")
    asm.emit("npu.exit")
    return asm.assemble()


def stuck(block: int, loops: int = 0) -> tuple[bytes, int]:
    """Ends after some time, but one block never does; also the PC where it stays."""
    asm = Assembler()
    asm.emit("npu.get", "t0", "block")
    asm.li("t1", block)
    asm.emit("bne", "t0", "t1", "good")
    pc = asm.address
    asm.label("again")
    asm.j("again")
    asm.label("good")
    _work(asm, loops)
    asm.emit("npu.exit")
    return asm.assemble(), pc


def failing(block: int, loops: int = 0) -> tuple[bytes, int]:
    """As `squares`, but one block loads from argument 1 on MTE2; also the PC of that issue."""
    asm = Assembler()
    _work(asm, loops)
    _base(asm, 15, 0)
    _base(asm, 1, 1)
    asm.emit("npu.get", "t0", "block")
    asm.li("t1", block)
    asm.emit("bne", "t0", "t1", "good")
    asm.command(CommandOpcode.LOAD, base=1, row_bytes=64, rows=1, planes=1)
    pc = asm.address - 4
    asm.emit("npu.exit")
    asm.label("good")
    asm.emit("mul", "t1", "t0", "t0")
    asm.emit("addi", "t1", "t1", 7)
    asm.emit("slli", "t0", "t0", 2)
    asm.emit("lui", "t2", 0x80000)
    asm.emit("add", "t2", "t2", "t0")
    asm.emit("sw", "t1", 0, "t2")
    asm.emit("npu.exit")
    return asm.assemble(), pc


def leak(fill: bool) -> bytes:
    """`fill`: 64 bytes of argument 0 into line 5 of UB, and a word into the RAM. Else: both from
    there to argument 0, the word behind the line."""
    asm = Assembler()
    _base(asm, 0, 0)
    _base(asm, 15, 0)
    asm.emit("lui", "t2", 0x80000)
    asm.emit("lui", "t3", 0x10000)
    if fill:
        asm.command(
            CommandOpcode.LOAD, base=0, target=Local.UB, line=5, row_bytes=64, rows=1, planes=1
        )
        asm.emit("lw", "t0", 0, "t2")
        asm.emit("sw", "t0", 16, "t3")
    else:
        asm.command(
            CommandOpcode.SAVE, base=0, target=Local.MEMORY, line=5, row_bytes=64, rows=1, planes=1
        )
        asm.emit("lw", "t0", 16, "t3")
        asm.emit("sw", "t0", 64, "t2")
    asm.emit("npu.exit")
    return asm.assemble()


def matmul(rows: int) -> bytes:
    """Arguments A, B, C: C int32 (rows, 16) = A int8 (rows, 16) x B int8 (16, 16), each row of A
    and B at the start of 16 bytes. Uses flags 0 to 2."""
    asm = Assembler()
    for base in range(3):
        _base(asm, base, base)
    load = CommandOpcode.LOAD
    asm.command(load, base=0, row_bytes=16, rows=rows, stride=16, pitch=1, planes=1)
    asm.command(
        load, base=1, row_bytes=16, rows=16, stride=16, line=64, pitch=1, planes=1, give=[0]
    )
    move = CommandOpcode.MOVE
    asm.command(
        move, target=MoveTarget.L0A, rows=rows, row_lines=1, source_pitch=1, pitch=1, wait=[0]
    )
    asm.command(
        move,
        target=MoveTarget.L0B,
        source=64,
        rows=16,
        row_lines=1,
        source_pitch=1,
        pitch=1,
        give=[1],
    )
    asm.command(
        CommandOpcode.MMAD,
        rows=rows,
        k_tiles=1,
        n_tiles=1,
        a_pitch=1,
        b_pitch=1,
        c_pitch=1,
        wait=[1],
        give=[2],
    )
    asm.command(
        CommandOpcode.STORE,
        base=2,
        target=Local.MEMORY,
        columns=16,
        rows=rows,
        c_pitch=1,
        stride=64,
        wait=[2],
    )
    asm.emit("npu.exit")
    return asm.assemble()
