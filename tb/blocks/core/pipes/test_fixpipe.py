"""STORE against the golden model: outputs, bias, targets, faults, stop, throughput."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest

from abi.core import CUBE_SIDE, CommandOpcode, Local, StoreOutput
from abi.status import Status
from rtl.memory.port import LineError
from rtl.memory.sram import Sram
from tb.blocks.core.pipes.bench import HIGH, LOW, MAIN, MAIN_BYTES, Bench, Command, random_place
from tb.blocks.core.pipes.machine import BUFFERS, PipesMachine
from tb.blocks.harness import run_block

SIZE = {StoreOutput.WORD: 4, StoreOutput.INT8: 1, StoreOutput.BF16: 2}

OUTPUTS = tuple(SIZE)

UB_GAP = {StoreOutput.WORD: 10, StoreOutput.INT8: 12, StoreOutput.BF16: 11}
"""Cycles from the last line of a command to UB to the first of the next."""


def store(address: int, **fields: int) -> Command:
    """A STORE to memory at an address, or to UB at a line."""
    base, offset = random_place(address)
    if fields.get("target") == Local.UB:
        base, offset = random.getrandbits(48), address
    defaults = {"target": Local.MEMORY, "rows": 1, "columns": 16}
    return CommandOpcode.STORE, {**defaults, **fields, "offset": offset}, base


def random_store() -> Command:
    """A STORE; most stay inside the buffers, all inside memory."""
    output = random.choice(OUTPUTS)
    columns = random.choice([1, 15, 16, 17, 32, 64, 65, random.randint(1, 150)])
    rows = random.randint(1, 8)
    row_bytes = columns * SIZE[output]
    fields = {
        "output": output,
        "bias": random.randrange(2),
        "relu": random.randrange(2),
        "c_line": random.randrange(40),
        "c_pitch": random.choice([0, 1, -(-columns // CUBE_SIDE)]),
        "columns": columns,
        "rows": rows,
        "bias_line": random.randrange(8),
        "shift": random.choice([0, 1, 31, 62, random.randint(20, 45)]),
        "multiplier": random.choice([0, 1, 2**31 - 1, random.getrandbits(31)]),
    }
    if random.random() < 0.4:
        lines = -(-row_bytes // 64)
        stride = random.choice([lines, 0, 1, -1, -lines])
        first = random.randint(0, 90) if stride >= 0 else random.randint(30, 120)
        return store(first, target=Local.UB, stride=stride, **fields)
    stride = random.choice([row_bytes, 64 * -(-row_bytes // 64), 0, random.randint(-600, 600)])
    low, high = min(0, (rows - 1) * stride), max(0, (rows - 1) * stride) + row_bytes
    return store(MAIN + random.randint(-low, MAIN_BYTES - high), stride=stride, **fields)


@cocotb.test()
async def random_commands(dut: Any) -> None:
    bench = Bench(dut, stall=0.2)
    await bench.start()
    for _ in range(25):
        await bench.run([random_store() for _ in range(6)])
    assert bench.model.write_bytes > 10000


@cocotb.test()
async def special_values(dut: Any) -> None:
    """Rounding to bfloat16: ties, overflow, infinities, NaNs, zeros; ReLU by the sign bit."""
    bench = Bench(dut)
    await bench.start()
    words = bench.model.l0c.view(np.uint32)
    patterns = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x7FC12345]
    patterns += [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0xFF7FFFFF, 1]
    patterns += [0x00008000, 0x00018000, 0x7F7F8000, 0x7F7F7FFF, 0x7F8000FF, 0xFF80FF00]
    flat = words.reshape(-1)
    flat[:] = [random.choice(patterns) | random.choice([0, 0, 1 << 31]) for _ in flat]
    flat[: len(patterns)] = patterns
    await bench.restore()
    shape = {"output": StoreOutput.BF16, "columns": 256, "rows": 4, "c_pitch": 16, "stride": 512}
    await bench.run([store(MAIN, **shape), store(MAIN + 8192, relu=1, **shape)])
    halves = bench.memory.view(MAIN)[: 2 * len(patterns)].view(np.uint16)
    expected = [0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7FC0, 0x7FC0, 0x3F80, 0x3F82, 0x3F81, 0x3F80]
    expected += [0x7F80, 0xFF80, 0, 0, 2, 0x7F80, 0x7F7F, 0x7FC0, 0x7FC0]
    assert halves.tolist() == expected
    positive = bench.memory.view(MAIN)[8192 : 8192 + 2 * len(patterns)].view(np.uint16)
    signs = [word >> 31 for word in patterns]
    assert positive.tolist() == [
        0 if sign else value for sign, value in zip(signs, expected, strict=True)
    ]


@cocotb.test()
async def edges(dut: Any) -> None:
    """The last line of each buffer, both ends of the address space, and one step further."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    overflow = Status.BUFFER_OVERFLOW
    shape = {"columns": 40, "rows": 3, "c_pitch": 4, "stride": 200, "bias": 1}
    last = {"c_line": BUFFERS["l0c"] - 11, "bias_line": BUFFERS["bias"] - 3}
    for target in (Local.MEMORY, Local.UB):
        place = MAIN if target == Local.MEMORY else 5
        here = {**shape, "target": target, "stride": 200 if target == Local.MEMORY else 3}
        for name in last:
            bad = {**last, name: last[name] + 1}
            fits = store(place, **here, **last)
            got = await bench.run([fits, store(place, **here, **bad), fits])
            assert [status for status, _ in got] == [Status.OK, overflow, Status.OK]
        free = {**here, **last, "bias": 0, "bias_line": 0xFFFF}
        assert await bench.run([store(place, **free)]) == [(Status.OK, 0)]
        huge = {**here, **last, "rows": 0xFFFF}
        assert await bench.run([store(place, **huge)]) == [(overflow, 0)]
    for output, lines in ((StoreOutput.WORD, 3), (StoreOutput.BF16, 2), (StoreOutput.INT8, 1)):
        inside = {**shape, "target": Local.UB, "output": output}
        end = BUFFERS["ub"] - lines
        for first, stride, expected in (
            (end - 20, 10, Status.OK),
            (end - 19, 10, overflow),
            (20, -10, Status.OK),
            (19, -10, overflow),
            (end, -10, Status.OK),
            (end + 1, -10, overflow),
            (-1, 10, overflow),
            (2**31 - 1, 2**31 - 1, overflow),
        ):
            got = await bench.run([store(first, **{**inside, "stride": stride})])
            assert got == [(expected, 0)], (output, first, stride)
    top = HIGH + 4096
    for address, stride, line in (
        (top - 160, 0, None),
        (top - 159, 0, (top - 159) & ~63),
        (top - 560, 200, None),
        (top - 559, 200, (top - 159) & ~63),
        (LOW + 400, -200, None),
        (LOW + 399, -200, 2**64 - 64),
    ):
        seen = len(bench.store.lines)
        got = await bench.run([store(address, **{**shape, "stride": stride})])
        assert got == [(Status.OK, 0) if line is None else (Status.ADDRESS_FAULT, line)]
        if line is not None:
            assert len(bench.store.lines) == seen
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
        seen = len(bench.done["fixpipe"].received)
        bench.send(store(MAIN + 7, columns=64))
        bench.send(store(3, target=Local.UB, columns=64))
        bench.send(store(MAIN, columns=40, rows=4, stride=4096))
        bench.send(store(MAIN))
        received = await bench.done["fixpipe"].wait(seen + 3)
        await bench.settle(50)
        assert [(item["status"], item["address"]) for item in received[seen:]] == [
            (Status.OK, 0),
            (Status.OK, 0),
            (status, MAIN + 8192 + 64),
        ]
        await bench.halt()
        bench.memory.heal()
        await bench.adopt()
        await bench.run([random_store() for _ in range(3)])


