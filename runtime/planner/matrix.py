"""Tilings of a matrix product: a formula looks at all of them, the simulation at the best."""

from dataclasses import dataclass
from functools import lru_cache

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE
from runtime.compiler.errors import CompileError
from runtime.kernels.matrix_source import MatrixProduct, matrix_source
from runtime.kernels.tiling import LONGEST_BLOCK, ceil_to, divide_up
from runtime.planner.chip import Chip
from runtime.planner.costs import FMA_CYCLES, SUM_CYCLES
from runtime.planner.launch import Launch
from runtime.planner.timeline import Timeline
from runtime.toolchain.object import KernelObject

__all__ = ["MatrixPlan", "formula_cycles", "plan_matrix_product"]

SIDES = (16, 32, 48, 64, 96, 128, 192, 256)
"""Rows and columns of a tile of the result that are tried, besides the whole extent."""

DEPTHS = (64, 128, 192, 256, 512)
"""Chunks along k that are tried, besides the whole extent."""

FINALISTS = 3
"""Tilings that are simulated."""

MOST_STEPS = 4000
"""Chunks of a product that is still simulated: more would take seconds."""

STEP_INSTRUCTION_CYCLES = 280
"""The scalar unit's cycles for a chunk along k."""

TILE_INSTRUCTION_CYCLES = 320
"""The scalar unit's cycles for a tile of the result, besides its chunks."""

BLOCK_CYCLES = 700
"""Start of a block: registers, a cold instruction cache, the first instructions."""

OUTPUTS = {"int32": 4, "float32": 4, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True)
class MatrixPlan:
    """A product, how it is tiled, and what that takes.

    Attributes:
        product: tiles, for `matrix_source`.
        tiles_per_block, blocks: how they are shared out.
        timeline: the simulation; None if it would have been too long.
        cycles: of the whole run, estimated.
    """

    m: int
    n: int
    k: int
    product: MatrixProduct
    tiles_per_block: int
    blocks: int
    timeline: Timeline | None
    cycles: int

    def launch(self, code: KernelObject) -> Launch:
        """The launch of its kernel, `matrix_source(product)` compiled."""
        return _launch(self.m, self.n, self.k, self.product, self.tiles_per_block, code)


def _element_bytes(dtype: str) -> int:
    if dtype not in ("int8", "bfloat16"):
        raise ValueError(f"dtype must be int8 or bfloat16, not {dtype!r}")
    return 1 if dtype == "int8" else 2


def plan_matrix_product(
    m: int,
    n: int,
    k: int,
    dtype: str = "int8",
    chip: Chip | None = None,
    *,
    output: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: bool = False,
    relu: bool = False,
    simulate: bool = True,
) -> MatrixPlan:
    """The best tiling of an (m, k) by (k, n) product, for the chip's cores and buffers.

    Args:
        dtype: of the operands, int8 or bfloat16.
        output: element type of the result; None: int32 or float32.
        transpose_a, transpose_b, bias, relu: as in `MatrixProduct`.
        simulate: False: trust the formula, which takes no time.

    Raises:
        ValueError: a size is below 1, the type is none of these, or no tiles fit the buffers.
    """
    sums = "int32" if dtype == "int8" else "float32"
    flags = (transpose_a, transpose_b, bias, relu)
    return _plan(m, n, k, dtype, chip or Chip(), output or sums, flags, simulate)


@lru_cache(maxsize=256)
def _plan(
    m: int,
    n: int,
    k: int,
    dtype: str,
    chip: Chip,
    output: str,
    flags: tuple[bool, ...],
    simulate: bool,
) -> MatrixPlan:
    for name, size in (("m", m), ("n", n), ("k", k)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size!r}")
    size = _element_bytes(dtype)
    ranked = sorted(
        (formula_cycles(m, n, k, product, chip), product.m * product.n, index, product)
        for index, product in enumerate(_candidates(m, n, k, dtype, chip, output, flags, size))
    )
    if not ranked:
        raise ValueError(f"buffers must hold two tiles of 16 x 16 x 64, not {chip.buffers!r}")
    best: MatrixPlan | None = None
    for cycles, _, _, product in ranked[: FINALISTS if simulate else 1]:
        per_block = _share_out(m, n, product, chip, cycles)
        tiles = divide_up(m, product.m) * divide_up(n, product.n)
        timeline = None
        if simulate and tiles * divide_up(k, product.k) <= MOST_STEPS:
            try:
                code = matrix_source(product).compile(chip.buffers)
            except CompileError:
                continue
            timeline = _launch(m, n, k, product, per_block, code).estimate(chip)
            cycles = timeline.cycles
        blocks = divide_up(tiles, per_block)
        found = MatrixPlan(m, n, k, product, per_block, blocks, timeline, cycles)
        if best is None or found.cycles < best.cycles:
            best = found
    if best is None:
        raise ValueError(f"buffers must hold the kernel's tiles, not {chip.buffers!r}")
    return best


