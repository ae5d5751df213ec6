"""The AI core: its pipes, buffers and flags, and the commands that the pipes execute.

A command has 32 bytes, eight words of 32 bits. The scalar unit sets words 1 to 7 with `npu.word`
and `npu.pair`, and queues the command on a pipe with `npu.issue`, which gives word 0.
"""

from enum import IntEnum

from abi.record import Field, Owner, Record, reserved

__all__ = [
    "BLOCK_LIMIT",
    "COMMANDS",
    "COMMAND_BYTES",
    "CUBE_SIDE",
    "FLAGS",
    "FLAG_MAXIMUM",
    "IMG2COL_COMMAND",
    "LOAD_COMMAND",
    "MMAD_COMMAND",
    "MOVE_COMMAND",
    "NOP_COMMAND",
    "OPCODE_PIPE",
    "PIPES",
    "PREEMPTION_LIMIT",
    "SAVE_COMMAND",
    "STORE_COMMAND",
    "VECTOR_COMMAND",
    "VECTOR_LANES",
    "CommandOpcode",
    "Local",
    "MmadType",
    "MoveTarget",
    "Pipe",
    "StoreOutput",
    "Transpose",
]

UMD, HW = Owner.UMD, Owner.HW

COMMAND_BYTES = 32
"""Size of a command."""

CUBE_SIDE = 16
"""Depth and width of the Cube: each cycle, 16 outputs gain a dot product of 16 int8 pairs."""

VECTOR_LANES = 16
"""Lanes of the vector unit: a line of UB holds one 32-bit element for each."""

FLAGS = 32
"""Hardware flags between pipes; each is a counter."""

FLAG_MAXIMUM = 15
"""Largest count of a flag; one more set is FLAG_OVERFLOW."""

BLOCK_LIMIT = 250_000
"""Cycles within which a block ends: what kernels promise to those who wait for a core, for what
runs is never interrupted. The runtime cuts the work of its library so; nobody enforces it."""

PREEMPTION_LIMIT = BLOCK_LIMIT + 6_000
"""Cycles from the doorbell of a kernel to the start of its first block, on a chip with two cores or
more, if only kernels of lower bands run and their blocks keep to BLOCK_LIMIT. Besides a block that
is fetching the packet, turns of the firmware, and scrubbing the core. The firmware notes a block
that keeps a better band waiting for longer."""


class Pipe(IntEnum):
    """The pipes of a core, and its scalar unit."""

    MTE2 = 0
    """Global memory to L1 or UB."""

    MTE1 = 1
    """L1 to L0A, L0B, L0C or the bias buffer."""

    CUBE = 2
    """Matrix multiply and accumulate, L0A x L0B into L0C."""

    FIXPIPE = 3
    """L0C to global memory or UB, with bias, activation and conversion."""

    VECTOR = 4
    """Vector operations from UB to UB."""

    MTE3 = 5
    """UB to global memory or L1."""

    SCALAR = 6
    """The scalar unit, which issues to the others. It has no queue."""


PIPES = tuple(pipe for pipe in Pipe if pipe is not Pipe.SCALAR)
"""The pipes that execute commands."""


class CommandOpcode(IntEnum):
    """What a command asks for. 0 is no opcode."""

    NOP = 1
    LOAD = 2
    MOVE = 3
    MMAD = 4
    STORE = 5
    VECTOR = 6
    SAVE = 7
    IMG2COL = 8


OPCODE_PIPE: dict[CommandOpcode, Pipe] = {
    CommandOpcode.LOAD: Pipe.MTE2,
    CommandOpcode.MOVE: Pipe.MTE1,
    CommandOpcode.IMG2COL: Pipe.MTE1,
    CommandOpcode.MMAD: Pipe.CUBE,
    CommandOpcode.STORE: Pipe.FIXPIPE,
    CommandOpcode.VECTOR: Pipe.VECTOR,
    CommandOpcode.SAVE: Pipe.MTE3,
}
"""The one pipe of each opcode; a NOP runs on any."""


