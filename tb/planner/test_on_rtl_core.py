"""Estimates of kernels against the RTL core: cycles, counters, what limits.

The core under test has a small UB; tb/fullstack/test_estimates.py has the kernels that need more.
"""

from typing import Any

import cocotb

from abi.address import HBM_BASE
from abi.core import Pipe
from abi.kernel_object import ArgumentKind
from rtl.memory.sram import Sram
from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.kernel import KernelSource
from runtime.kernels.element_source import binary_source, quantise_source, unary_source
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.kernels.row_source import reduce_source
from runtime.kernels.tiling import ceil_to
from runtime.kernels.window_source import (
    Convolution,
    Pooling,
    convolution_source,
    pooling_source,
)
from runtime.planner.chip import Chip
from runtime.planner.launch import Launch
from tb.blocks.core.bench import CoreBench, core_under_test
from tb.blocks.core.programs import SIZES
from tb.blocks.harness import run_block
from tb.planner.traces import CHIP

TOLERANCE = 0.05
"""Of the core's cycles. Estimates were within 0.03 when they were made."""

BUFFERS = CoreBuffers(
    **{name: SIZES[f"{name}_lines"] for name in ("l1", "l0a", "l0b", "l0c", "bias", "ub")}
)
CACHE_LINES = 16
"""Instruction cache of the core under test."""

ARRAYS = (0x0_0000, 0x1_8000, 0x3_0000, 0x4_0000)
"""Where the arrays lie in global memory."""

Case = tuple[KernelSource, tuple[int | float | None, ...]]


def product(
    shape: tuple[int, int, int],
    tiles: tuple[int, int, int],
    dtype: str = "int8",
    *,
    transpose_a: bool = False,
) -> Case:
    """A product in one block."""
    (m, n, k), (tm, tn, tk) = shape, tiles
    sums = "int32" if dtype == "int8" else "float32"
    tiling = Tiling(tm, tn, tk, ceil_to(m, tm), ceil_to(n, tn))
    source = matrix_source(MatrixProduct(m, n, k, dtype, sums, transpose_a), tiling)
    return source, (None, None, None)


def cases() -> dict[str, Case]:
    """Kernels and arguments, None for an array."""
    conv = Convolution(12, 12, 16, 24, 3, 3, 1, 1, "int32", False)
    pool = Pooling(8, 8, 32, 2, 2, "max", "float32")
    return {
        "gemm 128": product((128, 128, 128), (64, 128, 128)),
        "gemm small tiles": product((64, 64, 256), (32, 32, 64)),
        "gemm 8 x 16 x 64": product((8, 16, 64), (8, 16, 64)),
        "gemm odd": product((33, 47, 129), (33, 48, 64)),
        "gemm transposed": product((64, 64, 64), (64, 64, 64), transpose_a=True),
        "bf16 64": product((64, 64, 64), (64, 64, 64), "bfloat16"),
        "bf16 flat": product((8, 32, 64), (8, 32, 64), "bfloat16"),
        "add": (binary_source("add", "float32"), (None, None, None, 4096)),
        "relu": (unary_source("relu"), (None, None, 2500)),
        "quantise": (quantise_source(), (None, None, 4096, 0.5)),
        "row sum": (reduce_source("sum"), (None, None, 16, 300, 1.0)),
        "conv": (convolution_source(conv), (None, None, None, None, 1, 1, 0)),
        "pool": (pooling_source(pool), (None, None, 2)),
    }


def chip() -> Chip:
    """The core under test, with its memory agents."""
    return CHIP.replace(buffers=BUFFERS, icache_lines=CACHE_LINES)


@cocotb.test()
async def estimates(dut: Any) -> None:
    bench = CoreBench(dut)
    await bench.start()
    for name, (source, arguments) in cases().items():
        kernel = source.compile(BUFFERS)
        launch = Launch(kernel, arguments, 1)
        packed = bytearray(launch.packed())
        places = iter(ARRAYS)
        for argument in kernel.arguments:
            if argument.kind is ArgumentKind.POINTER:
                address = (HBM_BASE + next(places)).to_bytes(8, "little")
                packed[argument.offset : argument.offset + 8] = address
        await bench.place(kernel.code, bytes(packed))
        await bench.launch()
        state = await bench.finished()
        assert state["status"] == 0, f"{name}: {state}"
        spent, expected = bench.spent(), launch.estimate(chip())
        error = expected.core_cycles / spent["core_cycles"] - 1
        dut._log.info("%s: %d cycles, estimate %+.1f %%", name, spent["core_cycles"], 100 * error)
        assert abs(error) <= TOLERANCE, name
        busy = {pipe: spent[f"{pipe.name.lower()}_busy"] for pipe in Pipe}
        assert expected.limiter is max(Pipe, key=lambda pipe: busy[pipe]), name
        for pipe in Pipe:
            times = expected.pipes[pipe]
            # A cycle or two of the scalar unit belong to the end of the block.
            assert abs(times.busy - busy[pipe]) <= 2 * (pipe is Pipe.SCALAR), (name, pipe)
            stall = spent[f"{pipe.name.lower()}_stall"]
            assert abs(times.stall - stall) <= 0.05 * spent["core_cycles"], (name, pipe)
        assert expected.pipes[Pipe.SCALAR].commands == spent["core_instructions"], name
        assert expected.macs == spent["core_macs"], name
        assert expected.traffic["GM", "read"] == spent["core_read_bytes"], name
        assert expected.traffic["GM", "write"] == spent["core_write_bytes"], name


def test_estimates_on_the_rtl_core() -> None:
    run_block(core_under_test(), __name__, sources=[Sram.SOURCE], timeout=600)
