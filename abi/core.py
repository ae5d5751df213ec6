"""Commands of the AI core's sequencer: 32 bytes each, two to a line."""

from enum import IntEnum

from abi.record import Field, Owner, Record, reserved

__all__ = [
    "ABSOLUTE",
    "COMMANDS",
    "COMMAND_BYTES",
    "CUBE_SIDE",
    "FLAGS",
    "FLAG_MAXIMUM",
    "JUMP_COMMAND",
    "LOAD_COMMAND",
    "MMAD_COMMAND",
    "MOVE_COMMAND",
    "NOP_COMMAND",
    "STORE_COMMAND",
    "CommandOpcode",
    "MoveTarget",
    "Pipe",
]

UMD, HW = Owner.UMD, Owner.HW

COMMAND_BYTES = 32
"""Size of a command."""

CUBE_SIDE = 16
"""Depth and width of the Cube: each cycle, 16 outputs gain a dot product of 16 int8 pairs."""

FLAGS = 16
"""Hardware flags between pipes; each is a counter."""

FLAG_MAXIMUM = 15
"""Largest count of a flag; one more set is FLAG_OVERFLOW."""

ABSOLUTE = 0xFF
"""Value of `argument` for an offset that is itself a device address."""


class Pipe(IntEnum):
    """The pipes of a core."""

    MTE2 = 0
    """Global memory to L1."""

    MTE1 = 1
    """L1 to L0A, L0B, L0C or the bias buffer."""

    CUBE = 2
    """Matrix multiply and accumulate, L0A x L0B into L0C."""

    FIXPIPE = 3
    """L0C to global memory with bias, ReLU and requantisation."""


class CommandOpcode(IntEnum):
    """What a command asks for."""

    NOP = 1
    LOAD = 2
    MOVE = 3
    MMAD = 4
    STORE = 5
    JUMP = 6
    END = 7


class MoveTarget(IntEnum):
    """Destination buffer of a MOVE."""

    L0A = 0
    L0B = 1
    L0C = 2
    BIAS = 3


_HEADER = (
    Field("opcode", CommandOpcode, UMD, HW, HW, "What the command asks for.", bits=8),
    Field(
        "wait",
        16,
        UMD,
        HW,
        HW,
        "Flags, as a mask, that must be set before it starts; each is decremented.",
    ),
    Field("set", 16, UMD, HW, HW, "Flags, as a mask, that are incremented when it has ended."),
)

NOP_COMMAND = Record(
    "NOP command",
    "Waits for and sets flags on a pipe without other work. END, with the same layout, ends the "
    "program once all pipes are empty.",
    *_HEADER,
    Field("pipe", Pipe, UMD, HW, HW, "Pipe on which the NOP queues (END: zero).", bits=8),
    reserved("reserved", 208),
    bits=256,
)

LOAD_COMMAND = Record(
    "LOAD command",
    "MTE2: rows of global memory into L1. Row i goes to lines line + i * pitch upwards; its last "
    "line is padded with zero bytes.",
    *_HEADER,
    Field("argument", 8, UMD, HW, HW, "Base register, or ABSOLUTE."),
    reserved("reserved_header", 16),
    Field("offset", -48, UMD, HW, HW, "Bytes from the base register to the first row."),
    Field("line", 16, UMD, HW, HW, "First line in L1."),
    Field("stride", -32, UMD, HW, HW, "Bytes from one row to the next in global memory."),
    Field("row_bytes", 16, UMD, HW, HW, "Bytes of a row, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Number of rows, at least 1."),
    Field("pitch", 16, UMD, HW, HW, "Lines from one row to the next in L1."),
    reserved("reserved", 48),
    bits=256,
)

MOVE_COMMAND = Record(
    "MOVE command",
    "MTE1: rows of lines from L1 into another buffer of the core.",
    *_HEADER,
    Field("target", MoveTarget, UMD, HW, HW, "Destination buffer.", bits=8),
    reserved("reserved_header", 16),
    Field("source", 16, UMD, HW, HW, "First line in L1."),
    Field("source_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L1."),
    Field("line", 16, UMD, HW, HW, "First line in the destination."),
    Field("pitch", 16, UMD, HW, HW, "Lines from one row to the next in the destination."),
    Field("row_lines", 16, UMD, HW, HW, "Lines of a row, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Number of rows, at least 1."),
    reserved("reserved", 96),
    bits=256,
)

