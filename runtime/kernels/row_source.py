"""Kernels that reduce or normalise the rows of a matrix.

A row that fits goes through UB in one piece, so that it is loaded once. A longer one goes in
chunks, as often as the function needs to see it: softmax for its largest, its sum and its result,
the layer norm for its mean, its variance and its result. In both cases several rows are in work at
a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from abi.core import VECTOR_LANES
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.kernel import KernelSource, kernel
from runtime.compiler.scalar import Scalar, scalar
from runtime.compiler.tile import Tile
from runtime.kernels.tiling import Work, divide_up

__all__ = [
    "CHUNKS",
    "LONG_CHUNKS",
    "LONG_ROW",
    "REDUCTIONS",
    "RowTiles",
    "add_row_source",
    "layer_norm_source",
    "reduce_source",
    "row_tiles",
    "row_work",
    "softmax_source",
]

TILE_CYCLES = {"softmax": 12_000, "layer_norm": 5_400, "reduce": 1_600, "add_row": 1_600}
"""The most that a tile of `TILE_LINES` takes in all passes of a kernel."""

REDUCTIONS = ("sum", "max", "min", "mean")

TILE_LINES = 128
"""Lines of UB for the rows that are in work at a time."""

WHOLE_COLUMNS = (64, 256, 512, 1024, TILE_LINES * VECTOR_LANES)
"""Limits of the lengths of rows for which there are kernels that take them in one piece."""

MOST_ROWS = 16
"""Rows in work at a time, at most: functions of one number for each row take a line for each."""


@dataclass(frozen=True)
class RowTiles:
    """What a kernel takes of a matrix at a time: `rows` of at most `columns`, the length of the
    rows; or chunks of that many columns, if not `whole`."""

    rows: int
    columns: int
    whole: bool


CHUNKS = RowTiles(4, 256, whole=False)
"""For rows of any length."""

LONG_CHUNKS = RowTiles(1, TILE_LINES * VECTOR_LANES, whole=False)
"""For long rows: one fills tiles, and a block should not take longer than it must."""

LONG_ROW = 8 * TILE_LINES * VECTOR_LANES
"""Elements from which a row is long."""


def row_tiles(n: int) -> RowTiles:
    """The tiles for rows of n elements."""
    for columns in WHOLE_COLUMNS:
        if 0 < n <= columns:
            rows = TILE_LINES * VECTOR_LANES // columns
            return RowTiles(min(MOST_ROWS, rows), columns, whole=True)
    return CHUNKS if n < LONG_ROW else LONG_CHUNKS


def row_work(name: str, m: int, n: int) -> Work:
    """The work of a kernel of `TILE_CYCLES` on an (m, n) matrix. A block takes whole rows."""
    tiles = row_tiles(n)
    lines = tiles.rows * divide_up(tiles.columns, VECTOR_LANES)
    cycles = divide_up(lines * TILE_CYCLES[name], TILE_LINES)
    return Work(divide_up(m, tiles.rows), cycles * max(1, divide_up(n, tiles.columns)))


Combine = Callable[[Tile, Tile], Tile]


class _Matrix:
    """An (m, n) matrix, in groups of rows."""

    def __init__(self, k: KernelBuilder, tiles: RowTiles, x: Any, m: Any, n: Any) -> None:
        self.k = k
        self.tiles = tiles
        self.x = x
        self.m = m
        self.n = n
        self.width = k.minimum(tiles.columns, n) if tiles.whole else None

    def groups(self) -> "Iterator[_Group]":
        """The groups of this block."""
        k, rows = self.k, self.tiles.rows
        for first in k.range(k.block_x * rows, self.m, k.grid_x * rows):
            yield _Group(self, first, k.minimum(rows, self.m - first))

    def vector(self, pointer: Any) -> "Callable[[Scalar, Tile], Tile]":
        """An (n,) array; gives the part that belongs to a chunk, which is loaded but once if rows
        are whole."""
        k = self.k
        if self.width is None:
            return lambda column, tile: k.load(pointer, column, tile.columns)
        row = k.load(pointer, 0, self.width)
        return lambda _column, _tile: row


class _Group:
    """Some rows of a matrix, in chunks of columns, or whole."""

    def __init__(self, matrix: _Matrix, first: Scalar, rows: Scalar) -> None:
        self.matrix = matrix
        self.first = first
        self.rows = rows
        self.whole: Tile | None = None
        if matrix.width is not None:
            shape = rows, matrix.width
            k = matrix.k
            self.whole = k.load(matrix.x, first * matrix.n, shape, stride=matrix.n)

    def chunks(self) -> Iterator[tuple[Scalar, Scalar, Tile]]:
        """First column, offset in the matrix, and tile, of each chunk."""
        k, n, start = self.matrix.k, self.matrix.n, self.first * self.matrix.n
        if self.whole is not None:
            yield scalar(0), start, self.whole
            return
        size = self.matrix.tiles.columns
        for column in k.range(0, n, size):
            columns = k.minimum(size, n - column)
            offset = k.define(start + column)
            yield column, offset, k.load(self.matrix.x, offset, (self.rows, columns), stride=n)

    def reduce(self, start: float, part: Callable[[Tile], Tile], combine: Combine) -> Tile:
        """`part` of each chunk, a column, combined; `start` combined with anything changes
        nothing."""
        if self.whole is not None:
            return part(self.whole)
        k = self.matrix.k
        total = k.full(k.tile(self.rows, 1, column=True, name="start"), start)
        for _, _, tile in self.chunks():
            k.update(total, combine(total, part(tile)))
        return total


def reduce_source(name: str, tiles: RowTiles = CHUNKS) -> KernelSource:
    """out[i] = sum, max, min or mean of row i; fp32. Sums are in the order of the vector unit,
    chunk by chunk."""
    if name not in REDUCTIONS:
        raise CompileError(f"reduction must be one of {', '.join(REDUCTIONS)}, not {name!r}")

    @kernel(x="float32*", out="float32*", m="uint31", n="uint31", scale="float32")
    def reduce(k: KernelBuilder, x: Any, out: Any, m: Any, n: Any, scale: Any) -> None:
        for group in _Matrix(k, tiles, x, m, n).groups():
            match name:
                case "max":
                    total = group.reduce(-float("inf"), k.row_max, k.largest)
                case "min":
                    total = group.reduce(float("inf"), k.row_min, k.smallest)
                case _:
                    total = group.reduce(0.0, k.row_sum, k.add)
            k.store_column(out, group.first, total * scale if name == "mean" else total)

    return reduce


def add_row_source(tiles: RowTiles = CHUNKS) -> KernelSource:
    """out[i] = row i of x + row; fp32."""

    @kernel(x="float32*", row="float32*", out="float32*", m="uint31", n="uint31")
    def add_row(k: KernelBuilder, x: Any, row: Any, out: Any, m: Any, n: Any) -> None:
        matrix = _Matrix(k, tiles, x, m, n)
        added = matrix.vector(row)
        for group in matrix.groups():
            for column, offset, tile in group.chunks():
                k.store(out, offset, tile + added(column, tile), stride=n)

    return add_row


def softmax_source(tiles: RowTiles = CHUNKS) -> KernelSource:
    """out[i] = softmax of row i; fp32."""

    @kernel(x="float32*", out="float32*", m="uint31", n="uint31")
    def softmax(k: KernelBuilder, x: Any, out: Any, m: Any, n: Any) -> None:
        for group in _Matrix(k, tiles, x, m, n).groups():
            largest = group.reduce(-float("inf"), k.row_max, k.largest)
            powers: list[Tile] = []

            def power_sum(tile: Tile, largest: Tile = largest, powers: Any = powers) -> Tile:
                powers.append(k.exp(tile - largest))
                return k.row_sum(powers[-1])

            scale = k.reciprocal(group.reduce(0.0, power_sum, k.add))
            for _, offset, tile in group.chunks():
                # Chunks are too many to keep their powers.
                power = powers[0] if tiles.whole else k.exp(tile - largest)
                k.store(out, offset, power * scale, stride=n)

    return softmax


def layer_norm_source(tiles: RowTiles = CHUNKS) -> KernelSource:
    """out[i] = (row i - mean) / sqrt(variance + epsilon) * gain + bias; fp32. `inverse`: 1 / n."""

    @kernel(
        x="float32*",
        gain="float32*",
        bias="float32*",
        out="float32*",
        m="uint31",
        n="uint31",
        inverse="float32",
        epsilon="float32",
    )
    def layer_norm(
        k: KernelBuilder,
        x: Any,
        gain: Any,
        bias: Any,
        out: Any,
        m: Any,
        n: Any,
        inverse: Any,
        epsilon: Any,
    ) -> None:
        matrix = _Matrix(k, tiles, x, m, n)
        gains, biases = matrix.vector(gain), matrix.vector(bias)
        for group in matrix.groups():
            mean = group.reduce(0.0, k.row_sum, k.add) * inverse
            centred: list[Tile] = []

            def square_sum(tile: Tile, mean: Tile = mean, centred: Any = centred) -> Tile:
                centred.append(tile - mean)
                return k.row_sum(centred[-1] * centred[-1])

            squares = group.reduce(0.0, square_sum, k.add)
            scale = k.reciprocal_root(k.add(squares * inverse, epsilon))
            for column, offset, tile in group.chunks():
                difference = centred[0] if tiles.whole else tile - mean
                bias_part = biases(column, tile)
                result = k.fma(difference * scale, gains(column, tile), bias_part)
                k.store(out, offset, result, stride=n)

    return layer_norm
