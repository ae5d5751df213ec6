"""Blocks of the library keep to the limit that kernels promise to those who wait for a core."""

from collections.abc import Callable
from functools import partial

import pytest

from abi.core import BLOCK_LIMIT
from runtime.kernels.row_source import REDUCTIONS
from runtime.kernels.tiling import BLOCKS_PER_CORE, LONGEST_BLOCK, Work
from runtime.kernels.window_source import Convolution, Pooling
from runtime.planner import operators
from runtime.planner.chip import Chip
from runtime.planner.operators import OperatorPlan
from tb.planner.test_operators import invoke

CHIP = Chip()


def conv(*sizes: int) -> Convolution:
    """height, width, channels, filters, side of the kernel, stride, padding."""
    height, width, channels, filters, side, stride, padding = sizes
    return Convolution(
        height, width, channels, filters, side, side, stride, padding, "int32", False
    )


ELEMENTS, ROWS = operators.plan_elementwise, operators.plan_reduction
CONV, POOL = operators.plan_convolution, operators.plan_pooling

PLANS: dict[str, Callable[[Chip], OperatorPlan]] = {
    **{name: partial(ELEMENTS, name, 3_000_000) for name in operators.ELEMENTWISE},
    **{f"row_{name}": partial(ROWS, name, 6_000, 700) for name in REDUCTIONS},
    "add_row": partial(operators.plan_add_row, 9_000, 700),
    "softmax": partial(operators.plan_softmax, 4_000, 700),
    "softmax of narrow rows": partial(operators.plan_softmax, 30_000, 3),
    "softmax of long rows": partial(operators.plan_softmax, 64, 8_000),
    "layer_norm": partial(operators.plan_layer_norm, 4_000, 700),
    "transpose": partial(operators.plan_transpose, 4_000, 1_000),
    "transpose of long rows": partial(operators.plan_transpose, 640, 7_000),
    "gather_rows": partial(operators.plan_gather_rows, 20_000, 100),
    "gather of long rows": partial(operators.plan_gather_rows, 900, 9_000),
    "gemm": partial(operators.plan_gemm, 2048, 2048, 2048, "int8"),
    "gemm with odd sizes": partial(operators.plan_gemm, 999, 777, 3_333, "int8"),
    "gemm with a long k": partial(operators.plan_gemm, 128, 128, 20_000, "int8"),
    "gemm of a vector": partial(operators.plan_gemm, 1, 4096, 4096, "int8"),
    "gemm of bfloat16": partial(operators.plan_gemm, 300, 260, 4_000, "bfloat16"),
    "gemm_heads": partial(operators.plan_gemm_heads, 24, 256, 256, 256),
    "conv2d of many images": partial(CONV, 90, conv(12, 12, 16, 24, 3, 1, 1)),
    "conv2d of large images": partial(CONV, 2, conv(56, 56, 28, 64, 3, 1, 1)),
    "conv2d with many filters": partial(CONV, 2, conv(14, 14, 24, 999, 3, 1, 1)),
    "conv2d of single pixels": partial(CONV, 3, conv(64, 64, 16, 40, 1, 1, 0)),
    "max_pool2d": partial(POOL, 30, Pooling(56, 56, 64, 2, 2, "max", "int8")),
    "mean_pool2d": partial(POOL, 30, Pooling(30, 30, 20, 4, 1, "mean", "float32")),
}


@pytest.mark.parametrize("name", PLANS)
def test_no_block_of_the_library_is_longer(name: str) -> None:
    timeline = PLANS[name](CHIP).timeline
    print(f"{timeline.blocks} blocks of up to {timeline.longest_block} cycles")
    assert timeline.longest_block <= LONGEST_BLOCK
    # Nor are they so short that their starts count.
    assert timeline.core_cycles > timeline.blocks * 4_000


def test_the_blocks_of_a_grid() -> None:
    assert Work(0, 100).blocks(2) == 1
    assert Work(3, 100).blocks(2) == 3
    assert Work(1_000, 100).blocks(2) == 2 * BLOCKS_PER_CORE
    # Four blocks would run for 500,000 cycles each; the cores get the same number of them.
    assert Work(20_000, 100).blocks(2) == 10
    assert Work(17_000, 100).blocks(2) == 10
    assert Work(7, 10 * LONGEST_BLOCK).blocks(2) == 7
    assert LONGEST_BLOCK < BLOCK_LIMIT


def test_a_plan_says_what_is_too_long() -> None:
    fine, long = invoke("softmax", "40", "700").output, invoke("softmax", "4", "99000").output
    [block] = [line for line in fine.splitlines() if "longest block" in line]
    assert "beyond" not in block
    [block] = [line for line in long.splitlines() if "longest block" in line]
    assert f"beyond the limit of {BLOCK_LIMIT:,}" in block
