"""The conversions against the golden model, bit for bit."""

from typing import Any

import cocotb
import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray

from rtl.core.fp.convert import (
    LATENCY,
    FloatToBfloat16,
    FloatToInt,
    IntToFloat,
    bfloat16_to_float,
)
from tb.blocks.core.fp.lanes import Lanes, check_hold, start, stream
from tb.blocks.core.fp.operands import SPECIAL, patterns
from tb.blocks.harness import parameters, run_block, seed
from tb.models import fp32

LANES = 32
RANDOM = 1 << 20

OUTPUTS = {
    "as_int": np.int32,
    "as_float": np.uint32,
    "as_bfloat16": np.uint16,
    "widened": np.uint32,
}


class AllConversions(wiring.Component):
    """The same 32 bits through every conversion."""

    def __init__(self) -> None:
        super().__init__(
            {
                "value": In(32),
                "truncate": In(1),
                "narrow": In(1),
                "enable": In(1),
                "as_int": Out(32),
                "as_float": Out(32),
                "as_bfloat16": Out(16),
                "widened": Out(32),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.to_int = to_int = FloatToInt()
        m.submodules.to_float = to_float = IntToFloat()
        m.submodules.to_brief = to_brief = FloatToBfloat16()
        for block in (to_int, to_float, to_brief):
            m.d.comb += [block.value.eq(self.value), block.enable.eq(self.enable)]
        m.d.comb += [
            to_int.truncate.eq(self.truncate),
            to_int.narrow.eq(self.narrow),
            self.as_int.eq(to_int.result),
            self.as_float.eq(to_float.result),
            self.as_bfloat16.eq(to_brief.result),
            self.widened.eq(bfloat16_to_float(to_brief.result)),
        ]
        return m


def expected(
    value: NDArray[np.uint32], truncate: NDArray[np.bool_], narrow: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    wide = np.where(truncate, fp32.to_int32(value, truncate=True), fp32.to_int32(value))
    byte = np.where(truncate, fp32.to_int8(value, truncate=True), fp32.to_int8(value))
    brief = fp32.to_bfloat16(value)
    return {
        "as_int": np.where(narrow, byte, wide),
        "as_float": fp32.int_to_float(value.view(np.int32)),
        "as_bfloat16": brief,
        "widened": fp32.bfloat16_to_float(brief),
    }


async def check(
    dut: Any,
    value: NDArray[np.uint32],
    truncate: NDArray[np.bool_],
    narrow: NDArray[np.bool_],
) -> None:
    inputs = {"value": value, "truncate": truncate, "narrow": narrow}
    await start(dut, inputs)
    got = await stream(dut, inputs, OUTPUTS, lanes=LANES, latency=LATENCY)
    for name, wanted in expected(value, truncate, narrow).items():
        wrong = np.flatnonzero(got[name] != wanted)
        if len(wrong):
            i = wrong[0]
            raise AssertionError(
                f"{name}: {len(wrong)} of {len(value)} wrong; {value[i]:08x} gives {wanted[i]:#x}, "
                f"not {got[name][i]:#x} (truncate={truncate[i]}, narrow={narrow[i]})"
            )


def edges() -> NDArray[np.uint32]:
    """Special values, floats and integers around powers of two and their halves."""
    whole = np.concatenate([np.arange(-300, 300), [2**24 + i for i in range(-9, 10)]])
    halves = (np.concatenate([whole, -whole]) / 2).astype(np.float32).view(np.uint32)
    powers = [(127 + e << 23) + i for e in range(-3, 33) for i in range(-3, 4)]
    floats = np.array(powers, np.int64)
    integers = np.array([(1 << e) + i for e in range(33) for i in range(-3, 4)], np.int64)
    both = np.concatenate([floats, floats | 1 << 31, integers, -integers])
    return np.concatenate([SPECIAL, halves, (both & 0xFFFF_FFFF).astype(np.uint32)])


@cocotb.test()
@cocotb.parametrize(truncate=[False, True], narrow=[False, True])
async def special_values(dut: Any, truncate: bool, narrow: bool) -> None:
    value = edges()
    await check(dut, value, np.full(len(value), truncate), np.full(len(value), narrow))


@cocotb.test()
async def results_hold_while_not_enabled(dut: Any) -> None:
    numbers = np.random.default_rng(seed())
    await check_hold(
        dut,
        lambda: {
            "value": patterns(numbers, LANES),
            "truncate": numbers.integers(0, 2, LANES) == 1,
            "narrow": numbers.integers(0, 2, LANES) == 1,
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
    # Half of the patterns are floats of about the size of integers, half of those with few bits.
    value = patterns(numbers, RANDOM)
    value[:half] &= np.uint32(0x807F_FFFF)
    value[:half] |= numbers.integers(124, 162, half, dtype=np.uint32) << np.uint32(23)
    value[: half // 2] &= np.uint32(0xFFFF_FFFF) << numbers.integers(
        0, 23, half // 2, dtype=np.uint32
    )
    truncate, narrow = (numbers.integers(0, 2, RANDOM) == 1 for _ in range(2))
    await check(dut, value, truncate, narrow)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_convert(sim: str) -> None:
    run_block(
        Lanes(AllConversions, count=LANES),
        __name__,
        sim=sim,
        parameters={"smoke": sim == "icarus"},
    )
