"""The block harness: both simulators, memories, internal signals, and that failures are seen."""

import random
from typing import Any

import cocotb
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from rtl.memory.sram import Sram
from tb.blocks.harness import BlockError, parameters, run_block

SIMS = ["verilator", "icarus"]


class Scratchpad(wiring.Component):
    """A memory behind a counter of its writes, to have an internal signal."""

    def __init__(self) -> None:
        reading = {"rd_en": In(1), "rd_addr": In(4), "rd_data": Out(64)}
        writing = {"wr_en": In(1), "wr_addr": In(4), "wr_data": In(64), "wr_mask": In(8)}
        super().__init__({**reading, **writing})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.ram = ram = Sram(width=64, depth=16, granule=8)
        m.submodules.tally = tally = Tally()
        m.d.comb += [
            ram.rd_en.eq(self.rd_en),
            ram.rd_addr.eq(self.rd_addr),
            self.rd_data.eq(ram.rd_data),
            ram.wr_en.eq(self.wr_en),
            ram.wr_addr.eq(self.wr_addr),
            ram.wr_data.eq(self.wr_data),
            ram.wr_mask.eq(self.wr_mask),
            tally.add.eq(self.wr_en),
        ]
        return m


class Tally(wiring.Component):
    """Counts."""

    def __init__(self) -> None:
        super().__init__({"add": In(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        count = Signal(16)
        m.d.sync += count.eq(count + self.add)
        return m


async def start(dut: Any) -> None:
    for name in ("rd_en", "rd_addr", "wr_en", "wr_addr", "wr_data", "wr_mask"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


@cocotb.test()
async def masked_writes(dut: Any) -> None:
    await start(dut)
    model = [0] * 16
    expected: int | None = None
    for _ in range(500):
        enable, line, data = random.random() < 0.7, random.randrange(16), random.getrandbits(64)
        mask = random.choice([0xFF, 0, random.getrandbits(8)])
        read = random.choice([line, random.randrange(16)])
        dut.wr_en.value, dut.wr_addr.value = int(enable), line
        dut.wr_data.value, dut.wr_mask.value = data, mask
        dut.rd_en.value, dut.rd_addr.value = 1, read
        await RisingEdge(dut.clk)
        if expected is not None:
            assert int(dut.rd_data.value) == expected
        expected = model[read]
        if enable:
            bits = sum(0xFF << 8 * lane for lane in range(8) if mask >> lane & 1)
            model[line] = model[line] & ~bits | data & bits


@cocotb.test(skip="fail" not in parameters())
async def wrong_on_purpose(dut: Any) -> None:
    await start(dut)
    assert int(dut.rd_data.value) == 1


@cocotb.test()
async def internal_signal(dut: Any) -> None:
    await start(dut)
    dut.wr_en.value = 1
    for _ in range(5):
        await RisingEdge(dut.clk)
    assert int(dut.tally.count.value) == parameters()["count"]


@pytest.mark.parametrize("sim", SIMS)
def test_runs_all_and_reads_internals(sim: str) -> None:
    result = run_block(
        Scratchpad(),
        __name__,
        sim=sim,
        sources=[Sram.SOURCE],
        public=["tally.count"],
        parameters={"count": 4},
    )
    assert set(result.passed) == {"masked_writes", "internal_signal"}
    assert result.skipped == ("wrong_on_purpose",)


@pytest.mark.parametrize("sim", SIMS)
def test_failure_is_seen(sim: str) -> None:
    with pytest.raises(BlockError, match="failed: wrong_on_purpose"):
        run_block(
            Scratchpad(),
            __name__,
            sim=sim,
            sources=[Sram.SOURCE],
            public=["tally.count"],
            parameters={"fail": True, "count": 4},
        )


def test_no_test_is_a_failure() -> None:
    with pytest.raises(BlockError, match="no cocotb test ran"):
        run_block(
            Scratchpad(), __name__, sources=[Sram.SOURCE], public=["tally.count"], only="nothing"
        )


def test_import_error_is_a_failure() -> None:
    with pytest.raises(BlockError, match="no_such_module"):
        run_block(Scratchpad(), "no_such_module", sources=[Sram.SOURCE], public=["tally.count"])
