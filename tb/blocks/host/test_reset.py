"""The reset controller: order of the steps, the bounded drain, what it tells."""

from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from rtl.host.reset import ResetController
from tb.blocks.harness import run_block
from tb.blocks.streams import reset_dut

DRAIN, PHASE = 50, 6


async def start(dut: Any) -> None:
    dut.rst.value, dut.start.value, dut.link_quiet.value = 1, 0, 1
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)


async def run(dut: Any, quiet_after: int) -> list[tuple[int, int, int, int]]:
    """One reset; (busy, quiesce, isolate, chip_reset) of each cycle while it is busy."""
    dut.link_quiet.value = int(quiet_after == 0)
    dut.start.value = 1
    await RisingEdge(dut.clk)
    dut.start.value = 0
    steps: list[tuple[int, int, int, int]] = []
    for cycle in range(DRAIN + 4 * PHASE):
        dut.link_quiet.value = int(cycle >= quiet_after)
        await RisingEdge(dut.clk)
        names = ("busy", "quiesce", "isolate", "chip_reset")
        step = tuple(int(getattr(dut, name).value) for name in names)
        if not step[0]:
            assert step == (0, 0, 0, 0)
            return steps
        steps.append((step[0], step[1], step[2], step[3]))
    raise AssertionError("busy for ever")


@cocotb.test()
async def order(dut: Any) -> None:
    await start(dut)
    for number, quiet_after in enumerate((0, 20)):
        steps = await run(dut, quiet_after)
        drain = len(steps) - 3 * PHASE
        assert steps == (
            [(1, 1, 0, 0)] * drain
            + [(1, 1, 1, 0)] * PHASE
            + [(1, 1, 1, 1)] * PHASE
            + [(1, 1, 1, 0)] * PHASE
        )
        assert max(quiet_after, 3) < drain <= quiet_after + 5
        assert (int(dut.drained.value), int(dut.generation.value)) == (1, number + 1)
        assert int(dut.idle.value)


@cocotb.test()
async def bounded_drain(dut: Any) -> None:
    await start(dut)
    steps = await run(dut, 10_000)
    assert DRAIN <= len(steps) - 3 * PHASE <= DRAIN + 2
    assert (int(dut.drained.value), int(dut.generation.value)) == (0, 1)
    await run(dut, 0)
    assert (int(dut.drained.value), int(dut.generation.value)) == (1, 2)


@cocotb.test()
async def start_while_busy(dut: Any) -> None:
    await start(dut)
    dut.start.value = 1
    for _ in range(15):
        await RisingEdge(dut.clk)
    dut.start.value = 0
    for _ in range(60):
        await RisingEdge(dut.clk)
    assert (int(dut.generation.value), int(dut.busy.value)) == (1, 0)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_reset(sim: str) -> None:
    run_block(ResetController(drain_cycles=DRAIN, phase_cycles=PHASE), __name__, sim=sim)


def test_parameters() -> None:
    with pytest.raises(ValueError, match="drain_cycles must be at least 8, not 7"):
        ResetController(drain_cycles=7)
    with pytest.raises(ValueError, match="phase_cycles must be at least 4, not 3"):
        ResetController(phase_cycles=3)
