"""Requantisation of int32 arrays to int8 through the FIXPIPE."""

from dataclasses import dataclass
from enum import IntEnum
from functools import partial

import numpy as np

from abi.address import LINE_BYTES
from abi.core import FLAG_MAXIMUM, CommandOpcode, Local, MoveTarget, Pipe, StoreOutput
from abi.isa import Special
from driver import tracing
from runtime.arguments import refuse
from runtime.compiler.allocate import CoreBuffers
from runtime.kernels.buffers import core_buffers
from runtime.kernels.emitter import Emitter
from runtime.kernels.gemm import check_operand, check_output, check_requantise
from runtime.kernels.tiling import ceil_to, divide_up
from runtime.memory import DeviceArray
from runtime.stream import Stream

__all__ = ["RequantisePlan", "build_requantise", "plan_requantise", "requantise"]

LARGEST_ROW = (1 << 16) - 1
"""Bytes of a LOAD's row and elements of a STORE's."""

PIECES = 16
"""Pieces of a block at most: another kernel may have the core after it."""

ELEMENT_BYTES = 4
LINE_ELEMENTS = LINE_BYTES // ELEMENT_BYTES


class Flag(IntEnum):
    """Hardware flags of the kernel."""

    L1_FULL = 0
    L1_FREE = 1
    C_FULL = 2
    C_FREE = 3


def requantise(
    x: DeviceArray,
    multiplier: int,
    shift: int,
    relu: bool = False,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """Submit a requantisation of int32 values to int8; returns `out` at once.

    `clip((x * multiplier + (1 << shift >> 1)) >> shift, -128, 127)`, after `max(x, 0)` if `relu`;
    multiplier from 0 to 2**31 - 1, shift from 0 to 62. out: int8, shape of `x`; None: a new array.

    Raises:
        InvalidArgumentError: an argument breaks its rule; nothing was submitted.
        OutOfMemoryError: no memory for the output or the kernel.
        NpuError: the stream takes no work.
    """
    with tracing.span("api", "requantise"):
        if not isinstance(x, DeviceArray):
            raise refuse("x", "be a DeviceArray", x)
        device = x.device
        target = device.check_stream("stream", stream)
        check_operand("x", x, device, np.int32, None)
        scale = check_requantise("requantise", (multiplier, shift))
        assert scale is not None
        if not isinstance(relu, bool | np.bool_):
            raise refuse("relu", "be True or False", relu)
        result = check_output(out, device, x.shape, np.int8, [x])
        target.check()
        buffers = core_buffers(device)
        plan = plan_requantise(x.size, scale, bool(relu), buffers, device.info.cores)
        kernel = device.programs.get(
            plan, partial(build_requantise, plan, buffers), 4 * x.size, target
        )
        device.programs.launch(
            kernel,
            plan.grid,
            [x.address, result.address],
            [x.buffer.block, result.buffer.block],
            target,
        )
        return result


@dataclass(frozen=True)
class RequantisePlan:
    """What a kernel does: `count` elements in pieces of `piece`, `pieces` of them in a block."""

    count: int
    scale: tuple[int, int]
    relu: bool
    piece: int
    pieces: int

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks, 1, 1."""
        return divide_up(self.count, self.piece * self.pieces), 1, 1


def plan_requantise(
    count: int, scale: tuple[int, int], relu: bool, buffers: CoreBuffers, cores: int
) -> RequantisePlan:
    """Pieces that fill half of L0C and fit in L1 twice, and blocks that use all cores."""
    lines = min(buffers.l0c // 2, buffers.l1 // 2, LARGEST_ROW // LINE_BYTES)
    share = ceil_to(divide_up(count, cores), LINE_BYTES)
    piece = min(lines * LINE_ELEMENTS, share)
    return RequantisePlan(count, scale, relu, piece, min(PIECES, divide_up(share, piece)))


def build_requantise(plan: RequantisePlan, buffers: CoreBuffers) -> bytes:
    """The code of `plan`; arguments: input, output.

    LOAD into a slot of L1, MOVE into a half of L0C, STORE; the three pipes work at once.
    """
    at, end, slot, half, left, elements = "s0", "s1", "s2", "s3", "s4", "s5"
    lines = divide_up(plan.piece, LINE_ELEMENTS)
    slots = min(FLAG_MAXIMUM, buffers.l1 // lines)
    multiplier, shift = plan.scale
    asm = Emitter()
    asm.bases(2)
    asm.span(at, end, Special.BLOCK_X, plan.piece * plan.pieces, plan.count)
    asm.prime([(Flag.L1_FREE, slots), (Flag.C_FREE, 2)])
    asm.li("t0", 1)
    asm.emit("npu.word", Pipe.MTE2, 5, "t0")
    asm.li("t0", shift << 16)
    asm.li("t1", multiplier)
    asm.emit("npu.pair", Pipe.FIXPIPE, 5, "t0", "t1")
    asm.li(slot, 0)
    asm.li(half, 0)
    asm.li(left, slots)
    asm.emit("lui", "s6", 1 << 4)
    asm.label("loop")
    asm.emit("sub", elements, end, at)
    asm.li("t0", plan.piece)
    asm.cap(elements, elements, "t0")
    asm.emit("slli", "t0", at, 2)
    asm.emit("npu.pair", Pipe.MTE2, 1, "t0", slot)
    asm.emit("slli", "t0", elements, 2)
    asm.emit("or", "t0", "t0", "s6")
    asm.emit("npu.word", Pipe.MTE2, 3, "t0")
    asm.issue(CommandOpcode.LOAD, base=0, target=Local.L1, wait=[Flag.L1_FREE], give=[Flag.L1_FULL])
    asm.emit("npu.pair", Pipe.MTE1, 1, slot, half)
    asm.emit("addi", "t0", elements, LINE_ELEMENTS - 1)
    asm.emit("srli", "t0", "t0", 4)
    asm.emit("or", "t0", "t0", "s6")
    asm.emit("npu.word", Pipe.MTE1, 3, "t0")
    asm.issue(
        CommandOpcode.MOVE,
        target=MoveTarget.L0C,
        wait=[Flag.L1_FULL, Flag.C_FREE],
        give=[Flag.C_FULL, Flag.L1_FREE],
    )
    asm.emit("npu.pair", Pipe.FIXPIPE, 1, at, half)
    asm.emit("or", "t0", elements, "s6")
    asm.emit("npu.word", Pipe.FIXPIPE, 3, "t0")
    asm.issue(
        CommandOpcode.STORE,
        base=1,
        target=Local.MEMORY,
        output=StoreOutput.INT8,
        relu=int(plan.relu),
        wait=[Flag.C_FULL],
        give=[Flag.C_FREE],
    )
    asm.add_constant(slot, slot, lines)
    asm.emit("addi", left, left, -1)
    asm.bnez(left, "same_round")
    asm.li(slot, 0)
    asm.li(left, slots)
    asm.label("same_round")
    asm.toggle(half, buffers.l0c // 2)
    asm.add_constant(at, at, plan.piece)
    asm.emit("blt", at, end, "loop")
    asm.emit("npu.exit")
    return asm.assemble()
