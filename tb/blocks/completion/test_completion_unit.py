"""The completion unit: order of the writes and the interrupt, loads, errors, refusals."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from abi.address import HBM_BASE, HOST_BASE, LINE_BYTES
from abi.registers_firmware import COMPLETION_BLOCK, CompletionOperation
from abi.semaphore import SEMAPHORE
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.completion.completion_unit import CompletionUnit
from rtl.memory.port import LineError, status_of
from tb.blocks.harness import run_block
from tb.blocks.host.gated import Gated
from tb.blocks.host.register_agent import RegisterInitiator
from tb.blocks.host.register_check import check_map
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import StreamSink, reset_dut

TIMESTAMP_AND_STATUS = 0x00FF_FF00
VALUE = 0xFF
START = COMPLETION_BLOCK["start"].register
STATE = COMPLETION_BLOCK["state"].register
BASES = (HBM_BASE, HOST_BASE)


class Memory(LineMemory):
    """A memory that can fail the write of a value alone."""

    refuse_values = False

    def write_line(self, line: int, value: int, strobe: int) -> LineError:
        if self.refuse_values and strobe == VALUE:
            return LineError.BUS
        return super().write_line(line, value, strobe)


class Bench:
    """The unit, its memories, and a log of everything that left it, in order."""

    def __init__(self, dut: Any, stall: float) -> None:
        self.dut = dut
        dut.rst.value = 1
        dut.time_.value = 0
        self.bus = RegisterInitiator(dut, "bus", stall=stall)
        self.memory = Memory(dict.fromkeys(BASES, 4096))
        for base in BASES:
            noise = random.randbytes(4096)
            self.memory.view(base)[:] = list(noise)
        self.read = ReadTarget(dut, "read_port", self.memory, stall=stall)
        self.write = WriteTarget(dut, "write_port", self.memory, stall=stall)
        self.interrupts = StreamSink(dut, "interrupt", stall=stall)
        self.trace = StreamSink(dut, "trace", layout=TRACE_EVENT)
        self.order: list[str] = []
        self.done = 0
        self.now = 0

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        """Handshakes as the pins show them; the time counts up."""
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if int(dut.write_port__request__valid.value) & int(
                dut.write_port__request__ready.value
            ):
                self.order.append("write")
            if int(dut.write_port__response__valid.value) & int(
                dut.write_port__response__ready.value
            ):
                self.order.append("response")
            if int(dut.interrupt__valid.value):
                self.order.append("interrupt")
            if int(dut.done.value):
                self.done += 1
                self.order.append("done")
            self.now += 1
            dut.time_.value = 1000 + self.now

    def semaphore(self, address: int) -> dict[str, int]:
        base = HBM_BASE if address < HOST_BASE else HOST_BASE
        offset = address - base
        return SEMAPHORE.unpack_bytes(
            self.memory.view(base)[offset : offset + LINE_BYTES].tobytes()
        )

    async def register(self, name: str) -> int:
        return await self.bus.read(COMPLETION_BLOCK.address(name))

    async def run(
        self,
        operation: int,
        address: int,
        *,
        value: int = 0,
        status: int = 0,
        interrupt: int = 0,
        vector: int = 0,
    ) -> int:
        """One operation, polled to its end; its status."""
        for name, word in (("address", address), ("value", value), ("status", status)):
            await self.bus.write(COMPLETION_BLOCK.address(name), word)
        done = self.done
        word = START.pack(operation=operation, interrupt=interrupt, vector=vector)
        await self.bus.write(COMPLETION_BLOCK.address("start"), word)
        for _ in range(500):
            state = STATE.unpack(await self.register("state"))
            if not state["busy"]:
                await ClockCycles(self.dut.clk, 2)
                assert self.done == done + 1
                return state["status"]
            assert state["status"] == Status.OK
        raise AssertionError("busy for ever")


@cocotb.test()
async def every_register(dut: Any) -> None:
    bench = Bench(dut, 0.1)
    await bench.start()
    found = await check_map(bench.bus, 0, COMPLETION_BLOCK, COMPLETION_BLOCK.nbytes, {})
    assert found == 7
    assert (bench.order, bench.done) == ([], 0)


@cocotb.test()
async def signals(dut: Any) -> None:
    """Timestamp and status, response, value, response, interrupt; the other bytes stay."""
    bench = Bench(dut, 0.3)
    await bench.start()
    vectors = []
    for _ in range(40):
        address = random.choice(BASES) + LINE_BYTES * random.randrange(16)
        before = bench.semaphore(address)
        value, status = random.getrandbits(64), random.getrandbits(64)
        interrupt, vector = random.randrange(2), random.randrange(32)
        bench.order.clear()
        strobes, started = len(bench.write.strobes), bench.now
        outcome = await bench.run(
            CompletionOperation.SIGNAL,
            address,
            value=value,
            status=status,
            interrupt=interrupt,
            vector=vector,
        )
        assert outcome == Status.OK
        after = bench.semaphore(address)
        assert (after["value"], after["status"]) == (value, status)
        assert after["reserved"] == before["reserved"]
        assert 1000 + started < after["timestamp"] < 1000 + bench.now
        assert bench.write.strobes[strobes:] == [TIMESTAMP_AND_STATUS, VALUE]
        steps = list(dict.fromkeys(bench.order[4:]))
        assert bench.order[:4] == ["write", "response", "write", "response"]
        assert steps == (["interrupt", "done"] if interrupt else ["done"])
        vectors += [vector] if interrupt else []
    assert bench.interrupts.received == vectors
    assert bench.read.lines == []


@cocotb.test()
async def value_waits_for_the_status(dut: Any) -> None:
    """With a response that takes long, the value's write is not even requested."""
    bench = Bench(dut, 0.0)
    bench.write.latency = 200
    await bench.start()
    cocotb.start_soon(bench.run(CompletionOperation.SIGNAL, HBM_BASE, value=9, interrupt=1))
    while not bench.write.lines:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 150)
    assert (len(bench.write.lines), bench.interrupts.received) == (1, [])
    await ClockCycles(dut.clk, 150)
    assert (len(bench.write.lines), bench.interrupts.received) == (2, [])
    assert bench.order == ["write", "response", "write"]
    assert STATE.unpack(await bench.register("state"))["busy"]
    await ClockCycles(dut.clk, 150)
    assert bench.interrupts.received == [0]


