"""The host link: in front of host memory, and in front of an AXI RAM of cocotbext-axi."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiRam

from abi.address import MSI_BUS_ADDRESS
from rtl.memory.host_link import HostLink
from rtl.memory.port import LineError
from tb.blocks.axi import Axi4Checker
from tb.blocks.harness import parameters, run_block
from tb.blocks.memory.agents import ReadInitiator, WriteInitiator
from tb.blocks.memory.linked import LinkedMemory, dram_sources
from tb.blocks.streams import reset_dut

LINES = 256
LATENCY = 64
FULL = (1 << 64) - 1

linked = cocotb.test(skip=not parameters().get("linked"))
"""Tests with host memory behind the link."""

alone = cocotb.test(skip=bool(parameters().get("linked")))
"""Tests that drive the bus."""


class Bench:
    """Initiators, the bus checker, and the numpy model of memory."""

    def __init__(self, dut: Any, stall: float, stall_level: int) -> None:
        self.dut = dut
        self.model = np.zeros((LINES, 64), np.uint8)
        dut.rst.value = 1
        dut.bus_master.value, dut.quiesce.value = 1, 0
        if parameters().get("linked"):
            dut.stall_level.value, dut.stall_seed.value = 0, random.getrandbits(32)
            for name in ("base", "limit", "enable"):
                getattr(dut, f"fault__slverr_{name}").value = 0
        self.read = ReadInitiator(dut, "read", stall=stall)
        self.write = WriteInitiator(dut, "write", stall=stall)
        self.bus = Axi4Checker(dut, "host_axi")
        self.level = stall_level
        Clock(dut.clk, 1, unit="ns").start(start_high=False)

    async def reset(self) -> None:
        await reset_dut(self.dut)
        if self.level:
            self.dut.stall_level.value = self.level

    def store(self, line: int, value: int, strobe: int = FULL) -> None:
        """Queue a write that succeeds."""
        self.write.request(line, value, strobe)
        for i in range(64):
            if strobe >> i & 1:
                self.model[line, i] = value >> 8 * i & 0xFF

    def expected(self, line: int) -> int:
        return int.from_bytes(self.model[line].tobytes(), "little")

    async def quiet(self) -> None:
        await self.write.finished()
        await self.read.finished()
        await ClockCycles(self.dut.clk, 3)
        assert int(self.dut.outstanding_none.value) == 1
        assert self.bus.reads == self.bus.writes == 0


async def start(dut: Any, stall: float = 0.0, stall_level: int = 0) -> Bench:
    bench = Bench(dut, stall, stall_level)
    await bench.reset()
    return bench


async def scramble(bench: Bench) -> None:
    """Batches of random strobed writes, each then read back in random order."""
    for line in range(LINES):
        bench.store(line, random.getrandbits(512))
    await bench.write.finished()
    for _ in range(3):
        hot = [random.randrange(LINES) for _ in range(15)]
        for _ in range(40):
            strobe = random.choice([FULL, random.getrandbits(64), 1 << random.randrange(64), 0])
            bench.store(random.choice(hot), random.getrandbits(512), strobe)
        assert all(answer["error"] == 0 for answer in await bench.write.finished())
        first = len(bench.read.sink.received)
        lines = random.choices([*hot, *range(LINES)], k=60)
        for line in lines:
            bench.read.request(line)
        answers = (await bench.read.finished())[first:]
        for line, answer in zip(lines, answers, strict=True):
            assert answer == {"data": bench.expected(line), "error": 0}, f"line {line}"
    await bench.quiet()


@linked
async def random_traffic(dut: Any) -> None:
    bench = await start(dut, random.choice([0.0, 0.4]), random.choice([1, 6, 12]))
    await scramble(bench)
    assert int(dut.idle.value) == 3


@linked
async def full_rate_both_ways(dut: Any) -> None:
    """32 bytes a cycle in each direction at the same time, host latency 64 cycles."""
    bench = await start(dut)
    count = 250
    for i in range(count):
        bench.read.request(i % LINES)
        bench.write.request(i % LINES, i)
    await bench.read.finished()
    await bench.write.finished()
    for agent in (bench.read, bench.write):
        cycles = agent.sink.received_at
        assert cycles[-1] - cycles[0] == 2 * (count - 1)
    # Address register, latency, two beats. A write is taken with its second beat: queue, one cycle
    # behind the address, latency, response.
    assert bench.read.sink.received_at[0] - bench.read.source.sent_at[0] == 1 + LATENCY + 2
    assert bench.write.sink.received_at[0] - bench.write.source.sent_at[0] == 1 + 1 + LATENCY + 1
    assert 32 < bench.bus.most_reads <= 64
    assert 32 < bench.bus.most_writes <= 64
    await bench.quiet()


@linked
async def errors_reach_their_line_alone(dut: Any) -> None:
    bench = await start(dut, 0.2, random.choice([0, 5]))
    for line in range(LINES):
        bench.store(line, random.getrandbits(512))
    await bench.write.finished()
    # From the last byte of line 9 to the first of line 12.
    dut.fault__slverr_base.value, dut.fault__slverr_limit.value = 10 * 64 - 1, 12 * 64 + 1
    dut.fault__slverr_enable.value = 1
    lines = [*range(6, 16), LINES - 1, LINES, LINES + 7, 1 << 40, 8]
    first = len(bench.write.sink.received)
    for line in lines:
        bench.write.request(line, 1)
        bench.read.request(line)
        if line < LINES and not 9 <= line <= 12:
            bench.model[line] = np.frombuffer((1).to_bytes(64, "little"), np.uint8)
    wanted = [LineError.BUS if 9 <= line <= 12 or line >= LINES else LineError.OK for line in lines]
    answers = (await bench.write.finished())[first:]
    assert [answer["error"] for answer in answers] == wanted
    assert [answer["error"] for answer in await bench.read.finished()] == wanted
    dut.fault__slverr_enable.value = 0
    first = len(bench.read.sink.received)
    for line in range(6, 16):
        bench.read.request(line)
    answers = (await bench.read.finished())[first:]
    assert [answer["data"] for answer in answers] == [bench.expected(i) for i in range(6, 16)]
    assert all(answer["error"] == 0 for answer in answers)


@linked
async def messages(dut: Any) -> None:
    bench = await start(dut, 0.2, 5)
    seen: list[int] = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            if dut.msi__valid.value:
                seen.append(int(dut.msi__vector.value))

    cocotb.start_soon(watch())
    line = MSI_BUS_ADDRESS // 64
    for vector in (0, 31, 5, 5):
        assert await bench.write.write(line, vector, 0xF) == LineError.OK
    assert seen == [0, 31, 5, 5]
    # Part of a message, and one beside the address, are refused.
    assert await bench.write.write(line, 7, 0x3) == LineError.BUS
    assert await bench.write.write(line, 7 << 32, 0xF0) == LineError.BUS
    assert await bench.write.write(line, 7 << 256, 0xF << 32) == LineError.BUS
    # A fault can lose a message.
    dut.fault__slverr_base.value = MSI_BUS_ADDRESS
    dut.fault__slverr_limit.value = MSI_BUS_ADDRESS + 4
    dut.fault__slverr_enable.value = 1
    assert await bench.write.write(line, 7, 0xF) == LineError.BUS
    await ClockCycles(dut.clk, 5)
    assert seen == [0, 31, 5, 5]


@linked
async def without_bus_mastering_nothing_leaves(dut: Any) -> None:
    bench = await start(dut)
    for i in range(20):
        bench.read.request(i)
        bench.write.request(i, i)
    await ClockCycles(dut.clk, 15)
    dut.bus_master.value = 0
    reads, writes = await bench.read.finished(), await bench.write.finished()
    for answers, bursts in ((reads, bench.bus.beats["ar"]), (writes, bench.bus.beats["aw"])):
        assert 0 < bursts < 20
        # Those on the bus are answered first, the others get an error, in order.
        expected = [0] * bursts + [LineError.BUS] * (20 - bursts)
        assert [answer["error"] for answer in answers] == expected
    dut.bus_master.value = 1
    assert (await bench.read.read(3))[1] == LineError.OK
    await bench.quiet()


@linked
async def quiesce_holds_requests_back(dut: Any) -> None:
    bench = await start(dut)
    for i in range(20):
        bench.read.request(i)
        bench.write.request(i, i)
    await ClockCycles(dut.clk, random.randint(3, 12))
    assert int(dut.outstanding_none.value) == 0
    dut.quiesce.value = 1
    for _ in range(2 * LATENCY):
        await RisingEdge(dut.clk)
        if dut.outstanding_none.value:
            break
    assert int(dut.outstanding_none.value) == 1
    done = len(bench.read.sink.received), len(bench.write.sink.received)
    assert bench.bus.reads == bench.bus.writes == 0
    assert bench.bus.beats["w"] == 2 * bench.bus.beats["aw"]
    assert 0 < done[0] < 20
    assert 0 < done[1] < 20
    dut.bus_master.value = 0
    await ClockCycles(dut.clk, 100)
    assert done == (len(bench.read.sink.received), len(bench.write.sink.received))
    dut.bus_master.value = 1
    dut.quiesce.value = 0
    assert all(answer["error"] == 0 for answer in await bench.read.finished())
    await bench.quiet()


def pausing(draw: random.Random, chance: float) -> Iterator[bool]:
    """For ever: whether a channel pauses."""
    while True:
        yield draw.random() < chance


def ram(dut: Any) -> AxiRam:
    bus = AxiBus.from_prefix(dut, "host_axi", bus_separator="__")
    return AxiRam(bus, dut.clk, dut.rst, size=LINES * 64)


@alone
async def against_an_axi_ram(dut: Any) -> None:
    """Every channel of the bus pauses at random."""
    memory = ram(dut)
    bench = await start(dut, 0.3)
    pauses = [
        memory.write_if.aw_channel,
        memory.write_if.w_channel,
        memory.write_if.b_channel,
        memory.read_if.ar_channel,
        memory.read_if.r_channel,
    ]
    for channel in pauses:
        chance = random.choice([0.0, 0.3, 0.7])
        draw = random.Random(random.getrandbits(32))
        channel.set_pause_generator(pausing(draw, chance))
    await scramble(bench)
    assert memory.read(0, LINES * 64) == bench.model.tobytes()


@alone
async def at_most_64_are_outstanding(dut: Any) -> None:
    """A subordinate that takes everything, and answers nothing until it is told to."""
    for name in ("awready", "wready", "arready"):
        getattr(dut, f"host_axi__{name}").value = 1
    for name in ("bid", "bresp", "bvalid", "rid", "rdata", "rresp", "rlast", "rvalid"):
        getattr(dut, f"host_axi__{name}").value = 0
    bench = await start(dut)
    for i in range(100):
        bench.read.request(i)
        bench.write.request(i, i)
    await ClockCycles(dut.clk, 400)
    assert bench.bus.beats["ar"] == bench.bus.beats["aw"] == 64

    async def answer(channel: str, owed: Callable[[], int], **payload: list[int]) -> None:
        """Beats with these payloads, each when one is owed, with idle cycles between."""
        valid = getattr(dut, f"host_axi__{channel}valid")
        ready = getattr(dut, f"host_axi__{channel}ready")
        for values in zip(*payload.values(), strict=True):
            while not owed():
                await RisingEdge(dut.clk)
            for name, value in zip(payload, values, strict=True):
                getattr(dut, f"host_axi__{name}").value = value
            valid.value = 1
            await RisingEdge(dut.clk)
            while not ready.value:
                await RisingEdge(dut.clk)
            valid.value = 0
            await ClockCycles(dut.clk, 2)

    # Of four lines, one fails in its first beat, one in its second, one in both.
    failing = [[0, 0], [2, 0], [0, 3], [3, 2]] * 25
    await answer(
        "r",
        lambda: bench.bus.reads,
        rdata=list(range(200)),
        rlast=[0, 1] * 100,
        rresp=[response for line in failing for response in line],
    )
    assert bench.bus.reads == 0
    assert bench.bus.writes == 64
    assert int(dut.outstanding_none.value) == int(dut.idle.value) == 0
    await answer("b", lambda: bench.bus.writes, bresp=[0, 2, 0, 3] * 25)
    await bench.quiet()
    assert int(dut.idle.value) == 1
    assert bench.bus.most_reads == bench.bus.most_writes == 64
    for i, got in enumerate(bench.read.sink.received):
        assert got["error"] == (LineError.BUS if i % 4 else LineError.OK)
        if i % 4 == 0:
            assert got["data"] == 2 * i | 2 * i + 1 << 256
    errors = [answer["error"] for answer in bench.write.sink.received]
    assert errors == [LineError.OK, LineError.BUS] * 50
    for i in range(2):
        bench.read.request(i)
    await ClockCycles(dut.clk, 5)
    assert int(dut.outstanding_none.value) == 0


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_with_host_memory(sim: str) -> None:
    run_block(
        LinkedMemory(lines=LINES, latency=LATENCY),
        __name__,
        sim=sim,
        sources=dram_sources(sim),
        parameters={"linked": True},
    )


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_alone(sim: str) -> None:
    run_block(HostLink(), __name__, sim=sim)
