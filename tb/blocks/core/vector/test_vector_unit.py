"""The vector unit against the golden model: every operation, faults, stops, throughput."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from abi.core import VECTOR_COMMAND, CommandOpcode
from abi.status import Status
from abi.vector import SOURCES, VectorOperation
from rtl.memory.sram import Sram
from tb.blocks.core.vector.bench import LINES, SCRATCH, VectorBench, VectorWithBuffer
from tb.blocks.core.vector.commands import command, random_command, random_gather
from tb.blocks.harness import run_block
from tb.models.vector import geometry

V = VectorOperation

REDUCTIONS = tuple(operation for operation in V if V.SUM_FLOAT <= operation <= V.MIN_INT)

BETWEEN = 7
"""Cycles without a write between the commands of a pipe."""

MOST = tuple(operation for operation in V if operation is not V.GATHER)


@cocotb.test()
async def every_operation(dut: Any) -> None:
    bench = VectorBench(dut)
    await bench.start(stall=0.2)
    for turn in range(5):
        for operation in MOST:
            fields = random_command(operation, SCRATCH)
            await bench.run([fields], competition=(0.0, 0.4, 0.9)[turn % 3])
        await bench.fill()


@cocotb.test()
async def bursts(dut: Any) -> None:
    """Commands that use what the ones before them wrote."""
    bench = VectorBench(dut)
    await bench.start()
    for turn in range(12):
        commands = [random_command(random.choice(MOST), SCRATCH) for _ in range(6)]
        await bench.run(commands, competition=0.4 * (turn % 2))
        if turn % 4 == 3:
            await bench.fill()


@cocotb.test()
async def reductions(dut: Any) -> None:
    """Rows of every number of lines around the partials, and rows of NaNs alone."""
    bench = VectorBench(dut)
    await bench.start()
    for operation in REDUCTIONS:
        fields = {"rows": 9, "a_line": 3, "a_pitch": 4, "line": 130, "pitch": 2}
        widths = [1, 15, 16, 17, 33, 48, 60, 64, 65, 100, 130]
        await bench.run([command(operation, columns=n, **fields) for n in widths])
    await bench.write(8, np.full((24, 64), 0xFF, np.uint8))
    for operation in REDUCTIONS:
        row = {"columns": 128, "rows": 3, "a_pitch": 8, "pitch": 1, "line": 100}
        await bench.run([command(operation, a_line=8, **row)])


@cocotb.test()
async def gathers(dut: Any) -> None:
    bench = VectorBench(dut)
    await bench.start(stall=0.2)
    outcomes = set()
    for turn in range(40):
        fields, line, numbers = random_gather()
        await bench.write(line, numbers)
        outcomes.update(await bench.run([fields], competition=0.5 * (turn % 2)))
    assert outcomes == {Status.OK, Status.BUFFER_OVERFLOW}


@cocotb.test()
async def bounds(dut: Any) -> None:
    """A command may use the last line of UB, and writes nothing if it would use the next."""
    bench = VectorBench(dut)
    await bench.start()
    for operation in V:
        for _ in range(2):
            rows, columns = random.randint(1, 20), random.randint(1, 40)
            shape = geometry(command(operation, rows=rows, columns=columns))
            names = ["line", *(f"{name}_line" for name in "abc"[: SOURCES[operation]])]
            spans = [(*shape.target, shape.target_rows)]
            spans += [(*source, rows) for source in shape.sources if source is not None]
            pitches = {name.replace("line", "pitch"): random.randint(2, 6) for name in names}
            fields = command(operation, rows=rows, columns=columns, **pitches)
            for name, (_, _, lines, count) in zip(names, spans, strict=True):
                pitch = fields[name.replace("line", "pitch")]
                last = (count - 1) * pitch + lines - 1
                if last >= LINES or (operation is V.GATHER and name == "line"):
                    continue
                over = {**fields, name: LINES - last}
                assert await bench.run([over]) == [Status.BUFFER_OVERFLOW]
                fits = {**fields, name: LINES - 1 - last}
                assert geometry(fits).fits(LINES) == all(
                    (n - 1) * fields[other.replace("line", "pitch")] + s - 1 < LINES
                    for other, (_, _, s, n) in zip(names, spans, strict=True)
                )
    wide = {"rows": 65535, "columns": 65535, "pitch": 65535, "a_pitch": 65535}
    assert await bench.run([command(V.COPY, **wide)]) == [Status.BUFFER_OVERFLOW]
    unknown = {**command(V.COPY), "operation": 0x7F}
    assert await bench.run([unknown, command(V.FILL)]) == [Status.BAD_COMMAND, Status.OK]
    exact = {"rows": LINES // 4, "columns": 64, "pitch": 4, "a_pitch": 4, "b_pitch": 4}
    assert await bench.run([command(V.IADD, **exact)]) == [Status.OK]


@cocotb.test()
async def stop(dut: Any) -> None:
    """A stop at any time leaves a unit that works."""
    bench = VectorBench(dut)
    await bench.start()
    for _ in range(60):
        for _ in range(2):
            operation = random.choice(MOST)
            fields = random_command(operation, SCRATCH)
            if random.random() < 0.2:
                fields, line, numbers = random_gather()
                await bench.write(line, numbers)
            bench.commands.send(VECTOR_COMMAND.pack(fields, opcode=CommandOpcode.VECTOR))
        bench.competition = random.choice([0.0, 0.5])
        await bench.commands.drained(30000)
        for _ in range(random.randint(0, 60)):
            await RisingEdge(dut.clk)
        dut.stop.value = 1
        for _ in range(random.randint(2, 3)):
            await RisingEdge(dut.clk)
        dut.stop.value = 0
        bench.competition = 0.0
        for _ in range(2):
            await RisingEdge(dut.clk)
        assert int(dut.idle.value)
        bench.model[:] = await bench.contents()
        await bench.run([random_command(random.choice(MOST), SCRATCH)])


@cocotb.test()
async def throughput(dut: Any) -> None:
    """Cycles from the first write to the last: one a line; for a reduction, n + 7 a row."""
    bench = VectorBench(dut)
    await bench.start()
    matrix = {"rows": 64, "columns": 256, "pitch": 0}
    sources = {"a_line": 16, "b_line": 17, "c_line": 20}
    cycles = {}
    for operation in (V.FADD, V.FMA, V.SUM_FLOAT, V.MAX_INT, V.FILL):
        bench.work.clear()
        await bench.run([command(operation, **matrix, **sources)])
        cycles[operation] = bench.work[-1] - bench.work[0] + 1
    assert cycles[V.FADD] == cycles[V.FMA] == cycles[V.FILL] == 64 * 16
    assert cycles[V.SUM_FLOAT] == cycles[V.MAX_INT] <= 64 * (16 + 7)
    # All sources begin on the same bank; then rows also meet a bank twice in a row.
    for pitch, most in ((0, 64 * 16 + 4), (3, 64 * 18)):
        bench.work.clear()
        pitches = dict.fromkeys(("a_pitch", "b_pitch", "c_pitch"), pitch)
        await bench.run([command(V.FMA, **matrix, **pitches, a_line=16, b_line=20, c_line=24)])
        assert bench.work[-1] - bench.work[0] + 1 <= most
    for operation, lines, each in ((V.UNPACK_INT8, 60, 1), (V.PACK_INT8, 15, 4)):
        bench.work.clear()
        await bench.run([command(operation, **{**matrix, "columns": 960, "rows": 5}, a_line=80)])
        assert bench.work[-1] - bench.work[0] == (5 * lines - 1) * each
    bench.work.clear()
    await bench.run([command(V.TRANSPOSE, rows=64, columns=64, a_pitch=4, line=100, pitch=0)])
    assert bench.work[-1] - bench.work[0] + 1 == 16 * 32 - 16
    # Small commands that follow one another.
    bench.work.clear()
    await bench.run([command(V.IADD, columns=64, b_line=1, line=8)] * 5)
    assert bench.work[-1] - bench.work[0] + 1 == 4 * (4 + BETWEEN) + 4


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_vector_unit(sim: str) -> None:
    only = "bounds|reductions|gathers" if sim == "icarus" else None
    run_block(VectorWithBuffer(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
