"""The Cube pipe with both its halves against the golden model."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from abi.core import CUBE_SIDE, MmadType
from abi.status import Status
from rtl.core.cube_float import FloatCube
from rtl.core.matrix_unit import MatrixUnit
from rtl.memory.sram import Sram
from tb.blocks.core.test_cube import LINES, Bench, CubeWithBuffers, mmad, random_mmad, run_all
from tb.blocks.harness import run_block

DEPTH = 2


def random_command(kind: MmadType | None = None) -> bytes:
    """A random MMAD; rows of fp32 sums share no lines."""
    chosen = random.choice(list(MmadType)) if kind is None else kind
    fields = random_mmad(small=True)
    if chosen is MmadType.BF16:
        fields["c_pitch"] = fields["n_tiles"] + random.randrange(2)
    return mmad(**fields, type=chosen)


def numbers(bench: Bench) -> None:
    """Make most of what the buffers hold in the model ordinary numbers of close exponents."""
    for buffer in (bench.model.l0a, bench.model.l0b):
        halves = buffer.view(np.uint16)
        ordinary = np.frombuffer(random.randbytes(2 * halves.size), np.uint16)
        rare = np.frombuffer(random.randbytes(halves.size), np.uint8).reshape(halves.shape) < 2
        chosen = (ordinary & 0x81FF | 0x3F00).reshape(halves.shape)
        halves[:] = np.where(rare, halves, chosen)


async def refill(bench: Bench) -> None:
    """Write the model's buffers to the RTL's."""
    dut = bench.dut
    dut.write.value = 1
    for target, buffer in enumerate((bench.model.l0a, bench.model.l0b, bench.model.l0c)):
        for line, data in enumerate(buffer):
            dut.target.value = target
            dut.line.value = line
            dut.write_data.value = int.from_bytes(data.tobytes(), "little")
            await RisingEdge(dut.clk)
    dut.write.value = 0


@cocotb.test()
async def both_halves_equal_the_model(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start(stall=0.2)
    for _ in range(8):
        numbers(bench)
        bench.model.l0c.view(np.uint32)[:] &= 0xC0FFFFFF
        await refill(bench)
        await run_all(bench, [random_command() for _ in range(8)])
        assert np.array_equal(await bench.sums(), bench.model.l0c)


@cocotb.test()
async def special_values_equal_the_model(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(4):
        await bench.fill()
        await run_all(bench, [random_command(MmadType.BF16)])
        assert np.array_equal(await bench.sums(), bench.model.l0c)


@cocotb.test()
async def overflow_is_refused(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    sizes = {"rows": 2, "k_tiles": 1, "n_tiles": 1, "c_pitch": 1, "type": MmadType.BF16}
    for place in ({"a_line": 64}, {"b_line": 127, "b_pitch": 1}, {"c_line": 127}):
        command = mmad(**sizes, **place)
        assert bench.execute(command) == (Status.BUFFER_OVERFLOW, 0)
        await run_all(bench, [command])
    assert np.array_equal(await bench.sums(), bench.model.l0c)


@cocotb.test()
async def rows_stream_without_bubbles(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rows = 32
    command = mmad(rows=rows, k_tiles=2, n_tiles=1, a_pitch=1, b_pitch=1, c_pitch=1, type=1)
    await run_all(bench, [command])
    passes = 2 * CUBE_SIDE // DEPTH
    assert bench.working == rows * passes
    assert bench.first_work is not None
    assert bench.last_work - bench.first_work + 1 == rows * passes


@cocotb.test()
async def stop_forgets(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    command = mmad(rows=40, k_tiles=3, n_tiles=2, a_pitch=1, b_pitch=1, c_pitch=2, type=1)
    bench.commands.send(int.from_bytes(command, "little"))
    await ClockCycles(dut.clk, 200)
    dut.stop.value = 1
    await ClockCycles(dut.clk, 3)
    dut.stop.value = 0
    await RisingEdge(dut.clk)
    assert int(dut.idle.value) == 1
    await bench.fill()
    await run_all(bench, [command])
    assert np.array_equal(await bench.sums(), bench.model.l0c)


def matrix_unit_under_test() -> CubeWithBuffers:
    unit = MatrixUnit(
        l0a_lines=LINES["l0a_lines"],
        l0b_lines=LINES["l0b_lines"],
        l0c_lines=LINES["l0c_lines"],
        bf16_depth=DEPTH,
    )
    return CubeWithBuffers(unit)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_matrix_unit(sim: str) -> None:
    only = None if sim == "verilator" else "special|overflow"
    run_block(matrix_unit_under_test(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)


def test_depth_is_checked() -> None:
    with pytest.raises(ValueError, match="depth must be 1, 2, 4, 8 or 16, not 3"):
        FloatCube(**LINES, depth=3)
