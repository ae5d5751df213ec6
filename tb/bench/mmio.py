"""`bench mmio`: register reads through the driver, beside cocotbext-axi on the same ports."""

import time
from typing import Any

import cocotb
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from abi.address import BAR0_BASE
from abi.registers_host import BAR0
from driver.registers import Registers
from runtime import Device
from tb.bench.figures import hosted_figures, write_figures
from tb.engine.host import current_machine

__all__ = ["hosted", "measure"]

ROUNDS = 5
READS = 20_000
AGENT_READS = 1_000


def measure(seed: int) -> dict[str, float]:
    """Figures: reads a second of the driver and of cocotbext-axi, and their ratio."""
    return hosted_figures("tb.bench.mmio:hosted", seed)


def _driver(device: Device) -> float:
    register = device.driver.registers.bar0.identity
    expected = register.read()
    begun = time.perf_counter()
    for _ in range(READS):
        if register.read() != expected:
            raise AssertionError("a register read is wrong")
    return READS / (time.perf_counter() - begun)


async def _agent(master: AxiLiteMaster, expected: int) -> float:
    address = BAR0_BASE + BAR0.address("identity")
    begun = time.perf_counter()
    for _ in range(AGENT_READS):
        if int.from_bytes((await master.read(address, 8)).data, "little") != expected:
            raise AssertionError("a register read of cocotbext-axi is wrong")
    return AGENT_READS / (time.perf_counter() - begun)


def hosted(path: str) -> None:
    """Measure inside the machine. The agent stays on the ports, so it comes last."""
    machine = current_machine()
    with Device() as device:
        identity = device.driver.registers.bar0.identity.read()
        cycles = machine.bus.now()
        reads = max(_driver(device) for _ in range(ROUNDS))
        cycles_per_read = (machine.bus.now() - cycles) / (ROUNDS * (READS + 1))
    Registers(machine.bus).config.identity.update(memory_enable=1)  # Closing switched it off.
    top: Any = cocotb.top
    bus = AxiLiteBus.from_prefix(top, "host", bus_separator="__")
    master = AxiLiteMaster(bus, top.clk, top.rst)
    agent_reads = max(
        machine.clockwork.hosting.hand(_agent(master, identity)) for _ in range(ROUNDS)
    )
    write_figures(
        path,
        {
            "reads_per_s": reads,
            "cocotbext_axi_reads_per_s": agent_reads,
            "over_cocotbext_axi": reads / agent_reads,
            "cycles_per_read": cycles_per_read,
        },
    )
