"""The mailbox words: both sides at once, whose ring is whose, strobes, cleared by reset."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import Combine, RisingEdge

from rtl.host.mailbox import REQUEST_OFFSET, RESPONSE_OFFSET, WINDOW_BYTES, Mailbox
from tb.blocks.harness import run_block
from tb.blocks.host.gated import Gated
from tb.blocks.host.register_agent import RegisterInitiator
from tb.blocks.streams import reset_dut

OWN = {"host": REQUEST_OFFSET, "firmware": RESPONSE_OFFSET}
RING = range(0, WINDOW_BYTES // 2, 8)


async def start(dut: Any, stall: float) -> dict[str, RegisterInitiator]:
    dut.rst.value = 1
    sides = {name: RegisterInitiator(dut, name, stall=stall) for name in OWN}
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    return sides


@cocotb.test()
async def both_sides_at_once(dut: Any) -> None:
    """Each side writes its ring and reads both; words are never torn or mixed up."""
    sides = await start(dut, 0.3)
    written: dict[int, list[int]] = {a: [0] for a in range(0, WINDOW_BYTES, 8)}

    async def work(side: str) -> None:
        bus, own = sides[side], OWN[side]
        for _ in range(250):
            address = random.choice([own, RESPONSE_OFFSET - own]) + random.choice(RING[:6])
            mine = own <= address < own + WINDOW_BYTES // 2
            if random.random() < 0.5:
                data = random.getrandbits(64)
                if mine:
                    written[address].append(data)
                answer = await bus.access(address, write=True, data=data)
                assert (answer.error, answer.data) == (int(not mine), 0)
                continue
            before = len(written[address])
            answer = await bus.access(address, write=False)
            assert answer.error == 0
            # Of the other side's word, any value that was there during the read will do.
            assert answer.data in written[address][-1:] if mine else written[address][before - 2 :]

    await Combine(*(cocotb.start_soon(work(side)) for side in sides))
    for address, values in written.items():
        for bus in sides.values():
            assert await bus.read(address) == values[-1]


@cocotb.test()
async def strobes(dut: Any) -> None:
    sides = await start(dut, 0.0)
    for side, own in OWN.items():
        await sides[side].write(own + 8, 0x1122334455667788)
        await sides[side].write(own + 8, 0xAAAAAAAAAAAAAAAA, strobe=0b10010010)
        assert await sides[side].read(own + 8) == 0xAA2233AA5566AA88


@cocotb.test()
async def reset_clears(dut: Any) -> None:
    sides = await start(dut, 0.0)
    for address in RING:
        await sides["host"].write(REQUEST_OFFSET + address, 2**64 - 1)
        await sides["firmware"].write(RESPONSE_OFFSET + address, 2**64 - 1)
    await reset_dut(dut)
    assert not int(dut.idle.value)
    for address in range(0, WINDOW_BYTES, 8):
        assert await sides["host"].read(address) == 0
        assert await sides["firmware"].read(address) == 0
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    assert int(dut.idle.value)


@cocotb.test()
async def latency(dut: Any) -> None:
    sides = await start(dut, 0.0)
    await sides["host"].write(0, 1)
    assert (await sides["host"].access(0, write=False)).cycles == 1
    assert (await sides["firmware"].access(0, write=False)).cycles == 1


def test_gated() -> None:
    run_block(Gated(Mailbox()), __name__)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_mailbox(sim: str) -> None:
    run_block(Mailbox(), __name__, sim=sim)
