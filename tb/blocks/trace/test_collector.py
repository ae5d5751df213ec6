"""The trace collector: order, drops that are counted, and that nothing ever waits for it."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from abi.trace import TRACE_EVENT
from rtl.trace.collector import TraceCollector
from tb.blocks.harness import run_block
from tb.blocks.host.gated import Gated
from tb.blocks.streams import reset_dut

SOURCES, DEPTH = 5, 4


class Bench:
    """Drives the sources cycle by cycle, each event numbered by source; checks all that leave."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.offered: list[list[int]] = [[] for _ in range(SOURCES)]
        self.left: list[list[int]] = [[] for _ in range(SOURCES)]
        self.left_at: list[int] = []
        self.cycle = 0
        dut.rst.value, dut.enable.value, dut.dropped.value = 1, 1, 0
        for source in range(SOURCES):
            getattr(dut, f"events__{source}__valid").value = 0
            getattr(dut, f"events__{source}__payload").value = 0

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)

    async def step(self, chances: list[float], dropped: int = 0) -> None:
        """One cycle, in which each source has an event with its chance."""
        enabled = int(self.dut.enable.value)
        for source, chance in enumerate(chances):
            valid = random.random() < chance
            getattr(self.dut, f"events__{source}__valid").value = int(valid)
            if valid:
                number = len(self.offered[source])
                word = TRACE_EVENT.pack(source=source, instance=number % 256, argument=number)
                getattr(self.dut, f"events__{source}__payload").value = word
                if enabled:
                    self.offered[source].append(word)
        self.dut.dropped.value = dropped
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        for source in range(SOURCES):
            assert int(getattr(self.dut, f"events__{source}__ready").value) == 1
        if int(self.dut.valid.value):
            word = int(self.dut.payload.value)
            self.left[TRACE_EVENT.unpack(word)["source"]].append(word)
            self.left_at.append(self.cycle)

    async def drain(self) -> None:
        for _ in range(SOURCES * DEPTH + 4):
            await self.step([0.0] * SOURCES)

    def check(self) -> int:
        """Every source's events left in order, none twice; the number of those that did not."""
        lost = 0
        for offered, left in zip(self.offered, self.left, strict=True):
            places = [offered.index(word) for word in left]
            assert places == sorted(set(places))
            lost += len(offered) - len(left)
        return lost


@cocotb.test()
async def light_load_loses_nothing(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(500):
        await bench.step([0.1] * SOURCES)
    await bench.drain()
    assert bench.check() == 0
    assert sum(map(len, bench.left)) > 150
    assert int(dut.drops.value) == 0
    assert int(dut.idle.value)


@cocotb.test()
async def overload_is_counted(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(300):
        await bench.step([0.9, 0.5, 0.5, 0.1, 0.9])
    await bench.drain()
    lost = bench.check()
    assert lost > 300
    assert int(dut.drops.value) == lost
    # Round robin: while all want to, each source gets its share.
    assert min(len(left) for left in bench.left) >= 20
    assert bench.left_at[:250] == list(range(bench.left_at[0], bench.left_at[0] + 250))


@cocotb.test()
async def drops_of_the_sources_count(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    total = 0
    for _ in range(50):
        mask = random.getrandbits(SOURCES)
        total += mask.bit_count()
        await bench.step([0.0] * SOURCES, dropped=mask)
    await bench.step([0.0] * SOURCES)
    await bench.step([0.0] * SOURCES)
    assert int(dut.drops.value) == total > 0


@cocotb.test()
async def disabled_discards_uncounted(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    dut.enable.value = 0
    await RisingEdge(dut.clk)
    for _ in range(100):
        await bench.step([1.0] * SOURCES, dropped=0b11111)
    assert (bench.left, int(dut.drops.value)) == ([[] for _ in range(SOURCES)], 0)
    dut.dropped.value = 0
    dut.enable.value = 1
    await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 30)


@cocotb.test()
async def latency(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    await bench.step([1.0, 0.0, 0.0, 0.0, 0.0])
    for _ in range(4):
        await bench.step([0.0] * SOURCES)
    assert bench.left_at == [3]


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_collector(sim: str) -> None:
    block = TraceCollector(sources=SOURCES, depth=DEPTH)
    run_block(Gated(block) if sim == "verilator" else block, __name__, sim=sim)


def test_parameters() -> None:
    with pytest.raises(ValueError, match="sources must be at least 1, not 0"):
        TraceCollector(sources=0)
    with pytest.raises(ValueError, match="depth must be at least 1 event, not 0"):
        TraceCollector(sources=1, depth=0)
