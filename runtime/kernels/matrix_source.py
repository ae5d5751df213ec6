"""The kernel of matrix products: out = A @ B, with bias, ReLU and requantisation on the way out.

Each block works at `tiles_per_block` tiles of the result, one after the other; along k, chunks of
A and B go through L1 and L0 into the sums of a tile in L0C. All of it is double-buffered, so the
Cube works while MTE2 and MTE1 bring the next chunk and FIXPIPE writes the last tile.
"""

from dataclasses import dataclass
from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel
from runtime.compiler.matrix import SUMS
from runtime.compiler.scalar import Scalar, ScalarLike

__all__ = ["MatrixProduct", "head_product_source", "matrix_source"]


@dataclass(frozen=True)
class MatrixProduct:
    """What a kernel of matrix products is specialised to.

    Attributes:
        m, n, k: sizes of a tile of the result, and of a chunk along k.
        operands: element type of A and B, int8 or bfloat16.
        output: element type of the result.
        transpose_a, transpose_b: A is stored as (k, m), B as (n, k).
        bias: an int32 is added to each column; int8 operands only.
        relu: negative values become 0.
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


class _Tile:
    """A tile of a product: `arrays` are A, B and the result, `sizes` m, n and depth, `strides`
    elements from a row of each array to the next, `origins` the element at which each begins."""

    def __init__(
        self,
        k: KernelBuilder,
        product: MatrixProduct,
        arrays: tuple[Any, Any, Any],
        sizes: tuple[Any, Any, Any],
        strides: tuple[Any, Any, Any],
        origins: tuple[ScalarLike, ScalarLike, ScalarLike] = (0, 0, 0),
    ) -> None:
        self.k = k
        self.product = product
        self.arrays = arrays
        self.sizes = sizes
        self.strides = strides
        self.origins = origins

    def compute(self, i: Scalar, j: Scalar, *, bias: Any, multiplier: Any, shift: Any) -> None:
        """Rows from `i` and columns from `j` on."""
        k, product = self.k, self.product
        a, b, out = self.arrays
        m, n, depth = self.sizes
        lda, ldb, ldc = self.strides
        rows, columns = k.minimum(product.m, m - i), k.minimum(product.n, n - j)
        sums = k.accumulator(rows, columns, SUMS[product.operands])
        biases = k.load_bias(bias, j, columns) if product.bias else None
        for step in k.range(0, depth, product.k):
            length = k.minimum(product.k, depth - step)
            left = k.load(
                a,
                (step * lda + i if product.transpose_a else i * lda + step) + self.origins[0],
                (length, rows) if product.transpose_a else (rows, length),
                stride=lda,
                memory=Memory.L1,
            )
            right = k.load(
                b,
                (j * ldb + step if product.transpose_b else step * ldb + j) + self.origins[1],
                (columns, length) if product.transpose_b else (length, columns),
                stride=ldb,
                memory=Memory.L1,
            )
            k.dot(
                sums,
                left,
                right,
                first=step.is_zero(),
                transpose_a=product.transpose_a,
                transpose_b=product.transpose_b,
            )
        k.store_sums(
            out,
            i * ldc + j + self.origins[2],
            sums,
            stride=ldc,
            bias=biases,
            relu=product.relu,
            multiplier=multiplier,
            shift=k.minimum(shift, 62),
        )


def matrix_source(product: MatrixProduct) -> KernelSource:
    """The kernel. Its arguments: the arrays (without bias, `bias` is not read), sizes in elements,
    `multiplier` and `shift` of the requantisation, and how many tiles a block works at."""
    operands = f"{product.operands}*"

    @kernel(
        a=operands,
        b=operands,
        bias="int32*",
        out=f"{product.output}*",
        m="uint31",
        n="uint31",
        depth="uint31",
        lda="uint31",
        ldb="uint31",
        ldc="uint31",
        multiplier="uint31",
        shift="uint31",
        tiles_per_block="uint31",
    )
    def matrix_product(
        k: KernelBuilder,
        a: Any,
        b: Any,
        bias: Any,
        out: Any,
        m: Any,
        n: Any,
        depth: Any,
        lda: Any,
        ldb: Any,
        ldc: Any,
        multiplier: Any,
        shift: Any,
        tiles_per_block: Any,
    ) -> None:
        tiles_m = k.maximum(1, k.ceil_div(m, product.m))
        tiles = tiles_m * k.ceil_div(n, product.n)
        first = k.block_x * tiles_per_block
        for tile in k.range(first, k.minimum(tiles, first + tiles_per_block)):
            i = k.define(tile % tiles_m * product.m)
            j = k.define(tile // tiles_m * product.n)
            _Tile(k, product, (a, b, out), (m, n, depth), (lda, ldb, ldc)).compute(
                i, j, bias=bias, multiplier=multiplier, shift=shift
            )

    return matrix_product


def head_product_source(product: MatrixProduct) -> KernelSource:
    """A product for each head of an attention, without bias: `step_a`, `step_b` and `step_c` are
    elements from a head's A, B and result to those of the next one; the heads may lie side by side
    in the columns of one matrix."""
    operands = f"{product.operands}*"

    @kernel(
        a=operands,
        b=operands,
        out=f"{product.output}*",
        heads="uint31",
        m="uint31",
        n="uint31",
        depth="uint31",
        lda="uint31",
        ldb="uint31",
        ldc="uint31",
        step_a="uint31",
        step_b="uint31",
        step_c="uint31",
        tiles_per_block="uint31",
    )
    def head_product(
        k: KernelBuilder,
        a: Any,
        b: Any,
        out: Any,
        heads: Any,
        m: Any,
        n: Any,
        depth: Any,
        lda: Any,
        ldb: Any,
        ldc: Any,
        step_a: Any,
        step_b: Any,
        step_c: Any,
        tiles_per_block: Any,
    ) -> None:
        tiles_m = k.maximum(1, k.ceil_div(m, product.m))
        tiles = k.maximum(1, tiles_m * k.ceil_div(n, product.n))
        first = k.block_x * tiles_per_block
        for tile in k.range(first, k.minimum(tiles * heads, first + tiles_per_block)):
            head, place = k.define(tile // tiles), k.define(tile % tiles)
            i = k.define(place % tiles_m * product.m)
            j = k.define(place // tiles_m * product.n)
            origins = (head * step_a, head * step_b, head * step_c)
            _Tile(k, product, (a, b, out), (m, n, depth), (lda, ldb, ldc), origins).compute(
                i, j, bias=None, multiplier=0, shift=0
            )

    return head_product
