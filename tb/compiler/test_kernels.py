"""Kernels compute the right thing in whatever order the flags let the pipes work."""

from typing import Any

import numpy as np
import pytest

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import kernel
from tb.compiler.scheduled_core import BUFFERS, ScheduledCore

M_TILE, N_TILE, K_TILE = 16, 64, 64


@kernel(x="float32*", y="float32*", out="float32*", n="uint31", alpha="float32")
def axpy(k: KernelBuilder, x: Any, y: Any, out: Any, n: Any, alpha: Any) -> None:
    for i in k.range(k.block_x * 128, n, k.grid_x * 128):
        count = k.minimum(128, n - i)
        k.store(out, i, k.fma(k.load(x, i, count), alpha, k.load(y, i, count)))


@kernel(
    a="int8*", b="int8*", bias="int32*", out="int8*",
    m="uint31", n="uint31", depth="uint31", multiplier="uint31",
)  # fmt: skip
def gemm(
    k: KernelBuilder, a: Any, b: Any, bias: Any, out: Any, m: Any, n: Any, depth: Any,
    multiplier: Any,
) -> None:  # fmt: skip
    for i in k.range(k.block_y * M_TILE, m, k.grid_y * M_TILE):
        rows = k.minimum(M_TILE, m - i)
        for j in k.range(k.block_x * N_TILE, n, k.grid_x * N_TILE):
            columns = k.minimum(N_TILE, n - j)
            sums = k.accumulator(rows, columns)
            biases = k.load_bias(bias, j, columns)
            for step in k.range(0, depth, K_TILE):
                length = k.minimum(K_TILE, depth - step)
                left = k.load(a, i * depth + step, (rows, length), stride=depth, memory=Memory.L1)
                right = k.load(b, step * n + j, (length, columns), stride=n, memory=Memory.L1)
                k.dot(sums, left, right, first=step.is_zero())
            k.store_sums(
                out, i * n + j, sums, stride=n, bias=biases, relu=True,
                multiplier=multiplier, shift=24,
            )  # fmt: skip


@kernel(x="float32*", out="float32*", rows="uint31", columns="uint31")
def softmax(k: KernelBuilder, x: Any, out: Any, rows: Any, columns: Any) -> None:
    for i in k.range(k.block_x * 4, rows, k.grid_x * 4):
        shape = (k.minimum(4, rows - i), k.minimum(256, columns))
        tile = k.load(x, i * columns, shape, stride=columns)
        power = k.exp(tile - k.row_max(tile))
        scale = k.reciprocal(k.row_sum(power))
        k.store(out, i * columns, power * scale, stride=columns)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [1, 127, 129, 1000])
def test_element_wise(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    core = ScheduledCore(seed=seed, memory_bytes=1 << 16)
    x, y = rng.normal(size=(2, n)).astype(np.float32)
    places = core.place(x), core.place(y), core.place(np.zeros(n, np.float32))
    before = core.memory.copy()
    core.run(axpy.compile(BUFFERS), [*places, n, 1.5], grid=(3, 1, 1))
    exact = (x.astype(np.float64) * 1.5 + y).astype(np.float32)
    assert np.array_equal(core.read(places[2], (n,), np.float32), exact)
    changed = np.flatnonzero(core.memory != before)
    assert core.read(places[2], (n,), np.float32).nbytes >= np.ptp(changed) + 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 65, 63), (45, 150, 170)])
def test_matrix_product(shape: tuple[int, int, int], seed: int) -> None:
    m, n, depth = shape
    rng = np.random.default_rng(seed)
    core = ScheduledCore(seed=seed, memory_bytes=1 << 18)
    a = rng.integers(-128, 128, (m, depth)).astype(np.int8)
    b = rng.integers(-128, 128, (depth, n)).astype(np.int8)
    bias = rng.integers(-9999, 9999, n).astype(np.int32)
    arrays = a, b, bias, np.zeros((m, n), np.int8)
    places = [core.place(array) for array in arrays]
    core.run(gemm.compile(BUFFERS), [*places, m, n, depth, 12345], grid=(2, 2, 1))
    sums = np.maximum(a.astype(np.int64) @ b + bias, 0)
    expected = np.clip((sums * 12345 + (1 << 23)) >> 24, -128, 127)
    assert np.array_equal(core.read(places[3], (m, n), np.int8), expected)


