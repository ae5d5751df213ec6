"""The kernel of matrix products: out = A @ B, with bias, ReLU and requantisation on the way out.

It is compiled for one shape, so that the scalar unit computes as little as possible: the sizes of
whole tiles are constants, and what happens once is no loop. A block makes some rows and columns of
the result, tile by tile; along k, chunks of A and B go through L1 and L0 into the sums of a tile in
L0C. All of it is double-buffered, so the Cube works while MTE2 and MTE1 bring the next chunk and
FIXPIPE writes the last tile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel
from runtime.compiler.matrix import SUMS
from runtime.compiler.scalar import Scalar, ScalarLike
from runtime.kernels.tiling import divide_up

__all__ = ["MatrixProduct", "Tiling", "matrix_source"]


@dataclass(frozen=True)
class MatrixProduct:
    """What is computed: (m, k) A by (k, n) B, for each of `heads`.

    Attributes:
        operands: element type of A and B, int8 or bfloat16.
        output: element type of the result.
        transpose_a, transpose_b: A is stored as (k, m), B as (n, k).
        bias: an int32 is added to each column; int8 operands only.
        relu: negative values become 0.
        requantise: (multiplier, shift), for int8 results.
        heads: products of the same shape.
        strides: elements from row to row of A, B and the result; None: rows follow each other.
        steps: elements from a head's A, B and result to those of the next one.
    """

    m: int
    n: int
    k: int
    operands: str
    output: str
    transpose_a: bool = False
    transpose_b: bool = False
    bias: bool = False
    relu: bool = False
    requantise: tuple[int, int] = (0, 0)
    heads: int = 1
    strides: tuple[int, int, int] | None = None
    steps: tuple[int, int, int] = (0, 0, 0)

    @property
    def row_strides(self) -> tuple[int, int, int]:
        """Elements from row to row of A, B and the result, as they are stored."""
        if self.strides is not None:
            return self.strides
        return (
            self.m if self.transpose_a else self.k,
            self.k if self.transpose_b else self.n,
            self.n,
        )


@dataclass(frozen=True)
class Tiling:
    """How a product is cut.

    Attributes:
        m, n, k: rows and columns of a tile of the result, and a chunk along k.
        rows, columns, heads: what a block makes; whole tiles, or all there is.
    """

    m: int
    n: int
    k: int
    rows: int
    columns: int
    heads: int = 1

    def parts(self, product: MatrixProduct) -> tuple[int, int, int]:
        """Blocks along m, n and the heads."""
        return (
            divide_up(product.m, self.rows),
            divide_up(product.n, self.columns),
            divide_up(product.heads, self.heads),
        )

    def blocks(self, product: MatrixProduct) -> int:
        """Blocks of the grid."""
        along_m, along_n, along_heads = self.parts(product)
        return along_m * along_n * along_heads


@dataclass(frozen=True)
class _Axis:
    """An axis of the product: `extent` in pieces of `tile`, `share` of it for each block."""

    extent: int
    share: int
    tile: int

    def places(self, k: KernelBuilder, part: ScalarLike) -> Iterator[Scalar | int]:
        """Where the pieces of a block's part begin: one place, or the index of a loop."""
        start = k.define(part * self.share) if isinstance(part, Scalar) else part * self.share
        if self.tile >= self.share:
            yield start
            return
        stop: ScalarLike = start + self.share
        if self.extent % self.share:
            stop = k.minimum(stop, self.extent)
        yield from k.range(start, stop, self.tile)

    def size(self, k: KernelBuilder, place: ScalarLike) -> ScalarLike:
        """Size of the piece there."""
        whole = min(self.tile, self.extent)
        return whole if self.extent % whole == 0 else k.minimum(whole, self.extent - place)


class _Block:
    """The work of a block."""

    def __init__(
        self, k: KernelBuilder, product: MatrixProduct, tiling: Tiling, arrays: tuple[Any, ...]
    ) -> None:
        self.k = k
        self.product = product
        self.arrays = arrays
        self.m = _Axis(product.m, min(tiling.rows, product.m), tiling.m)
        self.n = _Axis(product.n, min(tiling.columns, product.n), tiling.n)
        self.depth = _Axis(product.k, product.k, tiling.k)
        self.heads = _Axis(product.heads, tiling.heads, 1)
        self.parts = tiling.parts(product)

    def compute(self) -> None:
        """All tiles of the block."""
        k, product = self.k, self.product
        part_m, part_n, part_head = self._place()
        for head in self.heads.places(k, part_head):
            origins = [self._times(head, step) for step in product.steps]
            for column in self.n.places(k, part_n):
                for row in self.m.places(k, part_m):
                    self._tile(row, column, origins)

    def _place(self) -> list[ScalarLike]:
        """The block's number along m, n and the heads."""
        rest: ScalarLike = self.k.block_x
        found: list[ScalarLike] = []
        left = self.parts[0] * self.parts[1] * self.parts[2]
        for count in self.parts:
            if count == 1:
                found.append(0)
            elif count == left:
                found.append(rest)
            else:
                assert isinstance(rest, Scalar)
                found.append(self.k.define(rest % count))
                rest = self.k.define(rest // count)
            left //= count
        return found

    def _times(self, value: ScalarLike, factor: int) -> ScalarLike:
        """A product that is computed here, once."""
        return self.k.define(value * factor) if isinstance(value, Scalar) else value * factor

    def _tile(self, i: ScalarLike, j: ScalarLike, origins: list[ScalarLike]) -> None:
        """The tile from row `i` and column `j` on."""
        k, product = self.k, self.product
        a, b, out, *bias = self.arrays
        lda, ldb, ldc = product.row_strides
        rows, columns = self.m.size(k, i), self.n.size(k, j)
        left_row = (i if product.transpose_a else self._times(i, lda)) + origins[0]
        right_row = (self._times(j, ldb) if product.transpose_b else j) + origins[1]
        sums = k.accumulator(rows, columns, SUMS[product.operands])
        for step in self.depth.places(k, 0):
            length = self.depth.size(k, step)
            left = k.load(
                a,
                left_row + (step * lda if product.transpose_a else step),
                (length, rows) if product.transpose_a else (rows, length),
                stride=lda,
                memory=Memory.L1,
            )
            right = k.load(
                b,
                right_row + (step if product.transpose_b else step * ldb),
                (columns, length) if product.transpose_b else (length, columns),
                stride=ldb,
                memory=Memory.L1,
            )
            k.dot(
                sums,
                left,
                right,
                first=step.is_zero() if isinstance(step, Scalar) else 1,
                transpose_a=product.transpose_a,
                transpose_b=product.transpose_b,
            )
        multiplier, shift = product.requantise
        k.store_sums(
            out,
            self._times(i, ldc) + j + origins[2],
            sums,
            stride=ldc,
            bias=k.load_bias(bias[0], j, columns) if bias else None,
            relu=product.relu,
            multiplier=multiplier,
            shift=shift,
        )


def matrix_source(product: MatrixProduct, tiling: Tiling) -> KernelSource:
    """The kernel. Its arguments: A, B, the result, and the bias if there is one. The grid has
    `tiling.blocks(product)` blocks along x."""
    types = {"a": f"{product.operands}*", "b": f"{product.operands}*", "out": f"{product.output}*"}
    if product.bias:
        types["bias"] = "int32*"

    @kernel(**types)
    def matrix_product(k: KernelBuilder, *arrays: Any) -> None:
        _Block(k, product, tiling, arrays).compute()

    return matrix_product
