"""Which lines of the core's buffers, and which bytes of global memory, a command touches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from abi.address import LINE_BYTES
from abi.core import (
    COMMANDS,
    CUBE_SIDE,
    VECTOR_LANES,
    CommandOpcode,
    Local,
    MmadType,
    MoveTarget,
    StoreOutput,
    Transpose,
)
from abi.vector import SOURCES, VectorOperation
from runtime.toolchain.region import Region

__all__ = ["BUFFER_LINES", "Buffer", "BufferOverflowError", "Footprint", "footprint", "lines_in"]

BUFFER_LINES = 1 << 16
"""Lines that the 16 bits of a line number can name."""

Fields = Mapping[str, int]


class Buffer(Enum):
    """The buffers of a core."""

    L1 = "L1"
    L0A = "L0A"
    L0B = "L0B"
    L0C = "L0C"
    BIAS = "bias buffer"
    UB = "UB"


TARGETS = {
    MoveTarget.L0A: Buffer.L0A,
    MoveTarget.L0B: Buffer.L0B,
    MoveTarget.L0C: Buffer.L0C,
    MoveTarget.BIAS: Buffer.BIAS,
}
OUTPUT_BYTES = {StoreOutput.WORD: 4, StoreOutput.INT8: 1, StoreOutput.BF16: 2}
OPERAND_BYTES = {MmadType.INT8: 1, MmadType.BF16: 2}
ELEMENT_BYTES = {Transpose.BYTES: 1, Transpose.HALVES: 2}
PACKED_LINES = {
    VectorOperation.UNPACK_INT8: 4,
    VectorOperation.PACK_INT8: 4,
    VectorOperation.UNPACK_BF16: 2,
    VectorOperation.PACK_BF16: 2,
}


class BufferOverflowError(ValueError):
    """A command leaves a buffer: the device stops with BUFFER_OVERFLOW."""

    def __init__(self, buffer: Buffer, last: int, lines: int) -> None:
        super().__init__(f"lines of {buffer.value} must be between 0 and {lines - 1}, not {last}")
        self.buffer = buffer
        self.last = last


@dataclass(frozen=True)
class Footprint:
    """What a command reads and writes.

    Lines of a buffer are a mask, bit i for line i; bytes of global memory are regions. `assumed`
    says what it takes for granted where the command alone does not tell.
    """

    reads: Mapping[Buffer, int] = field(default_factory=dict)
    writes: Mapping[Buffer, int] = field(default_factory=dict)
    memory_reads: tuple[Region, ...] = ()
    memory_writes: tuple[Region, ...] = ()
    assumed: str = ""


def lines_in(mask: int) -> list[tuple[int, int]]:
    """Ranges of lines of a mask: first and last of each."""
    ranges, at = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        length = (~mask & mask + 1).bit_length() - 1
        mask >>= length
        ranges.append((at + skip, at + skip + length - 1))
        at += skip + length
    return ranges


@lru_cache(maxsize=1 << 14)
def _decoded(command: bytes) -> tuple[CommandOpcode, Fields]:
    opcode = CommandOpcode(command[0])
    return opcode, COMMANDS[opcode].unpack_bytes(command)


def footprint(command: bytes, base: int, sizes: Mapping[Buffer, int] | None = None) -> Footprint:
    """What a valid command touches.

    Args:
        command: its 32 bytes.
        base: device address in its base register.
        sizes: lines of each buffer.

    Raises:
        BufferOverflowError: it leaves a buffer, so the device would do nothing of it.
    """
    opcode, fields = _decoded(command)
    lines, memory = _lines(command, tuple(sizes.items()) if sizes else ())
    reads, writes, assumed = lines
    if memory is None:
        return Footprint(reads, writes, assumed=assumed)
    region = Region.of(
        base + fields["offset"],
        memory,
        fields["rows"],
        fields["stride"],
        fields.get("planes", 1),
        fields.get("plane_stride", 0),
    )
    if opcode is CommandOpcode.LOAD:
        return Footprint(reads, writes, memory_reads=(region,))
    return Footprint(reads, writes, memory_writes=(region,))


class _Touched:
    """Collects lines; `memory` is the bytes of a row in global memory, if there is one."""

    def __init__(self, sizes: Mapping[Buffer, int]) -> None:
        self._sizes = sizes
        self.reads: dict[Buffer, int] = {}
        self.writes: dict[Buffer, int] = {}
        self.memory: int | None = None
        self.assumed = ""

    def size(self, buffer: Buffer) -> int:
        """Lines of a buffer."""
        return self._sizes.get(buffer, BUFFER_LINES)

    def read(self, buffer: Buffer, *shape: int) -> None:
        """Add what `_rows` gives for a shape to what is read."""
        self.reads[buffer] = self.reads.get(buffer, 0) | self._rows(buffer, *shape)

    def write(self, buffer: Buffer, *shape: int) -> None:
        """Add what `_rows` gives for a shape to what is written."""
        self.writes[buffer] = self.writes.get(buffer, 0) | self._rows(buffer, *shape)

    def check(
        self,
        buffer: Buffer,
        first: int,
        count: int,
        rows: int = 1,
        pitch: int = 0,
        planes: int = 1,
        plane_pitch: int = 0,
    ) -> None:
        """Check that rows lie in a buffer.

        Raises:
            BufferOverflowError: they do not.
        """
        reach = ((rows - 1) * pitch, (planes - 1) * plane_pitch)
        last = first + sum(step for step in reach if step > 0) + count - 1
        lowest = first + sum(step for step in reach if step < 0)
        if last >= self.size(buffer) or lowest < 0:
            raise BufferOverflowError(buffer, min(lowest, 0) or last, self.size(buffer))

    def _rows(
        self,
        buffer: Buffer,
        first: int,
        count: int,
        rows: int = 1,
        pitch: int = 0,
        planes: int = 1,
        plane_pitch: int = 0,
    ) -> int:
        """Rows of `count` lines, in planes."""
        self.check(buffer, first, count, rows, pitch, planes, plane_pitch)
        if pitch < 0:
            first, pitch = first + (rows - 1) * pitch, -pitch
        if plane_pitch < 0:
            first, plane_pitch = first + (planes - 1) * plane_pitch, -plane_pitch
        return repeated(repeated((1 << count) - 1 << first, rows, pitch), planes, plane_pitch)


def repeated(mask: int, count: int, step: int) -> int:
    """A mask, and itself moved up by `step` again and again, `count` in all."""
    if step == 0:
        return mask
    result, done, power = 0, 0, 1
    while count:
        if count & 1:
            result |= mask << done * step
            done += power
        count >>= 1
        if count:
            mask |= mask << power * step
            power *= 2
    return result


@lru_cache(maxsize=1 << 14)
def _lines(
    command: bytes, sizes: tuple[tuple[Buffer, int], ...]
) -> tuple[tuple[Mapping[Buffer, int], Mapping[Buffer, int], str], int | None]:
    opcode, fields = _decoded(command)
    touched = _Touched(dict(sizes))
    if opcode is not CommandOpcode.NOP:
        _TOUCH[opcode](touched, fields)
    return (touched.reads, touched.writes, touched.assumed), touched.memory


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


def _load(touched: _Touched, c: Fields) -> None:
    buffer = Buffer.UB if c["target"] == Local.UB else Buffer.L1
    touched.memory = c["row_bytes"]
    count = _ceil(c["row_bytes"], LINE_BYTES)
    touched.write(buffer, c["line"], count, c["rows"], c["pitch"], c["planes"], c["plane_pitch"])


def _save(touched: _Touched, c: Fields) -> None:
    count = _ceil(c["row_bytes"], LINE_BYTES)
    rows, planes = c["rows"], c["planes"]
    touched.read(Buffer.UB, c["line"], count, rows, c["pitch"], planes, c["plane_pitch"])
    if c["target"] == Local.L1:
        touched.write(Buffer.L1, c["offset"], count, rows, c["stride"], planes, c["plane_stride"])
    else:
        touched.memory = c["row_bytes"]


def _move(touched: _Touched, c: Fields) -> None:
    target, rows, count = TARGETS[MoveTarget(c["target"])], c["rows"], c["row_lines"]
    touched.read(Buffer.L1, c["source"], count, rows, c["source_pitch"])
    if c["transpose"] == Transpose.NONE:
        touched.write(target, c["line"], count, rows, c["pitch"])
        return
    in_line = LINE_BYTES // ELEMENT_BYTES[Transpose(c["transpose"])]
    touched.write(target, c["line"], _ceil(rows, in_line), count * in_line, c["pitch"])


def _img2col(touched: _Touched, c: Fields) -> None:
    row_bytes = c["kernel_height"] * c["kernel_width"] * c["pixel_bytes"]
    target = TARGETS[MoveTarget(c["target"])]
    touched.write(target, c["line"], _ceil(row_bytes, LINE_BYTES), c["rows"], c["pitch"])
    if c["height"] and c["width"]:
        image_lines = _ceil(c["width"] * c["pixel_bytes"], LINE_BYTES)
        touched.check(Buffer.L1, c["source"], image_lines, c["height"], c["source_pitch"])
    # Which columns each image row is read at: rows of windows start and end anywhere.
    columns: dict[tuple[int, int], int] = {}
    image_rows: dict[int, int] = {}
    left, column, row = c["rows"], c["first_column"], c["first_row"]
    while left:
        taken = min(left, c["out_width"] - column)
        key = (column, taken)
        if key not in columns:
            columns[key] = _image_columns(c, column, taken)
        for y in range(c["kernel_height"]):
            at = row * c["stride_height"] + y - c["pad_top"]
            if 0 <= at < c["height"]:
                image_rows[at] = image_rows.get(at, 0) | columns[key]
        left, column, row = left - taken, 0, row + 1
    for at, mask in image_rows.items():
        for first, last in lines_in(mask):
            line = c["source"] + at * c["source_pitch"] + first
            touched.read(Buffer.L1, line, last - first + 1)


def _image_columns(c: Fields, column: int, count: int) -> int:
    """Mask of the lines of an image row that the windows from `column` on read."""
    mask, pixel = 0, c["pixel_bytes"]
    for window in range(column, column + count):
        left = window * c["stride_width"] - c["pad_left"]
        first, end = max(0, left), min(c["width"], left + c["kernel_width"])
        if first < end:
            low, high = first * pixel // LINE_BYTES, (end * pixel - 1) // LINE_BYTES
            mask |= (1 << high - low + 1) - 1 << low
    return mask


def _mmad(touched: _Touched, c: Fields) -> None:
    in_line = LINE_BYTES // OPERAND_BYTES[MmadType(c["type"])]
    depth, width = CUBE_SIDE * c["k_tiles"], CUBE_SIDE * c["n_tiles"]
    touched.read(Buffer.L0A, c["a_line"], _ceil(depth, in_line), c["rows"], c["a_pitch"])
    touched.read(Buffer.L0B, c["b_line"], _ceil(width, in_line), depth, c["b_pitch"])
    sums = (c["c_line"], c["n_tiles"], c["rows"], c["c_pitch"])
    touched.write(Buffer.L0C, *sums)
    if c["accumulate"]:
        touched.read(Buffer.L0C, *sums)


def _store(touched: _Touched, c: Fields) -> None:
    blocks = _ceil(c["columns"], CUBE_SIDE)
    touched.read(Buffer.L0C, c["c_line"], blocks, c["rows"], c["c_pitch"])
    if c["bias"]:
        touched.read(Buffer.BIAS, c["bias_line"], blocks)
    row_bytes = c["columns"] * OUTPUT_BYTES[StoreOutput(c["output"])]
    if c["target"] == Local.UB:
        count = _ceil(row_bytes, LINE_BYTES)
        touched.write(Buffer.UB, c["offset"], count, c["rows"], c["stride"])
    else:
        touched.memory = row_bytes


def _vector(touched: _Touched, c: Fields) -> None:
    operation, rows = VectorOperation(c["operation"]), c["rows"]
    wide = _ceil(c["columns"], VECTOR_LANES)
    packed = _ceil(wide, PACKED_LINES.get(operation, 1))
    unpacks = operation in (VectorOperation.UNPACK_INT8, VectorOperation.UNPACK_BF16)
    for name in "abc"[: SOURCES[operation]]:
        if name != "a" and c[f"{name}_immediate"]:
            continue
        first, pitch = c[f"{name}_line"], c[f"{name}_pitch"]
        count = packed if unpacks else wide
        if name == "a" and operation is VectorOperation.GATHER:
            # Which elements it takes is in b. Rows are taken to lie one behind the other.
            count = pitch or touched.size(Buffer.UB) - first
            touched.assumed = f"GATHER takes elements of {count} lines from its row's first on"
        elif not c[f"{name}_step"]:
            count = 1
        touched.read(Buffer.UB, first, count, rows, pitch)
    if operation is VectorOperation.TRANSPOSE:
        touched.write(Buffer.UB, c["line"], _ceil(rows, VECTOR_LANES), c["columns"], c["pitch"])
        return
    reduces = VectorOperation.SUM_FLOAT <= operation <= VectorOperation.MIN_INT
    packs = operation in (VectorOperation.PACK_INT8, VectorOperation.PACK_BF16)
    touched.write(
        Buffer.UB, c["line"], 1 if reduces else packed if packs else wide, rows, c["pitch"]
    )


_TOUCH: dict[CommandOpcode, Callable[[_Touched, Fields], None]] = {
    CommandOpcode.LOAD: _load,
    CommandOpcode.SAVE: _save,
    CommandOpcode.MOVE: _move,
    CommandOpcode.IMG2COL: _img2col,
    CommandOpcode.MMAD: _mmad,
    CommandOpcode.STORE: _store,
    CommandOpcode.VECTOR: _vector,
}
