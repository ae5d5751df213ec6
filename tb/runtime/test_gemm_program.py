"""Programs of matrix products and requantisations, on the golden core."""

import random

import numpy as np
import numpy.typing as npt
import pytest

from abi.address import HBM_BASE
from abi.core import COMMAND_BYTES
from abi.status import Status
from runtime.kernels.gemm import LARGEST_PROGRAM, _launch_grid
from runtime.kernels.gemm_program import GemmPlan, build_gemm, commands_of
from runtime.kernels.requantise import build_requantise
from runtime.kernels.tiling import (
    BufferLines,
    choose_tiles,
    divide_up,
    estimate_cycles,
    padded_macs,
)
from tb.models.core import CoreModel, CoreResult

REFERENCE = BufferLines(4096, 512, 512, 1024, 64)
SMALL = BufferLines(256, 16, 128, 32, 4)
GUARD = 0x5A


def requantised(x: npt.NDArray[np.int64], scale: tuple[int, int]) -> npt.NDArray[np.int8]:
    """The contract's formula, in 64 bits."""
    multiplier, shift = scale
    scaled = (x * multiplier + (1 << shift >> 1)) >> shift
    return np.clip(scaled, -128, 127).astype(np.int8)


class Memory:
    """HBM of the golden core, handed out in lines, with guard bytes in between."""

    def __init__(self, nbytes: int, buffers: BufferLines) -> None:
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
        for buffer in (self.core.l1, self.core.l0a, self.core.l0b, self.core.l0c, self.core.bias):
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

    def run(self, program: bytes, arguments: list[int]) -> CoreResult:
        """Run a program."""
        return self.core.run(program, arguments)


def check_gemm(
    m: int,
    n: int,
    k: int,
    *,
    buffers: BufferLines = REFERENCE,
    bias: bool = False,
    relu: bool = False,
    scale: tuple[int, int] | None = None,
    offset: int = 0,
) -> None:
    """Build, run and compare one product, and count its MACs."""
    draw = np.random.default_rng((m, n, k))
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (k, n), dtype=np.int8)
    offsets = draw.integers(-(2**31), 2**31, n, dtype=np.int64).astype(np.int32)
    dtype = np.int8 if scale else np.int32
    size = np.dtype(dtype).itemsize
    tiles = choose_tiles(m, n, k, buffers, int8_output=scale is not None)
    assert tiles.fits(buffers)
    plan = GemmPlan(m, n, k, k, n, n * size, bias, relu, scale, tiles)
    program = build_gemm(plan, buffers)
    total = (m * k + k * n + size * m * n + 4 * n + 4096) // 64 * 64
    memory = Memory(total, buffers)
    arguments = [memory.place(a, offset), memory.place(b, offset)]
    c = memory.place(np.full((m, n), 0x33, dtype), offset)
    arguments += [c, memory.place(offsets)]
    before = memory.data.copy()
    result = memory.run(program, arguments)
    assert result.status is Status.OK, result
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
    np.testing.assert_array_equal(memory.data, before, "bytes outside of C were touched")
    assert result.macs == padded_macs(m, n, k)
    steps = [divide_up(x, t) for x, t in ((m, tiles.m), (n, tiles.n), (k, tiles.k))]
    assert len(program) // COMMAND_BYTES <= commands_of(*steps, bias=bias)


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
    tiles = choose_tiles(side, side, side, REFERENCE, int8_output=False)
    assert tiles.m >= 64
    ideal = side**3 / 256
    cycles = estimate_cycles(side, side, side, tiles, int8_output=False)
    assert cycles < ideal * (1.05 if side == 256 else 1.02)


def test_a_product_beyond_one_program_is_cut_into_launches() -> None:
    tiles = choose_tiles(4096, 4096, 1024, REFERENCE, int8_output=False)
    rows, columns = _launch_grid(4096, 4096, 1024, tiles, bias=True)
    assert rows % tiles.m == 0
    assert columns % tiles.n == 0
    steps = (divide_up(rows, tiles.m), divide_up(columns, tiles.n), divide_up(1024, tiles.k))
    assert commands_of(*steps, bias=True) <= LARGEST_PROGRAM + 1
    assert (rows, columns) != (4096, 4096)


def test_buffers_that_hold_no_tile_are_refused() -> None:
    with pytest.raises(ValueError, match="buffers must hold two"):
        choose_tiles(1, 1, 1, BufferLines(4, 1, 1, 1, 1), int8_output=False)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 8191, 8192, 8193, 70_000])
@pytest.mark.parametrize("relu", [False, True])
def test_requantisation_is_exact(count: int, relu: bool) -> None:
    x = np.random.default_rng(count).integers(-(2**31), 2**31, count).astype(np.int32)
    scale = (987654321, 53)
    program = build_requantise(count, scale, relu, REFERENCE)
    memory = Memory((5 * count + 4096) // 64 * 64, REFERENCE)
    source, target = memory.place(x, 4), memory.place(np.full(count, 0x33, np.int8), 3)
    result = memory.run(program, [source, target])
    assert result.status is Status.OK, result
    wide = np.maximum(x, 0).astype(np.int64) if relu else x.astype(np.int64)
    np.testing.assert_array_equal(memory.view(target, (count,), np.int8), requantised(wide, scale))
    behind = target - HBM_BASE + count
    assert set(memory.data[behind : behind + 32]) == {GUARD}


@pytest.mark.parametrize("count", [1, 600, 1100])
def test_requantisation_in_small_buffers_wraps_its_rings(count: int) -> None:
    x = np.arange(count, dtype=np.int32) * 7 - 1000
    buffers = BufferLines(32, 16, 64, 16, 4)
    program = build_requantise(count, (3, 4), False, buffers)
    memory = Memory((5 * count + 4096) // 64 * 64, buffers)
    source, target = memory.place(x), memory.place(np.zeros(count, np.int8))
    assert memory.run(program, [source, target]).status is Status.OK
    wide = x.astype(np.int64)
    np.testing.assert_array_equal(memory.view(target, (count,), np.int8), requantised(wide, (3, 4)))