MMAD_COMMAND = Record(
    "MMAD command",
    "CUBE: C[m, 16 n + j] += sum over k of A[m, k] * B[k, 16 n + j], int8 operands, int32 sums "
    "that wrap. A row m is at L0A lines a_line + m * a_pitch (64 k a line), B row k at L0B lines "
    "b_line + k * b_pitch (64 columns a line), C row m at L0C lines c_line + m * c_pitch + n "
    "(16 int32 columns a line).",
    *_HEADER,
    Field("accumulate", 1, UMD, HW, HW, "1: add to what L0C holds; 0: start from zero."),
    reserved("reserved_header", 23),
    Field("a_line", 16, UMD, HW, HW, "First line in L0A."),
    Field("a_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0A."),
    Field("b_line", 16, UMD, HW, HW, "First line in L0B."),
    Field("b_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0B."),
    Field("c_line", 16, UMD, HW, HW, "First line in L0C."),
    Field("c_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0C."),
    Field("rows", 16, UMD, HW, HW, "Rows of A and C (m), at least 1."),
    Field("k_tiles", 16, UMD, HW, HW, "Steps of 16 along k, at least 1."),
    Field("n_tiles", 16, UMD, HW, HW, "Steps of 16 along n, at least 1."),
    reserved("reserved", 48),
    bits=256,
)

STORE_COMMAND = Record(
    "STORE command",
    "FIXPIPE: rows of L0C to global memory. x = C + bias (wraps); x = max(x, 0) if relu; if "
    "requantise, x = (x * multiplier + (1 << shift >> 1)) >> shift, saturated to int8.",
    *_HEADER,
    Field("argument", 8, UMD, HW, HW, "Base register, or ABSOLUTE."),
    Field("bias", 1, UMD, HW, HW, "1: add the bias line of the column block."),
    Field("relu", 1, UMD, HW, HW, "1: negative values become 0."),
    Field("requantise", 1, UMD, HW, HW, "1: write int8, 0: write int32."),
    reserved("reserved_header", 5),
    Field("shift", 6, UMD, HW, HW, "Right shift of the requantisation, 0 to 62."),
    reserved("reserved_shift", 2),
    Field("offset", -48, UMD, HW, HW, "Bytes from the base register to the first row."),
    Field("bias_line", 16, UMD, HW, HW, "Line of the bias buffer for the first 16 columns."),
    Field("stride", -32, UMD, HW, HW, "Bytes from one row to the next in global memory."),
    Field("columns", 16, UMD, HW, HW, "Elements of a row, at least 1."),
    Field("rows", 16, UMD, HW, HW, "Number of rows, at least 1."),
    Field("c_line", 16, UMD, HW, HW, "First line in L0C."),
    Field("c_pitch", 16, UMD, HW, HW, "Lines from one row to the next in L0C."),
    Field("multiplier", 31, UMD, HW, HW, "Multiplier of the requantisation, unsigned."),
    reserved("reserved", 1),
    bits=256,
)

JUMP_COMMAND = Record(
    "JUMP command",
    "The sequencer goes on at another command.",
    *_HEADER,
    reserved("reserved_header", 24),
    Field("target", 32, UMD, HW, HW, "Index of the next command."),
    reserved("reserved", 160),
    bits=256,
)

COMMANDS: dict[CommandOpcode, Record] = {
    CommandOpcode.NOP: NOP_COMMAND,
    CommandOpcode.LOAD: LOAD_COMMAND,
    CommandOpcode.MOVE: MOVE_COMMAND,
    CommandOpcode.MMAD: MMAD_COMMAND,
    CommandOpcode.STORE: STORE_COMMAND,
    CommandOpcode.JUMP: JUMP_COMMAND,
    CommandOpcode.END: NOP_COMMAND,
}
