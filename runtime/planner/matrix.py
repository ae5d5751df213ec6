"""Tilings of a matrix product: a formula looks at all of them, the simulation at the best."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE
from runtime.compiler.errors import CompileError
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.kernels.tiling import LONGEST_BLOCK, ceil_to, divide_up
from runtime.planner.chip import Chip
from runtime.planner.costs import FMA_CYCLES, SUM_CYCLES
from runtime.planner.launch import Launch
from runtime.planner.timeline import Timeline
from runtime.toolchain.object import KernelObject

__all__ = ["MatrixPlan", "formula_cycles", "plan_matrix_product", "plan_product", "tilings"]

SIDES = (16, 32, 48, 64, 96, 128, 192, 256)
"""Columns of a tile of the result that are tried, besides the whole extent."""

ROWS = (1, 2, 4, 8, *SIDES)
"""Rows, likewise; fewer than 16 only serve cores with small buffers."""

DEPTHS = (64, 128, 192, 256, 512)
"""Chunks along k that are tried, besides the whole extent."""

LARGEST_SIDE = 1024
"""The whole extent is tried up to here."""

WIDE = 128
"""From so many columns on, blocks begin at whole lines of the result."""

FINALISTS = 3
"""Tilings that are simulated."""

MOST_STEPS = 4000
"""Chunks of a product that is still simulated: more would take seconds."""

STEP_INSTRUCTION_CYCLES = 200
"""The scalar unit's cycles for a chunk along k."""

TILE_INSTRUCTION_CYCLES = 60
"""The scalar unit's cycles for a tile of the result, besides its chunks."""

BLOCK_CYCLES = 150
"""Start of a block: registers, a cold instruction cache, the first instructions; its end."""

OUTPUT_BYTES = {"int32": 4, "float32": 4, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True)
class MatrixPlan:
    """A product, how it is tiled, and what that takes.

    Attributes:
        timeline: the simulation; None if it would have been too long.
        cycles: of the whole run, estimated.
    """

    product: MatrixProduct
    tiling: Tiling
    timeline: Timeline | None
    cycles: int

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.tiling.blocks(self.product)

    def launch(self, code: KernelObject) -> Launch:
        """The launch of its kernel, `matrix_source(product, tiling)` compiled."""
        return _launch(self.product, self.tiling, code)


def _element_bytes(dtype: str) -> int:
    if dtype not in ("int8", "bfloat16"):
        raise ValueError(f"dtype must be int8 or bfloat16, not {dtype!r}")
    return 1 if dtype == "int8" else 2


def plan_matrix_product(
    m: int, n: int, k: int, dtype: str = "int8", chip: Chip | None = None, *, simulate: bool = True
) -> MatrixPlan:
    """The best tiling of an (m, k) by (k, n) product with int32 or fp32 results; as `plan_product`.

    Args:
        dtype: of the operands, int8 or bfloat16.
    """
    sums = "int32" if dtype == "int8" else "float32"
    return plan_product(MatrixProduct(m, n, k, dtype, sums), chip or Chip(), simulate=simulate)


@lru_cache(maxsize=256)
def plan_product(product: MatrixProduct, chip: Chip, *, simulate: bool = False) -> MatrixPlan:
    """The best tiling of a product, for the chip's cores and buffers.

    Args:
        simulate: False: trust the formula, which takes some milliseconds.

    Raises:
        ValueError: a size is below 1, the type is none of these, or no tiles fit the buffers.
    """
    for name, size in (("m", product.m), ("n", product.n), ("k", product.k)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size!r}")
    ranked = sorted(
        (_is_long(product, tiling, chip), formula_cycles(product, tiling, chip), index, tiling)
        for index, tiling in enumerate(tilings(product, chip))
    )
    if not ranked:
        raise ValueError(f"buffers must hold two tiles of 1 x 16 x 64, not {chip.buffers!r}")
    best: MatrixPlan | None = None
    for _, cycles, _, whole in ranked[: FINALISTS if simulate else 1]:
        tiling = _shortened(product, whole, chip)
        timeline = None
        if simulate and _steps(product, tiling) <= MOST_STEPS:
            try:
                code = matrix_source(product, tiling).compile(chip.buffers)
            except CompileError:
                continue
            timeline = _launch(product, tiling, code).estimate(chip)
            cycles = timeline.cycles
        found = MatrixPlan(product, tiling, timeline, cycles)
        if best is None or found.cycles < best.cycles:
            best = found
    if best is None:
        raise ValueError(f"buffers must hold the kernel's tiles, not {chip.buffers!r}")
    return best


