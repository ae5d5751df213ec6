"""Kernels that reduce or normalise the rows of a matrix.

A row that fits goes through UB in one piece. A longer one goes in chunks, as often as the function
needs to see it: softmax for its largest, its sum and its result, the layer norm for its mean, its
variance and its result. In both cases several rows are in work at a time.
"""

from collections.abc import Iterator
from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.kernel import KernelSource, kernel
from runtime.compiler.scalar import Scalar
from runtime.compiler.tile import Tile
from runtime.kernels.tiling import Work, divide_up

__all__ = [
    "CHUNK",
    "REDUCTIONS",
    "ROWS",
    "add_row_source",
    "layer_norm_source",
    "reduce_source",
    "row_work",
    "softmax_source",
]

CHUNK = 256
"""Columns of a chunk."""

ROWS = 4
"""Rows of a chunk."""

CHUNK_CYCLES = {"softmax": 6_000, "layer_norm": 2_700, "reduce": 800, "add_row": 800}
"""The most that a chunk takes in all passes of a kernel."""

REDUCTIONS = ("sum", "max", "min", "mean")


def row_work(name: str, m: int, n: int) -> Work:
    """The work of a kernel of `CHUNK_CYCLES` on an (m, n) matrix. A block takes whole rows."""
    return Work(divide_up(m, ROWS), divide_up(n, CHUNK) * CHUNK_CYCLES[name])


class _Rows:
    """A group of rows of an (m, n) matrix, in chunks of columns."""

    def __init__(self, k: KernelBuilder, x: Any, first: Scalar, m: Any, n: Any) -> None:
        self.k = k
        self.x = x
        self.n = n
        self.first = first
        self.rows = k.minimum(ROWS, m - first)

    def chunks(self) -> Iterator[tuple[Scalar, Tile]]:
        """Offset in the matrix, and tile, of each chunk."""
        k = self.k
        for column in k.range(0, self.n, CHUNK):
            columns = k.minimum(CHUNK, self.n - column)
            offset = k.define(self.first * self.n + column)
            yield offset, k.load(self.x, offset, (self.rows, columns), stride=self.n)

    def start(self, value: float) -> Tile:
        """A column that is filled with a number."""
        k = self.k
        return k.full(k.tile(self.rows, 1, column=True, name="start"), value)


def reduce_source(name: str) -> KernelSource:
    """out[i] = sum, max, min or mean of row i; fp32. Sums are in the order of the vector unit,
    chunk by chunk."""
    if name not in REDUCTIONS:
        raise CompileError(f"reduction must be one of {', '.join(REDUCTIONS)}, not {name!r}")

    @kernel(x="float32*", out="float32*", m="uint31", n="uint31", scale="float32")
    def reduce(k: KernelBuilder, x: Any, out: Any, m: Any, n: Any, scale: Any) -> None:
        for first in k.range(k.block_x * ROWS, m, k.grid_x * ROWS):
            group = _Rows(k, x, first, m, n)
            total = group.start({"max": -float("inf"), "min": float("inf")}.get(name, 0.0))
            for _, tile in group.chunks():
                match name:
                    case "max":
                        k.update(total, k.largest(total, k.row_max(tile)))
                    case "min":
                        k.update(total, k.smallest(total, k.row_min(tile)))
                    case _:
                        k.update(total, k.add(total, k.row_sum(tile)))
            k.store_column(out, first, total * scale if name == "mean" else total)

    return reduce


def add_row_source() -> KernelSource:
    """out[i] = row i of x + row; fp32."""

    @kernel(x="float32*", row="float32*", out="float32*", m="uint31", n="uint31")
    def add_row(k: KernelBuilder, x: Any, row: Any, out: Any, m: Any, n: Any) -> None:
        for first in k.range(k.block_x * ROWS, m, k.grid_x * ROWS):
            for offset, tile in _Rows(k, x, first, m, n).chunks():
                column = k.define(offset - first * n)
                k.store(out, offset, tile + k.load(row, column, tile.columns), stride=n)

    return add_row


def softmax_source() -> KernelSource:
    """out[i] = softmax of row i; fp32."""

    @kernel(x="float32*", out="float32*", m="uint31", n="uint31")
    def softmax(k: KernelBuilder, x: Any, out: Any, m: Any, n: Any) -> None:
        for first in k.range(k.block_x * ROWS, m, k.grid_x * ROWS):
            group = _Rows(k, x, first, m, n)
            largest = group.start(-float("inf"))
            for _, tile in group.chunks():
                k.update(largest, k.largest(largest, k.row_max(tile)))
            total = group.start(0.0)
            for _, tile in group.chunks():
                k.update(total, k.add(total, k.row_sum(k.exp(tile - largest))))
            scale = k.reciprocal(total)
            for offset, tile in group.chunks():
                k.store(out, offset, k.exp(tile - largest) * scale, stride=n)

    return softmax


def layer_norm_source() -> KernelSource:
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
        for first in k.range(k.block_x * ROWS, m, k.grid_x * ROWS):
            group = _Rows(k, x, first, m, n)
            total = group.start(0.0)
            for _, tile in group.chunks():
                k.update(total, k.add(total, k.row_sum(tile)))
            mean = total * inverse
            squares = group.start(0.0)
            for _, tile in group.chunks():
                centred = tile - mean
                k.update(squares, k.add(squares, k.row_sum(centred * centred)))
            scale = k.reciprocal_root(k.add(squares * inverse, epsilon))
            for offset, tile in group.chunks():
                column = k.define(offset - first * n)
                gains = k.load(gain, column, tile.columns)
                biases = k.load(bias, column, tile.columns)
                k.store(out, offset, k.fma((tile - mean) * scale, gains, biases), stride=n)

    return layer_norm
