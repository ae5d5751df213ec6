"""The machine as cocotb's own runner builds and runs it: its main and clock, all signals public."""

from typing import Any

import cocotb
import cocotb_tools.config
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from tb.engine.build import Simulator, build_verilator
from tb.engine.machine_build import BACKDOOR, HOST_DRAM
from tb.machine.simulator import SRAM, machine_verilog

__all__ = ["stock_clock_cycles", "stock_simulator"]

STOCK_MAIN = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"


def stock_simulator() -> Simulator:
    """The stock build of the reference machine. It takes minutes, then it is cached."""
    return build_verilator(
        machine_verilog(),
        sources=[HOST_DRAM, SRAM, BACKDOOR],
        main=STOCK_MAIN,
        all_public=True,
        # What Verilator's makefile compiles with by itself, and so cocotb's runner.
        optimise="-Os",
        skip_sleeping=False,
    )


async def stock_clock_cycles(cycles: int) -> None:
    """Let cocotb's own clock (GPI) run for `cycles`."""
    top: Any = cocotb.top
    clock = Clock(top.clk, 1, unit="ns", impl="gpi")
    clock.start(start_high=False)
    await ClockCycles(top.clk, cycles)
    clock.stop()
