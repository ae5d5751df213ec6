"""LOAD against the golden model: values, fill, planes, faults, stop, throughput."""

import random
from typing import Any

import cocotb
import pytest

from abi.address import LINE_BYTES
from abi.core import CommandOpcode, Local
from abi.status import Status
from rtl.memory.port import LineError
from rtl.memory.sram import Sram
from tb.blocks.core.pipes.bench import HIGH, LOW, MAIN, MAIN_BYTES, Bench, Command, random_place
from tb.blocks.core.pipes.machine import BUFFERS, PipesMachine
from tb.blocks.harness import run_block


def load(address: int, **fields: int) -> Command:
    base, offset = random_place(address)
    defaults = {"target": Local.L1, "rows": 1, "planes": 1, "row_bytes": 64, "fill": 0}
    return CommandOpcode.LOAD, {**defaults, **fields, "offset": offset}, base


def random_load() -> Command:
    """A LOAD; most stay inside the buffers, all inside memory."""
    row_bytes = random.choice([1, 63, 64, 65, 128, 200, random.randint(1, 500)])
    rows, planes = random.randint(1, 6), random.choice([1, 1, random.randint(1, 4)])
    lines = -(-row_bytes // LINE_BYTES)
    stride = random.choice([row_bytes, 0, random.randint(-600, 600)])
    plane_stride = random.choice([rows * stride, 0, random.randint(-1500, 1500)])
    low = min(0, (rows - 1) * stride) + min(0, (planes - 1) * plane_stride)
    high = max(0, (rows - 1) * stride) + max(0, (planes - 1) * plane_stride) + row_bytes
    pitch = random.choice([lines, lines, lines + 1, 0, 1])
    return load(
        MAIN + random.randint(-low, MAIN_BYTES - high),
        target=random.choice([Local.L1, Local.UB]),
        fill=random.choice([0, 0xFF, random.randrange(256)]),
        line=random.randrange(90),
        pitch=pitch,
        row_bytes=row_bytes,
        rows=rows,
        stride=stride,
        planes=planes,
        plane_pitch=random.choice([rows * pitch, 0, 3]),
        plane_stride=plane_stride,
    )


@cocotb.test()
async def random_commands(dut: Any) -> None:
    bench = Bench(dut, stall=0.2)
    await bench.start()
    for _ in range(25):
        await bench.run([random_load() for _ in range(6)])
    assert bench.model.read_bytes > 100000


@cocotb.test()
async def edges(dut: Any) -> None:
    """The last line of each buffer, both ends of the address space, and one step further."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    for target, name in ((Local.L1, "l1"), (Local.UB, "ub")):
        end = BUFFERS[name]
        shape = {"target": target, "row_bytes": 100, "rows": 3, "pitch": 4, "stride": 100}
        shape |= {"planes": 2, "plane_pitch": 12, "plane_stride": 300}
        first = end - 12 - 2 * 4 - 2
        fits, bad = load(MAIN, line=first, **shape), load(MAIN, line=first + 1, **shape)
        outcomes = await bench.run([fits, bad, load(MAIN + 64, target=target), bad, fits])
        statuses = [status for status, _ in outcomes]
        overflow = Status.BUFFER_OVERFLOW
        assert statuses == [Status.OK, overflow, Status.OK, overflow, Status.OK]
        for huge in ({"planes": 0xFFFF}, {"rows": 0xFFFF}, {"row_bytes": 0xFFFF}):
            wide = {**shape, "pitch": 0xFFFF, "plane_pitch": 0xFFFF, **huge}
            assert await bench.run([load(MAIN, **wide)]) == [(overflow, 0)]
    top = HIGH + 4096
    shape = {"row_bytes": 100, "rows": 3, "pitch": 2, "planes": 2, "plane_pitch": 6}
    down = {"stride": -200, "plane_stride": -600}
    up = {"stride": 200, "plane_stride": 600}
    await bench.run([load(LOW, **shape, **up), load(top - 1100, **shape, **up)])
    await bench.run([load(LOW + 1000, **shape, **down), load(top - 100, **shape, **down)])
    assert int(dut.mte2_idle.value)
    for address, strides, line in (
        (top - 1099, up, (top - 99) & ~63),
        (LOW + 999, down, 2**64 - 64),
        (LOW + 399, {"stride": -200, "plane_stride": 600}, 2**64 - 64),
        (LOW + 100, {"stride": 2**31 - 1, "plane_stride": -101}, 2**64 - 64),
        (top - 99, {"stride": -200, "plane_stride": -600}, (top - 99) & ~63),
    ):
        seen = len(bench.load.lines)
        got = await bench.run([load(MAIN), load(address, **shape, **strides)])
        assert got == [(Status.OK, 0), (Status.ADDRESS_FAULT, line)]
        assert len(bench.load.lines) == seen + 1
        await bench.compare()


@cocotb.test()
async def base_and_offset_leave(dut: Any) -> None:
    """The sum of base and offset is not taken modulo the address space."""
    bench = Bench(dut)
    await bench.start()
    one = {"target": Local.L1, "rows": 1, "planes": 1, "row_bytes": 1, "fill": 0}
    for base, offset, line in (
        ((1 << 48) - 1, 1, 1 << 48),
        (0, -1, 2**64 - 64),
        (100, -(2**31), 2**64 + 100 - 2**31 & ~63),
    ):
        got = await bench.run([(CommandOpcode.LOAD, {**one, "offset": offset}, base)])
        assert got == [(Status.ADDRESS_FAULT, line)]
    await bench.compare()


@cocotb.test()
async def memory_faults(dut: Any) -> None:
    """The first failing line is named; commands before it end well; the pipe lives on."""
    bench = Bench(dut, stall=0.2)
    await bench.start()
    far = {"row_bytes": 300, "rows": 4, "stride": 4000, "pitch": 5}
    hole = MAIN + MAIN_BYTES
    got = await bench.run([load(MAIN), load(MAIN + 7), load(hole - 4000 * 3 - 111, **far)])
    assert got[2] == (Status.ADDRESS_FAULT, hole)
    await bench.halt()
    await bench.adopt()
    for error, status in (
        (LineError.BUS, Status.BUS_ERROR),
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
    ):
        bench.memory.fail(MAIN + 4096 + 130, 1, error)
        bench.memory.fail(MAIN + 8192, 64, LineError.BUS)
        seen = len(bench.done["mte2"].received)
        bench.send(load(MAIN + 4000, row_bytes=64, target=Local.UB))
        bench.send(load(MAIN + 4096, row_bytes=300, rows=2, stride=0x1000, target=Local.UB))
        bench.send(load(MAIN))
        received = await bench.done["mte2"].wait(seen + 2)
        await bench.settle(50)
        assert [(item["status"], item["address"]) for item in received[seen:]] == [
            (Status.OK, 0),
            (status, MAIN + 4096 + 128),
        ]
        await bench.halt()
        bench.memory.heal()
        await bench.adopt()
        await bench.run([random_load() for _ in range(3)])


@cocotb.test()
async def stop(dut: Any) -> None:
    """A stop at any time leaves a pipe that works."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    for _ in range(15):
        for _ in range(3):
            bench.send(random_load())
        await bench.settle(random.randint(0, 90))
        await bench.halt()
        await bench.adopt()
        await bench.run([random_load() for _ in range(2)])


@cocotb.test()
async def throughput(dut: Any) -> None:
    """64 bytes a cycle across rows, planes and commands."""
    bench = Bench(dut, latency=8)
    await bench.start()
    shape = {"row_bytes": 256, "rows": 3, "stride": 256, "pitch": 4}
    shape |= {"planes": 2, "plane_stride": 768, "plane_pitch": 12}
    for target in (Local.L1, Local.UB):
        for name in ("mte2",):
            bench.worked[name].clear()
        begin = bench.cycle
        await bench.run(
            [load(MAIN + 4096 * i, target=target, line=24 * i, **shape) for i in range(4)],
            compare=False,
        )
        worked = bench.worked["mte2"]
        assert len(worked) == 96
        assert worked[-1] - worked[0] + 1 == 96
        assert worked[0] - begin < 30


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_mte2(sim: str) -> None:
    only = "edges|throughput" if sim == "icarus" else None
    run_block(PipesMachine(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