@cocotb.test()
async def loads(dut: Any) -> None:
    bench = Bench(dut, 0.3)
    await bench.start()
    for _ in range(20):
        address = random.choice(BASES) + LINE_BYTES * random.randrange(64)
        assert await bench.run(CompletionOperation.LOAD, address, interrupt=1) == Status.OK
        expected = bench.semaphore(address)
        assert await bench.register("loaded_value") == expected["value"]
        assert await bench.register("loaded_status") == expected["status"]
    assert (bench.write.lines, bench.interrupts.received) == ([], [])


@cocotb.test()
async def bad_operations(dut: Any) -> None:
    bench = Bench(dut, 0.1)
    await bench.start()
    signal, load = CompletionOperation.SIGNAL, CompletionOperation.LOAD
    for operation, address, more, expected in (
        (0, HBM_BASE, {}, Status.BAD_FIELD),
        (3, HBM_BASE, {}, Status.BAD_FIELD),
        (signal, HBM_BASE, {"interrupt": 1, "vector": 32}, Status.BAD_FIELD),
        (signal, HBM_BASE + 8, {}, Status.MISALIGNED),
        (load, HBM_BASE + 32, {}, Status.MISALIGNED),
        (signal, HBM_BASE + (1 << 48), {}, Status.ADDRESS_FAULT),
        (load, HBM_BASE | 1 << 63, {}, Status.ADDRESS_FAULT),
    ):
        assert await bench.run(operation, address, **more) == expected
    assert (bench.write.lines, bench.read.lines, bench.interrupts.received) == ([], [], [])
    assert await bench.run(load, 0) == Status.ADDRESS_FAULT
    assert (bench.read.lines, await bench.register("loaded_value")) == ([0], 0)
    assert await bench.run(signal, HBM_BASE, value=1, vector=99) == Status.OK
    assert bench.semaphore(HBM_BASE)["value"] == 1


