"""The kernel of requantisation: int32 to int8 through FIXPIPE."""

from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel
from runtime.kernels.tiling import Work, divide_up

__all__ = ["PIECE", "requantise_source", "requantise_work"]

PIECE = 1024
"""Elements that are loaded in one go."""

PIECE_CYCLES = 1_500
"""The most that a piece takes."""


def requantise_work(n: int) -> Work:
    """The work of requantising `n` elements."""
    return Work(divide_up(n, PIECE), PIECE_CYCLES)


def requantise_source(relu: bool) -> KernelSource:
    """out = clip((x * multiplier + (1 << shift >> 1)) >> shift, -128, 127), after ReLU if asked
    for. The pieces pass through L1 and L0C, so that three pipes work at once."""

    @kernel(x="int32*", out="int8*", n="uint31", multiplier="uint31", shift="uint31")
    def requantise(k: KernelBuilder, x: Any, out: Any, n: Any, multiplier: Any, shift: Any) -> None:
        bits = k.minimum(shift, 62)
        for i in k.range(k.block_x * PIECE, n, k.grid_x * PIECE):
            count = k.minimum(PIECE, n - i)
            sums = k.move(k.load(x, i, count, memory=Memory.L1), Memory.L0C)
            k.store_sums(out, i, sums, relu=relu, multiplier=multiplier, shift=bits)

    return requantise
