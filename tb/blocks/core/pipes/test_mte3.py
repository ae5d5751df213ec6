"""SAVE against the golden model: values, planes, targets, faults, stop, throughput."""

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


def save(address: int, **fields: int) -> Command:
    """A SAVE to memory at an address, or to L1 at a line."""
    if fields.get("target") == Local.L1:
        base, offset = random.getrandbits(48), address
    else:
        base, offset = random_place(address)
    defaults = {"target": Local.MEMORY, "rows": 1, "planes": 1, "row_bytes": 64}
    return CommandOpcode.SAVE, {**defaults, **fields, "offset": offset}, base


def random_save() -> Command:
    """A SAVE; most stay inside the buffers, all inside memory."""
    row_bytes = random.choice([1, 63, 64, 65, 128, 200, random.randint(1, 500)])
    rows, planes = random.randint(1, 6), random.choice([1, 1, random.randint(1, 4)])
    lines = -(-row_bytes // LINE_BYTES)
    pitch = random.choice([lines, lines, lines + 1, 0, 1])
    fields = {
        "line": random.randrange(90),
        "pitch": pitch,
        "row_bytes": row_bytes,
        "rows": rows,
        "planes": planes,
        "plane_pitch": random.choice([rows * pitch, 0, 3]),
    }
    if random.random() < 0.4:
        stride = random.choice([lines, 0, 1, -1, -lines])
        plane_stride = random.choice([rows * stride, 0, 7, -5])
        first = random.randint(0, 127) if random.random() < 0.2 else random.randint(30, 80)
        strides = {"stride": stride, "plane_stride": plane_stride}
        return save(first, target=Local.L1, **strides, **fields)
    stride = random.choice([row_bytes, 0, random.randint(-600, 600)])
    plane_stride = random.choice([rows * stride, 0, random.randint(-1500, 1500)])
    low = min(0, (rows - 1) * stride) + min(0, (planes - 1) * plane_stride)
    high = max(0, (rows - 1) * stride) + max(0, (planes - 1) * plane_stride) + row_bytes
    address = MAIN + random.randint(-low, MAIN_BYTES - high)
    return save(address, stride=stride, plane_stride=plane_stride, **fields)


@cocotb.test()
async def random_commands(dut: Any) -> None:
    bench = Bench(dut, stall=0.2)
    await bench.start()
    for _ in range(25):
        await bench.run([random_save() for _ in range(6)])
    assert bench.model.write_bytes > 20000


@cocotb.test()
async def edges(dut: Any) -> None:
    """The last line of each buffer, both ends of the address space, and one step further."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    overflow = Status.BUFFER_OVERFLOW
    shape = {"row_bytes": 100, "rows": 3, "pitch": 4, "planes": 2, "plane_pitch": 12}
    first = BUFFERS["ub"] - 12 - 2 * 4 - 2
    for target, place, strides in (
        (Local.MEMORY, MAIN, {"stride": 100, "plane_stride": 300}),
        (Local.L1, 7, {"stride": 2, "plane_stride": 6}),
    ):
        here = {**shape, **strides, "target": target}
        fits, bad = save(place, line=first, **here), save(place, line=first + 1, **here)
        got = await bench.run([fits, bad, fits])
        assert [status for status, _ in got] == [Status.OK, overflow, Status.OK]
        for huge in ("planes", "rows", "row_bytes"):
            wide = {**here, "pitch": 0xFFFF, "plane_pitch": 0xFFFF, huge: 0xFFFF}
            assert await bench.run([save(place, **wide)]) == [(overflow, 0)]
    end = BUFFERS["l1"]
    for first, stride, plane_stride, expected in (
        (end - 2 - 20 - 30, 10, 30, Status.OK),
        (end - 2 - 20 - 29, 10, 30, overflow),
        (50, -10, -30, Status.OK),
        (49, -10, -30, overflow),
        (end - 2 - 20, 10, -30, Status.OK),
        (end - 2 - 19, 10, -30, overflow),
        (end - 2 - 30, -10, 30, Status.OK),
        (end - 2 - 29, -10, 30, overflow),
        (-1, 10, 30, overflow),
        (2**31 - 1, 2**31 - 1, 2**31 - 1, overflow),
        (-(2**31), -(2**31), -(2**31), overflow),
    ):
        strides = {"stride": stride, "plane_stride": plane_stride}
        got = await bench.run([save(first, target=Local.L1, **shape, **strides)])
        assert got == [(expected, 0)], (first, strides)
    top = HIGH + 4096
    for address, stride, plane_stride, line in (
        (top - 1100, 200, 600, None),
        (top - 1099, 200, 600, (top - 99) & ~63),
        (LOW + 1000, -200, -600, None),
        (LOW + 999, -200, -600, 2**64 - 64),
        (LOW + 399, -200, 600, 2**64 - 64),
        (top - 699, -200, 600, (top - 99) & ~63),
    ):
        seen = len(bench.save.lines)
        strides = {"stride": stride, "plane_stride": plane_stride}
        got = await bench.run([save(address, **shape, **strides)])
        assert got == [(Status.OK, 0) if line is None else (Status.ADDRESS_FAULT, line)]
        if line is not None:
            assert len(bench.save.lines) == seen
            await bench.compare()


@cocotb.test()
async def memory_faults(dut: Any) -> None:
    """The first failing line is named; commands before it end well; the pipe lives on."""
    bench = Bench(dut, stall=0.2)
    await bench.start()
    for error, status in (
        (LineError.BUS, Status.BUS_ERROR),
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
    ):
        bench.memory.fail(MAIN + 8192 + 70, 1, error)
        bench.memory.fail(MAIN + 12288, 64, LineError.BUS)
        seen = len(bench.done["mte3"].received)
        bench.send(save(MAIN + 7, row_bytes=64))
        bench.send(save(3, target=Local.L1, row_bytes=640))
        bench.send(save(MAIN, row_bytes=100, rows=2, planes=2, stride=4096, plane_stride=8192))
        bench.send(save(MAIN))
        received = await bench.done["mte3"].wait(seen + 3)
        await bench.settle(50)
        assert [(item["status"], item["address"]) for item in received[seen:]] == [
            (Status.OK, 0),
            (Status.OK, 0),
            (status, MAIN + 8192 + 64),
        ]
        await bench.halt()
        bench.memory.heal()
        await bench.adopt()
        await bench.run([random_save() for _ in range(3)])


@cocotb.test()
async def stop(dut: Any) -> None:
    """A stop at any time leaves a pipe that works."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    for _ in range(20):
        for _ in range(3):
            bench.send(random_save())
        await bench.settle(random.randint(0, 120))
        await bench.halt()
        await bench.adopt()
        await bench.run([random_save() for _ in range(2)])


@cocotb.test()
async def throughput(dut: Any) -> None:
    """64 bytes a cycle across rows and planes; a few cycles between commands."""
    bench = Bench(dut, latency=8)
    await bench.start()
    worked = bench.worked["mte3"]
    shape = {"row_bytes": 256, "rows": 3, "pitch": 4, "planes": 2, "plane_pitch": 12}
    for target, place, strides, gap in (
        (Local.MEMORY, MAIN, {"stride": 256, "plane_stride": 768}, 6),
        (Local.L1, 0, {"stride": 4, "plane_stride": 12}, 8),
    ):
        worked.clear()
        command = save(place, target=target, **shape, **strides)
        await bench.run([command for _ in range(3)], compare=False)
        assert len(worked) == 72
        assert [worked[i + 23] - worked[i] + 1 for i in (0, 24, 48)] == [24, 24, 24]
        assert [worked[i] - worked[i - 1] - 1 for i in (24, 48)] == [gap, gap]


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_mte3(sim: str) -> None:
    only = "edges|throughput" if sim == "icarus" else None
    run_block(PipesMachine(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
