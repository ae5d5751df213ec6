"""Kernels that work element by element on arrays of any size."""

from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.kernel import KernelSource, kernel
from runtime.compiler.tile import Tile
from runtime.kernels.tiling import Work, divide_up

__all__ = [
    "BINARY",
    "TILE",
    "UNARY",
    "binary_source",
    "convert_source",
    "dequantise_source",
    "element_work",
    "quantise_source",
    "scale_source",
    "unary_source",
]

TILE = 1024
"""Elements of a tile: what a block works at in one go."""

UNARY = (
    "relu",
    "exp",
    "log",
    "reciprocal",
    "reciprocal_root",
    "tanh",
    "sigmoid",
    "erf",
    "gelu",
    "absolute",
)
"""Functions of one fp32 array: those of `KernelBuilder`, and relu."""

SERIES = ("exp", "log", "reciprocal", "reciprocal_root", "tanh", "sigmoid", "erf", "gelu", "divide")
"""Functions that take some 20 operations of the vector unit for each element, or more."""

SERIES_CYCLES, TILE_CYCLES = 6_000, 700
"""The most that a tile takes: with one of `SERIES`, with any other function."""

BINARY = ("add", "subtract", "multiply", "divide", "largest", "smallest")
"""Operations on two arrays of the same shape, fp32 or int32 (not divide)."""


def element_work(n: int, name: str = "") -> Work:
    """The work of a kernel on `n` elements; `name`: its function, if that is of `SERIES`."""
    return Work(divide_up(n, TILE), SERIES_CYCLES if name in SERIES else TILE_CYCLES)


def _function(k: KernelBuilder, name: str, x: Tile) -> Tile:
    if name == "relu":
        return k.largest(x, 0.0)
    result = getattr(k, name)(x)
    assert isinstance(result, Tile)
    return result


def unary_source(name: str) -> KernelSource:
    """out = function(x), fp32.

    Raises:
        CompileError: there is no such function.
    """
    if name not in UNARY:
        raise CompileError(f"function must be one of {', '.join(UNARY)}, not {name!r}")

    @kernel(x="float32*", out="float32*", n="uint31")
    def unary(k: KernelBuilder, x: Any, out: Any, n: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            k.store(out, i, _function(k, name, k.load(x, i, count)))

    return unary


def binary_source(name: str, dtype: str) -> KernelSource:
    """out = operation(x, y), fp32 or int32.

    Raises:
        CompileError: there is no such operation on this type.
    """
    if name not in BINARY or (name == "divide" and dtype != "float32"):
        raise CompileError(f"operation on {dtype} must be one that exists, not {name!r}")
    array = f"{dtype}*"

    @kernel(x=array, y=array, out=array, n="uint31")
    def binary(k: KernelBuilder, x: Any, y: Any, out: Any, n: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            result = getattr(k, name)(k.load(x, i, count), k.load(y, i, count))
            k.store(out, i, result)

    return binary


def scale_source() -> KernelSource:
    """fp32 out = x * factor."""

    @kernel(x="float32*", out="float32*", n="uint31", factor="float32")
    def scale(k: KernelBuilder, x: Any, out: Any, n: Any, factor: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            k.store(out, i, k.load(x, i, count) * factor)

    return scale


def quantise_source() -> KernelSource:
    """int8 out = saturate(round(x * scale)), ties to even; NaN gives 0."""

    @kernel(x="float32*", out="int8*", n="uint31", scale="float32")
    def quantise(k: KernelBuilder, x: Any, out: Any, n: Any, scale: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            k.store(out, i, (k.load(x, i, count) * scale).to("int8"))

    return quantise


def dequantise_source(dtype: str) -> KernelSource:
    """fp32 out = x * scale, of int8 or int32 x."""
    if dtype not in ("int8", "int32"):
        raise CompileError(f"dtype must be int8 or int32, not {dtype!r}")

    @kernel(x=f"{dtype}*", out="float32*", n="uint31", scale="float32")
    def dequantise(k: KernelBuilder, x: Any, out: Any, n: Any, scale: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            k.store(out, i, k.load(x, i, count).to("float32") * scale)

    return dequantise


def convert_source(source: str, target: str) -> KernelSource:
    """out = x as another type: bfloat16 to float32 (exact) or float32 to bfloat16 (rounded to
    nearest even)."""
    if {source, target} != {"float32", "bfloat16"}:
        raise CompileError(f"types must be float32 and bfloat16, not {source} and {target!r}")

    @kernel(x=f"{source}*", out=f"{target}*", n="uint31")
    def convert(k: KernelBuilder, x: Any, out: Any, n: Any) -> None:
        for i in k.range(k.block_x * TILE, n, k.grid_x * TILE):
            count = k.minimum(TILE, n - i)
            k.store(out, i, k.load(x, i, count).to(target))

    return convert
