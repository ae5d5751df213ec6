"""Clock gating: a gated chain of units gives, cycle by cycle, what the ungated one gives."""

import random
from typing import Any

import cocotb
import pytest
from amaranth import DomainRenamer, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from rtl.clocking import gated_domain, work_of
from tb.blocks.harness import parameters, run_block
from tb.blocks.streams import reset_dut


class Countdown(wiring.Component):
    """Takes n, works n cycles, gives a checksum that depends on every cycle it was clocked."""

    def __init__(self) -> None:
        super().__init__(
            {"i": In(stream.Signature(16)), "o": Out(stream.Signature(16)), "idle": Out(1)}
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        left, busy = Signal(4), Signal()
        m.d.comb += [
            self.i.ready.eq(~busy & ~self.o.valid),
            self.idle.eq(~busy & ~self.o.valid),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [left.eq(self.i.payload), busy.eq(1)]
            m.d.sync += self.o.payload.eq(self.o.payload ^ (self.i.payload << 3))
        with m.If(busy):
            m.d.sync += [left.eq(left - 1), self.o.payload.eq(self.o.payload * 5 + left)]
            with m.If(left == 0):
                m.d.sync += [busy.eq(0), self.o.valid.eq(1)]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m


class Chain(wiring.Component):
    """Two units in a row, in one domain each; `gated` or not. Inputs are registered, as on a chip.

    Members: `again` resets the units, `ticks` counts the edges of the first unit's clock.
    """

    def __init__(self, *, gated: bool) -> None:
        self.gated = gated
        super().__init__(
            {
                "valid": In(1),
                "payload": In(8),
                "accept": In(1),
                "again": In(1),
                "ready": Out(1),
                "out": Out(17),
                "ticks": Out(16),
                "running": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        first, second = Countdown(), Countdown()
        again, valid, payload, accept = Signal(), Signal(), Signal(8), Signal()
        m.d.sync += [again.eq(self.again), accept.eq(self.accept)]
        with m.If(~valid | first.i.ready):
            m.d.sync += [valid.eq(self.valid), payload.eq(self.payload)]
        enables = [work_of(first), work_of(second)] if self.gated else [None, None]
        gates = [
            gated_domain(m, name, enable=enable, reset=again)
            for name, enable in zip(["one", "two"], enables, strict=True)
        ]
        m.submodules.first = DomainRenamer("one")(first)
        m.submodules.second = DomainRenamer("two")(second)
        wiring.connect(m, first.o, second.i)
        m.d.one += self.ticks.eq(self.ticks + 1)
        m.d.comb += [
            first.i.valid.eq(valid),
            first.i.payload.eq(payload),
            second.o.ready.eq(accept),
            self.ready.eq(~valid | first.i.ready),
            self.out.eq(Mux(second.o.valid, second.o.payload | 1 << 16, 0)),
            self.running.eq(gates[0].running),
        ]
        return m


async def start(dut: Any) -> None:
    for name in ("valid", "payload", "accept", "again"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut, cycles=4)


async def record(dut: Any, seed: int, cycles: int) -> list[tuple[int, int]]:
    """Outputs of each cycle under random inputs with long pauses and two more resets."""
    draw = random.Random(seed)
    seen = []
    busy = False
    for cycle in range(cycles):
        if draw.random() < 0.02:
            busy = not busy
        dut.valid.value = int(busy and draw.random() < 0.5)
        dut.payload.value = draw.getrandbits(8)
        dut.accept.value = int(draw.random() < 0.4)
        dut.again.value = int(cycle in (500, 501, 900))
        await RisingEdge(dut.clk)
        seen.append((int(dut.ready.value), int(dut.out.value)))
    return seen


@cocotb.test()
async def outputs(dut: Any) -> None:
    await start(dut)
    seen = await record(dut, parameters()["stimulus"], 1500)
    print("OUTPUTS", seen)
    assert sum(1 for _, out in seen if out) > 20


@cocotb.test()
async def clock_stops(dut: Any) -> None:
    await start(dut)
    for _ in range(4):
        await RisingEdge(dut.clk)
    before = int(dut.ticks.value)
    for _ in range(50):
        await RisingEdge(dut.clk)
        assert int(dut.running.value) == 1 - parameters()["gated"]
    stopped = int(dut.ticks.value) - before
    assert stopped == (0 if parameters()["gated"] else 50)
    dut.valid.value = 1
    dut.payload.value = 3
    await RisingEdge(dut.clk)
    dut.valid.value = 0
    for _ in range(30):
        await RisingEdge(dut.clk)
    woken = int(dut.ticks.value) - before
    # One edge takes the item, four count 3 to 0, one hands the result on.
    assert woken == (6 if parameters()["gated"] else 81)


def outputs_of(gated: bool, sim: str, stimulus: int) -> str:
    result = run_block(
        Chain(gated=gated),
        __name__,
        sim=sim,
        parameters={"stimulus": stimulus, "gated": int(gated)},
    )
    return next(line for line in result.output.splitlines() if line.startswith("OUTPUTS"))


def test_gated_equals_ungated_on_both_simulators() -> None:
    stimulus = random.randrange(1 << 30)
    print(f"stimulus {stimulus}")
    free = outputs_of(False, "verilator", stimulus)
    assert outputs_of(True, "verilator", stimulus) == free
    assert outputs_of(True, "icarus", stimulus) == free


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_work_needs_idle() -> None:
    class Sleepless(wiring.Component):
        def __init__(self) -> None:
            super().__init__({"i": In(stream.Signature(1))})

    with pytest.raises(TypeError, match="idle"):
        work_of(Sleepless())


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_refuses_bad_parameters() -> None:
    m = Module()
    with pytest.raises(ValueError, match="not 'sync'"):
        gated_domain(m, "sync", enable=Signal())
    with pytest.raises(ValueError, match="enable must be 1 bit wide, not 2"):
        gated_domain(m, "dma0", enable=Signal(2))
    with pytest.raises(ValueError, match="reset must be 1 bit wide, not 3"):
        gated_domain(m, "dma0", reset=Signal(3))
