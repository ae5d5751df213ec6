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

__all__ = ["MatrixProduct", "matrix_source"]


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
            rows, columns = k.minimum(product.m, m - i), k.minimum(product.n, n - j)
            sums = k.accumulator(rows, columns, SUMS[product.operands])
            biases = k.load_bias(bias, j, columns) if product.bias else None
            for step in k.range(0, depth, product.k):
                length = k.minimum(product.k, depth - step)
                left = k.load(
                    a,
                    step * lda + i if product.transpose_a else i * lda + step,
                    (length, rows) if product.transpose_a else (rows, length),
                    stride=lda,
                    memory=Memory.L1,
                )
                right = k.load(
                    b,
                    j * ldb + step if product.transpose_b else step * ldb + j,
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
                i * ldc + j,
                sums,
                stride=ldc,
                bias=biases,
                relu=product.relu,
                multiplier=multiplier,
                shift=k.minimum(shift, 62),
            )

    return matrix_product
