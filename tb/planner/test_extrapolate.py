"""Timelines of long runs from short ones: near those of the whole run, and soon there."""

import time
from collections.abc import Callable

import pytest

from abi.core import Pipe
from runtime.planner import operators
from runtime.planner.chip import Chip
from runtime.planner.extrapolate import MAIN, ROUNDS, combined, estimate_grid
from runtime.planner.operators import OperatorPlan

TOLERANCE = 0.01

LARGE: dict[str, Callable[[Chip], OperatorPlan]] = {
    "whole blocks": lambda chip: operators.plan_gemm(1536, 2048, 512, "int8", chip),
    "edges": lambda chip: operators.plan_gemm(1500, 2030, 500, "int8", chip),
    "a long k": lambda chip: operators.plan_gemm(40, 96, 30_000, "int8", chip),
    "bfloat16": lambda chip: operators.plan_gemm(500, 700, 900, "bfloat16", chip),
    "heads": lambda chip: operators.plan_gemm_heads(30, 128, 128, 512, chip),
    "tiles": lambda chip: operators.plan_elementwise("gelu", 700_000, chip),
    "rows": lambda chip: operators.plan_softmax(513, 800, chip),
    "long rows": lambda chip: operators.plan_layer_norm(6, 60_001, chip),
    "images": lambda chip: operators.plan_convolution(
        500, operators.Convolution(28, 28, 16, 48, 3, 3, 1, 1, "int32", False), chip
    ),
}


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", LARGE)
def test_what_is_extrapolated_equals_what_is_simulated(
    name: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chip = Chip(cores=cores)
    # Products are simulated as a whole up to a number of steps: here none is.
    monkeypatch.setattr("runtime.planner.matrix.MOST_STEPS", 0)
    operators.plan_product.cache_clear()
    plan = LARGE[name](chip)
    operators.plan_product.cache_clear()
    short, whole = plan.timeline, plan.launch.estimate(chip)
    many = plan.launch.blocks > 2 * MAIN * cores
    assert many or name in ("a long k", "long rows")
    print(f"{plan.launch.blocks} blocks, {short.cycles} cycles of {whole.cycles}")
    assert short.cycles == pytest.approx(whole.cycles, rel=TOLERANCE)
    assert short.core_cycles == pytest.approx(whole.core_cycles, rel=TOLERANCE)
    assert short.longest_block == pytest.approx(whole.longest_block, rel=TOLERANCE)
    assert short.macs == pytest.approx(whole.macs, rel=TOLERANCE)
    assert short.blocks == whole.blocks
    assert short.limiter is whole.limiter
    for pipe in Pipe:
        one, two = short.pipes[pipe], whole.pipes[pipe]
        assert one.total == short.core_cycles
        assert one.busy == pytest.approx(two.busy, rel=TOLERANCE, abs=50), pipe
    for key, nbytes in whole.traffic.items():
        assert short.traffic[key] == pytest.approx(nbytes, rel=TOLERANCE), key


def test_few_blocks_are_simulated() -> None:
    plan = operators.plan_elementwise("exp", 4096, Chip())
    assert plan.launch.blocks <= 2 * MAIN
    assert estimate_grid(plan.launch, Chip()) == plan.launch.estimate(Chip())


def test_sums_of_timelines() -> None:
    launch = operators.plan_elementwise("add", 5000, Chip()).launch
    one = launch.estimate(Chip())
    two = combined((2.0, one))
    assert (two.cycles, two.blocks) == (2 * one.cycles, 2 * one.blocks)
    assert two.longest_block == one.longest_block
    assert combined((3.0, one), (-2.0, one)) == one
    none = combined((1.0, one), (-1.0, one))
    assert (none.cycles, none.core_cycles, none.blocks, sum(none.traffic.values())) == (0, 0, 0, 0)


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (5000, 3001, 7777), (64, 64, 10_000_000)])
def test_large_products_are_planned_soon(shape: tuple[int, int, int]) -> None:
    begun = time.process_time()
    plan = operators.plan_gemm(*shape, "int8", Chip())
    seconds = time.process_time() - begun
    print(f"{seconds:.1f} s, {plan.timeline.cycles} cycles")
    assert seconds < 10
    m, n, k = shape
    padded = m * -(-n // 16) * 16 * -(-k // 16) * 16
    assert plan.timeline.macs == pytest.approx(padded, rel=TOLERANCE)
    assert plan.timeline.limiter is Pipe.CUBE
    assert plan.timeline.cycles * 512 > padded
    assert k < ROUNDS * 512 or plan.timeline.longest_block > 1_000_000