class Local(IntEnum):
    """The other end of a LOAD, STORE or SAVE, besides its own buffer."""

    L1 = 0
    """LOAD into L1, SAVE to L1."""

    UB = 1
    """LOAD into UB, STORE to UB."""

    MEMORY = 2
    """STORE or SAVE to global memory."""


class MoveTarget(IntEnum):
    """Destination buffer of a MOVE or IMG2COL."""

    L0A = 0
    L0B = 1
    L0C = 2
    BIAS = 3


class Transpose(IntEnum):
    """Whether a MOVE transposes, and the size of an element."""

    NONE = 0
    BYTES = 1
    HALVES = 2


class MmadType(IntEnum):
    """Operands of an MMAD, and its sums."""

    INT8 = 0
    """int8 by int8, int32 sums that wrap."""

    BF16 = 1
    """bfloat16 by bfloat16, fp32 sums: for each k in order, sum = fma(a, b, sum)."""


class StoreOutput(IntEnum):
    """What a STORE writes of each word of L0C."""

    WORD = 0
    """The word itself, int32 or fp32."""

    INT8 = 1
    """int32, requantised to int8."""

    BF16 = 2
    """fp32, rounded to bfloat16 (ties to even)."""


_OPCODE = Field("opcode", CommandOpcode, UMD, HW, HW, "What the command asks for.", bits=8)

NOP_COMMAND = Record(
    "NOP command",
    "Waits for and sets flags on a pipe without other work.",
    _OPCODE,
    reserved("reserved_header", 24),
    Field("ignored", 224, Owner.NONE, Owner.NONE, Owner.NONE, "Words 1 to 7 are not looked at."),
    bits=256,
)

_GLOBAL = (
    Field("offset", -32, UMD, HW, HW, "Bytes from the base register to the first row."),
    Field("line", 16, UMD, HW, HW, "First line in the core's buffer."),
    Field("pitch", 16, UMD, HW, HW, "Lines from one row to the next in the core's buffer."),
    Field("row_bytes", 16, UMD, HW, HW, "Bytes of a row, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Rows of a plane, at least 1."),
    Field("stride", -32, UMD, HW, HW, "Bytes from one row to the next in global memory."),
    Field("planes", 16, UMD, HW, HW, "Planes of rows, at least 1."),
    Field("plane_pitch", 16, UMD, HW, HW, "Lines from one plane to the next in the buffer."),
    Field("plane_stride", -32, UMD, HW, HW, "Bytes from one plane to the next in memory."),
    reserved("reserved_end", 32),
)

LOAD_COMMAND = Record(
    "LOAD command",
    "MTE2: rows of global memory into L1 or UB. Row r of plane p goes to lines line + "
    "p * plane_pitch + r * pitch upwards; what is left of its last line is filled.",
    _OPCODE,
    Field("base", 4, UMD, HW, HW, "Base register."),
    Field("target", Local, UMD, HW, HW, "L1 or UB.", bits=2),
    reserved("reserved_flags", 2),
    Field("fill", 8, UMD, HW, HW, "Byte that fills the rest of a row's last line."),
    reserved("reserved_header", 8),
    *_GLOBAL,
    bits=256,
)

SAVE_COMMAND = Record(
    "SAVE command",
    "MTE3: rows of UB to global memory or L1. Row r of plane p lies in lines line + "
    "p * plane_pitch + r * pitch upwards. To L1, offset, stride and plane_stride count lines, and "
    "whole lines are written.",
    _OPCODE,
    Field("base", 4, UMD, HW, HW, "Base register."),
    Field("target", Local, UMD, HW, HW, "MEMORY or L1.", bits=2),
    reserved("reserved_header", 18),
    *_GLOBAL,
    bits=256,
)

MOVE_COMMAND = Record(
    "MOVE command",
    "MTE1: rows of lines from L1 into another buffer of the core. Transposing, the lines of the "
    "rows are a matrix of bytes or 16-bit halves, and element (r, c) goes to element r of row c "
    "at line + c * pitch; what is left of a destination row's last line becomes zero.",
    _OPCODE,
    Field("target", MoveTarget, UMD, HW, HW, "Destination buffer.", bits=4),
    Field("transpose", Transpose, UMD, HW, HW, "Whether to transpose, and elements.", bits=2),
    reserved("reserved_header", 18),
    Field("source", 16, UMD, HW, HW, "First line in L1."),
    Field("source_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L1."),
    Field("line", 16, UMD, HW, HW, "First line in the destination."),
    Field("pitch", 16, UMD, HW, HW, "Lines from one row to the next in the destination."),
    Field("row_lines", 16, UMD, HW, HW, "Lines of a source row, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Number of source rows, at least 1."),
    reserved("reserved", 128),
    bits=256,
)

