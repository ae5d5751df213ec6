"""Chains of random commands for the core's tests."""

import random

from abi.address import LINE_BYTES
from abi.core import Local, MmadType, MoveTarget, StoreOutput, Transpose
from abi.vector import SOURCES, VectorOperation
from tb.blocks.core.programs import (
    MEMORY_BYTES,
    SIZES,
    Step,
    img2col,
    load,
    mmad,
    move,
    nop,
    save,
    store,
    vector,
)

__all__ = ["chain"]

ELEMENTWISE = (
    VectorOperation.IADD,
    VectorOperation.FADD,
    VectorOperation.FMUL,
    VectorOperation.FMA,
    VectorOperation.IMAX,
    VectorOperation.SELECT,
    VectorOperation.COPY,
    VectorOperation.FILL,
)


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


def _lines(size: str, rows: int, row_lines: int) -> tuple[int, int]:
    """A first line and a pitch, with which the rows fit a buffer."""
    room = SIZES[size] - row_lines
    pitch = random.choice([0, row_lines, row_lines, row_lines + random.randrange(3)])
    if pitch * (rows - 1) > room:
        pitch = 0
    return random.randint(0, room - pitch * (rows - 1)), pitch


def _rows(nbytes: int, rows: int) -> dict[str, int]:
    """Place, stride and direction of rows in the lower part of global memory."""
    stride = random.choice([0, nbytes, nbytes + random.randrange(100), -random.randrange(200)])
    low, high = min(0, stride * (rows - 1)), max(0, stride * (rows - 1))
    first = random.randint(-low, MEMORY_BYTES * 7 // 8 - nbytes - high)
    base = random.randrange(2)
    # Base register 1 holds an address beyond the memory.
    return {"base": base, "offset": first - base * MEMORY_BYTES, "stride": stride}


def _random_load(flags: dict[str, int]) -> Step:
    rows, nbytes = random.randint(1, 12), random.choice([1, 64, random.randint(1, 300)])
    target = random.choice([Local.L1, Local.UB])
    size = "ub_lines" if target is Local.UB else "l1_lines"
    line, pitch = _lines(size, rows, _ceil(nbytes, LINE_BYTES))
    where = {"line": line, "pitch": pitch, "rows": rows, "row_bytes": nbytes}
    fill = random.choice([0, random.randrange(256)])
    return load(**flags, target=target, fill=fill, **where, **_rows(nbytes, rows))


def _random_save(flags: dict[str, int]) -> Step:
    rows, nbytes = random.randint(1, 12), random.choice([1, 64, random.randint(1, 300)])
    lines = _ceil(nbytes, LINE_BYTES)
    line, pitch = _lines("ub_lines", rows, lines)
    where = {"line": line, "pitch": pitch, "rows": rows, "row_bytes": nbytes}
    if random.randrange(2):
        first, stride = _lines("l1_lines", rows, lines)
        return save(**flags, **where, target=Local.L1, offset=first, stride=stride)
    return save(**flags, **where, **_rows(nbytes, rows))


def _random_move(flags: dict[str, int]) -> Step:
    if random.random() < 0.3:
        return _random_transpose(flags)
    target = random.choice(list(MoveTarget))
    buffer = {0: "l0a_lines", 1: "l0b_lines", 2: "l0c_lines", 3: "bias_lines"}[target]
    rows, row_lines = random.randint(1, 12), random.randint(1, 6)
    source, source_pitch = _lines("l1_lines", rows, row_lines)
    line, pitch = _lines(buffer, rows, row_lines)
    where = {"source": source, "source_pitch": source_pitch, "line": line, "pitch": pitch}
    return move(**flags, target=target, rows=rows, row_lines=row_lines, **where)


def _random_transpose(flags: dict[str, int]) -> Step:
    transpose = random.choice([Transpose.BYTES, Transpose.HALVES])
    size = 2 if transpose is Transpose.HALVES else 1
    rows, row_lines = random.randint(1, 70), random.randint(1, 3)
    columns, pitch = row_lines * LINE_BYTES // size, _ceil(rows * size, LINE_BYTES)
    source, source_pitch = _lines("l1_lines", rows, row_lines)
    line = random.randint(0, SIZES["l0a_lines"] - columns * pitch)
    where = {"source": source, "source_pitch": source_pitch, "line": line, "pitch": pitch}
    sizes = {"rows": rows, "row_lines": row_lines}
    return move(**flags, target=random.randrange(2), transpose=transpose, **sizes, **where)


def _random_img2col(flags: dict[str, int]) -> Step:
    pixel, height, width = random.randint(1, 70), random.randint(1, 8), random.randint(1, 8)
    kernel = {"kernel_height": random.randint(1, 3), "kernel_width": random.randint(1, 3)}
    out_lines = _ceil(kernel["kernel_height"] * kernel["kernel_width"] * pixel, LINE_BYTES)
    rows, out_width = random.randint(1, 12), random.randint(1, 8)
    source, source_pitch = _lines("l1_lines", height, _ceil(width * pixel, LINE_BYTES))
    line, pitch = _lines("l0a_lines", rows, out_lines)
    where = {"source": source, "source_pitch": source_pitch, "line": line, "pitch": pitch}
    return img2col(
        **flags,
        **where,
        **kernel,
        target=random.choice([MoveTarget.L0A, MoveTarget.L0B]),
        stride_height=random.randint(1, 3),
        stride_width=random.randint(1, 3),
        pixel_bytes=pixel,
        rows=rows,
        height=height,
        width=width,
        out_width=out_width,
        pad_top=random.randrange(3),
        pad_left=random.randrange(3),
        first_row=random.randrange(3),
        first_column=random.randrange(out_width),
    )


def _random_mmad(flags: dict[str, int]) -> Step:
    kind = random.choice([MmadType.INT8, MmadType.BF16])
    halves = 2 if kind is MmadType.BF16 else 1
    rows, k_tiles, n_tiles = (random.randint(1, 30), random.randint(1, 5), random.randint(1, 5))
    a_line, a_pitch = _lines("l0a_lines", rows, _ceil(k_tiles * halves, 4))
    b_line, b_pitch = _lines("l0b_lines", k_tiles * 16, _ceil(n_tiles * halves, 4))
    c_line, c_pitch = _lines("l0c_lines", rows, n_tiles)
    where = {"a_line": a_line, "a_pitch": a_pitch, "b_line": b_line, "b_pitch": b_pitch}
    sizes = {"rows": rows, "k_tiles": k_tiles, "n_tiles": n_tiles}
    more = {"c_line": c_line, "c_pitch": c_pitch, "accumulate": random.randrange(2)}
    return mmad(**flags, type=kind, **where, **sizes, **more)


def _random_store(flags: dict[str, int]) -> Step:
    rows, columns = random.randint(1, 12), random.choice([16, random.randint(1, 100)])
    output = random.choice(list(StoreOutput))
    size = {StoreOutput.WORD: 4, StoreOutput.INT8: 1, StoreOutput.BF16: 2}[output]
    if random.randrange(2):
        # Whole lines, since the rest of a line of UB is undefined.
        lines = random.randint(1, 2)
        columns = lines * LINE_BYTES // size
        first, stride = _lines("ub_lines", rows, lines)
        place = {"target": int(Local.UB), "offset": first, "stride": stride}
    else:
        place = _rows(columns * size, rows)
    c_line, c_pitch = _lines("l0c_lines", rows, _ceil(columns, 16))
    bias_line = random.randint(0, SIZES["bias_lines"] - _ceil(columns, 16))
    fields = {
        **place,
        "bias": random.randrange(2) if output is StoreOutput.INT8 else 0,
        "relu": random.randrange(2),
        "output": output,
        "shift": random.choice([0, 1, 62, random.randint(0, 62), 24, 30]),
        "multiplier": random.choice([0, 1, 2**31 - 1, random.getrandbits(31)]),
        "bias_line": bias_line,
        "columns": columns,
        "rows": rows,
        "c_line": c_line,
        "c_pitch": c_pitch,
    }
    return store(**flags, **fields)


def _random_vector(flags: dict[str, int]) -> Step:
    """Sources in the lower three quarters of UB, the result in the others."""
    operation = random.choice(ELEMENTWISE)
    rows, columns = random.randint(1, 6), random.randint(1, 70)
    lines = _ceil(columns, 16)
    quarter = SIZES["ub_lines"] // 4
    fields = {"line": 3 * quarter + random.randrange(quarter - 6 * 5 + 1), "pitch": lines}
    for source in "abc"[: SOURCES[operation]]:
        fields[f"{source}_line"] = random.randrange(3 * quarter - 6 * 5 + 1)
        fields[f"{source}_pitch"] = random.choice([0, lines])
        fields[f"{source}_step"] = random.randrange(2)
    immediate = random.choice([0, 0x3F80_0000, random.getrandbits(32)])
    return vector(
        **flags, operation=operation, rows=rows, columns=columns, immediate=immediate, **fields
    )


MAKERS = (
    _random_load,
    _random_save,
    _random_move,
    _random_img2col,
    _random_mmad,
    _random_store,
    _random_vector,
)


def _random_step(wait: int, give: int) -> Step:
    flags = {"wait": wait, "set": give}
    if random.random() < 0.1:
        return nop(random.randrange(6), **flags)
    return random.choice(MAKERS)(flags)


def chain(commands: int) -> list[Step]:
    """Random commands of all pipes, each waiting for the one before it."""
    result = [nop(0, set=1 << 31)]
    for i in range(commands):
        result.append(_random_step(1 << (i - 1) % 32, 1 << i % 32))
    return result
