"""Kernels that move elements: transposed matrices, rows picked by number."""

from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.kernel import KernelSource, kernel
from runtime.kernels.tiling import Work, divide_up

__all__ = ["gather_rows_source", "gather_work", "transpose_source", "transpose_work"]

SIDE = 64
"""Rows and columns of a tile of the transposition."""

ROW_CHUNK = 4096
"""Elements of a row that are gathered in one go."""

TILE_CYCLES = 1_600
"""The most that a tile of the transposition takes."""

CHUNK_CYCLES = 1_000
"""The most that a chunk of a gathered row takes."""


def transpose_work(m: int, n: int) -> Work:
    """The work of transposing an (m, n) matrix. A block takes whole rows of tiles."""
    return Work(divide_up(m, SIDE), divide_up(n, SIDE) * TILE_CYCLES)


def gather_work(count: int, n: int) -> Work:
    """The work of gathering `count` rows of `n` elements."""
    return Work(count, divide_up(n, ROW_CHUNK) * CHUNK_CYCLES)


def transpose_source(dtype: str) -> KernelSource:
    """out (n, m) = x (m, n) transposed; fp32 or int32."""
    array = f"{dtype}*"

    @kernel(x=array, out=array, m="uint31", n="uint31")
    def transpose(k: KernelBuilder, x: Any, out: Any, m: Any, n: Any) -> None:
        for i in k.range(k.block_x * SIDE, m, k.grid_x * SIDE):
            rows = k.minimum(SIDE, m - i)
            for j in k.range(0, n, SIDE):
                columns = k.minimum(SIDE, n - j)
                tile = k.load(x, i * n + j, (rows, columns), stride=n)
                k.store(out, j * m + i, k.transpose(tile), stride=m)

    return transpose


def gather_rows_source(dtype: str) -> KernelSource:
    """out[i] = table[numbers[i]]: rows of `n` elements, as an embedding picks them. The numbers
    must be rows of the table."""
    array = f"{dtype}*"

    @kernel(table=array, numbers="int32*", out=array, count="uint31", n="uint31")
    def gather_rows(
        k: KernelBuilder, table: Any, numbers: Any, out: Any, count: Any, n: Any
    ) -> None:
        for i in k.range(k.block_x, count, k.grid_x):
            row = k.fetch(numbers, i)
            for j in k.range(0, n, ROW_CHUNK):
                columns = k.minimum(ROW_CHUNK, n - j)
                k.store(out, i * n + j, k.load(table, row * n + j, columns))

    return gather_rows
