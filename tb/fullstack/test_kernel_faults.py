"""Each way in which a kernel fails: who is blamed, the other stream's work, the next kernel."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from abi.core import CommandOpcode, Local, Pipe
from abi.status import Engine, Side, Status
from runtime import Device, NpuError, gemm
from runtime.toolchain.assembler import Assembler
from runtime.toolchain.object import BufferUse, KernelObject
from tb.fullstack import objects

BLOCK = 7
"""The block that fails, of a grid of 4 x 3."""


@dataclass(frozen=True)
class Failure:
    """What goes wrong in the block, and how it is reported."""

    emit: Callable[[Assembler], None]
    side: Side
    status: Status
    pipe: Pipe


def illegal(asm: Assembler) -> None:
    asm.word(0xFFFF_FFFF)


def wild_load(asm: Assembler) -> None:
    asm.emit("lui", "t0", 0x1000)
    asm.emit("npu.base", 1, "t0", "zero")
    asm.command(CommandOpcode.LOAD, base=1, row_bytes=64, rows=1, planes=1)


def wild_word(asm: Assembler) -> None:
    asm.emit("lw", "t0", 0, "zero")
    asm.emit("lui", "t0", 0x40000)
    asm.emit("lw", "t0", 0, "t0")


def endless(asm: Assembler) -> None:
    asm.label("again")
    asm.j("again")


def deadlock(asm: Assembler) -> None:
    asm.command(CommandOpcode.NOP, pipe=Pipe.FIXPIPE, wait=[1], give=[0])
    asm.command(CommandOpcode.NOP, pipe=Pipe.CUBE, wait=[0], give=[1])


def overflow(asm: Assembler) -> None:
    asm.command(
        CommandOpcode.LOAD, target=Local.UB, line=2047, pitch=1, row_bytes=64, rows=2, planes=1
    )


FAILURES = {
    "illegal opcode": Failure(illegal, Side.HOST, Status.ILLEGAL_INSTRUCTION, Pipe.SCALAR),
    "wild command": Failure(wild_load, Side.HOST, Status.ADDRESS_FAULT, Pipe.MTE2),
    "wild word": Failure(wild_word, Side.HOST, Status.ADDRESS_FAULT, Pipe.SCALAR),
    "infinite loop": Failure(endless, Side.DEVICE, Status.KERNEL_TIMEOUT, Pipe.SCALAR),
    "flag deadlock": Failure(deadlock, Side.DEVICE, Status.FLAG_DEADLOCK, Pipe.CUBE),
    "UB overflow": Failure(overflow, Side.HOST, Status.BUFFER_OVERFLOW, Pipe.MTE2),
}


def kernel(failure: Failure) -> tuple[KernelObject, int]:
    """Fails in one block; the PC that is blamed."""
    asm = Assembler()
    asm.emit("npu.get", "t0", "block")
    asm.li("t1", BLOCK)
    asm.emit("bne", "t0", "t1", "good")
    failure.emit(asm)
    # The last instruction is the one that is blamed.
    pc = asm.address - 4
    asm.label("good")
    asm.emit("npu.exit")
    uses = BufferUse(l1=1, ub=2048)
    return KernelObject("failing", asm.assemble(), buffers=uses, flags=3), pc


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_failing_block_is_named_and_harms_nobody(device: Device, failure: Failure) -> None:
    guilty, neighbour = device.stream(block_timeout=50_000), device.stream()
    code, pc = kernel(failure)
    x = np.random.default_rng(3).integers(-128, 128, (128, 128), dtype=np.int8)
    left = device.array(x)
    device.load(code).kernel().launch((4, 3), stream=guilty)
    result = gemm(left, left, stream=neighbour)
    with pytest.raises(NpuError, match=rf"pipe {failure.pipe.name}, pc {pc:#x}") as caught:
        guilty.synchronize()
    error = caught.value
    assert (error.side, error.engine, error.status) == (failure.side, Engine.CORE, failure.status)
    assert (error.pipe, error.pc) == (failure.pipe, pc)
    assert (error.block_number, error.block) == (BLOCK, (3, 1, 0))
    assert error.instance in range(device.info.cores)
    neighbour.synchronize()
    np.testing.assert_array_equal(result.numpy(), x.astype(np.int32) @ x.astype(np.int32))
    guilty.reset()
    objects.check_all_cores(device, guilty)
