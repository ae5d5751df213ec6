"""Kernels that one pipe limits: its work is several times that of the others."""

from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel

__all__ = ["TILE", "many_loads", "many_saves", "many_stores"]

TILE = 4096
"""Elements of a tile, so that the scalar unit has little to do for each."""


def many_loads() -> KernelSource:
    """out = x + y: MTE2 brings two elements for each that the others work at."""

    @kernel(x="float32*", y="float32*", out="float32*", n="uint31")
    def loads(k: KernelBuilder, x: Any, y: Any, out: Any, n: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            k.store(out, i, k.load(x, i, count) + k.load(y, i, count))

    return loads


def many_saves() -> KernelSource:
    """one = two = x: MTE3 writes two elements for each that is loaded."""

    @kernel(x="float32*", one="float32*", two="float32*", n="uint31")
    def saves(k: KernelBuilder, x: Any, one: Any, two: Any, n: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            tile = k.load(x, i, k.minimum(TILE, n - i))
            k.store(one, i, tile)
            k.store(two, i, tile)

    return saves


def many_stores() -> KernelSource:
    """one = two = x: FIXPIPE writes two sums for each that is loaded."""

    @kernel(x="int32*", one="int32*", two="int32*", n="uint31")
    def stores(k: KernelBuilder, x: Any, one: Any, two: Any, n: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            sums = k.move(k.load(x, i, count, memory=Memory.L1), Memory.L0C)
            k.store_sums(one, i, sums)
            k.store_sums(two, i, sums)

    return stores
