"""HBM: values, strobes, latency, rate, order of reads behind writes."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from rtl.memory.hbm import Hbm
from rtl.memory.sram import Sram
from tb.blocks.harness import parameters, run_block
from tb.blocks.memory.agents import ReadInitiator, WriteInitiator
from tb.blocks.streams import reset_dut

LINES = 256
FULL = (1 << 64) - 1


async def start(dut: Any, stall: float = 0.0) -> tuple[ReadInitiator, WriteInitiator]:
    dut.rst.value = 1
    agents = ReadInitiator(dut, "read", stall=stall), WriteInitiator(dut, "write", stall=stall)
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    return agents


@cocotb.test()
async def random_traffic(dut: Any) -> None:
    """Reads between acknowledged batches of random strobed writes, against a byte array."""
    read, write = await start(dut, random.choice([0.0, 0.3, 0.7]))
    model = np.zeros((LINES, 64), np.uint8)
    for line in range(LINES):
        model[line] = np.frombuffer(random.randbytes(64), np.uint8)
        write.request(line, int.from_bytes(model[line].tobytes(), "little"))
    await write.finished()
    for _ in range(4):
        hot = [random.randrange(LINES) for _ in range(20)]
        for _ in range(50):
            line, value = random.choice(hot), random.getrandbits(512)
            strobe = random.choice([FULL, random.getrandbits(64), 1 << random.randrange(64), 0])
            write.request(line, value, strobe)
            for i in range(64):
                if strobe >> i & 1:
                    model[line, i] = value >> 8 * i & 0xFF
        assert all(answer["error"] == 0 for answer in await write.finished())
        first = len(read.sink.received)
        lines = [random.choice([*hot, random.randrange(LINES)]) for _ in range(50)]
        for line in lines:
            read.request(line)
        answers = (await read.finished())[first:]
        for line, answer in zip(lines, answers, strict=True):
            assert answer["data"] == int.from_bytes(model[line].tobytes(), "little"), line
            assert answer["error"] == 0
    await ClockCycles(dut.clk, 2)
    assert int(dut.idle.value) == 1


@cocotb.test()
async def latency_and_rate(dut: Any) -> None:
    read, write = await start(dut)
    latency = parameters()["latency"]
    await write.write(3, 99)
    assert write.sink.received_at[0] - write.source.sent_at[0] == latency
    assert await read.read(3) == (99, 0)
    assert read.sink.received_at[0] - read.source.sent_at[0] == latency
    for i in range(200):
        read.request(i)
        write.request(i, i)
    await ClockCycles(dut.clk, 6)
    assert int(dut.idle.value) == 0
    await write.finished()
    await read.finished()
    # One line a cycle in each direction at the same time, requests and responses alike.
    for agent in (read, write):
        for cycles in (agent.source.sent_at[1:], agent.sink.received_at[1:]):
            assert cycles[-1] - cycles[0] == 199
    await ClockCycles(dut.clk, 2)
    assert int(dut.idle.value) == 1


@cocotb.test()
async def late_responses_lose_nothing(dut: Any) -> None:
    """Responses that are refused for long fill the block, not more."""
    read, write = await start(dut)
    write.sink.stall = 1.0
    for i in range(100):
        write.request(i, i * 7)
    await ClockCycles(dut.clk, 150)
    assert 0 < write.source.pending < 100
    write.sink.stall = 0.0
    await write.finished()
    read.sink.stall = 1.0
    for i in range(100):
        read.request(i)
    await ClockCycles(dut.clk, 150)
    assert 0 < read.source.pending < 100
    read.sink.stall = 0.0
    assert [answer["data"] for answer in await read.finished()] == [i * 7 for i in range(100)]
    await ClockCycles(dut.clk, 50)
    assert len(write.sink.received) == len(read.sink.received) == 100


@cocotb.test()
async def idle_means_nothing_is_unanswered(dut: Any) -> None:
    read, write = await start(dut)
    for agent in (read, write):
        agent.sink.stall = 1.0
        agent.source.send({"line": 1})
        await agent.source.drained()
        for _ in range(2 * parameters()["latency"]):
            await ClockCycles(dut.clk, 1)
            assert int(dut.idle.value) == 0
        agent.sink.stall = 0.0
        await agent.sink.wait(1)
        await ClockCycles(dut.clk, 2)
        assert int(dut.idle.value) == 1


@pytest.mark.parametrize(("sim", "latency"), [("verilator", 24), ("verilator", 2), ("icarus", 24)])
def test_hbm(sim: str, latency: int) -> None:
    run_block(
        Hbm(nbytes=LINES * 64, latency=latency),
        __name__,
        sim=sim,
        sources=[Sram.SOURCE],
        parameters={"latency": latency},
    )


def test_refuses_bad_parameters() -> None:
    with pytest.raises(ValueError, match="nbytes must be a positive multiple of 64, not 100"):
        Hbm(nbytes=100)
    with pytest.raises(ValueError, match="latency must be at least 2 cycles, not 1"):
        Hbm(nbytes=64, latency=1)
