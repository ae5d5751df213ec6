"""A constant that drives a part of a signal reaches the simulation on both simulators."""

from typing import Any

import cocotb
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from tb.blocks.harness import run_block


class PartlyConstant(wiring.Component):
    """8 bits: the upper four are 0xA, the lower four come from `low`."""

    def __init__(self) -> None:
        super().__init__({"low": In(4), "value": Out(8), "copy": Out(4), "on": In(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        word = Signal(8)
        m.d.comb += [word[4:].eq(0xA), self.value.eq(word), self.copy.eq(word[4:])]
        with m.If(self.on):
            m.d.comb += word[:4].eq(self.low)
        state = Signal()
        m.d.sync += state.eq(~state)
        return m


@cocotb.test()
async def constant_is_seen(dut: Any) -> None:
    dut.low.value, dut.on.value = 5, 1
    dut.clk.value, dut.rst.value = 0, 0
    await Timer(1, "ns")
    assert int(dut.value.value) == 0xA5
    assert int(dut.copy.value) == 0xA


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_constant_part(sim: str) -> None:
    run_block(PartlyConstant(), __name__, sim=sim)