IMG2COL_COMMAND = Record(
    "IMG2COL command",
    "MTE1: windows of an image in L1 as rows of a matrix. Image row y starts at line source + "
    "y * source_pitch, its pixels densely one after the other. Output pixel i (counted from "
    "first_row, first_column, row by row of out_width) goes to line + i * pitch: for each kernel "
    "row, then kernel column, the pixel's bytes; pixels outside the image, and what is left of "
    "the last line, are zero.",
    _OPCODE,
    Field("target", MoveTarget, UMD, HW, HW, "L0A or L0B.", bits=4),
    Field("stride_height", 4, UMD, HW, HW, "Image rows from a window to the next, at least 1."),
    Field("stride_width", 4, UMD, HW, HW, "Pixels from a window to the next, at least 1."),
    reserved("reserved_header", 12),
    Field("source", 16, UMD, HW, HW, "First line of the image in L1."),
    Field("source_pitch", 16, UMD, HW, HW, "Lines from one image row to the next."),
    Field("line", 16, UMD, HW, HW, "First line in the destination."),
    Field("pitch", 16, UMD, HW, HW, "Lines from one row to the next in the destination."),
    Field("pixel_bytes", 16, UMD, HW, HW, "Bytes of a pixel: all its channels, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Output pixels, at least 1."),
    Field("height", 16, UMD, HW, HW, "Rows of the image."),
    Field("width", 16, UMD, HW, HW, "Pixels of a row of the image."),
    Field("out_width", 16, UMD, HW, HW, "Windows in a row, at least 1."),
    reserved("reserved_width", 16),
    Field("kernel_height", 8, UMD, HW, HW, "Rows of a window, at least 1."),
    Field("kernel_width", 8, UMD, HW, HW, "Pixels of a row of a window, at least 1."),
    Field("pad_top", 8, UMD, HW, HW, "Rows of zeros above the image."),
    Field("pad_left", 8, UMD, HW, HW, "Pixels of zeros left of the image."),
    Field("first_row", 16, UMD, HW, HW, "Row of the first window."),
    Field("first_column", 16, UMD, HW, HW, "Column of the first window, below out_width."),
    bits=256,
)

MMAD_COMMAND = Record(
    "MMAD command",
    "CUBE: C[m, 16 n + j] += sum over k of A[m, k] * B[k, 16 n + j]. Row m of A is at L0A lines "
    "a_line + m * a_pitch, row k of B at L0B lines b_line + k * b_pitch (64 int8 or 32 bf16 a "
    "line), row m of C at L0C lines c_line + m * c_pitch + n (16 sums a line). Rows of fp32 sums "
    "must not share lines: the order of the additions would be undefined.",
    _OPCODE,
    Field("accumulate", 1, UMD, HW, HW, "1: add to what L0C holds; 0: start from zero."),
    Field("type", MmadType, UMD, HW, HW, "Operands and sums.", bits=2),
    reserved("reserved_header", 21),
    Field("a_line", 16, UMD, HW, HW, "First line in L0A."),
    Field("a_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0A."),
    Field("b_line", 16, UMD, HW, HW, "First line in L0B."),
    Field("b_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0B."),
    Field("c_line", 16, UMD, HW, HW, "First line in L0C."),
    Field("c_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0C."),
    Field("rows", 16, UMD, HW, HW, "Rows of A and C (m), at least 1."),
    Field("k_tiles", 16, UMD, HW, HW, "Steps of 16 along k, at least 1."),
    Field("n_tiles", 16, UMD, HW, HW, "Steps of 16 along n, at least 1."),
    reserved("reserved", 80),
    bits=256,
)

