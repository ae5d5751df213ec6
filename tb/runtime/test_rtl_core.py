"""The runtime's kernels on the RTL core: the golden model's results, and how busy the Cube is."""

from typing import Any

import cocotb
import numpy as np

from abi.address import HBM_BASE
from rtl.memory.sram import Sram
from runtime.compiler.allocate import CoreBuffers
from runtime.kernels.gemm_kernel import GemmPlan, build_gemm
from runtime.kernels.requantise import build_requantise, plan_requantise
from runtime.kernels.tiling import Tiles, ceil_to, choose_tiles, padded_macs
from tb.blocks.core.bench import CoreBench, core_under_test
from tb.blocks.core.programs import MEMORY_BYTES, SIZES
from tb.blocks.harness import run_block

BUFFERS = CoreBuffers(
    **{name: SIZES[f"{name}_lines"] for name in ("l1", "l0a", "l0b", "l0c", "bias", "ub")}
)
A, B, C, BIAS = 0x0_0000, 0x1_0000, 0x2_0000, 0x6_8000


def pointers(*places: int) -> bytes:
    """An argument block of addresses in global memory."""
    return b"".join((HBM_BASE + place).to_bytes(8, "little") for place in places)


async def multiply(
    bench: CoreBench, m: int, n: int, k: int, *, tiles: Tiles | None = None, **options: Any
) -> dict[str, int]:
    """Run a product on random operands, compare with the model; what the counters gained.

    `groups`: blocks along m and n.
    """
    along_m, along_n = options.get("groups", (1, 1))
    scale = options.get("requantise")
    chosen = tiles or choose_tiles(m, n, k, BUFFERS, int8_output=scale is not None)
    plan = GemmPlan(
        m=m,
        n=n,
        k=k,
        lda=k,
        ldb=n,
        ldc=n * (1 if scale else 4),
        bias=options.get("bias", False),
        relu=options.get("relu", False),
        requantise=scale,
        tiles=chosen,
        group_m=ceil_to(-(-m // along_m), chosen.m),
        group_n=ceil_to(-(-n // along_n), chosen.n),
    )
    draw = np.random.default_rng((m, n, k))
    bench.fill(draw.integers(0, 256, MEMORY_BYTES // 8 * 7, dtype=np.uint8))
    code, macs = build_gemm(plan, BUFFERS), 0
    for y in range(plan.grid[1]):
        for x in range(plan.grid[0]):
            given = pointers(A, B, C, BIAS)
            await bench.check(code, given, grid=plan.grid, block=(x, y, 0), cycles=200_000)
            macs += bench.spent()["core_macs"]
    assert macs == padded_macs(m, n, k)
    return bench.spent()


@cocotb.test()
async def products(dut: Any) -> None:
    """Odd shapes with every epilogue, and small tiles that wrap every ring."""
    bench = CoreBench(dut)
    await bench.start(stall=0.2, latency=(1, 40))
    await bench.fill_buffers()
    await multiply(bench, 1, 1, 1)
    await multiply(bench, 65, 47, 129, bias=True, relu=True)
    await multiply(bench, 17, 100, 70, bias=True, requantise=(123, 14))
    small = Tiles(8, 16, 64)
    await multiply(bench, 40, 50, 200, tiles=small, bias=True, groups=(2, 3))
    await multiply(bench, 40, 50, 60, tiles=small, bias=True, relu=True, requantise=(9, 9))


@cocotb.test()
async def requantisations(dut: Any) -> None:
    bench = CoreBench(dut)
    await bench.start(stall=0.2, latency=(1, 40))
    await bench.fill_buffers()
    for count in (1, 100, 20_001):
        draw = np.random.default_rng(count)
        bench.fill(draw.integers(0, 256, 4 * count, dtype=np.uint8), A)
        plan = plan_requantise(count, (1 << 30, 55), count % 2 == 0, BUFFERS, 2)
        code = build_requantise(plan, BUFFERS)
        for x in range(plan.grid[0]):
            await bench.check(code, pointers(A, C), grid=plan.grid, block=(x, 0, 0))


@cocotb.test()
async def cube_use(dut: Any) -> None:
    """256 x 256 x 256: at least 0.98 of 256 MACs a cycle, over the whole block."""
    bench = CoreBench(dut)
    await bench.start()
    spent = await multiply(bench, 256, 256, 256)
    share = spent["core_macs"] / 256 / spent["core_cycles"]
    dut._log.info("256 x 256 x 256: %d cycles, %.4f", spent["core_cycles"], share)
    assert share >= 0.98


def test_kernels_on_the_rtl_core() -> None:
    run_block(core_under_test(), __name__, sources=[Sram.SOURCE], timeout=600)
