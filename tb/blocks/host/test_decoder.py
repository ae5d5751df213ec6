"""The register decoder: windows, holes, closed windows, also under an access that is on its way."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from rtl.host.decoder import RegisterDecoder, Window
from tb.blocks.harness import run_block
from tb.blocks.host.register_agent import RegisterInitiator, RegisterTarget
from tb.blocks.streams import reset_dut

WINDOWS = {
    "hole": Window(base=0x1100, nbytes=0x100),
    "page": Window(base=0x1000, nbytes=0x1000),
    "small": Window(base=0x8, nbytes=0x8),
    "large": Window(base=0x100000, nbytes=0x100000),
}
ADDRESSES = (
    *(0, 8, 0x10, 0xFF8, 0x1000, 0x10F8, 0x1100, 0x11F8, 0x1200, 0x1FF8, 0x2000),
    *(0xFFFF8, 0x100000, 0x1000F8, 0x1FFFF8, 0x200000, 0x8001000, 0x1001000),
)


async def start(dut: Any, stall: float) -> tuple[RegisterInitiator, dict[str, RegisterTarget]]:
    dut.rst.value = 1
    for name in WINDOWS:
        getattr(dut, f"{name}_closed").value = 0
    bus = RegisterInitiator(dut, "bus", stall=stall)
    targets = {
        name: RegisterTarget(dut, name, stall=stall, refused=lambda address: address == 0xF8)
        for name in WINDOWS
    }
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    return bus, targets


def window_of(address: int) -> str | None:
    for name, window in WINDOWS.items():
        if window.base <= address < window.base + window.nbytes:
            return name
    return None


@cocotb.test()
async def random_accesses(dut: Any) -> None:
    bus, targets = await start(dut, 0.3)
    counts = dict.fromkeys(WINDOWS, 0)
    closed = dict.fromkeys(WINDOWS, False)
    model: dict[tuple[str, int], int] = {}
    holes = 0
    for _ in range(600):
        if random.random() < 0.1:
            name = random.choice(list(WINDOWS))
            closed[name] = not closed[name]
            getattr(dut, f"{name}_closed").value = int(closed[name])
        address = random.choice(ADDRESSES)
        inside, write, data = window_of(address), random.random() < 0.5, random.getrandbits(64)
        answer = await bus.access(address, write=write, data=data)
        if inside is None or closed[inside]:
            assert (answer.error, answer.data) == (1, 0)
            holes += 1
            continue
        local = address - WINDOWS[inside].base
        counts[inside] += 1
        assert targets[inside].log[-1][:2] == (local, write)
        if local == 0xF8:
            assert answer.error == 1
        elif write:
            assert answer.error == 0
            model[inside, local] = data
        else:
            assert (answer.error, answer.data) == (0, model.get((inside, local), 0))
    assert {name: len(target.log) for name, target in targets.items()} == counts
    assert min(counts.values()) > 5
    assert holes > 50


@cocotb.test()
async def closed_under_an_access(dut: Any) -> None:
    """The target never answers; closing its window ends the access with an error."""
    bus, targets = await start(dut, 0.0)
    targets["page"].silent = True
    access = cocotb.start_soon(bus.access(0x1008, write=False))
    await ClockCycles(dut.clk, 20)
    assert not access.done()
    assert not int(dut.idle.value)
    dut.page_closed.value = 1
    for _ in range(4):
        await RisingEdge(dut.clk)
    assert access.done()
    assert access.result().error == 1
    assert (await bus.access(0x1008, write=True)).error == 1
    await bus.write(0x8, 5)
    assert await bus.read(0x8) == 5


@cocotb.test()
async def passes_in_the_same_cycle(dut: Any) -> None:
    bus, _ = await start(dut, 0.0)
    assert (await bus.access(0x8, write=False)).cycles == 1
    assert (await bus.access(0x10, write=False)).cycles == 1


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_decoder(sim: str) -> None:
    run_block(RegisterDecoder(windows=WINDOWS), __name__, sim=sim)


def test_parameters() -> None:
    with pytest.raises(ValueError, match="nbytes must be a power of two >= 8, not 12"):
        Window(base=0, nbytes=12)
    with pytest.raises(ValueError, match="base must be a multiple of 0x10, not 8"):
        Window(base=8, nbytes=16)
    with pytest.raises(ValueError, match="windows must name at least one window, not"):
        RegisterDecoder(windows={})