def _steps(product: MatrixProduct, tiling: Tiling) -> int:
    """Chunks of all tiles."""
    tiles = divide_up(product.m, tiling.m) * divide_up(product.n, tiling.n) * product.heads
    return tiles * divide_up(product.k, tiling.k)


def _launch(product: MatrixProduct, tiling: Tiling, code: KernelObject) -> Launch:
    return Launch(code, (None,) * len(code.arguments), tiling.blocks(product))


def _block_cycles(product: MatrixProduct, tiling: Tiling, chip: Chip) -> int:
    """Cycles of a block, by the formula."""
    rounds = divide_up(tiling.blocks(product), chip.cores)
    return formula_cycles(product, tiling, chip) // rounds


def _is_long(product: MatrixProduct, tiling: Tiling, chip: Chip) -> bool:
    """Whether even a block of a single tile would run for long: k is long, the tile large."""
    single = replace(tiling, rows=tiling.m, columns=tiling.n, heads=1)
    return _block_cycles(product, single, chip) > LONGEST_BLOCK


def _shortened(product: MatrixProduct, tiling: Tiling, chip: Chip) -> Tiling:
    """The same tiles in more blocks, if one would run for long."""
    while _block_cycles(product, tiling, chip) > LONGEST_BLOCK:
        if tiling.heads > 1:
            tiling = replace(tiling, heads=divide_up(tiling.heads, 2))
        elif tiling.rows > tiling.m:
            tiling = replace(tiling, rows=_half(tiling.rows, tiling.m))
        elif tiling.columns > tiling.n:
            tiling = replace(tiling, columns=_half(tiling.columns, tiling.n))
        else:
            break
    return tiling


def _half(extent: int, tile: int) -> int:
    """About half of it, in whole tiles, and less than all of it."""
    return min(ceil_to(divide_up(extent, 2), tile), ceil_to(extent, tile) - tile)


def tilings(product: MatrixProduct, chip: Chip) -> Iterator[Tiling]:
    """Tilings whose tiles fit twice in every buffer, with about one block for each core."""
    size = _element_bytes(product.operands)
    for rows, columns, heads in _shares(product, chip.cores):
        for tm in _sizes(rows, 1, ROWS):
            for tn in _sizes(columns, CUBE_SIDE, SIDES):
                for tk in _sizes(product.k, CUBE_SIDE, DEPTHS):
                    whole = Tiling(tm, tn, tk, ceil_to(rows, tm), ceil_to(columns, tn), heads)
                    if _fits(product, whole, chip, size):
                        yield whole


