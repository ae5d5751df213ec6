"""What a command costs on its pipe: cycles and bytes, from its fields.

A pipe has a front, which checks a command while the one before works, and a stream: what moves a
line, or a row of the Cube, in each cycle. `Cost` says how long either is taken. The numbers are
those of the Timing paragraphs of the pipes, and of the states behind them.
"""

from collections import Counter
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
from runtime.planner.chip import Chip

__all__ = ["Channel", "Cost", "command_cost"]

Fields = dict[str, int]
Traffic = Counter[tuple[str, str]]

ROW_CHECKS = 4
"""RowIssuer: from a command to its first row: offset, extremes, check, issue."""

READ_START = ROW_CHECKS + 2
"""From a LOAD to its first request: a row's register, its span."""

READ_BEAT = 6
"""RowReader: the request's register, and from a response to the line's write."""

WRITE_START = ROW_CHECKS + 4
"""From a SAVE to its first request: read UB, the FIFO of beats, RowWriter."""

WRITE_ANSWER = 6
"""Registers of RowWriter, StoreArbiter and the count of rows, besides the memory's latency."""

STORE_PIPELINE = 5
"""FIXPIPE: bias, requantisation, packing."""

SINK_BEATS = 16
"""Beats that wait in front of RowWriter: a SAVE reads so far ahead."""

TILE_CYCLES = CUBE_SIDE
"""The Cube loads a tile of B, a row a cycle."""

FMA_CYCLES = 3
"""Latency of a fused multiply-add: a step of the bf16 chain."""

SUM_CYCLES = 2
"""The bf16 Cube reads sums that long before they meet the first product."""

LANE_CYCLES = 1 + FMA_CYCLES
"""From operands at the lanes of the vector unit to the result."""

VECTOR_FRONT = 3
"""The vector unit decodes a command and finds its ends."""

VECTOR_FILL = 8
"""From the start of a vector command to its first write."""

REDUCTION_SLOTS = 7
"""Slots of the lanes that combine the partial results of a row."""

REDUCTION_TAIL = 31
"""From the last line of a reduction to the write of its result."""

IMAGE_START = 6
"""IMG2COL: from the hand-over to its first step: products, and the first window."""

IMAGE_TAIL = 4
"""IMG2COL: from a step to the write of its line, and the end."""

TRANSPOSE_TURN = 7
"""Transposer: waits for its banks to be filled, and for the last write."""


