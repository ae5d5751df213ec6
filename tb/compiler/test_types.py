"""Types of tiles and scalars: copies of narrow tiles, fills, numbers, and sizes in branches."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.kernel import KernelSource, kernel
from tb.compiler.scheduled_core import BUFFERS, ScheduledCore


def run(source: KernelSource, *arguments: Any, outputs: int = 1) -> list[NDArray[Any]]:
    """The last `outputs` arrays of the arguments, afterwards."""
    core = ScheduledCore(seed=1, memory_bytes=1 << 16)
    places = [core.place(a) if isinstance(a, np.ndarray) else a for a in arguments]
    core.run(source.compile(BUFFERS), places)
    found = [(a, at) for a, at in zip(arguments, places, strict=True) if isinstance(a, np.ndarray)]
    return [core.read(at, a.shape, a.dtype) for a, at in found[-outputs:]]


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
@pytest.mark.parametrize("columns", [64, 101, 256])
def test_a_copy_of_a_narrow_tile_leaves_its_neighbours_alone(dtype: str, columns: int) -> None:
    array = f"{dtype}*"
    shape = 4, columns

    @kernel(x=array, y=array, out=array, out2=array)
    def copies(k: KernelBuilder, x: Any, y: Any, out: Any, out2: Any) -> None:
        a = k.load(x, 0, shape, stride=columns)
        c = k.copy(a)
        b = k.load(y, 0, shape, stride=columns)
        d = k.copy(b)
        k.update(c, a)
        k.store(out, 0, c, stride=columns)
        k.store(out2, 0, d, stride=columns)

    kind: DTypeLike = np.int8 if dtype == "int8" else np.uint16
    random = np.random.default_rng(columns)
    x, y = (random.integers(0, 127, shape).astype(kind) for _ in range(2))
    out, out2 = run(copies, x, y, np.zeros_like(x), np.zeros_like(x), outputs=2)
    assert np.array_equal(out, x)
    assert np.array_equal(out2, y)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_a_narrow_tile_is_not_filled(dtype: str) -> None:
    @kernel(x=f"{dtype}*")
    def fill(k: KernelBuilder, x: Any) -> None:
        k.store(x, 0, k.full(k.tile(4, 64), 7, dtype), stride=64)

    with pytest.raises(CompileError, match=f"dtype must be float32 or int32.*, not '{dtype}'"):
        fill.compile(BUFFERS)


def test_integers_are_no_operands_of_float_tiles() -> None:
    @kernel(x="float32*", n="int32")
    def scaled(k: KernelBuilder, x: Any, n: Any) -> None:
        k.store(x, 0, k.load(x, 0, 16) * n)

    @kernel(x="int32*", factor="float32")
    def shifted(k: KernelBuilder, x: Any, factor: Any) -> None:
        k.store(x, 0, k.load(x, 0, 16) + factor)

    @kernel(x="float32*")
    def indexed(k: KernelBuilder, x: Any) -> None:
        for i in k.range(4):
            k.store(x, i * 16, k.multiply(k.load(x, i * 16, 16), i))

    for source, name in ((scaled, "n for float32"), (shifted, "factor for int32"), (indexed, "i ")):
        with pytest.raises(CompileError, match=f"operand must be a number or .*, not {name}"):
            source.compile(BUFFERS)


def test_float_arguments_are_operands() -> None:
    @kernel(x="float32*", factor="float32")
    def scaled(k: KernelBuilder, x: Any, factor: Any) -> None:
        k.store(x, 0, k.load(x, 0, 16) * factor)

    x = np.arange(16, dtype=np.float32)
    [out] = run(scaled, x, 2.5)
    assert np.array_equal(out, x * np.float32(2.5))


@pytest.mark.parametrize("n", [0, 1, 5, 64])
def test_a_size_in_a_branch_promises_nothing_outside(n: int) -> None:
    @kernel(x="float32*", out="float32*", n="uint31")
    def branch(k: KernelBuilder, x: Any, out: Any, n: Any) -> None:
        m = k.minimum(n, 64)
        with k.when(m > 0):
            k.store(out, 0, k.load(x, 0, m) * 2.0)
        k.store(out, 64, k.load(x, 0, k.maximum(m, 1)) * 3.0)

    x = np.arange(1, 129, dtype=np.float32)
    [out] = run(branch, x, np.zeros(256, np.float32), n)
    expected = np.zeros(256, np.float32)
    expected[:n] = 2 * x[:n]
    expected[64 : 64 + max(n, 1)] = 3 * x[: max(n, 1)]
    assert np.array_equal(out, expected)