def _shares(product: MatrixProduct, cores: int) -> list[tuple[int, int, int]]:
    """Rows, columns and heads of a block: all there is, shared out to up to so many cores."""
    found: dict[tuple[int, int, int], None] = {}
    for along_heads in range(1, min(cores, product.heads) + 1):
        for along_m in range(1, min(cores // along_heads, product.m) + 1):
            along_n = min(cores // along_heads // along_m, divide_up(product.n, CUBE_SIDE))
            unit = LINE_BYTES if product.n >= WIDE else CUBE_SIDE
            rows = divide_up(product.m, along_m)
            columns = ceil_to(divide_up(product.n, along_n), unit)
            found[rows, columns, divide_up(product.heads, along_heads)] = None
    return list(found)


def _sizes(extent: int, unit: int, candidates: tuple[int, ...]) -> list[int]:
    """Candidates below `extent`, and that itself, rounded up."""
    whole = ceil_to(extent, unit)
    return [size for size in candidates if size < whole] + [whole] * (whole <= LARGEST_SIDE)


def _lines(rows: int, columns: int, size: int) -> int:
    return rows * divide_up(columns * size, LINE_BYTES)


def _fits(product: MatrixProduct, tiling: Tiling, chip: Chip, size: int) -> bool:
    """Whether two of each tile fit, so that one is filled while the other is worked at."""
    tm, tn, tk = tiling.m, tiling.n, tiling.k
    per_line = LINE_BYTES // size
    a = (tk, tm) if product.transpose_a else (tm, tk)
    b = (tn, tk) if product.transpose_b else (tk, tn)
    a_rows = ceil_to(tm, per_line) if product.transpose_a else tm
    b_rows = ceil_to(tk, per_line) if product.transpose_b else ceil_to(tk, CUBE_SIDE)
    bias = divide_up(tn, CUBE_SIDE) if product.bias else 0
    buffers = chip.buffers
    return (
        2 * (_lines(*a, size) + _lines(*b, size) + bias) <= buffers.l1
        and 2 * _lines(a_rows, tk, size) <= buffers.l0a
        and 2 * _lines(b_rows, tn, size) <= buffers.l0b
        and tm * divide_up(tn, CUBE_SIDE) <= buffers.l0c // 2
        and 2 * bias <= buffers.bias
    )


@dataclass(frozen=True)
class _Stage:
    """Cycles of the pipes for all chunks of a kind."""

    cube: int
    load: int
    move: int
    scalar: int


def formula_cycles(product: MatrixProduct, tiling: Tiling, chip: Chip) -> int:
    """Cycles of a product by a closed formula: the slowest pipe of a core, and what nothing
    overlaps with: the first load, the last store, start and end of the blocks."""
    size = _element_bytes(product.operands)
    tm, tn, tk = tiling.m, tiling.n, tiling.k
    depths = _pieces(product.k, tk)
    cube = load = move = store = scalar = 0
    width = OUTPUT_BYTES[product.output]
    # All of a block's tiles; those at the edges are smaller, so the first block has the most.
    for rows, m_count in _pieces(min(product.m, tiling.rows), tm):
        for columns, n_count in _pieces(min(product.n, tiling.columns), tn):
            count = m_count * n_count * tiling.heads
            for depth, k_count in depths:
                step = _step(rows, columns, depth, product, chip, size)
                steps = count * k_count
                cube += steps * step.cube
                load += steps * step.load
                move += steps * step.move
                scalar += steps * step.scalar
            written = _row_lines(columns * width, product.row_strides[2] * width)
            store += count * (rows * max(written, divide_up(columns, CUBE_SIDE)) + 10)
            scalar += count * TILE_INSTRUCTION_CYCLES
    blocks = tiling.blocks(product)
    at_once = min(blocks, chip.cores)
    # All cores' loads go through one port of HBM.
    shared = max(load, store) * at_once * LINE_BYTES / chip.hbm_bytes_per_cycle
    tm, tn, tk = min(product.m, tm), min(product.n, tn), min(product.k, tk)
    first = _step(tm, tn, tk, product, chip, size)
    last = tm * max(1, divide_up(tn, CUBE_SIDE))
    # The Cube starts when both operands are there, and FIXPIPE when it has ended.
    alone = first.load * at_once + first.move + last + 2 * chip.memory_latency + BLOCK_CYCLES
    block = max(cube, load, move, store, scalar, shared) + alone
    return int(block * divide_up(blocks, chip.cores)) + chip.launch_cycles


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    """(size, count) of the tiles along an axis: whole ones, and what is left."""
    whole, rest = divmod(extent, tile)
    return [piece for piece in ((tile, whole), (rest, 1 if rest else 0)) if piece[1]]


def _row_lines(nbytes: int, stride: int) -> int:
    """Lines that a row of memory lies in, on average; rounded up."""
    return divide_up(nbytes + LINE_BYTES - gcd(stride, LINE_BYTES), LINE_BYTES)


def _step(tm: int, tn: int, tk: int, product: MatrixProduct, chip: Chip, size: int) -> _Stage:
    """A chunk: what each pipe takes for it."""
    k_tiles, n_tiles = divide_up(tk, CUBE_SIDE), divide_up(tn, CUBE_SIDE)
    if product.operands == "int8":
        cube = k_tiles * n_tiles * max(tm, CUBE_SIDE) + 2
    else:
        passes = k_tiles * CUBE_SIDE // chip.bf16_depth
        chain = SUM_CYCLES + FMA_CYCLES * chip.bf16_depth
        period = max(tm, chain + 3) if tm > chain else tm + chain
        cube = n_tiles * (passes * period + chain + chip.bf16_depth + 3) + 4
    a = (tk, tm) if product.transpose_a else (tm, tk)
    b = (tn, tk) if product.transpose_b else (tk, tn)
    load = 8
    for (rows, columns), stride in zip((a, b), product.row_strides, strict=False):
        load += rows * _row_lines(columns * size, stride * size)
    per_line = LINE_BYTES // size
    move = 0
    for (rows, columns), transposes in ((a, product.transpose_a), (b, product.transpose_b)):
        lines = divide_up(columns, per_line)
        blocks = lines * divide_up(rows, per_line)
        move += lines * rows + (blocks * (per_line + 7) if transposes else 2)
    return _Stage(cube, load, move, STEP_INSTRUCTION_CYCLES)
