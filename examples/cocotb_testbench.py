"""A cocotb testbench of your own on the bare chip, with agents from cocotbext-axi.

    python examples/cocotb_testbench.py [verilator|icarus]

It plays host, host memory and firmware: it reads the identity register, and drives a DMA channel
through the firmware's registers to copy bytes from host memory into HBM and back.
"""

import random
import sys
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from abi.address import BAR0_BASE, CONFIG_BASE, HBM_BASE, HOST_BASE, PAGE_BYTES
from abi.config_space import CONFIG_SPACE
from abi.register import RegisterMap
from abi.registers_dma import DmaStart
from abi.registers_firmware import DMA_BASE, DMA_BLOCK
from abi.registers_host import BAR0, DEVICE_MAGIC

RAM_BYTES = 64 * 1024
LONGEST_COPY = 5_000


class Testbench:
    """The chip's ports: `host` and `firmware` are AXI-Lite managers, `ram` is host memory."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        # Names of Amaranth's ports are joined with two underscores.
        host = AxiLiteBus.from_prefix(dut, "host", bus_separator="__")
        firmware = AxiLiteBus.from_prefix(dut, "fw", bus_separator="__")
        memory = AxiBus.from_prefix(dut, "host_axi", bus_separator="__")
        dut.rst.value = 1
        Clock(dut.clk, 1, unit="ns").start(start_high=False)
        self.host = AxiLiteMaster(host, dut.clk, dut.rst)
        self.firmware = AxiLiteMaster(firmware, dut.clk, dut.rst)
        self.ram = AxiRam(memory, dut.clk, dut.rst, size=RAM_BYTES)

    async def reset(self) -> None:
        """Come out of reset, answer register accesses, let the device reach all of `ram`."""
        await ClockCycles(self.dut.clk, 8)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 8)
        enable = CONFIG_SPACE["identity"].register.pack(memory_enable=1, bus_master=1)
        await self.host.write_qword(CONFIG_BASE + CONFIG_SPACE.address("identity"), enable)
        window = BAR0["host_window"].register.pack(base=0, limit=RAM_BYTES // PAGE_BYTES)
        await self.host.write_qword(BAR0_BASE + BAR0.address("host_window"), window)

    async def dma(self, name: str, **fields: int) -> None:
        """Write a register of DMA channel 0, as the firmware would."""
        await write(self.firmware, DMA_BASE, DMA_BLOCK, name, **fields)

    async def copy(self, source: int, destination: int, nbytes: int) -> None:
        """Copy between device addresses on DMA channel 0; bounded in cycles."""
        await self.dma("source", address=source)
        await self.dma("destination", address=destination)
        await self.dma("size", row_bytes=nbytes, rows=1)
        await self.dma("start", kind=DmaStart.COPY)
        state = DMA_BLOCK["state"].register
        for _ in range(LONGEST_COPY // 50):
            await ClockCycles(self.dut.clk, 50)
            word = await self.firmware.read_qword(DMA_BASE + DMA_BLOCK.address("state"))
            if not state.unpack(word)["busy"]:
                assert state.unpack(word)["status"] == 0, state.unpack(word)
                return
        raise AssertionError(f"the copy did not end in {LONGEST_COPY} cycles")


async def write(
    port: AxiLiteMaster, base: int, register_map: RegisterMap, name: str, **fields: int
) -> None:
    """Write a register by its name and fields."""
    place = register_map[name]
    await port.write_qword(base + place.address(), place.register.pack(fields))


@cocotb.test()
async def identity_names_the_chip(dut: Any) -> None:
    """The first register says what this is."""
    bench = Testbench(dut)
    await bench.reset()
    word = await bench.host.read_qword(BAR0_BASE + BAR0.address("identity"))
    assert BAR0["identity"].register.unpack(word)["magic"] == DEVICE_MAGIC


@cocotb.test()
async def bytes_go_to_hbm_and_come_back(dut: Any) -> None:
    """Unaligned on purpose: neighbours of the destination must keep their bytes."""
    bench = Testbench(dut)
    await bench.reset()
    data = random.randbytes(777)
    bench.ram.write(0x1003, data)
    bench.ram.write(0x2000, b"\xee" * 0x1000)
    await bench.copy(HOST_BASE + 0x1003, HBM_BASE + 5, len(data))
    await bench.copy(HBM_BASE + 5, HOST_BASE + 0x2011, len(data))
    assert bench.ram.read(0x2011, len(data)) == data
    assert bench.ram.read(0x2000, 0x11) == b"\xee" * 0x11
    assert bench.ram.read(0x2011 + len(data), 64) == b"\xee" * 64


if __name__ == "__main__":
    from rtl.memory.sram import Sram
    from tb.blocks.harness import run_block
    from tb.machine.simulator import chip_verilog

    simulator = sys.argv[1] if len(sys.argv) > 1 else "verilator"
    result = run_block(chip_verilog(), "cocotb_testbench", sim=simulator, sources=[Sram.SOURCE])
    print("passed:", ", ".join(result.passed))
