"""Builds the machine for a simulator."""

from rtl.memory.sram import Sram
from tb.engine.build import Simulator
from tb.engine.machine_build import HOST_DRAM, build_machine
from tb.machine.machine import MachineTop

__all__ = ["HOST_MEMORY", "SIMULATORS", "machine_simulator"]

SIMULATORS = ("verilator", "icarus")

HOST_MEMORY = "top.host_memory.dram"
"""Path of the host's DRAM in the machine."""

MEMORIES = (":host_dram.mem", ":glass_sram.mem")
"""Memories that Python may view through a pointer."""


def machine_simulator(sim: str, *, waves: bool = False) -> Simulator:
    """The simulator of the reference machine; built at first, then found in the cache.

    Raises:
        BuildError, ToolchainError: it could not be built.
        ValueError: `sim` is none of `SIMULATORS`.
    """
    return build_machine(
        MachineTop(),
        sim=sim,
        sources=[HOST_DRAM, Sram.SOURCE],
        memories=MEMORIES,
        waves=waves,
    )
