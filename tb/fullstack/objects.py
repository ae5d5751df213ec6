"""Kernel objects for the full stack's tests, from hand-made code, and a check with one."""

from typing import Any

import numpy as np

from abi.core import CommandOpcode, Pipe
from abi.kernel_object import ArgumentKind, ElementType
from runtime import Device, Stream
from runtime.toolchain.assembler import Assembler
from runtime.toolchain.object import Argument, BufferUse, KernelObject
from tb.firmware import kernels

__all__ = [
    "axpy",
    "check_all_cores",
    "deadlock",
    "endless",
    "failing",
    "illegal",
    "leak",
    "squares",
    "stuck",
]

OUT = Argument("out", ArgumentKind.POINTER, 0, ElementType.INT32)


def endless() -> KernelObject:
    """Never ends."""
    return KernelObject("endless", kernels.endless())


def stuck(block: int, loops: int = 0) -> tuple[KernelObject, int]:
    """See `tb.firmware.kernels.stuck`."""
    code, pc = kernels.stuck(block, loops)
    return KernelObject("stuck", code), pc


def squares(loops: int = 0) -> KernelObject:
    """out[b] = b * b + 7 for each block b."""
    return KernelObject("squares", kernels.squares(loops), arguments=(OUT,))


def failing(block: int, loops: int = 0) -> tuple[KernelObject, int]:
    """As `squares`, but one block loads from `source` on MTE2; also the PC of that."""
    code, pc = kernels.failing(block, loops)
    source = Argument("source", ArgumentKind.POINTER, 8)
    return KernelObject("failing", code, arguments=(OUT, source), buffers=BufferUse(l1=1)), pc


def leak(fill: bool) -> KernelObject:
    """See `tb.firmware.kernels.leak`."""
    out = Argument("out", ArgumentKind.POINTER, 0, ElementType.UINT8)
    uses: dict[str, Any] = {"buffers": BufferUse(ub=6), "ram_bytes": 20}
    return KernelObject("leak", kernels.leak(fill), arguments=(out,), **uses)


def illegal() -> KernelObject:
    """Its second instruction is none."""
    asm = Assembler()
    asm.nop()
    asm.word(0xFFFF_FFFF)
    return KernelObject("illegal", asm.assemble())


def deadlock() -> KernelObject:
    """CUBE and FIXPIPE wait for one another."""
    asm = Assembler()
    asm.command(CommandOpcode.NOP, pipe=Pipe.CUBE, wait=[0], give=[1])
    asm.command(CommandOpcode.NOP, pipe=Pipe.FIXPIPE, wait=[1], give=[0])
    asm.emit("npu.exit")
    return KernelObject("deadlock", asm.assemble(), flags=3)


def axpy(scale: int = 1) -> KernelObject:
    """out[b] = scale * x[b] + bits(f) + n for each block b; a kind of argument each."""
    asm = Assembler()
    for base, offset in ((15, 0), (14, 8)):
        asm.emit("lw", "t0", offset, "a0")
        asm.emit("lw", "t1", offset + 4, "a0")
        asm.emit("npu.base", base, "t0", "t1")
        asm.emit("npu.get", "t2", "block")
        asm.emit("slli", "t2", "t2", 2)
        asm.emit("lui", "t3", 0x80000)
        asm.emit("add", "t2", "t2", "t3")
        if base == 15:
            asm.emit("lw", "s0", 0, "t2")
            continue
        asm.li("s1", scale)
        asm.emit("mul", "s0", "s0", "s1")
        for at in (16, 20):
            asm.emit("lw", "s1", at, "a0")
            asm.emit("add", "s0", "s0", "s1")
        asm.emit("npu.base", 15, "t0", "t1")
        asm.emit("sw", "s0", 0, "t2")
    asm.emit("npu.exit")
    pointer = ArgumentKind.POINTER
    return KernelObject(
        "axpy",
        asm.assemble(),
        arguments=(
            Argument("x", pointer, 0, ElementType.INT32),
            Argument("out", pointer, 8, ElementType.INT32),
            Argument("n", ArgumentKind.INT32, 16),
            Argument("f", ArgumentKind.FLOAT32, 20),
        ),
        grid_limit=(1000, 8, 2),
    )


def check_all_cores(device: Device, stream: Stream) -> None:
    """A grid of more blocks than there are cores does correct work."""
    out = device.zeros(24, np.int32)
    device.load(squares()).kernel().launch(24, out, stream=stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.numpy(), np.arange(24) ** 2 + 7)
