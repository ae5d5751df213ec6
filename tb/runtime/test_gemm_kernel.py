"""Kernels of matrix products and requantisations, on the golden core."""

import random

import numpy as np
import numpy.typing as npt
import pytest

from abi.address import HBM_BASE
from abi.status import Status
from runtime.compiler.allocate import CoreBuffers
from runtime.kernels.gemm_kernel import GemmPlan, build_gemm
from runtime.kernels.requantise import build_requantise, plan_requantise
from runtime.kernels.tiling import (
    choose_tiles,
    estimate_cycles,
    padded_macs,
    share_out,
)
from runtime.planner.chip import REFERENCE_BUFFERS
from tb.models.core import BlockStart, CoreModel, CoreResult

SMALL = CoreBuffers(256, 16, 128, 32, 4, 16)
GUARD = 0x5A


def requantised(x: npt.NDArray[np.int64], scale: tuple[int, int]) -> npt.NDArray[np.int8]:
    """The contract's formula, in 64 bits."""
    multiplier, shift = scale
    scaled = (x * multiplier + (1 << shift >> 1)) >> shift
    return np.clip(scaled, -128, 127).astype(np.int8)


class Memory:
    """HBM of the golden core, handed out in lines, with guard bytes in between."""

    def __init__(self, nbytes: int, buffers: CoreBuffers) -> None:
        self.data = np.full(nbytes, GUARD, np.uint8)
        self.top = 64
        self.core = CoreModel(
            {HBM_BASE: self.data},
            l1_lines=buffers.l1,
            l0a_lines=buffers.l0a,
            l0b_lines=buffers.l0b,
            l0c_lines=buffers.l0c,
            bias_lines=buffers.bias,
        )
        for buffer in self.core.buffers:
            buffer[:] = 0x7F  # What is left of earlier programs must not matter.

    def place(self, array: npt.NDArray[np.generic], offset: int = 0) -> int:
        """Put an array there, `offset` bytes behind a line; returns its address."""
        start = self.top + offset
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.data[start : start + raw.size] = raw
        self.top = (start + raw.size + 127) // 64 * 64
        return HBM_BASE + start

    def view(self, address: int, shape: tuple[int, ...], dtype: type) -> npt.NDArray[np.generic]:
        """What lies there now."""
        start = address - HBM_BASE
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.data[start : start + count].copy().view(dtype).reshape(shape)

    def run(
        self, code: bytes, arguments: list[int], grid: tuple[int, int, int] = (1, 1, 1)
    ) -> list[CoreResult]:
        """Run all blocks of a kernel, one after the other; the results of each."""
        raw = np.frombuffer(b"".join(word.to_bytes(8, "little") for word in arguments), np.uint8)
        code_at, arguments_at = self.place(np.frombuffer(code, np.uint8)), self.place(raw)
        results = []
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    start = BlockStart(
                        code_at, len(code), arguments_at, raw.size, grid=grid, block=(x, y, z)
                    )
                    results.append(self.core.run(start))
        assert {result.status for result in results} == {Status.OK}, results
        return results


def check_gemm(
    m: int,
    n: int,
    k: int,
    *,
    buffers: CoreBuffers = REFERENCE_BUFFERS,
    bias: bool = False,
    relu: bool = False,
    scale: tuple[int, int] | None = None,
    offset: int = 0,
    cores: int = 2,
) -> None:
    """Build, run and compare one product, and count its MACs."""
    draw = np.random.default_rng((m, n, k))
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (k, n), dtype=np.int8)
    offsets = draw.integers(-(2**31), 2**31, n, dtype=np.int64).astype(np.int32)
    dtype = np.int8 if scale else np.int32
    size = np.dtype(dtype).itemsize
    tiles, group_m, group_n = share_out(m, n, k, buffers, cores, int8_output=scale is not None)
    assert tiles.fits(buffers)
    plan = GemmPlan(m, n, k, k, n, n * size, bias, relu, scale, tiles, group_m, group_n)
    code = build_gemm(plan, buffers)
    total = (m * k + k * n + size * m * n + 4 * n + 8192) // 64 * 64
    memory = Memory(total, buffers)
    arguments = [memory.place(a, offset), memory.place(b, offset)]
    c = memory.place(np.full((m, n), 0x33, dtype), offset)
    arguments += [c, memory.place(offsets)]
    top, before = memory.top, memory.data.copy()
    results = memory.run(code, arguments, plan.grid)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    if bias:
        exact = exact + offsets
    wrapped = exact.astype(np.int32).astype(np.int64)
    if relu:
        wrapped = np.maximum(wrapped, 0)
    expected = requantised(wrapped, scale) if scale else wrapped.astype(np.int32)
    np.testing.assert_array_equal(memory.view(c, (m, n), dtype), expected)
    start = c - HBM_BASE
    before[start : start + m * n * size] = memory.data[start : start + m * n * size]
    np.testing.assert_array_equal(memory.data[:top], before[:top], "bytes outside of C changed")
    assert sum(result.macs for result in results) == padded_macs(m, n, k)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1),
        (1, 1, 1000),
        (1, 300, 1),
        (300, 1, 1),
        (16, 16, 16),
        (17, 15, 33),
        (64, 64, 64),
        (127, 129, 65),
        (128, 128, 128),
        (200, 70, 500),
        (3, 1000, 70),
    ],
)
def test_a_product_is_exact(shape: tuple[int, int, int]) -> None:
    check_gemm(*shape)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("scale", [None, (1, 0), (0, 5), (2**31 - 1, 62), (123456789, 41)])
