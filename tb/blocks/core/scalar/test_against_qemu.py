"""Random RV32IM programs on the scalar unit, compared with QEMU: all registers, all of the RAM."""

from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import First, RisingEdge

from abi.address import HBM_BASE, LINE_BYTES
from abi.isa import RAM_BYTES
from rtl.memory.sram import Sram
from tb.blocks.core.scalar.machine import ProgramMachine
from tb.blocks.core.scalar.random_programs import (
    DUMP_RAM,
    DUMP_REGISTERS,
    Reference,
    random_program,
)
from tb.blocks.harness import parameters, run_block
from tb.blocks.streams import reset_dut


async def _load(dut: Any, code: bytes) -> None:
    edge = RisingEdge(dut.clk)
    padded = code + bytes(-len(code) % LINE_BYTES)
    dut.write.value = 1
    for line in range(len(padded) // LINE_BYTES):
        dut.line.value = line
        part = padded[line * LINE_BYTES : (line + 1) * LINE_BYTES]
        dut.write_data.value = int.from_bytes(part, "little")
        await edge
    dut.write.value = 0
    dut.code_bytes.value = len(code)
    await edge
    await edge


async def _read(dut: Any, offset: int, nbytes: int) -> bytes:
    edge = RisingEdge(dut.clk)
    lines = []
    for line in range(offset // LINE_BYTES, (offset + nbytes) // LINE_BYTES):
        dut.line.value = line
        for _ in range(3):
            await edge
        lines.append(int(dut.read_data.value).to_bytes(LINE_BYTES, "little"))
    return b"".join(lines)


@cocotb.test()
async def equals_qemu(dut: Any) -> None:
    for name in ("start", "code_bytes", "write", "line", "write_data"):
        getattr(dut, name).value = 0
    dut.code.value = HBM_BASE
    dut.rst.value = 1
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    edge = RisingEdge(dut.clk)
    reference = Reference()
    total = 0
    for index in range(parameters()["programs"]):
        program = random_program(parameters()["length"])
        expected = reference.run(program)
        before = int(dut.instructions.value)
        await _load(dut, program.code)
        dut.start.value = 1
        await edge
        dut.start.value = 0
        for _ in range(3):
            await edge
        await First(RisingEdge(dut.exited), RisingEdge(dut.fault_valid))
        await edge
        await edge
        assert int(dut.exited.value), f"program {index}: fault {int(dut.fault.value):#x}"
        spent = int(dut.instructions.value) - before
        assert spent == program.overhead + expected.instructions
        stored = np.frombuffer(await _read(dut, DUMP_REGISTERS, 2 * LINE_BYTES), "<u4")
        wrong = [i for i in range(1, 32) if stored[i] != expected.registers[i]]
        assert not wrong, f"program {index}: x{wrong} differ: {stored[wrong]}"
        ram = await _read(dut, DUMP_RAM, RAM_BYTES)
        assert ram == expected.ram, f"program {index}: the RAM differs"
        total += expected.instructions
    cocotb.log.info("%d random instructions", total)
    assert total >= parameters()["instructions"]


@pytest.mark.parametrize(
    ("sim", "programs", "length", "instructions"),
    [("verilator", 60, 2000, 150_000), ("icarus", 1, 500, 500)],
)
def test_random_programs(sim: str, programs: int, length: int, instructions: int) -> None:
    run_block(
        ProgramMachine(),
        __name__,
        sim=sim,
        sources=[Sram.SOURCE],
        parameters={"programs": programs, "length": length, "instructions": instructions},
    )
