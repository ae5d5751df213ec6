"""The memory agents: data, order, errors, throughput, and that they see broken blocks."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from rtl.memory.port import LineError, ReadPort, WritePort
from tb.blocks.harness import BlockError, parameters, run_block
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import reset_dut

BASE = 0x1_0000_0000
LINES = 64


class Copier(wiring.Component):
    """Copies line i to line i + LINES, adding 1 to it, for all lines from `BASE`, once.

    `broken` drops `valid` of the write requests now and then, or changes their payload.
    """

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        super().__init__(
            {"read": Out(ReadPort()), "write": Out(WritePort()), "done": Out(1), "bad": In(1)}
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        asked, moved, answered = Signal(8), Signal(8), Signal(8)
        first = BASE // 64
        valid = Signal()
        flip = Signal()
        m.d.sync += flip.eq(~flip)
        read, write = self.read, self.write
        m.d.comb += [
            read.request.valid.eq(asked < LINES),
            read.request.payload.line.eq(first + asked),
            read.response.ready.eq(~valid | write.request.ready),
            write.request.valid.eq(valid & ~((self.broken == "valid") & flip)),
            write.response.ready.eq(1),
            self.done.eq(answered == LINES),
        ]
        if self.broken == "valid":
            m.d.comb += read.response.ready.eq(~valid | (write.request.ready & ~flip))
        with m.If(read.request.valid & read.request.ready):
            m.d.sync += asked.eq(asked + 1)
        with m.If(read.response.ready):
            m.d.sync += valid.eq(read.response.valid)
            with m.If(read.response.valid):
                m.d.sync += [
                    moved.eq(moved + 1),
                    write.request.payload.line.eq(first + LINES + moved),
                    write.request.payload.data.eq(read.response.payload.data + 1),
                    write.request.payload.strobe.eq(~0),
                ]
        if self.broken == "payload":
            m.d.sync += write.request.payload.strobe[0].eq(flip)
        with m.If(write.response.valid):
            m.d.sync += answered.eq(answered + 1)
        return m


async def start(dut: Any, **named: Any) -> tuple[LineMemory, ReadTarget, WriteTarget]:
    memory = LineMemory({BASE: 2 * LINES * 64})
    memory.view(BASE)[:] = np.frombuffer(random.randbytes(2 * LINES * 64), np.uint8)
    dut.bad.value = 0
    dut.rst.value = 1
    source, target = ReadTarget(dut, "read", memory, **named), WriteTarget(dut, "write", memory)
    target.latency, target.stall = source.latency, source.stall
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    return memory, source, target


async def until_done(dut: Any) -> int:
    for cycle in range(5000):
        if dut.done.value:
            return cycle
        await RisingEdge(dut.clk)
    raise AssertionError("the copy did not end")


def incremented(memory: LineMemory) -> list[int]:
    lines = memory.view(BASE).reshape(-1, 64)[:LINES]
    return [(int.from_bytes(line.tobytes(), "little") + 1) % (1 << 512) for line in lines]


@cocotb.test()
async def copies(dut: Any) -> None:
    for_stall = random.choice([0.0, 0.2, 0.6])
    memory, source, target = await start(dut, latency=(1, 30), stall=for_stall)
    expected = incremented(memory)
    await until_done(dut)
    lines = memory.view(BASE).reshape(-1, 64)[LINES:]
    assert [int.from_bytes(line.tobytes(), "little") for line in lines] == expected
    assert source.lines == [BASE // 64 + i for i in range(LINES)]
    assert target.lines == [BASE // 64 + LINES + i for i in range(LINES)]


@cocotb.test()
async def sustains_one_line_a_cycle(dut: Any) -> None:
    _, source, _ = await start(dut, latency=10)
    assert await until_done(dut) <= LINES + 2 * 10 + 4
    assert source.most_outstanding == 10


@cocotb.test()
async def errors_leave_memory_alone(dut: Any) -> None:
    memory, _, _ = await start(dut)
    memory.fail(BASE + (LINES + 3) * 64, 64, LineError.BUS)
    before = memory.view(BASE)[(LINES + 3) * 64 :][:64].copy()
    await until_done(dut)
    assert (memory.view(BASE)[(LINES + 3) * 64 :][:64] == before).all()
    assert memory.error_of(BASE // 64 + LINES + 3) is LineError.BUS
    assert memory.error_of(BASE // 64 + 2 * LINES) is LineError.ADDRESS
    assert memory.error_of(BASE // 64 - 1) is LineError.ADDRESS


@cocotb.test(skip=not parameters().get("broken"))
async def broken(dut: Any) -> None:
    await start(dut, latency=(1, 10), stall=0.5)
    await ClockCycles(dut.clk, 400)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_agents(sim: str) -> None:
    run_block(Copier(), __name__, sim=sim)


@pytest.mark.parametrize("broken", ["valid", "payload"])
def test_instability_is_seen(broken: str) -> None:
    with pytest.raises(BlockError, match="failed: broken") as caught:
        run_block(
            Copier(broken), __name__, sim="icarus", only="broken", parameters={"broken": True}
        )
    text = {"valid": "valid fell before ready", "payload": "payload changed before ready"}
    assert text[broken] in str(caught.value)