@cocotb.test()
async def bus_errors(dut: Any) -> None:
    """Behind a failed write come neither the value nor the interrupt."""
    bench = Bench(dut, 0.2)
    await bench.start()
    before = bench.semaphore(HOST_BASE)
    for error in (LineError.BUS, LineError.ADDRESS):
        bench.memory.fail(HOST_BASE, LINE_BYTES, error)
        for operation in (CompletionOperation.SIGNAL, CompletionOperation.LOAD):
            assert await bench.run(operation, HOST_BASE, value=3, interrupt=1) == status_of(error)
        bench.memory.heal()
    assert bench.write.strobes == [TIMESTAMP_AND_STATUS] * 2
    assert bench.semaphore(HOST_BASE) == before
    bench.memory.refuse_values = True
    run = bench.run(CompletionOperation.SIGNAL, HOST_BASE, value=3, status=5, interrupt=1)
    assert await run == Status.BUS_ERROR
    bench.memory.refuse_values = False
    assert bench.semaphore(HOST_BASE)["status"] == 5
    assert bench.semaphore(HOST_BASE)["value"] == before["value"]
    assert bench.interrupts.received == []
    assert await bench.run(CompletionOperation.SIGNAL, HOST_BASE, value=4) == Status.OK


@cocotb.test()
async def start_while_busy_is_refused(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    bench.write.latency = 100
    await bench.start()
    address, start = COMPLETION_BLOCK.address("address"), COMPLETION_BLOCK.address("start")
    await bench.bus.write(address, HBM_BASE)
    await bench.bus.write(COMPLETION_BLOCK.address("value"), 7)
    word = START.pack(operation=CompletionOperation.SIGNAL)
    await bench.bus.write(start, word)
    assert (await bench.bus.access(start, write=True, data=word)).error == 1
    # The operation that runs has its own copy of the registers.
    await bench.bus.write(address, HBM_BASE + 64)
    await bench.bus.write(COMPLETION_BLOCK.address("value"), 8)
    await ClockCycles(dut.clk, 250)
    assert bench.write.lines == [HBM_BASE // 64] * 2
    assert bench.semaphore(HBM_BASE)["value"] == 7
    assert bench.done == 1


@cocotb.test()
async def traces(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    await bench.run(CompletionOperation.SIGNAL, HBM_BASE)
    await bench.run(CompletionOperation.LOAD, 64)
    events = [(e["source"], e["code"], e["argument"]) for e in bench.trace.received]
    source = TraceSource.COMPLETION
    assert events == [
        (source, TraceCode.BEGIN, CompletionOperation.SIGNAL),
        (source, TraceCode.END, Status.OK),
        (source, TraceCode.BEGIN, CompletionOperation.LOAD),
        (source, TraceCode.END, Status.ADDRESS_FAULT),
    ]


@cocotb.test()
async def blocked_trace_stalls_nothing(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    bench.write.latency = 10
    bench.trace.stall = 1.0
    await bench.start()
    for value in range(1, 5):
        started = bench.now
        await bench.run(CompletionOperation.SIGNAL, HBM_BASE, value=value)
        assert bench.now - started < 70
    assert bench.semaphore(HBM_BASE)["value"] == 4
    assert bench.trace.received == []


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_completion_unit(sim: str) -> None:
    block = Gated(CompletionUnit(), gated=sim == "verilator", renamed=["time"])
    run_block(block, __name__, sim=sim)
