"""The fused multiply-add lane against the golden model, bit for bit."""

from typing import Any

import cocotb
import numpy as np
import pytest
from numpy.typing import NDArray

from rtl.core.fp.binary32 import MINUS_ZERO, ONE
from rtl.core.fp.fma import LATENCY, FusedMultiplyAdd
from tb.blocks.core.fp.lanes import Lanes, check_hold, start, stream
from tb.blocks.core.fp.operands import addends, combinations, near, patterns, sparse
from tb.blocks.harness import parameters, run_block, seed
from tb.models import fp32

LANES = 16
RANDOM = 1 << 20
SIGN = np.uint32(1 << 31)

Patterns = NDArray[np.uint32]


async def check(dut: Any, a: Patterns, b: Patterns, c: Patterns, expected: Patterns) -> None:
    operands = {"a": a, "b": b, "c": c}
    await start(dut, operands)
    got = await stream(dut, operands, {"result": np.uint32}, lanes=LANES, latency=LATENCY)
    result = got["result"]
    assert len(result) == len(expected)
    wrong = np.flatnonzero(result != expected)
    if len(wrong):
        i = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {len(result)} wrong; {a[i]:08x} * {b[i]:08x} + {c[i]:08x} = "
            f"{expected[i]:08x}, not {result[i]:08x}"
        )


def constant(value: int, like: Patterns) -> Patterns:
    return np.full_like(like, value)


@cocotb.test()
async def special_sums(dut: Any) -> None:
    a, b = combinations(2)
    await check(dut, a, constant(ONE, a), b, fp32.add(a, b))


@cocotb.test()
async def special_differences(dut: Any) -> None:
    a, b = combinations(2)
    await check(dut, a, constant(ONE, a), b ^ SIGN, fp32.sub(a, b))


@cocotb.test()
async def special_products(dut: Any) -> None:
    a, b = combinations(2)
    await check(dut, a, b, constant(MINUS_ZERO, a), fp32.mul(a, b))


@cocotb.test()
async def special_triples(dut: Any) -> None:
    a, b, c = combinations(3)
    if parameters()["smoke"]:
        chosen = np.random.default_rng(seed()).permutation(len(a))[:4096]
        a, b, c = a[chosen], b[chosen], c[chosen]
    await check(dut, a, b, c, fp32.fma(a, b, c))


@cocotb.test()
async def results_hold_while_not_enabled(dut: Any) -> None:
    numbers = np.random.default_rng(seed())
    await check_hold(
        dut,
        lambda: {
            "a": sparse(numbers, LANES),
            "b": sparse(numbers, LANES),
            "c": patterns(numbers, LANES),
        },
        lambda a, b, c: {"result": fp32.fma(a, b, c)},
        latency=LATENCY,
    )


@cocotb.test()
async def random_sums(dut: Any) -> None:
    if parameters()["smoke"]:
        return
    numbers = np.random.default_rng(seed())
    a = np.concatenate([patterns(numbers, RANDOM // 2), sparse(numbers, RANDOM // 2, 14)])
    half = RANDOM // 4
    b = np.concatenate(
        [
            patterns(numbers, half),
            addends(numbers, a[half : 2 * half], constant(ONE, a[:half])),
            sparse(numbers, half, 14),
            near(numbers, a[3 * half :], 1 << 20),
        ]
    )
    assert len(a) == len(b) == RANDOM
    await check(dut, a, constant(ONE, a), b, fp32.add(a, b))


@cocotb.test()
async def random_products(dut: Any) -> None:
    if parameters()["smoke"]:
        return
    numbers = np.random.default_rng(seed() + 1)
    half = RANDOM // 2
    a = np.concatenate([patterns(numbers, half), sparse(numbers, half, 63)])
    # The second half has factors so small or large that products are subnormal or overflow.
    b = np.concatenate([patterns(numbers, half), sparse(numbers, half, 126)])
    await check(dut, a, b, constant(MINUS_ZERO, a), fp32.mul(a, b))


@cocotb.test()
async def random_multiply_adds(dut: Any) -> None:
    if parameters()["smoke"]:
        return
    numbers = np.random.default_rng(seed() + 2)
    part = RANDOM // 4
    a = np.concatenate([patterns(numbers, 2 * part), sparse(numbers, 2 * part, 62)])
    b = np.concatenate([patterns(numbers, 2 * part), sparse(numbers, 2 * part, 62)])
    c = np.concatenate(
        [
            patterns(numbers, part),
            addends(numbers, a[part : 3 * part], b[part : 3 * part]),
            sparse(numbers, part, 80),
        ]
    )
    assert len(a) == len(b) == len(c) == RANDOM
    await check(dut, a, b, c, fp32.fma(a, b, c))


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_fma(sim: str) -> None:
    run_block(
        Lanes(FusedMultiplyAdd, count=LANES),
        __name__,
        sim=sim,
        parameters={"smoke": sim == "icarus"},
    )
