"""Wild programs on the scalar unit and on the interpreter: both must fail in the same way.

Compared are status, PC, address and pipe of the fault, commands and flags in order, instructions
done, and global memory; and the registers at the fault, by a second run of the program with a
jump to its end in place of the instruction that failed. Each program is drawn from the seed and
its number alone.
"""

import random
from collections import Counter
from typing import Any

import cocotb
import numpy as np
import pytest

from abi.status import Status
from rtl.memory.sram import Sram
from runtime.toolchain.disassembler import disassemble
from tb.blocks.core.scalar.bench import (
    DATA_BYTES,
    Outcome,
    ScalarBench,
    unit_under_test,
)
from tb.blocks.core.scalar.wild_programs import WildProgram, wild_program
from tb.blocks.harness import parameters, run_block, seed


async def _check(bench: ScalarBench, program: WildProgram, name: str) -> Outcome:
    bench.memory.heal()
    for place in program.failing:
        bench.memory.fail(*place)
    try:
        return await bench.check(
            program.code,
            arguments=program.arguments,
            entry=program.entry,
            grid=program.grid,
            block=program.block,
            inputs={"cycles": 0x1234_5678, **program.inputs},
        )
    except AssertionError as error:
        how = f"GLASSNPU_SEED={seed()}, {name}, {program.inputs}, entry {program.entry:#x}"
        raise AssertionError(f"{how}: {error}\n{disassemble(program.code)}") from error


@cocotb.test()
async def wild_programs_equal_the_interpreter(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start(latency=(1, 6))
    ends: Counter[str] = Counter()
    misplaced = 0
    for number in range(parameters()["programs"]):
        draw = random.Random(f"{seed()} {number}")
        bench.view[:DATA_BYTES] = bench.expected[:DATA_BYTES] = np.frombuffer(
            draw.randbytes(DATA_BYTES), np.uint8
        )
        program = wild_program(draw, parameters()["steps"])
        outcome = await _check(bench, program, f"program {number}")
        if outcome.fault is None:
            ends["exit"] += 1
            continue
        ends[Status(outcome.fault["status"]).name] += 1
        misplaced += bool(program.inputs or program.entry)
        until = program.without(outcome.fault["pc"])
        if until is not None:
            assert (await _check(bench, until, f"program {number}, until its fault")).fault is None
    cocotb.log.info("%s; %d placed wrongly", dict(ends), misplaced)
    if parameters()["programs"] >= len(Status):
        assert (
            {
                "exit",
                *("ADDRESS_FAULT", "MISALIGNED", "ILLEGAL_INSTRUCTION", "BREAKPOINT"),
                *("BAD_COMMAND", "BUS_ERROR"),
            }
            >= ends.keys()
            >= {"exit", "ADDRESS_FAULT", "MISALIGNED"}
        )


@pytest.mark.parametrize(("sim", "programs", "steps"), [("verilator", 120, 14), ("icarus", 6, 8)])
def test_wild_programs(sim: str, programs: int, steps: int) -> None:
    run_block(
        unit_under_test(),
        __name__,
        sim=sim,
        sources=[Sram.SOURCE],
        parameters={"programs": programs, "steps": steps},
    )
