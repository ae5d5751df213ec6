"""The runtime's programs on the RTL core: the golden model's results, and how busy the Cube is."""

from typing import Any

import cocotb
import numpy as np

from abi.address import HBM_BASE
from abi.core import COMMAND_BYTES
from rtl.memory.sram import Sram
from runtime.kernels.gemm_program import GemmPlan, build_gemm
from runtime.kernels.requantise import build_requantise
from runtime.kernels.tiling import BufferLines, Tiles, choose_tiles, padded_macs
from tb.blocks.core.bench import CoreBench, core_under_test
from tb.blocks.core.programs import MEMORY_BYTES, SIZES
from tb.blocks.harness import run_block

BUFFERS = BufferLines(**{name.removesuffix("_lines"): lines for name, lines in SIZES.items()})
A, B, C, BIAS = 0x0_0000, 0x1_0000, 0x2_0000, 0x6_8000
ARGUMENTS = [HBM_BASE + place for place in (A, B, C, BIAS)]


def split(program: bytes) -> list[bytes]:
    """The commands of a program."""
    return [program[at : at + COMMAND_BYTES] for at in range(0, len(program), COMMAND_BYTES)]


async def multiply(
    bench: CoreBench, m: int, n: int, k: int, *, tiles: Tiles | None = None, **options: Any
) -> dict[str, int]:
    """Run a product on random operands, compare with the model; what the counters gained."""
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
    )
    draw = np.random.default_rng((m, n, k))
    bench.fill(draw.integers(0, 256, MEMORY_BYTES // 8 * 7, dtype=np.uint8))
    await bench.check(split(build_gemm(plan, BUFFERS)), ARGUMENTS, cycles=200_000)
    spent = bench.spent()
    assert spent["core_macs"] == padded_macs(m, n, k)
    return spent


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
    await multiply(bench, 40, 50, 200, tiles=small, bias=True)
    await multiply(bench, 40, 50, 60, tiles=small, bias=True, relu=True, requantise=(9, 9))


@cocotb.test()
async def requantisations(dut: Any) -> None:
    bench = CoreBench(dut)
    await bench.start(stall=0.2, latency=(1, 40))
    await bench.fill_buffers()
    for count in (1, 100, 20_001):
        draw = np.random.default_rng(count)
        bench.fill(draw.integers(0, 256, 4 * count, dtype=np.uint8), A)
        program = build_requantise(count, (1 << 30, 55), count % 2 == 0, BUFFERS)
        await bench.check(split(program), [HBM_BASE + A, HBM_BASE + C])


@cocotb.test()
async def cube_use(dut: Any) -> None:
    """256 x 256 x 256: at least 0.98 of 256 MACs a cycle, over the whole program."""
    bench = CoreBench(dut)
    await bench.start()
    spent = await multiply(bench, 256, 256, 256)
    share = spent["core_macs"] / 256 / spent["core_cycles"]
    dut._log.info("256 x 256 x 256: %d cycles, %.4f", spent["core_cycles"], share)
    assert share >= 0.98


def test_programs_on_the_rtl_core() -> None:
    run_block(core_under_test(), __name__, sources=[Sram.SOURCE], timeout=600)
