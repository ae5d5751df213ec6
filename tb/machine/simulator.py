"""Builds the machine for a simulator."""

import sys
from collections.abc import Callable
from pathlib import Path

from amaranth.hdl import Elaboratable

from tb.engine.build import Simulator
from tb.engine.machine_build import HOST_DRAM, build_machine
from tb.engine.verilog import emit_verilog_of, renamed_top
from tb.machine.chip import CHIP_MODULE

__all__ = ["HOST_MEMORY", "SIMULATORS", "chip_verilog", "machine_simulator", "machine_verilog"]

REPOSITORY = Path(__file__).resolve().parents[2]
SRAM = REPOSITORY / "rtl" / "memory" / "sram.sv"
CHIP = ("abi", "rtl", "tb/engine/verilog.py")
"""What decides about the bare chip's Verilog."""

BOARD = (*CHIP, "tb/machine/chip.py", "tb/machine/machine.py", "tb/machine/host_memory.py")
"""What decides about the Verilog around the chip."""

SIMULATORS = ("verilator", "icarus")

HOST_MEMORY = "top.host_memory.dram"
"""Path of the host's DRAM in the machine."""

MEMORIES = (":host_dram.mem", ":glass_sram.mem")
"""Memories that Python may view through a pointer."""


def _board() -> Elaboratable:
    # Imported here, since a start from the cache needs no RTL.
    from tb.machine.machine import MachineTop

    return MachineTop()


def _chip() -> Elaboratable:
    from rtl.npu import Npu

    print("elaborating the chip (once for each change of it)", file=sys.stderr)
    return Npu()


def _verilog(names: tuple[str, ...], make: Callable[[], Elaboratable]) -> str:
    files: list[Path] = []
    for name in names:
        place = REPOSITORY / name
        files += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return emit_verilog_of(files, make)


def machine_verilog() -> str:
    """Verilog of the reference machine: the chip's, and what is around it."""
    return _verilog(BOARD, _board) + renamed_top(chip_verilog(), CHIP_MODULE)


def chip_verilog() -> str:
    """Verilog of the bare reference chip, without host memory."""
    return _verilog(CHIP, _chip)


def machine_simulator(sim: str, *, waves: bool = False) -> Simulator:
    """The simulator of the reference machine; built at first, then found in the cache.

    Raises:
        BuildError, ToolchainError: it could not be built.
        ValueError: `sim` is none of `SIMULATORS`.
    """
    return build_machine(
        machine_verilog(),
        sim=sim,
        sources=[HOST_DRAM, SRAM],
        memories=MEMORIES,
        waves=waves,
    )
