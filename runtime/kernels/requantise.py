"""Requantisation of int32 arrays to int8 through the FIXPIPE."""

from enum import IntEnum
from functools import partial

import numpy as np

from abi.address import LINE_BYTES
from abi.core import FLAG_MAXIMUM, MoveTarget
from driver import tracing
from runtime.arguments import refuse
from runtime.kernels.gemm import buffers_of, check_operand, check_output, check_requantise
from runtime.kernels.program import Program
from runtime.kernels.tiling import BufferLines, divide_up
from runtime.memory import DeviceArray
from runtime.stream import Stream

__all__ = ["build_requantise", "requantise"]

LARGEST_ROW = (1 << 16) - 1
"""Bytes of a LOAD's row and elements of a STORE's."""

PIECES = 512
"""Pieces of one launch: a larger array runs as several."""

ELEMENT_BYTES = 4


class Flag(IntEnum):
    """Hardware flags of the program."""

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
        OutOfMemoryError: no memory for the output or the program.
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
        buffers = buffers_of(device)
        launch = PIECES * _piece(buffers)
        blocks = [x.buffer.block, result.buffer.block]
        for start in range(0, x.size, launch):
            count = min(launch, x.size - start)
            kernel = device.programs.get(
                ("requantise", count, scale, bool(relu)),
                partial(build_requantise, count, scale, bool(relu), buffers),
                4 * count,
                target,
            )
            arguments = [x.address + ELEMENT_BYTES * start, result.address + start]
            device.programs.launch(kernel, arguments, blocks, target)
        return result


def _piece(buffers: BufferLines) -> int:
    """Elements that pass at a time: half of L0C, and two pieces of L1."""
    lines = min(buffers.l0c // 2, buffers.l1 // 2, LARGEST_ROW // LINE_BYTES)
    return lines * LINE_BYTES // ELEMENT_BYTES


def build_requantise(count: int, scale: tuple[int, int], relu: bool, buffers: BufferLines) -> bytes:
    """A program for `count` elements; base registers: 0 input, 1 output.

    LOAD into a slot of L1, MOVE into a half of L0C, STORE; the three pipes work at once.
    """
    piece = _piece(buffers)
    lines = piece * ELEMENT_BYTES // LINE_BYTES
    slots = min(FLAG_MAXIMUM, buffers.l1 // lines)
    pieces = divide_up(count, piece)
    program = Program()
    for i in range(pieces):
        start = i * piece
        elements = min(piece, count - start)
        slot, half = i % slots * lines, i % 2 * (buffers.l0c // 2)
        program.load(
            argument=0,
            offset=ELEMENT_BYTES * start,
            line=slot,
            row_bytes=ELEMENT_BYTES * elements,
            wait=[Flag.L1_FREE] if i >= slots else [],
            set_=[Flag.L1_FULL],
        )
        program.move(
            MoveTarget.L0C,
            source=slot,
            line=half,
            row_lines=divide_up(ELEMENT_BYTES * elements, LINE_BYTES),
            wait=[Flag.L1_FULL, *([Flag.C_FREE] if i >= 2 else [])],
            set_=[Flag.C_FULL, *([Flag.L1_FREE] if i + slots < pieces else [])],
        )
        program.store(
            argument=1,
            offset=start,
            columns=elements,
            c_line=half,
            relu=relu,
            requantise=scale,
            wait=[Flag.C_FULL],
            set_=[Flag.C_FREE] if i + 2 < pieces else [],
        )
    return program.finish()
