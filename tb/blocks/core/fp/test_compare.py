"""The comparisons against the golden model, bit for bit."""

from typing import Any

import cocotb
import numpy as np
import pytest
from numpy.typing import NDArray

from rtl.core.fp.compare import LATENCY, Comparison
from tb.blocks.core.fp.lanes import Lanes, check_hold, start, stream
from tb.blocks.core.fp.operands import combinations, near, patterns
from tb.blocks.harness import parameters, run_block, seed
from tb.models import fp32

LANES = 32
RANDOM = 1 << 20

Patterns = NDArray[np.uint32]
OUTPUTS = {"extremum": np.uint32, "less": np.bool_, "less_equal": np.bool_, "equal": np.bool_}


def expected(a: Patterns, b: Patterns, minimum: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    return {
        "extremum": np.where(minimum, fp32.minimum(a, b), fp32.maximum(a, b)),
        "less": fp32.less(a, b),
        "less_equal": fp32.less_equal(a, b),
        "equal": fp32.equal(a, b),
    }


async def check(dut: Any, a: Patterns, b: Patterns, minimum: NDArray[np.bool_]) -> None:
    inputs = {"a": a, "b": b, "minimum": minimum}
    await start(dut, inputs)
    got = await stream(dut, inputs, OUTPUTS, lanes=LANES, latency=LATENCY)
    for name, wanted in expected(a, b, minimum).items():
        wrong = np.flatnonzero(got[name] != wanted)
        if len(wrong):
            i = wrong[0]
            raise AssertionError(
                f"{name}: {len(wrong)} of {len(a)} wrong; {a[i]:08x} and {b[i]:08x} give "
                f"{wanted[i]}, not {got[name][i]} (minimum={minimum[i]})"
            )


@cocotb.test()
@cocotb.parametrize(minimum=[False, True])
async def special_values(dut: Any, minimum: bool) -> None:
    a, b = combinations(2)
    await check(dut, a, b, np.full(len(a), minimum))


@cocotb.test()
async def results_hold_while_not_enabled(dut: Any) -> None:
    numbers = np.random.default_rng(seed())
    await check_hold(
        dut,
        lambda: {
            "a": patterns(numbers, LANES),
            "b": patterns(numbers, LANES),
            "minimum": numbers.integers(0, 2, LANES) == 1,
        },
        expected,
        latency=LATENCY,
    )


@cocotb.test()
async def random_values(dut: Any) -> None:
    if parameters()["smoke"]:
        return
    numbers = np.random.default_rng(seed())
    half = RANDOM // 2
    a = patterns(numbers, RANDOM)
    close = near(numbers, a[half:], 2)
    # `near` inverts the sign; give every other one its own sign back.
    close[::2] ^= np.uint32(1 << 31)
    b = np.concatenate([patterns(numbers, half), close])
    await check(dut, a, b, numbers.integers(0, 2, RANDOM) == 1)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_compare(sim: str) -> None:
    run_block(
        Lanes(Comparison, count=LANES), __name__, sim=sim, parameters={"smoke": sim == "icarus"}
    )