@pytest.mark.parametrize("shape", [(1, 1), (9, 100), (5, 256)])
def test_rows(shape: tuple[int, int]) -> None:
    core = ScheduledCore(seed=3, memory_bytes=1 << 16)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32) * 5
    places = core.place(x), core.place(np.zeros_like(x))
    core.run(softmax.compile(BUFFERS), [*places, *shape], grid=(2, 1, 1))
    power = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    expected = power / power.sum(axis=1, keepdims=True)
    assert np.allclose(core.read(places[1], shape, np.float32), expected, rtol=2e-6, atol=0)


@kernel(x="float32*", out="float32*", n="uint31")
def with_unused_load(k: KernelBuilder, x: Any, out: Any, n: Any) -> None:
    for i in k.range(n):
        k.load(x, 0, 64)
        k.store(out, i * 64, k.full(k.tile(1, 64), 1.0) + 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_tile_that_nothing_reads_disturbs_no_other(seed: int) -> None:
    core = ScheduledCore(seed=seed, memory_bytes=1 << 16)
    places = core.place(np.zeros(64, np.float32)), core.place(np.zeros(1280, np.float32))
    core.run(with_unused_load.compile(BUFFERS), [*places, 20])
    assert (core.read(places[1], (1280,), np.float32) == 2).all()


def test_flags_that_are_missing_show() -> None:
    """The random order finds a kernel without one of its waits."""
    n = 1000
    x, y = np.random.default_rng(0).normal(size=(2, n)).astype(np.float32)
    compiled = axpy.compile(BUFFERS)
    wrong = 0
    for seed in range(10):
        core = ScheduledCore(seed=seed, memory_bytes=1 << 16)
        places = core.place(x), core.place(y), core.place(np.zeros(n, np.float32))
        core.drop_wait = True
        try:
            core.run(compiled, [*places, n, 1.5])
        except AssertionError:
            wrong += 1
            continue
        exact = (x.astype(np.float64) * 1.5 + y).astype(np.float32)
        wrong += not np.array_equal(core.read(places[2], (n,), np.float32), exact)
    assert wrong == 10


def _too_large(k: KernelBuilder, x: Any, out: Any) -> None:
    for i in k.range(4):
        k.store(out, i, k.load(x, i, (400, 64)) + 1.0)


def _unbounded(k: KernelBuilder, x: Any, out: Any) -> None:
    k.store(out, 0, k.load(x, 0, k.grid_x))


def _wrong_type(k: KernelBuilder, x: Any, out: Any) -> None:
    k.store(out, 0, k.load(x, 0, 16).to("int32"))


def _python_condition(k: KernelBuilder, x: Any, out: Any) -> None:
    if k.block_x > 1:
        k.store(out, 0, k.load(x, 0, 16))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (_too_large, "tiles in UB must fit its 2048 lines, not 6400 .*load1 2 x 1600"),
        (_unbounded, "columns must have an upper bound below 65536"),
        (_wrong_type, "tile must have the dtype float32 of out, not 'int32'"),
        (_python_condition, r"use k.when\(...\) instead of if"),
    ],
)
def test_what_does_not_fit_is_refused(program: Any, message: str) -> None:
    source = kernel(x="float32*", out="float32*")(program)
    with pytest.raises(CompileError, match=message):
        source.compile(BUFFERS)


def test_bad_types_are_refused() -> None:
    with pytest.raises(CompileError, match="type of x must be one that exists, not 'float16\\*'"):
        kernel(x="float16*")