@cocotb.test()
async def stop(dut: Any) -> None:
    """A stop at any time leaves a pipe that works."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    for _ in range(20):
        for _ in range(3):
            bench.send(random_store())
        await bench.settle(random.randint(0, 120))
        await bench.halt()
        await bench.adopt()
        await bench.run([random_store() for _ in range(2)])


@cocotb.test()
async def throughput(dut: Any) -> None:
    """A line of L0C a cycle within a command; 10 cycles between commands, up to 12 behind UB."""
    bench = Bench(dut, latency=8)
    await bench.start()
    worked = bench.worked["fixpipe"]
    for output in OUTPUTS:
        for target, gap in ((Local.MEMORY, 10), (Local.UB, UB_GAP[output])):
            memory = target == Local.MEMORY
            shape = {"output": output, "columns": 64, "rows": 8, "c_pitch": 4, "target": target}
            shape["stride"] = 64 * SIZE[output] // (1 if memory else 64)
            worked.clear()
            first = MAIN if memory else 0
            await bench.run([store(first, **shape) for _ in range(3)], compare=False)
            assert len(worked) == 96
            spans = [worked[i + 31] - worked[i] + 1 for i in (0, 32, 64)]
            assert spans == [32, 32, 32], (output, target)
            gaps = [worked[i] - worked[i - 1] - 1 for i in (32, 64)]
            assert gaps == [gap, gap], (output, target, gaps)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_fixpipe(sim: str) -> None:
    only = "special_values|throughput" if sim == "icarus" else None
    run_block(PipesMachine(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