def test_the_epilogue_is_exact(bias: bool, relu: bool, scale: tuple[int, int] | None) -> None:
    check_gemm(45, 37, 130, bias=bias, relu=relu, scale=scale, offset=13)


@pytest.mark.parametrize("seed", range(12))
def test_random_products_in_small_buffers(seed: int) -> None:
    """Small buffers make many steps: every ring wraps, every flag is awaited."""
    draw = random.Random(seed)
    m, n, k = draw.randint(1, 60), draw.randint(1, 90), draw.randint(1, 300)
    check_gemm(
        m,
        n,
        k,
        buffers=SMALL,
        bias=draw.random() < 0.5,
        relu=draw.random() < 0.5,
        scale=draw.choice([None, (12345, 20)]),
        offset=draw.randrange(64),
    )


@pytest.mark.parametrize("side", [256, 512])
def test_large_products_keep_the_cube_busy(side: int) -> None:
    """What does not overlap is below 5 % (256) or 2 % (512) of the time."""
    tiles = choose_tiles(side, side, side, REFERENCE_BUFFERS, int8_output=False)
    assert tiles.m >= 64
    ideal = side**3 / 256
    cycles = estimate_cycles(side, side, side, tiles, int8_output=False)
    assert cycles < ideal * (1.05 if side == 256 else 1.02)


@pytest.mark.parametrize("cores", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(1, 200, 64), (70, 16, 64), (90, 150, 100)])
def test_the_product_is_shared_by_all_cores(cores: int, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    check_gemm(m, n, k, cores=cores)
    _, group_m, group_n = share_out(m, n, k, REFERENCE_BUFFERS, cores, int8_output=False)
    blocks = -(-m // group_m) * -(-n // group_n)
    assert cores / 2 <= blocks <= cores


def test_a_long_product_is_cut_so_that_others_get_their_turn() -> None:
    tiles, rows, columns = share_out(4096, 4096, 1024, REFERENCE_BUFFERS, 2, int8_output=False)
    assert rows % tiles.m == 0
    assert columns % tiles.n == 0
    assert estimate_cycles(rows, columns, 1024, tiles, int8_output=False) < 250_000


def test_buffers_that_hold_no_tile_are_refused() -> None:
    with pytest.raises(ValueError, match="buffers must hold two"):
        choose_tiles(1, 1, 1, CoreBuffers(4, 1, 1, 1, 1, 16), int8_output=False)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 8191, 8192, 8193, 70_000])
@pytest.mark.parametrize("relu", [False, True])
def test_requantisation_is_exact(count: int, relu: bool) -> None:
    x = np.random.default_rng(count).integers(-(2**31), 2**31, count).astype(np.int32)
    scale = (987654321, 53)
    plan = plan_requantise(count, scale, relu, REFERENCE_BUFFERS, 2)
    memory = Memory((5 * count + 8192) // 64 * 64, REFERENCE_BUFFERS)
    source, target = memory.place(x, 4), memory.place(np.full(count, 0x33, np.int8), 3)
    memory.run(build_requantise(plan, REFERENCE_BUFFERS), [source, target], plan.grid)
    wide = np.maximum(x, 0).astype(np.int64) if relu else x.astype(np.int64)
    np.testing.assert_array_equal(memory.view(target, (count,), np.int8), requantised(wide, scale))
    behind = target - HBM_BASE + count
    assert set(memory.data[behind : behind + 32]) == {GUARD}


@pytest.mark.parametrize("count", [1, 600, 1100])
def test_requantisation_in_small_buffers_wraps_its_rings(count: int) -> None:
    x = np.arange(count, dtype=np.int32) * 7 - 1000
    buffers = CoreBuffers(32, 16, 64, 16, 4, 16)
    plan = plan_requantise(count, (3, 4), False, buffers, 1)
    memory = Memory((5 * count + 8192) // 64 * 64, buffers)
    source, target = memory.place(x), memory.place(np.zeros(count, np.int8))
    memory.run(build_requantise(plan, buffers), [source, target], plan.grid)
    wide = x.astype(np.int64)
    np.testing.assert_array_equal(memory.view(target, (count,), np.int8), requantised(wide, (3, 4)))
