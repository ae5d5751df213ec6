"""Kernels of matrix products and requantisations, on the golden core."""

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from abi.address import HBM_BASE
from abi.status import Status
from runtime.compiler.allocate import CoreBuffers
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.kernels.requantise_source import PIECE, requantise_source
from runtime.kernels.tiling import padded_macs
from runtime.planner.chip import REFERENCE_BUFFERS, Chip
from runtime.planner.matrix import formula_cycles, plan_matrix_product, plan_product
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
        """Run all blocks of a kernel whose arguments are pointers, as `run_packed`."""
        packed = b"".join(word.to_bytes(8, "little") for word in arguments)
        return self.run_packed(code, packed, grid)

    def run_packed(
        self, code: bytes, arguments: bytes, grid: tuple[int, int, int] = (1, 1, 1)
    ) -> list[CoreResult]:
        """Run all blocks of a kernel, one after the other; the results of each."""
        raw = np.frombuffer(arguments, np.uint8)
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


def chip_with(buffers: CoreBuffers, cores: int = 2) -> Chip:
    """A chip for the estimator's choice of tiles."""
    return Chip(cores=cores, buffers=buffers)


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
    """Compile, run and compare one product, and count its MACs."""
    draw = np.random.default_rng((m, n, k))
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (k, n), dtype=np.int8)
    offsets = draw.integers(-(2**31), 2**31, n, dtype=np.int64).astype(np.int32)
    dtype = np.int8 if scale else np.int32
    size = np.dtype(dtype).itemsize
    product = MatrixProduct(
        m, n, k, "int8", np.dtype(dtype).name, bias=bias, relu=relu, requantise=scale or (0, 0)
    )
    plan = plan_product(product, chip_with(buffers, cores))
    code = matrix_source(product, plan.tiling).compile(buffers).code
    total = (m * k + k * n + size * m * n + 4 * n + 8192) // 64 * 64
    memory = Memory(total, buffers)
    arguments = [memory.place(a, offset), memory.place(b, offset)]
    c = memory.place(np.full((m, n), 0x33, dtype), offset)
    arguments += [c, memory.place(offsets)] if bias else [c]
    top, before = memory.top, memory.data.copy()
    results = memory.run(code, arguments, (plan.blocks, 1, 1))
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
    """Small buffers make many steps: all slots are used again, every flag is awaited."""
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
    """What does not overlap is below 5 % (256) or 2 % (512) of the time, by the simulation."""
    plan = plan_matrix_product(side, side, side, "int8", chip_with(REFERENCE_BUFFERS, 1))
    code = matrix_source(plan.product, plan.tiling).compile(REFERENCE_BUFFERS)
    cycles = plan.launch(code).estimate(chip_with(REFERENCE_BUFFERS, 1)).cycles
    assert cycles < side**3 / 256 * (1.05 if side == 256 else 1.02)


@pytest.mark.parametrize("cores", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(1, 200, 64), (70, 16, 64), (90, 150, 100)])
def test_the_product_is_shared_by_all_cores(cores: int, shape: tuple[int, int, int]) -> None:
    check_gemm(*shape, cores=cores)
    product = MatrixProduct(*shape, "int8", "int32")
    blocks = plan_product(product, chip_with(REFERENCE_BUFFERS, cores)).blocks
    assert cores / 2 <= blocks <= cores


def test_a_long_product_is_cut_so_that_others_get_their_turn() -> None:
    product, chip = MatrixProduct(4096, 4096, 1024, "int8", "int32"), chip_with(REFERENCE_BUFFERS)
    tiling = plan_product(product, chip).tiling
    assert (tiling.rows % tiling.m, tiling.columns % tiling.n) == (0, 0)
    one = replace(product, m=tiling.rows, n=tiling.columns)
    assert formula_cycles(one, tiling, chip) < 250_000
    # Grids along both axes: each block finds its own place.
    along_m, along_n, _ = tiling.parts(product)
    assert min(along_m, along_n) > 1


@pytest.mark.parametrize("share", [(8, 16), (16, 48), (40, 96), (24, 16)])
def test_blocks_along_both_axes_find_their_places(share: tuple[int, int]) -> None:
    """Every split of the same product, by division of the block's number."""
    m, n, k = 40, 90, 70
    draw = np.random.default_rng(2)
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (k, n), dtype=np.int8)
    product, tiling = MatrixProduct(m, n, k, "int8", "int32"), Tiling(8, 16, 64, *share)
    memory = Memory(1 << 15, REFERENCE_BUFFERS)
    arguments = [memory.place(a), memory.place(b), memory.place(np.zeros((m, n), np.int32))]
    code = matrix_source(product, tiling).compile(REFERENCE_BUFFERS).code
    memory.run(code, arguments, (tiling.blocks(product), 1, 1))
    expected = a.astype(np.int32) @ b.astype(np.int32)
    np.testing.assert_array_equal(memory.view(arguments[2], (m, n), np.int32), expected)


def test_buffers_that_hold_no_tile_are_refused() -> None:
    product = MatrixProduct(1, 1, 1, "int8", "int32")
    with pytest.raises(ValueError, match="buffers must hold two"):
        plan_product(product, chip_with(CoreBuffers(4, 1, 1, 1, 1, 16)))


def run_requantise(
    x: npt.NDArray[np.int32],
    scale: tuple[int, int],
    relu: bool,
    buffers: CoreBuffers,
    grid: int,
    offsets: tuple[int, int],
) -> None:
    """Requantise, and compare; the bytes behind stay."""
    memory = Memory((5 * x.size + 8192) // 64 * 64, buffers)
    source = memory.place(x, offsets[0])
    target = memory.place(np.full(x.size, 0x33, np.int8), offsets[1])
    kernel = requantise_source(relu).compile(buffers)
    numbers = {"n": x.size, "multiplier": scale[0], "shift": scale[1]}
    memory.run_packed(
        kernel.code, kernel.pack_arguments({"x": source, "out": target, **numbers}), (grid, 1, 1)
    )
    wide = np.maximum(x, 0).astype(np.int64) if relu else x.astype(np.int64)
    found = memory.view(target, x.shape, np.int8)
    np.testing.assert_array_equal(found, requantised(wide, scale))
    behind = target - HBM_BASE + x.size
    assert set(memory.data[behind : behind + 32]) == {GUARD}


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1023, 1024, 1025, 70_000])
@pytest.mark.parametrize("relu", [False, True])
def test_requantisation_is_exact(count: int, relu: bool) -> None:
    x = np.random.default_rng(count).integers(-(2**31), 2**31, count).astype(np.int32)
    run_requantise(x, (987654321, 53), relu, REFERENCE_BUFFERS, 2, (4, 3))


@pytest.mark.parametrize("grid", [1, 3])
def test_requantisation_wraps_its_slots(grid: int) -> None:
    x = np.arange(10 * PIECE + 100, dtype=np.int32) * 7 - 1000
    run_requantise(x, (3, 4), False, REFERENCE_BUFFERS, grid, (0, 0))
