"""Interrupts: messages, masks, merging, storms, error responses; no request is ever lost."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from abi.address import HOST_BASE, LINE_BYTES, MSI_BUS_ADDRESS
from abi.geometry import VECTORS
from abi.registers_host import VECTOR_ADDRESS, VECTOR_DATA
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.host.interrupts import InterruptController
from rtl.memory.port import LineError
from tb.blocks.harness import run_block
from tb.blocks.host.gated import Gated
from tb.blocks.memory.agents import LineMemory, WriteTarget
from tb.blocks.streams import StreamSink, StreamSource, reset_dut

BASE = HOST_BASE + MSI_BUS_ADDRESS


class Messages(LineMemory):
    """A memory that keeps the messages as they are performed: (address, data), 4 bytes each."""

    def __init__(self) -> None:
        super().__init__({BASE: 4096})
        self.log: list[tuple[int, int]] = []

    def write_line(self, line: int, value: int, strobe: int) -> LineError:
        error = super().write_line(line, value, strobe)
        lane = (strobe & -strobe).bit_length() - 1
        assert strobe == 0xF << lane
        assert lane % 4 == 0
        self.log.append((line * LINE_BYTES + lane - BASE, value >> 8 * lane & 0xFFFF_FFFF))
        return error


class Bench:
    """The controller with its table, a memory and the sink of its trace."""

    def __init__(self, dut: Any, stall: float) -> None:
        self.dut = dut
        dut.rst.value = 1
        dut.mailbox.value = 0
        dut.bus_master.value = 1
        self.send = StreamSource(dut, "send")
        self.trace = StreamSink(dut, "trace", layout=TRACE_EVENT)
        self.memory = Messages()
        self.target = WriteTarget(dut, "memory", self.memory, latency=(1, 8), stall=stall)
        self.masked = [True] * VECTORS
        self.faults = 0
        for vector in range(VECTORS):
            self.address(vector, MSI_BUS_ADDRESS + 4 * (3 * vector % 64))
            self.mask(vector, True)

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        cocotb.start_soon(self._count())

    async def _count(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.faults += int(self.dut.fault.value)

    def address(self, vector: int, address: int) -> None:
        getattr(self.dut, f"address__{vector}").value = VECTOR_ADDRESS.pack(address=address)

    def mask(self, vector: int, masked: bool) -> None:
        self.masked[vector] = masked
        word = VECTOR_DATA.pack(data=0xABCD_0000 + vector, masked=int(masked))
        getattr(self.dut, f"data__{vector}").value = word

    def expected(self, vector: int) -> tuple[int, int]:
        return 4 * (3 * vector % 64), 0xABCD_0000 + vector

    def sent(self, vector: int) -> int:
        return int(getattr(self.dut, f"sent__{vector}").value)

    async def quiet(self) -> None:
        """Until nothing is sendable any more."""
        for _ in range(5000):
            await RisingEdge(self.dut.clk)
            if int(self.dut.idle.value) and not int(self.dut.wake.value):
                await ClockCycles(self.dut.clk, 2)
                return
        raise AssertionError("never idle")


@cocotb.test()
async def every_vector_and_the_mailbox(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    for vector in range(VECTORS):
        bench.mask(vector, False)
    for vector in range(VECTORS):
        bench.send.send(vector)
        await bench.quiet()
        assert bench.memory.log[-1] == bench.expected(vector)
        assert bench.sent(vector) == 1
    dut.mailbox.value = 1
    await RisingEdge(dut.clk)
    dut.mailbox.value = 0
    await bench.quiet()
    assert bench.memory.log[VECTORS:] == [bench.expected(0)]
    assert [bench.sent(vector) for vector in range(3)] == [2, 1, 1]
    assert bench.faults == 0
    assert bench.trace.received == [
        {"source": TraceSource.INTERRUPT, "instance": vector, "code": code, "argument": argument}
        for vector in [*range(VECTORS), 0]
        for code, argument in ((TraceCode.BEGIN, 0xABCD_0000 + vector), (TraceCode.END, 0))
    ]


@cocotb.test()
async def masked_waits_and_merges(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    for _ in range(5):
        bench.send.send(7)
        bench.send.send(9)
    await ClockCycles(dut.clk, 50)
    assert int(dut.pending.value) == 1 << 7 | 1 << 9
    assert (bench.memory.log, int(dut.idle.value)) == ([], 1)
    bench.mask(9, False)
    await bench.quiet()
    assert bench.memory.log == [bench.expected(9)]
    assert int(dut.pending.value) == 1 << 7
    dut.bus_master.value = 0
    bench.mask(7, False)
    await ClockCycles(dut.clk, 50)
    assert len(bench.memory.log) == 1
    dut.bus_master.value = 1
    await bench.quiet()
    assert bench.memory.log[1:] == [bench.expected(7)]
    assert int(dut.pending.value) == 0


@cocotb.test()
async def request_during_a_message(dut: Any) -> None:
    """A request that comes while the vector's message is on its way gives another message."""
    bench = Bench(dut, 0.0)
    bench.target.latency = 30
    await bench.start()
    bench.mask(4, False)
    bench.send.send(4)
    await ClockCycles(dut.clk, 12)
    assert len(bench.target.lines) == 1
    assert bench.sent(4) == 0  # Counted behind the response only.
    assert [event["code"] for event in bench.trace.received] == [TraceCode.BEGIN]
    bench.send.send(4)
    await ClockCycles(dut.clk, 5)
    assert int(dut.pending.value) == 1 << 4
    await bench.quiet()
    assert bench.memory.log == [bench.expected(4)] * 2
    assert bench.sent(4) == 2
    # From the pending bits to the port 2 cycles, the memory's 30, and the write itself.
    begin, end, again, last = bench.trace.received_at
    assert 32 <= end - begin <= 36
    assert 32 <= last - again <= 36


