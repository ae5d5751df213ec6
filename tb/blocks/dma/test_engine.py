"""DmaEngine: registers, four channels at once, refusals, trace, gated clocks."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from abi.descriptor import DescriptorOpcode
from abi.registers_dma import DMA_SIZE, DMA_STATE, DMA_STRIDE, DmaStart
from abi.registers_firmware import DMA_BLOCK
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.dma.engine import DmaEngine
from rtl.memory.port import LineError
from tb.blocks.dma.channel_bench import put_descriptor
from tb.blocks.dma.gated_engine import GatedEngine
from tb.blocks.dma.transfers import (
    HBM,
    HOST,
    REGION_BYTES,
    Transfer,
    copy_of,
    fill_randomly,
    image_of,
    make_memory,
)
from tb.blocks.harness import parameters, run_block
from tb.blocks.host.register_agent import RegisterInitiator
from tb.blocks.memory.agents import ReadTarget, WriteTarget
from tb.blocks.streams import StreamSink, reset_dut

CHANNELS = 4


class Bench:
    """The engine between a register initiator, four pairs of memory agents and a trace sink."""

    def __init__(
        self, dut: Any, *, latency: int | tuple[int, int] = (1, 20), stall: float = 0.0
    ) -> None:
        self.dut = dut
        dut.rst.value = 1
        self.bus = RegisterInitiator(dut, "bus")
        self.memory = make_memory()
        named: dict[str, Any] = {"latency": latency, "stall": stall}
        self.reads = [
            ReadTarget(dut, f"read_ports__{n}", self.memory, **named) for n in range(CHANNELS)
        ]
        self.writes = [
            WriteTarget(dut, f"write_ports__{n}", self.memory, **named) for n in range(CHANNELS)
        ]
        self.trace = StreamSink(dut, "trace", layout=TRACE_EVENT)
        self.pulses = 0
        self.dropped = 0

    async def reset(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut, cycles=4)
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.pulses += int(self.dut.done.value)
            self.dropped += int(self.dut.trace_dropped.value)

    async def read(self, name: str, channel: int = 0) -> int:
        return await self.bus.read(DMA_BLOCK.address(name, channel))

    async def write(self, name: str, channel: int, word: int) -> None:
        await self.bus.write(DMA_BLOCK.address(name, channel), word)

    async def prepare(self, channel: int, transfer: Transfer) -> None:
        """Write the registers of a transfer."""
        words = {
            "source": transfer.source,
            "destination": transfer.destination,
            "size": DMA_SIZE.pack(row_bytes=transfer.row_bytes, rows=transfer.rows),
            "stride": DMA_STRIDE.pack(
                source=transfer.source_stride, destination=transfer.destination_stride
            ),
            "pattern": transfer.pattern,
        }
        for name, word in words.items():
            await self.write(name, channel, word)

    async def start(self, channel: int, kind: DmaStart) -> bool:
        """Write DMA_START; whether it was taken."""
        address = DMA_BLOCK.address("start", channel)
        answer = await self.bus.access(address, write=True, data=int(kind))
        return not answer.error

    async def state(self, channel: int) -> dict[str, int]:
        return DMA_STATE.unpack(await self.read("state", channel))

    async def finish(self, mask: int, polls: int = 3000) -> None:
        """Wait until none of the channels is busy."""
        for _ in range(polls):
            if not await self.read("busy") & mask:
                return
        raise AssertionError(f"channels {mask:#x} still busy after {polls} polls")


def small_transfer(channel: int, fill: bool) -> Transfer:
    """Between parts of memory that belong to the channel."""
    part = REGION_BYTES // CHANNELS
    rows = random.randint(1, 4)
    row_bytes = random.randint(1, 900)
    shape = {
        "destination": HOST + part * channel + random.randrange(2000),
        "row_bytes": row_bytes,
        "rows": rows,
        "destination_stride": random.randint(row_bytes, 2000),
    }
    if fill:
        return Transfer(
            opcode=DescriptorOpcode.FILL,
            # Registers that a FILL does not look at.
            source=random.getrandbits(64),
            pattern=random.getrandbits(64),
            **shape,
        )
    return Transfer(
        source=HBM + part * channel + 2000 + random.randrange(2000),
        source_stride=random.randint(-500, 1500),
        **shape,
    )


@cocotb.test()
async def all_channels_at_once(dut: Any) -> None:
    bench = Bench(dut, stall=0.1)
    await bench.reset()
    moved = [0] * CHANNELS
    for turn in range(1, 9):
        fill_randomly(bench.memory)
        image = image_of(bench.memory)
        for channel in random.sample(range(CHANNELS), CHANNELS):
            kind = random.choice([DmaStart.COPY, DmaStart.FILL, DmaStart.CHAIN])
            transfer = small_transfer(channel, kind is DmaStart.FILL)
            transfer.perform(image)
            moved[channel] += transfer.rows * transfer.row_bytes
            if kind is DmaStart.CHAIN:
                place = HBM + REGION_BYTES // CHANNELS * channel + 64 * random.randrange(8)
                put_descriptor(bench.memory, place, transfer.descriptor())
                offset = place - HBM
                image[HBM][offset : offset + 64] = bench.memory.view(HBM)[offset : offset + 64]
                await bench.write("source", channel, place)
            else:
                await bench.prepare(channel, transfer)
            assert await bench.start(channel, kind)
            # The next run may be prepared at once.
            await bench.prepare(channel, Transfer(destination=0, row_bytes=0))
        await bench.finish(0xF)
        for base, array in image.items():
            assert (bench.memory.view(base) == array).all()
        for channel in range(CHANNELS):
            assert await bench.state(channel) == {
                "busy": 0,
                "unused": 0,
                "status": Status.OK,
                "descriptor": 1,
            }
            assert await bench.read("fault_address", channel) == 0
            assert int(getattr(dut, f"bytes__{channel}").value) == moved[channel]
            assert int(getattr(dut, f"states__{channel}").value) == 1 << 16
        assert len(bench.trace.received) == 2 * CHANNELS * turn
    assert 8 <= bench.pulses <= 8 * CHANNELS
    await ClockCycles(dut.clk, 5)
    assert dut.idle.value


@cocotb.test()
async def busy_channels_refuse_a_start(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    long = copy_of(20000)
    await bench.prepare(2, long)
    # As the first descriptor of a chain, the source asks for the same, so that every run is long.
    put_descriptor(bench.memory, HBM, long.descriptor())
    for kind in (DmaStart.COPY, DmaStart.FILL, DmaStart.CHAIN):
        assert await bench.start(2, kind)
        for again in (DmaStart.COPY, DmaStart.FILL, DmaStart.CHAIN):
            assert not await bench.start(2, again)
        assert await bench.state(2) == {"busy": 1, "unused": 0, "status": 0, "descriptor": 0}
        assert await bench.read("busy") == 0b0100
        # Another channel is free, and an abort is welcome.
        assert await bench.start(1, DmaStart.ABORT)
        assert await bench.start(2, DmaStart.ABORT)
        await bench.finish(0xF)
        assert (await bench.state(2))["status"] == Status.ABORTED
        assert all(t.outstanding == 0 for t in bench.reads + bench.writes)
    # Without a run an abort does nothing, now or later.
    assert await bench.start(2, DmaStart.ABORT)
    await bench.prepare(2, copy_of(500))
    assert await bench.start(2, DmaStart.COPY)
    await bench.finish(0xF)
    assert (await bench.state(2))["status"] == Status.OK


@cocotb.test()
async def an_abort_never_hits_the_next_run(dut: Any) -> None:
    bench = Bench(dut, latency=1)
    await bench.reset()
    seen = set()
    for length in range(1, 1200, 40):
        await bench.prepare(0, copy_of(length))
        assert await bench.start(0, DmaStart.COPY)
        assert await bench.start(0, DmaStart.ABORT)
        # The start is refused until the first run ended, however that went.
        while not await bench.start(0, DmaStart.COPY):
            pass
        await bench.finish(0xF)
        seen.add((await bench.state(0))["status"])
    assert seen == {Status.OK}


@cocotb.test()
async def faults_show_in_registers(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    bench.memory.fail(HOST + 640, 1, LineError.BUS)
    await bench.prepare(3, copy_of(3000))
    assert await bench.start(3, DmaStart.COPY)
    await bench.finish(0xF)
    assert await bench.state(3) == {
        "busy": 0,
        "unused": 0,
        "status": Status.BUS_ERROR,
        "descriptor": 0,
    }
    assert await bench.read("fault_address", 3) == HOST + 640
    bench.memory.heal()
    await bench.prepare(3, Transfer(destination=HOST, row_bytes=0))
    assert await bench.start(3, DmaStart.FILL)
    await bench.finish(0xF)
    assert (await bench.state(3))["status"] == Status.BAD_DESCRIPTOR
    assert await bench.read("fault_address", 3) == 0
    ends = [e for e in bench.trace.received if e["code"] == TraceCode.END]
    assert [e["argument"] & 0xFF for e in ends] == [Status.BUS_ERROR, Status.BAD_DESCRIPTOR]
    # Other channels did not notice.
    assert await bench.state(0) == {"busy": 0, "unused": 0, "status": 0, "descriptor": 0}
    answer = await bench.bus.access(DMA_BLOCK.address("state", 0), write=True, data=1)
    assert answer.error
    answer = await bench.bus.access(DMA_BLOCK.address("start", 0), write=False)
    assert answer.error


@cocotb.test()
async def trace_events(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    for channel in (0, 3):
        place = HBM + REGION_BYTES - 128
        put_descriptor(bench.memory, place, copy_of(99).then(place + 64).descriptor())
        put_descriptor(bench.memory, place + 64, copy_of(1).descriptor())
        await bench.write("source", channel, place)
        bench.trace.received.clear()
        assert await bench.start(channel, DmaStart.CHAIN)
        await bench.finish(0xF)
        await ClockCycles(dut.clk, 3)
        common = {"source": TraceSource.DMA, "instance": channel}
        assert bench.trace.received == [
            {**common, "code": TraceCode.BEGIN, "argument": DmaStart.CHAIN},
            {**common, "code": TraceCode.END, "argument": 2 << 8 | Status.OK},
        ]
    assert bench.dropped == 0


@cocotb.test()
async def trace_never_holds_a_run_up(dut: Any) -> None:
    bench = Bench(dut, latency=7)
    await bench.reset()
    cycles = []
    for stall in (0.0, 1.0):
        bench.trace.stall = stall
        await ClockCycles(dut.clk, 3)
        before = int(dut.cycles__1.value)
        for _ in range(3):
            await bench.prepare(1, copy_of(5000, 3, 9))
            assert await bench.start(1, DmaStart.COPY)
            await bench.finish(0xF)
        cycles.append(int(dut.cycles__1.value) - before)
    assert cycles[0] == cycles[1]
    # One event waits outside, one in the channel's slot; the other four are lost.
    assert bench.dropped == 4
    assert len(bench.trace.received) == 6
    bench.trace.stall = 0.0
    await bench.trace.wait(8, 100)
    codes = [event["code"] for event in bench.trace.received]
    assert codes == [TraceCode.BEGIN, TraceCode.END] * 4


@cocotb.test()
async def clocks_are_asked_for_only_while_needed(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    await ClockCycles(dut.clk, 5)
    gated = parameters()["gated"]

    def awake() -> int:
        return int(dut.front_active.value) | int(dut.channel_active.value) << 1

    for _ in range(20):
        await RisingEdge(dut.clk)
        assert awake() == 0
        assert dut.idle.value
        assert not gated or int(dut.running.value) == 0
    await bench.prepare(1, copy_of(3000))
    assert await bench.start(1, DmaStart.COPY)
    await ClockCycles(dut.clk, 30)
    assert awake() == 0b00100
    assert not gated or int(dut.running.value) == 0b00100
    assert not dut.idle.value
    before = int(dut.cycles__1.value)
    await ClockCycles(dut.clk, 20)
    assert int(dut.cycles__1.value) - before == 20
    while not dut.done.value:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 5)
    # The end of the run woke the front for its event.
    assert [e["code"] for e in bench.trace.received] == [TraceCode.BEGIN, TraceCode.END]
    for _ in range(20):
        await RisingEdge(dut.clk)
        assert awake() == 0
        assert dut.idle.value


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_dma_engine(sim: str) -> None:
    run_block(DmaEngine(), __name__, sim=sim, parameters={"gated": False})


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_gated_dma_engine(sim: str) -> None:
    run_block(GatedEngine(), __name__, sim=sim, parameters={"gated": True})


@pytest.mark.parametrize("channels", [0, 5])
def test_channels_are_checked(channels: int) -> None:
    with pytest.raises(ValueError, match=f"channels must be 1 to 4, not {channels}"):
        DmaEngine(channels=channels)


def test_channel_domains_are_checked() -> None:
    with pytest.raises(ValueError, match=r"must name 4 domains, not \['a'\]"):
        DmaEngine(channel_domains=["a"])
