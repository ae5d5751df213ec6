"""How fast the core is: lines a cycle of each pipe, MACs a cycle of the Cube."""

from typing import Any

import cocotb
import numpy as np
import pytest

from abi.address import HBM_BASE
from abi.core import Pipe
from abi.vector import VectorOperation
from rtl.memory.sram import Sram
from tb.blocks.core.bench import CoreBench, core_under_test
from tb.blocks.core.programs import Gemm, load, mmad, move, nop, operands, save, store, vector
from tb.blocks.harness import run_block


@cocotb.test()
async def pipe_rates(dut: Any) -> None:
    """A line a cycle in each pipe but the Cube, with memory that gives and takes a line a cycle."""
    bench = CoreBench(dut)
    await bench.start()
    await bench.fill_buffers()
    rate = {}
    far = {"row_bytes": 256, "stride": 256, "rows": 128, "pitch": 4}
    near = {"row_bytes": 256, "stride": 256, "rows": 64, "pitch": 4}
    for pipe, step, lines in (
        (Pipe.MTE2, load(**far), 512),
        (Pipe.MTE1, move(target=1, row_lines=4, source_pitch=4, pitch=4, rows=128), 512),
        (Pipe.FIXPIPE, store(columns=64, stride=256, rows=128), 512),
        (Pipe.MTE3, save(**near), 256),
        (
            Pipe.VECTOR,
            vector(
                operation=VectorOperation.COPY,
                columns=256 * 16,
                rows=1,
                a_step=1,
                line=256,
            ),
            256,
        ),
    ):
        await bench.check([step] * 6)
        spent, name = bench.spent(), pipe.name.lower()
        assert spent[f"{name}_busy"] == 6 * lines, (name, spent[f"{name}_busy"])
        rate[name] = spent[f"{name}_busy"] / (spent[f"{name}_busy"] + spent[f"{name}_stall"])
    dut._log.info("lines a cycle: %s", rate)
    assert rate["mte1"] > 0.97
    assert rate["mte2"] > 0.9
    assert rate["fixpipe"] > 0.9
    assert rate["mte3"] > 0.85
    assert rate["vector"] > 0.85


@cocotb.test()
async def halves(dut: Any) -> None:
    """FIXPIPE stalls while the Cube adds in the same half of L0C, and not in the other."""
    bench = CoreBench(dut)
    await bench.start()
    await bench.fill_buffers()
    busy = mmad(a_pitch=1, b_pitch=1, c_pitch=4, rows=100, k_tiles=4, n_tiles=4, accumulate=1)
    stalls = []
    for line in (256, 512):
        drain = store(columns=16, stride=64, rows=200, c_line=line, c_pitch=1)
        await bench.check([busy, nop(Pipe.FIXPIPE), drain])
        spent = bench.spent()
        assert spent["cube_busy"] == 1600
        assert spent["cube_stall"] < 40
        stalls.append(spent["fixpipe_stall"])
    assert stalls[0] > 1400
    assert stalls[1] < 100


@cocotb.test()
async def throughput(dut: Any) -> None:
    """256 x 256 x 256, double-buffered: 0.9 of 256 MACs a cycle over the whole block."""
    bench = CoreBench(dut)
    await bench.start()
    gemm = Gemm(256, 256, 256, 64, 128, 128, scale=(1, 12))
    a, b, _ = operands(gemm)
    places = (0x0000, 0x1_0000, 0, 0x3_0000)
    bench.fill(a.reshape(-1).view(np.uint8), places[0])
    bench.fill(b.reshape(-1).view(np.uint8), places[1])
    await bench.check(gemm.steps(), bases={i: HBM_BASE + place for i, place in enumerate(places)})
    spent = bench.spent()
    assert spent["core_macs"] == 256**3
    share = spent["core_macs"] / 256 / spent["core_cycles"]
    dut._log.info("256 x 256 x 256: %d cycles, %.3f", spent["core_cycles"], share)
    assert share >= 0.9


@cocotb.test()
async def cube_window(dut: Any) -> None:
    """Chained 128 x 128 x 128 MMADs: 0.97 of 256 MACs a cycle between first and last issue."""
    bench = CoreBench(dut)
    await bench.start()
    sizes = {"a_pitch": 2, "b_pitch": 2, "c_pitch": 8, "rows": 128, "k_tiles": 8, "n_tiles": 8}
    await bench.check([mmad(accumulate=int(i > 0), **sizes) for i in range(3)])
    spent = bench.spent()
    share = spent["cube_busy"] / (spent["cube_busy"] + spent["cube_stall"])
    dut._log.info("3 x 128 x 128 x 128: %.4f of the cycles that the Cube holds a command", share)
    assert share >= 0.97


@pytest.mark.parametrize("sim", ["verilator"])
def test_rates(sim: str) -> None:
    run_block(core_under_test(), __name__, sim=sim, sources=[Sram.SOURCE])