class Channel(Enum):
    """What commands of all cores share: HBM has a port for reads and one for writes."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True)
class Cost:
    """What a command takes, in cycles.

    Attributes:
        work: what the pipe's busy counter gains.
        stream: the pipe's stream is taken for so long.
        setup: from the command's acceptance to the first cycle of its stream at the earliest.
        gap: after its stream, so long the next one's may not begin.
        tail: from the last cycle of the stream to the last effect of the command.
        hold: from the begin of the stream, so long the front keeps the command.
        ordered: the front also keeps it until the command before has ended.
        keeps: the front also keeps it until it has ended itself.
        lead: its stream begins so long after the end of the command before; None: it follows
            the stream of the command before.
        channel, lines: requests to memory, 64 bytes each.
        traffic: bytes by (level, "read" or "write").
        macs: multiply-accumulates of the Cube.
        operations: elements of a vector command.
    """

    work: int
    stream: int
    setup: int = 0
    gap: int = 0
    tail: int = 0
    hold: int = 0
    ordered: bool = False
    keeps: bool = False
    lead: int | None = None
    channel: Channel | None = None
    lines: int = 0
    traffic: Traffic = field(default_factory=Counter)
    macs: int = 0
    operations: int = 0


_GLOBAL_OPCODES = (CommandOpcode.LOAD, CommandOpcode.SAVE, CommandOpcode.STORE)
"""Commands whose second word is an offset from their base register."""

assert all(COMMANDS[opcode].offset_of("offset") == 32 for opcode in _GLOBAL_OPCODES)


def divide_up(value: int, unit: int) -> int:
    """`value` / `unit`, rounded up."""
    return -(-value // unit)


def command_cost(chip: Chip, command: bytes, base: int) -> Cost:
    """The cost of a command; `base` is the value of its base register.

    Raises:
        ValueError: it has no known opcode.
    """
    if command[0] in _GLOBAL_OPCODES:
        # Only the place in a line counts, so that few commands differ.
        place = base + int.from_bytes(command[4:8], "little")
        command = command[:4] + (place % LINE_BYTES).to_bytes(4, "little") + command[8:]
    return _cost(chip, command)


@lru_cache(maxsize=1 << 14)
def _cost(chip: Chip, command: bytes) -> Cost:
    opcode = CommandOpcode(command[0])
    fields = COMMANDS[opcode].unpack_bytes(command)
    match opcode:
        case CommandOpcode.NOP:
            return Cost(0, 0)
        case CommandOpcode.LOAD:
            return _load(chip, fields)
        case CommandOpcode.SAVE:
            return _save(chip, fields)
        case CommandOpcode.STORE:
            return _store(chip, fields)
        case CommandOpcode.MOVE:
            return _move(fields)
        case CommandOpcode.IMG2COL:
            return _unfold(fields)
        case CommandOpcode.MMAD:
            return _multiply(chip, fields)
        case CommandOpcode.VECTOR:
            return _vector(fields)


# Rows of global memory.


@dataclass(frozen=True)
class _Rows:
    """Rows of global memory: the lines that they lie in, and beats of 64 bytes that they have."""

    lines: int
    beats: int
    last_lines: int
    count: int


def _rows(fields: Fields, row_bytes: int) -> _Rows:
    beats = divide_up(row_bytes, LINE_BYTES)
    planes = fields.get("planes", 1)
    lines = last = 0
    for plane in range(planes):
        first = fields["offset"] + plane * fields.get("plane_stride", 0)
        lines += _row_lines(first, fields["stride"], fields["rows"], row_bytes)
        last = _lines_at(first + (fields["rows"] - 1) * fields["stride"], row_bytes)
    count = planes * fields["rows"]
    return _Rows(lines, count * beats, last, count)


def _lines_at(address: int, nbytes: int) -> int:
    return divide_up(address % LINE_BYTES + nbytes, LINE_BYTES)


def _row_lines(first: int, stride: int, rows: int, nbytes: int) -> int:
    """Lines of all rows: places in a line repeat after at most 64 rows."""
    period = min(rows, LINE_BYTES)
    once = [_lines_at(first + row * stride, nbytes) for row in range(period)]
    return sum(once) * (rows // period) + sum(once[: rows % period])


def _load(chip: Chip, fields: Fields) -> Cost:
    rows = _rows(fields, fields["row_bytes"])
    answer = chip.memory_latency + READ_BEAT
    # Not more lines are under way than the ring holds.
    slots = max(rows.lines, divide_up(rows.lines * answer, chip.reads_in_flight))
    level = "L1" if fields["target"] == Local.L1 else "UB"
    return Cost(
        work=rows.beats,
        stream=slots,
        setup=READ_START,
        tail=answer,
        hold=max(1, slots - 2 * rows.last_lines),
        ordered=True,
        channel=Channel.READ,
        lines=rows.lines,
        traffic=Counter(
            {("GM", "read"): rows.lines * LINE_BYTES, (level, "write"): rows.beats * LINE_BYTES}
        ),
    )


def _save(chip: Chip, fields: Fields) -> Cost:
    nbytes = fields["row_bytes"]
    beats = divide_up(nbytes, LINE_BYTES) * fields["rows"] * fields["planes"]
    traffic = Counter({("UB", "read"): beats * LINE_BYTES})
    if fields["target"] == Local.L1:
        traffic["L1", "write"] = beats * LINE_BYTES
        return Cost(
            work=beats,
            stream=beats,
            setup=ROW_CHECKS,
            tail=WRITE_START - ROW_CHECKS,
            ordered=True,
            keeps=True,
            traffic=traffic,
        )
    rows = _rows(fields, nbytes)
    traffic["GM", "write"] = nbytes * rows.count
    return Cost(
        work=beats,
        stream=rows.lines,
        setup=WRITE_START,
        tail=chip.memory_latency + WRITE_ANSWER,
        hold=max(1, rows.lines - SINK_BEATS),
        ordered=True,
        channel=Channel.WRITE,
        lines=rows.lines,
        traffic=traffic,
    )


_STORE_BYTES = {StoreOutput.WORD: 4, StoreOutput.INT8: 1, StoreOutput.BF16: 2}


def _store(chip: Chip, fields: Fields) -> Cost:
    columns, count = fields["columns"], fields["rows"]
    read = divide_up(columns, CUBE_SIDE) * count
    nbytes = columns * _STORE_BYTES[StoreOutput(fields["output"])]
    traffic = Counter({("L0C", "read"): read * LINE_BYTES})
    if fields["target"] == Local.UB:
        traffic["UB", "write"] = divide_up(nbytes, LINE_BYTES) * LINE_BYTES * count
        return Cost(
            work=read,
            stream=read,
            setup=ROW_CHECKS,
            tail=STORE_PIPELINE + WRITE_START - ROW_CHECKS,
            ordered=True,
            keeps=True,
            traffic=traffic,
        )
    rows = _rows(fields, nbytes)
    traffic["GM", "write"] = nbytes * count
    stream = max(read, rows.lines)
    behind = SINK_BEATS if rows.lines > read else 0
    return Cost(
        work=read,
        stream=stream,
        setup=ROW_CHECKS,
        tail=STORE_PIPELINE + WRITE_START - ROW_CHECKS + chip.memory_latency + WRITE_ANSWER,
        hold=max(read, stream - behind) + STORE_PIPELINE,
        ordered=True,
        channel=Channel.WRITE,
        lines=rows.lines,
        traffic=traffic,
    )


# L1 to the operand buffers.

_TARGET_LEVELS = {
    MoveTarget.L0A: "L0A",
    MoveTarget.L0B: "L0B",
    MoveTarget.L0C: "L0C",
    MoveTarget.BIAS: "bias",
}


def _move(fields: Fields) -> Cost:
    level = _TARGET_LEVELS[MoveTarget(fields["target"])]
    read = fields["rows"] * fields["row_lines"]
    kind = Transpose(fields["transpose"])
    if kind is Transpose.NONE:
        traffic = Counter({("L1", "read"): read * LINE_BYTES, (level, "write"): read * LINE_BYTES})
        return Cost(work=read, stream=read, setup=4, tail=1, hold=0, traffic=traffic)
    side = LINE_BYTES if kind is Transpose.BYTES else LINE_BYTES // 2
    groups = divide_up(fields["rows"], side)
    blocks = groups * fields["row_lines"]
    written = blocks * side
    stream = fields["row_lines"] * (fields["rows"] + groups * (side + TRANSPOSE_TURN))
    traffic = Counter({("L1", "read"): read * LINE_BYTES, (level, "write"): written * LINE_BYTES})
    return Cost(work=written, stream=stream, setup=5, lead=3, traffic=traffic)


def _unfold(fields: Fields) -> Cost:
    """Windows: a step for each line of L1 that a row of a window touches, and for zeros."""
    pixel, width = fields["pixel_bytes"], fields["width"] * fields["pixel_bytes"]
    segment = fields["kernel_width"] * pixel
    row, column = fields["first_row"], fields["first_column"]
    steps = read = 0
    for _ in range(fields["rows"]):
        left = (column * fields["stride_width"] - fields["pad_left"]) * pixel
        start, end = max(left, 0), min(left + segment, width)
        before = divide_up(max(0, min(-left, segment)), LINE_BYTES)
        behind = divide_up(max(0, left + segment - max(end, start)), LINE_BYTES)
        inside = _lines_at(start, end - start) if end > start else 0
        top = row * fields["stride_height"] - fields["pad_top"]
        rows_inside = sum(
            0 <= top + y < fields["height"] and inside > 0 for y in range(fields["kernel_height"])
        )
        empty = fields["kernel_height"] - rows_inside
        steps += rows_inside * (before + inside + behind) + empty * divide_up(segment, LINE_BYTES)
        read += rows_inside * inside
        column += 1
        if column == fields["out_width"]:
            row, column = row + 1, 0
    written = fields["rows"] * divide_up(segment * fields["kernel_height"], LINE_BYTES)
    level = _TARGET_LEVELS[MoveTarget(fields["target"])]
    traffic = Counter({("L1", "read"): read * LINE_BYTES, (level, "write"): written * LINE_BYTES})
    return Cost(
        work=written,
        stream=max(steps, written),
        setup=3 + IMAGE_START,
        tail=IMAGE_TAIL,
        lead=1 + IMAGE_START,
        traffic=traffic,
    )


# The Cube.


def _multiply(chip: Chip, fields: Fields) -> Cost:
    rows, k_tiles, n_tiles = fields["rows"], fields["k_tiles"], fields["n_tiles"]
    is_float = fields["type"] == MmadType.BF16
    fresh = 0 if fields["accumulate"] else 1
    step_rows = CUBE_SIDE // chip.bf16_depth if is_float else 1
    issued = rows * k_tiles * n_tiles * step_rows
    traffic = Counter(
        {
            ("L0A", "read"): issued * LINE_BYTES,
            ("L0B", "read"): CUBE_SIDE * k_tiles * n_tiles * LINE_BYTES,
            ("L0C", "read"): (issued - fresh * rows * n_tiles) * LINE_BYTES,
            ("L0C", "write"): issued * LINE_BYTES,
        }
    )
    macs = rows * k_tiles * n_tiles * CUBE_SIDE * CUBE_SIDE
    if is_float:
        return _multiply_floats(chip, rows, k_tiles, n_tiles, issued, traffic, macs)
    tiles = k_tiles * n_tiles
    period = max(rows, TILE_CYCLES)
    # Rows that stream are followed by the next tile's, which loads from the first of them on.
    return Cost(
        work=issued,
        stream=(tiles - 1) * period + rows,
        setup=TILE_CYCLES + 2,
        gap=max(0, TILE_CYCLES - rows),
        tail=3,
        hold=(tiles - 2) * period + TILE_CYCLES if tiles > 1 else 0,
        traffic=traffic,
        macs=macs,
    )


def _multiply_floats(
    chip: Chip, rows: int, k_tiles: int, n_tiles: int, issued: int, traffic: Traffic, macs: int
) -> Cost:
    depth = chip.bf16_depth
    passes = k_tiles * (CUBE_SIDE // depth)
    chain = SUM_CYCLES + FMA_CYCLES * depth
    # The next rows of B load when the last stage of the chain has taken the ones before.
    reload = SUM_CYCLES + FMA_CYCLES * (depth - 1) + depth + 2
    period = max(rows, reload) if rows > chain else max(rows + chain, reload)
    tile = 1 + depth + 1 + (passes - 1) * period + rows + chain + 1
    stream = n_tiles * tile
    return Cost(
        work=issued,
        stream=stream,
        setup=2,
        lead=0,
        keeps=True,
        traffic=traffic,
        macs=macs,
    )


# The vector unit.

_DENSITY = {
    VectorOperation.UNPACK_INT8: 4,
    VectorOperation.PACK_INT8: 4,
    VectorOperation.UNPACK_BF16: 2,
    VectorOperation.PACK_BF16: 2,
}
_PACKS = (VectorOperation.PACK_INT8, VectorOperation.PACK_BF16)
_REDUCES = range(VectorOperation.SUM_FLOAT, VectorOperation.TRANSPOSE)


def _vector(fields: Fields) -> Cost:
    operation = VectorOperation(fields["operation"])
    rows, lines = fields["rows"], divide_up(fields["columns"], VECTOR_LANES)
    packed = divide_up(lines, _DENSITY.get(operation, 1))
    sources = SOURCES[operation]
    used = [sources > 0, sources > 1, sources > 2]
    used[1] &= not fields["b_immediate"]
    used[2] &= not fields["c_immediate"]
    widths = [packed if operation not in _PACKS else lines, lines, lines]
    read = sum(
        rows * (width if fields[f"{name}_step"] else 1)
        for name, width, use in zip("abc", widths, used, strict=True)
        if use
    )
    slots = written = rows * lines
    tail = VECTOR_FILL
    if operation in _REDUCES:
        slots, written = rows * (lines + REDUCTION_SLOTS), rows
        # The last row's own slots lie in its tail.
        slots -= REDUCTION_SLOTS
        tail = VECTOR_FILL - LANE_CYCLES - 1 + REDUCTION_TAIL
    elif operation in _PACKS:
        written = rows * packed
    elif operation is VectorOperation.TRANSPOSE:
        groups, columns = divide_up(rows, VECTOR_LANES), fields["columns"]
        written, read = columns * groups, rows * lines
        slots = rows * lines + written
    elif operation is VectorOperation.GATHER:
        slots = written = rows * fields["columns"]
        read = written + rows * lines
        tail += 4
    kept = rows * lines if operation is VectorOperation.GATHER else written
    return Cost(
        work=written,
        stream=slots,
        setup=VECTOR_FRONT,
        tail=tail,
        hold=1,
        lead=0,
        traffic=Counter({("UB", "read"): read * LINE_BYTES, ("UB", "write"): kept * LINE_BYTES}),
        operations=rows * fields["columns"],
    )