STORE_COMMAND = Record(
    "STORE command",
    "FIXPIPE: rows of L0C to global memory or UB. x = C + bias (int32, wraps); relu: a negative "
    "x (sign bit) becomes 0; INT8: x = (x * multiplier + (1 << shift >> 1)) >> shift, saturated "
    "to int8. To UB, offset and stride count lines, and what is left of a row's last line is "
    "undefined.",
    _OPCODE,
    Field("base", 4, UMD, HW, HW, "Base register."),
    Field("target", Local, UMD, HW, HW, "MEMORY or UB.", bits=2),
    Field("output", StoreOutput, UMD, HW, HW, "What is written.", bits=2),
    Field("bias", 1, UMD, HW, HW, "1: add the bias line of the column block."),
    Field("relu", 1, UMD, HW, HW, "1: negative values become 0."),
    reserved("reserved_header", 14),
    Field("offset", -32, UMD, HW, HW, "Bytes from the base register to the first row."),
    Field("c_line", 16, UMD, HW, HW, "First line in L0C."),
    Field("c_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0C."),
    Field("columns", 16, UMD, HW, HW, "Elements of a row, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Number of rows, at least 1."),
    Field("stride", -32, UMD, HW, HW, "Bytes from one row to the next in global memory."),
    Field("bias_line", 16, UMD, HW, HW, "Line of the bias buffer for the first 16 columns."),
    Field("shift", 6, UMD, HW, HW, "Right shift of the requantisation, 0 to 62."),
    reserved("reserved_shift", 10),
    Field("multiplier", 31, UMD, HW, HW, "Multiplier of the requantisation, unsigned."),
    reserved("reserved", 33),
    bits=256,
)

VECTOR_COMMAND = Record(
    "VECTOR command",
    "VECTOR: an operation of `abi.vector` on rows of 32-bit elements in UB, 16 a line. Row r of "
    "the result starts at line + r * pitch, of source a at a_line + r * a_pitch, and so on.",
    _OPCODE,
    Field("operation", 8, UMD, HW, HW, "A `VectorOperation`."),
    Field("a_step", 1, UMD, HW, HW, "0: all lines of a row of a are its first."),
    Field("b_step", 1, UMD, HW, HW, "0: all lines of a row of b are its first."),
    Field("c_step", 1, UMD, HW, HW, "0: all lines of a row of c are its first."),
    Field("b_immediate", 1, UMD, HW, HW, "1: b is `immediate` in every lane; not read."),
    Field("c_immediate", 1, UMD, HW, HW, "1: c is `immediate` in every lane; not read."),
    reserved("reserved_header", 11),
    Field("line", 16, UMD, HW, HW, "First line of the result."),
    Field("pitch", 16, UMD, HW, HW, "Lines from one row of the result to the next."),
    Field("a_line", 16, UMD, HW, HW, "First line of a."),
    Field("a_pitch", 16, UMD, HW, HW, "Lines from one row of a to the next."),
    Field("b_line", 16, UMD, HW, HW, "First line of b."),
    Field("b_pitch", 16, UMD, HW, HW, "Lines from one row of b to the next."),
    Field("c_line", 16, UMD, HW, HW, "First line of c."),
    Field("c_pitch", 16, UMD, HW, HW, "Lines from one row of c to the next."),
    Field("columns", 16, UMD, HW, HW, "Elements of a row, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Number of rows, at least 1."),
    Field("immediate", 32, UMD, HW, HW, "A scalar operand: fp32 or int32 bits."),
    reserved("reserved", 32),
    bits=256,
)

COMMANDS: dict[CommandOpcode, Record] = {
    CommandOpcode.NOP: NOP_COMMAND,
    CommandOpcode.LOAD: LOAD_COMMAND,
    CommandOpcode.MOVE: MOVE_COMMAND,
    CommandOpcode.MMAD: MMAD_COMMAND,
    CommandOpcode.STORE: STORE_COMMAND,
    CommandOpcode.VECTOR: VECTOR_COMMAND,
    CommandOpcode.SAVE: SAVE_COMMAND,
    CommandOpcode.IMG2COL: IMG2COL_COMMAND,
}
