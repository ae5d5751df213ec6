"""The core when something is wrong: refused commands, buffers, memory errors, flags, aborts."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from abi.address import HBM_BASE, LINE_BYTES
from abi.core import ABSOLUTE, LOAD_COMMAND, MMAD_COMMAND, MoveTarget, Pipe
from abi.registers_firmware import CORE_BLOCK
from abi.status import Status
from rtl.memory.port import LineError
from rtl.memory.sram import Sram
from tb.blocks.core.bench import PROGRAM_OFFSET, CoreBench, core_under_test
from tb.blocks.core.programs import (
    MEMORY_BYTES,
    SIZES,
    Gemm,
    chain,
    end,
    jump,
    load,
    mmad,
    move,
    nop,
    store,
)
from tb.blocks.harness import run_block
from tb.models.core import SEQUENCER

BASES = [HBM_BASE + offset for offset in (0, 0x1_0000, 0x2_0000, 0x3_0000)]
GOOD = [load(argument=0, row_bytes=100, rows=3, stride=100, pitch=2), end()]


async def healthy(bench: CoreBench) -> None:
    """The core still computes what the model does."""
    gemm = Gemm(20, 40, 24, 16, 32, 16, bias=True, scale=(3, 9))
    result = await bench.check(gemm.commands(), BASES)
    assert result.status is Status.OK


@cocotb.test()
async def bad_commands(dut: Any) -> None:
    """Each rule of the sequencer, broken alone."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 20))
    sound = {"argument": 0, "row_bytes": 1, "rows": 1}
    tile = {"rows": 1, "k_tiles": 1, "n_tiles": 1}
    lines = {"row_lines": 1, "rows": 1}
    out = {"argument": 0, "columns": 1, "rows": 1}
    bad = [
        bytes(32),
        b"\x08" + bytes(31),
        b"\xff" * 32,
        nop(4),
        end(pipe=1),
        nop(0, reserved=1 << 207),
        end(reserved=1),
        jump(0, reserved=1 << 159),
        jump(0, reserved_header=1),
        load(**{**sound, "rows": 0}),
        load(**{**sound, "row_bytes": 0}),
        load(**{**sound, "argument": 5}),
        load(**{**sound, "argument": 0xFE}),
        load(**sound, reserved=1 << 47),
        move(**{**lines, "rows": 0}),
        move(**{**lines, "row_lines": 0}),
        move(**lines, target=4),
        move(**lines, reserved=1 << 95),
        *[mmad(**{**tile, name: 0}) for name in tile],
        mmad(**tile, reserved_header=1 << 22),
        store(**{**out, "columns": 0}),
        store(**{**out, "rows": 0}),
        store(**{**out, "argument": 6}),
        store(**out, shift=63),
        store(**out, reserved=1),
        store(**out, reserved_shift=2),
        store(**out, reserved_header=1),
    ]
    for command in bad:
        before = [nop(random.randrange(4)) for _ in range(random.randint(0, 3))]
        result = await bench.check([*before, command, end()])
        assert (result.status, result.pipe) == (Status.BAD_COMMAND, SEQUENCER)
        assert result.command == len(before)
    await healthy(bench)


