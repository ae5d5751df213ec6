"""The runtime's kernels on the RTL core: the golden model's results, and how busy the Cube is."""

from typing import Any

import cocotb
import numpy as np

from abi.address import HBM_BASE
from rtl.memory.sram import Sram
from runtime.compiler.allocate import CoreBuffers
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.kernels.requantise_source import requantise_source
from runtime.kernels.tiling import padded_macs
from runtime.planner.chip import Chip
from runtime.planner.matrix import plan_product
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
    bench: CoreBench, m: int, n: int, k: int, *, tiling: Tiling | None = None, **options: Any
) -> dict[str, int]:
    """Run a product on random operands, compare with the model; what the counters gained.

    `options`: of `MatrixProduct`.
    """
    output = "int8" if "requantise" in options else "int32"
    product = MatrixProduct(m, n, k, "int8", output, **options)
    chosen = tiling or plan_product(product, Chip(cores=1, buffers=BUFFERS)).tiling
    blocks = chosen.blocks(product)
    draw = np.random.default_rng((m, n, k))
    bench.fill(draw.integers(0, 256, MEMORY_BYTES // 8 * 7, dtype=np.uint8))
    code, macs = matrix_source(product, chosen).compile(BUFFERS).code, 0
    for x in range(blocks):
        places = (A, B, C, BIAS) if product.bias else (A, B, C)
        await bench.check(
            code, pointers(*places), grid=(blocks, 1, 1), block=(x, 0, 0), cycles=200_000
        )
        macs += bench.spent()["core_macs"]
    assert macs == padded_macs(m, n, k)
    return bench.spent()


@cocotb.test()
async def products(dut: Any) -> None:
    """Odd shapes with every epilogue, and small tiles that use all slots again."""
    bench = CoreBench(dut)
    await bench.start(stall=0.2, latency=(1, 40))
    await bench.fill_buffers()
    await multiply(bench, 1, 1, 1)
    await multiply(bench, 65, 47, 129, bias=True, relu=True)
    await multiply(bench, 17, 100, 70, bias=True, requantise=(123, 14))
    shared, whole = Tiling(8, 16, 64, 24, 32), Tiling(8, 16, 64, 40, 64)
    await multiply(bench, 40, 50, 200, tiling=shared, bias=True)
    await multiply(bench, 40, 50, 60, tiling=whole, bias=True, relu=True, requantise=(9, 9))


@cocotb.test()
async def requantisations(dut: Any) -> None:
    bench = CoreBench(dut)
    await bench.start(stall=0.2, latency=(1, 40))
    await bench.fill_buffers()
    for count in (1, 100, 20_001):
        draw = np.random.default_rng(count)
        bench.fill(draw.integers(0, 256, 4 * count, dtype=np.uint8), A)
        kernel = requantise_source(count % 2 == 0).compile(BUFFERS)
        places = {"x": HBM_BASE + A, "out": HBM_BASE + C}
        given = kernel.pack_arguments({**places, "n": count, "multiplier": 1 << 30, "shift": 55})
        for x in range(2):
            await bench.check(kernel.code, given, grid=(2, 1, 1), block=(x, 0, 0))


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