def _share_out(m: int, n: int, product: MatrixProduct, chip: Chip, cycles: int) -> int:
    """Tiles of a block: one block for each core, or more if they would run for long."""
    tiles = divide_up(m, product.m) * divide_up(n, product.n)
    blocks = chip.cores * max(1, divide_up(cycles, LONGEST_BLOCK))
    return divide_up(tiles, min(tiles, blocks))


def _launch(
    m: int, n: int, k: int, product: MatrixProduct, per_block: int, code: KernelObject
) -> Launch:
    lda = m if product.transpose_a else k
    ldb = k if product.transpose_b else n
    tiles = divide_up(m, product.m) * divide_up(n, product.n)
    arguments = (None, None, None, None, m, n, k, lda, ldb, n, 1, 0, per_block)
    return Launch(code, arguments, divide_up(tiles, per_block))


def _candidates(
    m: int,
    n: int,
    k: int,
    dtype: str,
    chip: Chip,
    output: str,
    flags: tuple[bool, ...],
    size: int,
) -> list[MatrixProduct]:
    """Tilings whose tiles fit twice in every buffer."""
    found = []
    for tm in _sizes(m, 1, SIDES):
        for tn in _sizes(n, CUBE_SIDE, SIDES):
            for tk in _sizes(k, CUBE_SIDE, DEPTHS):
                product = MatrixProduct(tm, tn, tk, dtype, output, *flags)
                if _fits(product, chip, size):
                    found.append(product)
    return found


def _sizes(extent: int, unit: int, candidates: tuple[int, ...]) -> list[int]:
    """Candidates below `extent`, and that itself, rounded up."""
    whole = ceil_to(extent, unit)
    return [size for size in candidates if size < whole] + ([whole] if whole <= 1024 else [])


def _lines(rows: int, columns: int, size: int) -> int:
    return rows * divide_up(columns * size, LINE_BYTES)


def _fits(product: MatrixProduct, chip: Chip, size: int) -> bool:
    """Whether two of each tile fit, so that one is filled while the other is worked at."""
    tm, tn, tk = product.m, product.n, product.k
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


def formula_cycles(m: int, n: int, k: int, product: MatrixProduct, chip: Chip) -> int:
    """Cycles of a product by a closed formula: the slowest pipe of the core with the most tiles,
    and what nothing overlaps with: the first load, the last store, the start."""
    size = _element_bytes(product.operands)
    tiles = divide_up(m, product.m) * divide_up(n, product.n)
    share = divide_up(tiles, chip.cores) / tiles
    depths = _pieces(k, product.k)
    cube = load = move = store = scalar = 0
    for tm, m_count in _pieces(m, product.m):
        for tn, n_count in _pieces(n, product.n):
            count = m_count * n_count
            for tk, k_count in depths:
                step = _step(tm, tn, tk, product, chip, size)
                steps = count * k_count
                cube += steps * step.cube
                load += steps * step.load
                move += steps * step.move
                scalar += steps * step.scalar
            written = _row_lines(tn * OUTPUTS[product.output], n * OUTPUTS[product.output])
            store += count * (tm * max(written, divide_up(tn, CUBE_SIDE)) + 10)
            scalar += count * TILE_INSTRUCTION_CYCLES
    slowest = max(cube, load, move, store, scalar) * share
    # All cores' loads go through one port of HBM.
    shared = max(load, store) * LINE_BYTES / chip.hbm_bytes_per_cycle
    tm, tn, tk = min(m, product.m), min(n, product.n), min(k, product.k)
    first = _step(tm, tn, tk, product, chip, size)
    last = tm * max(1, divide_up(tn, CUBE_SIDE))
    alone = first.load + first.move + last + 4 * chip.memory_latency + BLOCK_CYCLES
    return int(max(slowest, shared) + alone) + chip.launch_cycles


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    """(size, count) of the tiles along an axis: whole ones, and what is left."""
    whole, rest = divmod(extent, tile)
    return [piece for piece in ((tile, whole), (rest, 1 if rest else 0)) if piece[1]]


def _row_lines(nbytes: int, stride: int) -> int:
    """Lines that a row of memory lies in, on average; rounded up."""
    return divide_up(nbytes + (0 if stride % LINE_BYTES == 0 else LINE_BYTES - 1), LINE_BYTES)


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
    load = _lines(*a, size) + _lines(*b, size) + 8
    per_line = LINE_BYTES // size
    move = 0
    for (rows, columns), transposes in ((a, product.transpose_a), (b, product.transpose_b)):
        lines = divide_up(columns, per_line)
        blocks = lines * divide_up(rows, per_line)
        move += lines * rows + (blocks * (per_line + 7) if transposes else 2)
    return _Stage(cube, load, move, STEP_INSTRUCTION_CYCLES)