@cocotb.test()
async def past_the_end(dut: Any) -> None:
    """Running past LENGTH, by walking and by a JUMP; an empty program."""
    bench = CoreBench(dut)
    await bench.start()
    for commands, length, index in (
        ([nop(0)], 1, 1),
        ([nop(0), nop(1), end()], 2, 2),
        ([jump(1000), end()], 2, 1000),
        ([jump(3), end(), end(), end()], 3, 3),
        ([jump(0xFFFF_FFFF), end()], 2, 0xFFFF_FFFF),
        ([end()], 0, 0),
    ):
        await bench.launch(commands, [], length)
        assert await bench.finished() == {
            "status": Status.BAD_COMMAND,
            "pipe": SEQUENCER,
            "command": index,
        }
        assert all(line < (HBM_BASE + MEMORY_BYTES) // LINE_BYTES for line in bench.fetches.lines)
    await healthy(bench)


@cocotb.test()
async def bad_programs(dut: Any) -> None:
    """Programs that cannot be fetched."""
    bench = CoreBench(dut)
    await bench.start()
    await bench.write("length", 4)
    outside = HBM_BASE + 2 * MEMORY_BYTES
    for address, status in (
        (HBM_BASE + 32, Status.MISALIGNED),
        (1 << 48, Status.ADDRESS_FAULT),
        ((1 << 48) - 64, Status.ADDRESS_FAULT),
        (outside, Status.ADDRESS_FAULT),
    ):
        await bench.write("program", address)
        bench.before = bench.counters()
        await bench.write("start", 1)
        assert await bench.finished() == {"status": status, "pipe": SEQUENCER, "command": 0}
        assert await bench.read("fault_address") == address
    # An error in a line that is not needed does not matter; the one that is needed is named.
    second = HBM_BASE + PROGRAM_OFFSET + LINE_BYTES
    for error, status in (
        (LineError.BUS, Status.BUS_ERROR),
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
    ):
        bench.memory.fail(second, LINE_BYTES, error)
        await bench.launch([nop(0), end(), nop(0), end()], [])
        assert await bench.finished() == {"status": 0, "pipe": 0, "command": 0}
        await bench.launch([nop(0), nop(0), nop(0), end()], [])
        assert await bench.finished() == {"status": status, "pipe": SEQUENCER, "command": 2}
        assert await bench.read("fault_address") == second
        bench.memory.heal()
    await healthy(bench)


@cocotb.test()
async def overflows(dut: Any) -> None:
    """A command that leaves a buffer by one line, for each buffer: before any access."""
    bench = CoreBench(dut)
    await bench.start()
    l1, l0c, bias = SIZES["l1_lines"], SIZES["l0c_lines"], SIZES["bias_lines"]
    tile = {"rows": 3, "k_tiles": 1, "n_tiles": 1}
    lines = {"row_lines": 2, "rows": 1}
    out = {"argument": 0, "columns": 17, "rows": 1}
    cases = [
        (Pipe.MTE2, load, {"argument": 0, "row_bytes": 65, "rows": 2, "pitch": 2}, "line", l1 - 4),
        (Pipe.MTE1, move, lines, "source", l1 - 2),
        *[
            (Pipe.MTE1, move, {**lines, "target": target}, "line", SIZES[size] - 2)
            for target, size in zip(
                MoveTarget, ("l0a_lines", "l0b_lines", "l0c_lines", "bias_lines"), strict=True
            )
        ],
        (Pipe.CUBE, mmad, {**tile, "c_pitch": 5}, "c_line", l0c - 11),
        (Pipe.FIXPIPE, store, out, "c_line", l0c - 2),
        (Pipe.FIXPIPE, store, {**out, "bias": 1}, "bias_line", bias - 2),
    ]
    for pipe, make, fields, name, fits in cases:
        accesses = len(bench.loads.lines), len(bench.stores.lines)
        result = await bench.check([nop(0), make(**fields, **{name: fits + 1}), end()])
        assert (result.status, result.pipe, result.command) == (Status.BUFFER_OVERFLOW, pipe, 1)
        assert accesses == (len(bench.loads.lines), len(bench.stores.lines))
        result = await bench.check([make(**fields, **{name: fits}), end()])
        assert result.status is Status.OK
    # A column block without bias does not look at the bias line.
    result = await bench.check([store(**out, bias_line=0xFFFF), end()])
    assert result.status is Status.OK
    await healthy(bench)


@cocotb.test()
async def addresses(dut: Any) -> None:
    """Rows outside the address space, and lines that memory refuses."""
    bench = CoreBench(dut)
    await bench.start(stall=0.2, latency=(1, 30))
    end_of_memory = HBM_BASE + MEMORY_BYTES
    rows = {"rows": 4, "stride": 64}
    for arguments, place in (
        ([1 << 48], {"argument": 0}),
        ([HBM_BASE | 1 << 63], {"argument": 0, "offset": 100}),
        ([64], {"argument": 0, "offset": -65}),
        ([(1 << 48) - 255], {"argument": 0}),
        ([], {"argument": ABSOLUTE, "offset": -1, **rows}),
        ([HBM_BASE], {"argument": 0, "stride": -(1 << 31), "rows": 4}),
        ([0], {"argument": 0}),
        ([end_of_memory - 256 + 1], {"argument": 0}),
        ([end_of_memory - 130], {"argument": 0, "stride": -64}),
    ):
        fields = {**rows, **place}
        result = await bench.check([load(row_bytes=64, pitch=1, **fields), end()], arguments)
        assert result.status is Status.OK or result.pipe == Pipe.MTE2
        assert (result.status is Status.OK) == (fields["stride"] == -64)
        result = await bench.check([store(columns=16, c_pitch=1, **fields), end()], arguments)
        assert result.status is Status.OK or result.pipe == Pipe.FIXPIPE
    await healthy(bench)


@cocotb.test()
async def memory_errors(dut: Any) -> None:
    """The first failing line is named, whatever else was on its way."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 30), stall=0.1)
    for error, status in (
        (LineError.BUS, Status.BUS_ERROR),
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
    ):
        for pipe in (Pipe.MTE2, Pipe.FIXPIPE):
            line = random.randrange(40)
            address = HBM_BASE + 0x8000 + line * LINE_BYTES
            bench.memory.fail(address, random.choice([1, 640]), error)
            span = {"argument": 0, "offset": 0x8000, "rows": 10, "stride": 256}
            commands = [
                load(argument=0, row_bytes=256, rows=2, stride=256, pitch=4),
                store(argument=0, columns=64, rows=2, stride=256, c_pitch=4),
                load(row_bytes=256, pitch=4, **span)
                if pipe is Pipe.MTE2
                else store(columns=64, c_pitch=4, **span),
                end(),
            ]
            await bench.launch(commands, [HBM_BASE])
            assert await bench.finished() == {"status": status, "pipe": pipe, "command": 2}
            assert await bench.read("fault_address") == address
            bench.memory.heal()
            bench.expected[:] = bench.view
    await healthy(bench)


@cocotb.test()
async def flag_faults(dut: Any) -> None:
    """Overflow of a flag, and deadlocks of every kind, found without a timeout."""
    bench = CoreBench(dut)
    await bench.start()
    result = await bench.check([*[nop(2, set=1 << 5) for _ in range(15)], end()])
    assert result.status is Status.OK
    result = await bench.check([*[nop(2, set=1 << 5) for _ in range(16)], end()])
    assert (result.status, result.pipe, result.command) == (Status.FLAG_OVERFLOW, Pipe.CUBE, 15)
    busy = load(argument=0, row_bytes=64, rows=1, set=1)
    deadlocks = [
        ([nop(1, wait=1), end()], Pipe.MTE1, 0),
        ([busy, nop(3, wait=3), end()], Pipe.FIXPIPE, 1),
        ([nop(0, set=2), nop(3, wait=1), nop(1, wait=4), end()], Pipe.MTE1, 2),
        ([end(wait=1)], SEQUENCER, 0),
        ([busy, end(wait=2)], SEQUENCER, 1),
        ([nop(0), jump(0, wait=8), end()], SEQUENCER, 1),
        # The flag would come from behind a full queue.
        ([*[nop(1, wait=1) for _ in range(5)], nop(0, set=1), end()], Pipe.MTE1, 0),
        # Each waits for the other.
        ([nop(1, wait=1, set=2), nop(2, wait=2, set=1), end()], Pipe.MTE1, 0),
    ]
    for commands, pipe, command in deadlocks:
        result = await bench.check(commands, cycles=300)
        assert (result.status, result.pipe, result.command) == (
            Status.FLAG_DEADLOCK,
            pipe,
            command,
        )
    # With one command less in the queue, the flag arrives.
    fits = [*[nop(1, wait=1) for _ in range(4)], *[nop(0, set=1) for _ in range(4)], end()]
    assert (await bench.check(fits)).status is Status.OK
    await healthy(bench)


@cocotb.test()
async def aborts(dut: Any) -> None:
    """An abort at any time drains everything and leaves a working core."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 40), stall=0.2)
    edge = RisingEdge(dut.clk)
    for turn in range(12):
        gemm = Gemm(48, 64, 48, 16, 32, 48, bias=True, scale=(3, 9) if turn % 2 else None)
        await bench.launch(gemm.commands(), BASES)
        for _ in range(random.choice([0, 10, random.randint(0, 800)])):
            await edge
        await bench.abort()
        state = await bench.finished(2000)
        assert (state["status"], state["pipe"]) == (Status.ABORTED, SEQUENCER)
        bench.expected[:] = bench.view
    # An endless loop, too.
    await bench.launch([nop(0), jump(0)], [])
    for _ in range(300):
        await edge
    await bench.abort()
    assert (await bench.finished(500))["status"] == Status.ABORTED
    # An abort of an idle core does nothing.
    await bench.abort()
    await bench.settle()
    assert (await bench.read("state")) >> 8 & 0xFF == Status.ABORTED
    await healthy(bench)


@cocotb.test()
async def start_while_busy(dut: Any) -> None:
    """A second start is refused, also back to back, and changes nothing."""
    bench = CoreBench(dut)
    await bench.start()
    await bench.launch(GOOD, [HBM_BASE])
    for _ in range(3):
        answer = await bench.bus.access(CORE_BLOCK.address("start"), write=True, data=1)
        assert answer.error
    assert (await bench.read("state")) & 0xFF == 1
    assert await bench.finished() == {"status": 0, "pipe": 0, "command": 0}
    assert bench.spent()["retired"] == 2


@cocotb.test()
async def junk(dut: Any) -> None:
    """Random bits as commands: the core always ends, and as the model says where it is sure."""
    bench = CoreBench(dut)
    bench.fill(np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8))
    await bench.start()
    for record, opcode in ((LOAD_COMMAND, 2), (MMAD_COMMAND, 4)):
        for _ in range(10):
            fields = {
                name: random.randrange(-(1 << f.width - 1), 1 << f.width - 1)
                if f.is_signed
                else random.getrandbits(f.width)
                for name, f in record.fields.items()
                if not name.startswith("reserved")
            }
            command = record.pack_bytes({**fields, "opcode": opcode, "wait": 0, "set": 0})
            await bench.check([command, end()], [HBM_BASE])
    await bench.fill_buffers()
    await bench.check(chain(10), [HBM_BASE, HBM_BASE + MEMORY_BYTES])


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_faults(sim: str) -> None:
    only = "past_the_end|flag_faults" if sim == "icarus" else None
    run_block(core_under_test(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