@cocotb.test()
async def storms(dut: Any) -> None:
    bench = Bench(dut, 0.3)
    await bench.start()
    last_request = [-1] * VECTORS
    requests = [0] * VECTORS
    cycle = 0
    performed: dict[int, int] = {}
    seen = 0
    by_message = {bench.expected(vector): vector for vector in range(VECTORS)}
    for cycle in range(3000):
        if random.random() < 0.15 and not bench.send.pending:
            vector = random.choice([0, 1, 2, random.randrange(VECTORS)])
            bench.send.send(vector)
            requests[vector] += 1
            last_request[vector] = cycle
        mailbox = random.random() < 0.02
        dut.mailbox.value = int(mailbox)
        if mailbox:
            requests[0] += 1
            last_request[0] = cycle
        if random.random() < 0.1:
            bench.mask(random.randrange(VECTORS), random.random() < 0.4)
        if random.random() < 0.02:
            dut.bus_master.value = int(random.random() < 0.7)
        await RisingEdge(dut.clk)
        for message in bench.memory.log[seen:]:
            performed[by_message[message]] = cycle
        seen = len(bench.memory.log)
    dut.mailbox.value = 0
    dut.bus_master.value = 1
    for vector in range(VECTORS):
        bench.mask(vector, False)
    await bench.quiet()
    for message in bench.memory.log[seen:]:
        performed[by_message[message]] = cycle + 1
    counts = [0] * VECTORS
    for message in bench.memory.log:
        counts[by_message[message]] += 1
    assert int(dut.pending.value) == 0
    assert [bench.sent(vector) for vector in range(VECTORS)] == counts
    assert bench.faults == 0
    for vector in range(VECTORS):
        assert counts[vector] <= requests[vector]
        if requests[vector]:
            assert performed[vector] > last_request[vector], vector
    assert sum(counts) > 100


@cocotb.test()
async def round_robin(dut: Any) -> None:
    """A vector that is always pending holds no other up."""
    bench = Bench(dut, 0.0)
    await bench.start()
    for vector in (0, 5, 31):
        bench.mask(vector, False)
    for _ in range(100):
        for vector in (0, 5, 31):
            bench.send.send(vector)
    await bench.send.drained()
    await bench.quiet()
    order = [data & 0xFF for _, data in bench.memory.log]
    assert len(order) > 10
    assert all(len(set(order[i : i + 3])) == 3 for i in range(len(order) - 5))


@cocotb.test()
async def errors(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    for vector in range(4):
        bench.mask(vector, False)
    bench.memory.fail(BASE, 8, LineError.BUS)
    bench.send.send(0)
    await bench.quiet()
    bench.memory.heal()
    bench.address(1, 0x10_0000)
    bench.send.send(1)
    await bench.quiet()
    assert bench.faults == 2
    bench.address(2, 0x8000_0000_0000 + MSI_BUS_ADDRESS)
    lines = len(bench.target.lines)
    bench.send.send(2)
    await bench.quiet()
    assert (bench.faults, len(bench.target.lines)) == (3, lines)
    bench.send.send(3)
    await bench.quiet()
    assert [bench.sent(vector) for vector in range(4)] == [0, 0, 0, 1]
    assert bench.memory.log[-1] == bench.expected(3)
    assert int(dut.pending.value) == 0
    begins, ends = bench.trace.received[::2], bench.trace.received[1::2]
    assert {event["code"] for event in begins} == {TraceCode.BEGIN}
    assert [(event["code"], event["argument"]) for event in ends] == [
        (TraceCode.END, Status.BUS_ERROR),
        (TraceCode.END, Status.ADDRESS_FAULT),
        (TraceCode.END, Status.ADDRESS_FAULT),
        (TraceCode.END, Status.OK),
    ]


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_interrupts(sim: str) -> None:
    block = InterruptController()
    run_block(Gated(block) if sim == "verilator" else block, __name__, sim=sim)
