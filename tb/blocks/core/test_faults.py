"""The core when something is wrong: code, commands, buffers, memory errors, flags, aborts."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from abi.address import HBM_BASE, LINE_BYTES
from abi.core import LOAD_COMMAND, MMAD_COMMAND, CommandOpcode, Local, MoveTarget, Pipe
from abi.registers_core import CORE_FAULT_BLOCK, CoreOperation
from abi.status import Status
from abi.vector import VectorOperation
from rtl.memory.port import LineError
from rtl.memory.sram import Sram
from runtime.toolchain.assembler import Assembler
from tb.blocks.core.bench import CODE_OFFSET, CoreBench, core_under_test
from tb.blocks.core.programs import (
    MEMORY_BYTES,
    SIZES,
    Gemm,
    Step,
    emit_bases,
    emit_steps,
    load,
    mmad,
    move,
    nop,
    program,
    save,
    store,
    vector,
)
from tb.blocks.core.random_steps import chain
from tb.blocks.harness import run_block

BASES = {i: HBM_BASE + offset for i, offset in enumerate((0, 0x1_0000, 0x2_0000, 0x3_0000))}
GOOD = [load(row_bytes=100, rows=3, stride=100, pitch=2)]
END_OF_MEMORY = HBM_BASE + MEMORY_BYTES


async def healthy(bench: CoreBench) -> None:
    """The core still computes what the model does."""
    gemm = Gemm(20, 40, 24, 16, 32, 16, bias=True, scale=(3, 9))
    result = await bench.check(gemm.steps(), bases=BASES)
    assert result.status is Status.OK


def raw(pipe: int, word: int, steps: list[Step] | None = None) -> bytes:
    """A kernel that issues steps, then a command that no rule was applied to."""
    asm = Assembler()
    emit_bases(asm, {0: HBM_BASE})
    emit_steps(asm, steps or [])
    for index in range(1, 8):
        asm.li("t5", word >> 32 * index & 0xFFFF_FFFF)
        asm.emit("npu.word", pipe, index, "t5")
    asm.li("t5", word & 0xFFFF_FFFF)
    asm.emit("npu.issue", pipe, "t5")
    asm.emit("npu.exit")
    return asm.assemble()


@cocotb.test()
async def bad_commands(dut: Any) -> None:
    """BAD_COMMAND names the pipe and the npu.issue; the scalar unit's own test has each rule."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 20))
    for pipe, word in (
        (Pipe.MTE2, 0),
        (Pipe.MTE3, 0xFF),
        (Pipe.VECTOR, LOAD_COMMAND.pack(opcode=CommandOpcode.LOAD, rows=1, row_bytes=1, planes=1)),
        (Pipe.MTE2, LOAD_COMMAND.pack(opcode=CommandOpcode.LOAD, rows=1, row_bytes=0, planes=1)),
        (Pipe.CUBE, MMAD_COMMAND.pack(opcode=CommandOpcode.MMAD, rows=1, k_tiles=1, n_tiles=0)),
        (Pipe.FIXPIPE, (1 << 256) - 1),
    ):
        before = [nop(random.randrange(6)) for _ in range(random.randint(0, 3))]
        block = (random.randrange(9), random.randrange(9), random.randrange(9))
        result = await bench.check(raw(pipe, word, before), grid=(9, 9, 9), block=block)
        assert (result.status, result.pipe) == (Status.BAD_COMMAND, pipe)
    await healthy(bench)


@cocotb.test()
async def bad_code(dut: Any) -> None:
    """Faults of the scalar unit: instructions, fetches, accesses."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 20))
    cases: list[tuple[Status, list[tuple[Any, ...]]]] = [
        (Status.BREAKPOINT, [("ebreak",)]),
        (Status.BREAKPOINT, [("ecall",)]),
        (Status.MISALIGNED, [("lw", "a1", 2, "sp")]),
        (Status.MISALIGNED, [("addi", "a1", "zero", 2), ("jalr", "zero", 0, "a1")]),
        (Status.ADDRESS_FAULT, [("lw", "a1", 0, "sp")]),
        (Status.ADDRESS_FAULT, [("sw", "a1", 0, "zero")]),
        (Status.ADDRESS_FAULT, [("lw", "a1", 4, "a0")]),
        (Status.ADDRESS_FAULT, [("lui", "a1", 0x80000), ("lw", "a1", 0, "a1")]),
        (Status.ADDRESS_FAULT, [("lui", "a1", 0x80000), ("sw", "a1", 0, "a1")]),
        (Status.ADDRESS_FAULT, [("lui", "a1", 0x40), ("jalr", "zero", 0, "a1")]),
    ]
    for status, instructions in cases:
        asm = Assembler()
        for instruction in instructions:
            asm.emit(*instruction)
        result = await bench.check(asm.assemble(), b"1234")
        assert (result.status, result.pipe) == (status, Pipe.SCALAR)
    result = await bench.check(b"\x0b\xff\xff\xff")
    assert result.status is Status.ILLEGAL_INSTRUCTION
    # Running past the end, and an entry behind it.
    code = program([nop(0)], {})
    result = await bench.check(code[:-4])
    assert (result.status, result.pc) == (Status.ADDRESS_FAULT, len(code) - 4)
    result = await bench.check(code, entry=len(code) + 64)
    assert (result.status, result.pc) == (Status.ADDRESS_FAULT, len(code) + 64)
    await healthy(bench)


@cocotb.test()
async def unreadable_code(dut: Any) -> None:
    """Code at addresses that cannot be fetched."""
    bench = CoreBench(dut)
    await bench.start()
    code = program([nop(0)] * 4, {})
    for base, status in (
        (HBM_BASE + CODE_OFFSET + 32, Status.MISALIGNED),
        (END_OF_MEMORY, Status.ADDRESS_FAULT),
        ((1 << 48) - 64, Status.ADDRESS_FAULT),
    ):
        start = await bench.place(code, base=base)
        await bench.launch()
        assert await bench.finished() == {"status": status, "pipe": Pipe.SCALAR, "pc": 0}
        assert await bench.read("fault_address") == base
        result = bench.model.run(start)
        assert (result.status, result.pc, result.address) == (status, 0, base)
    second = HBM_BASE + CODE_OFFSET + LINE_BYTES
    for error, status in (
        (LineError.BUS, Status.BUS_ERROR),
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
    ):
        bench.memory.fail(second, LINE_BYTES, error)
        await bench.place(code)
        await bench.launch()
        assert await bench.finished() == {"status": status, "pipe": Pipe.SCALAR, "pc": LINE_BYTES}
        assert await bench.read("fault_address") == second
        bench.memory.heal()
    await healthy(bench)


@cocotb.test()
async def overflows(dut: Any) -> None:
    """A command that leaves a buffer by one line, for each pipe: before any access."""
    bench = CoreBench(dut)
    await bench.start()
    l1, l0c, bias, ub = (SIZES[f"{n}_lines"] for n in ("l1", "l0c", "bias", "ub"))
    tile = {"rows": 3, "k_tiles": 1, "n_tiles": 1}
    lines = {"row_lines": 2, "rows": 1}
    out = {"columns": 17, "rows": 1}
    rows = {"row_bytes": 65, "rows": 2, "pitch": 2}
    add = {"operation": VectorOperation.IADD, "columns": 17, "rows": 2}
    cases: list[tuple[Any, dict[str, int], str, int]] = [
        (load, rows, "line", l1 - 4),
        (load, {**rows, "target": Local.UB}, "line", ub - 4),
        (save, rows, "line", ub - 4),
        (save, {**rows, "target": Local.L1, "stride": 2}, "offset", l1 - 4),
        (move, lines, "source", l1 - 2),
        *[
            (move, {**lines, "target": target}, "line", SIZES[size] - 2)
            for target, size in zip(
                MoveTarget, ("l0a_lines", "l0b_lines", "l0c_lines", "bias_lines"), strict=True
            )
        ],
        (mmad, {**tile, "c_pitch": 5}, "c_line", l0c - 11),
        (store, out, "c_line", l0c - 2),
        (store, {**out, "bias": 1}, "bias_line", bias - 2),
        (store, {**out, "target": Local.UB}, "offset", ub - 2),
        (vector, {**add, "a_step": 1, "pitch": 2}, "line", ub - 4),
        (vector, {**add, "b_step": 1, "b_pitch": 3}, "b_line", ub - 5),
    ]
    for make, fields, name, fits in cases:
        accesses = len(bench.loads.lines), len(bench.stores.lines)
        step = make(**fields, **{name: fits + 1})
        result = await bench.check([nop(0), step])
        assert (result.status, result.pipe) == (Status.BUFFER_OVERFLOW, step.pipe)
        assert accesses == (len(bench.loads.lines), len(bench.stores.lines))
        result = await bench.check([make(**fields, **{name: fits})])
        assert result.status is Status.OK, (make, name)
    await healthy(bench)


@cocotb.test()
async def addresses(dut: Any) -> None:
    """Rows outside the address space, and lines that memory refuses."""
    bench = CoreBench(dut)
    await bench.start(stall=0.2, latency=(1, 30))
    rows = {"rows": 4, "stride": 64}
    for base, place in (
        (64, {"offset": -65}),
        ((1 << 48) - 255, {}),
        (0, {"offset": -1}),
        (HBM_BASE, {"stride": -(1 << 31)}),
        (0, {}),
        (END_OF_MEMORY - 256 + 1, {}),
        (END_OF_MEMORY - 130, {"stride": -64}),
    ):
        fields = {**rows, **place}
        fine = fields["stride"] == -64
        for step in (
            load(row_bytes=64, pitch=1, **fields),
            store(columns=16, c_pitch=1, **fields),
            save(row_bytes=64, pitch=1, **fields),
        ):
            result = await bench.check([step], bases={0: base})
            assert (result.status is Status.OK) == fine
            assert fine or (result.status, result.pipe) == (Status.ADDRESS_FAULT, step.pipe)
    await healthy(bench)


@cocotb.test()
async def memory_errors(dut: Any) -> None:
    """The first failing line is named, whatever else was on its way."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 30), stall=0.1)
    far = {"offset": 0x8000, "rows": 10, "stride": 256}
    for error, status in (
        (LineError.BUS, Status.BUS_ERROR),
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
    ):
        for step in (
            load(row_bytes=256, pitch=4, **far),
            load(row_bytes=256, pitch=4, target=Local.UB, **far),
            store(columns=64, c_pitch=4, **far),
            save(row_bytes=256, pitch=4, **far),
        ):
            line = random.randrange(40)
            address = HBM_BASE + 0x8000 + line * LINE_BYTES
            bench.memory.fail(address, random.choice([1, 640]), error)
            asm = Assembler()
            emit_bases(asm, {0: HBM_BASE})
            emit_steps(
                asm,
                [
                    load(row_bytes=256, rows=2, stride=256, pitch=4),
                    store(columns=64, rows=2, stride=256, c_pitch=4),
                    save(row_bytes=64, rows=2, stride=256),
                    step,
                ],
            )
            pc = asm.address - 4
            asm.emit("npu.exit")
            await bench.place(asm.assemble())
            await bench.launch()
            assert await bench.finished() == {"status": status, "pipe": step.pipe, "pc": pc}
            assert await bench.read("fault_address") == address
            bench.memory.heal()
            bench.expected[:] = bench.view
    # Those of the scalar unit's own accesses.
    for store_it in (False, True):
        address = HBM_BASE + 0x8000
        bench.memory.fail(address, 1, LineError.BUS)
        asm = Assembler()
        emit_bases(asm, {15: HBM_BASE})
        asm.li("a1", 0x8000_8000)
        pc = asm.address
        asm.emit("sw" if store_it else "lw", "a2", 12, "a1")
        asm.emit("npu.exit")
        await bench.place(asm.assemble())
        await bench.launch()
        state = await bench.finished()
        assert (state["status"], state["pipe"]) == (Status.BUS_ERROR, Pipe.SCALAR)
        assert state["pc"] in ((pc, pc + 4) if store_it else (pc,))
        assert await bench.read("fault_address") == address
        bench.memory.heal()
    await healthy(bench)


def scalar_flags(*operations: tuple[str, int], steps: list[Step] | None = None) -> bytes:
    """A kernel that issues steps, then operates on flags itself."""
    asm = Assembler()
    emit_bases(asm, {0: HBM_BASE})
    emit_steps(asm, steps or [])
    for name, flag in operations:
        asm.emit(name, "scalar", flag)
    asm.emit("npu.exit")
    return asm.assemble()


@cocotb.test()
async def flag_faults(dut: Any) -> None:
    """Overflow of a flag, and deadlocks of every kind, found without a timeout."""
    bench = CoreBench(dut)
    await bench.start()
    result = await bench.check([nop(2, set=1 << 25) for _ in range(15)])
    assert result.status is Status.OK
    result = await bench.check([nop(2, set=1 << 25) for _ in range(16)])
    assert (result.status, result.pipe) == (Status.FLAG_OVERFLOW, Pipe.CUBE)
    result = await bench.check(scalar_flags(*[("npu.set", 7)] * 16))
    assert (result.status, result.pipe) == (Status.FLAG_OVERFLOW, Pipe.SCALAR)
    busy = load(row_bytes=64, rows=1, set=1)
    deadlocks: list[tuple[list[Step] | bytes, Pipe]] = [
        ([nop(1, wait=1)], Pipe.MTE1),
        ([busy, nop(3, wait=3)], Pipe.FIXPIPE),
        ([nop(0, set=2), nop(3, wait=1), nop(1, wait=4)], Pipe.MTE1),
        (scalar_flags(("npu.wait", 31)), Pipe.SCALAR),
        (scalar_flags(("npu.wait", 1), steps=[busy]), Pipe.SCALAR),
        (scalar_flags(("npu.wait", 1), steps=[busy, nop(5, wait=2)]), Pipe.MTE3),
        # The flag would come from behind a full queue.
        ([*[nop(1, wait=1) for _ in range(5)], nop(0, set=1)], Pipe.MTE1),
        # Each waits for the other.
        ([nop(4, wait=1, set=2), nop(2, wait=2, set=1)], Pipe.CUBE),
    ]
    for work, pipe in deadlocks:
        result = await bench.check(work, cycles=900)
        assert (result.status, result.pipe) == (Status.FLAG_DEADLOCK, pipe)
    # With one command less in the queue, the flag arrives; and a barrier is no deadlock.
    fits = [*[nop(1, wait=1) for _ in range(4)], *[nop(0, set=1) for _ in range(4)]]
    assert (await bench.check(fits)).status is Status.OK
    # What one block leaves in flags, the next does not find.
    assert (await bench.check([nop(0, set=1)])).status is Status.OK
    assert (await bench.check([nop(0, wait=1)], cycles=900)).status is Status.FLAG_DEADLOCK
    await healthy(bench)


def endless() -> bytes:
    """Issues LOADs for ever."""
    asm = Assembler()
    emit_bases(asm, {0: HBM_BASE})
    asm.label("loop")
    emit_steps(asm, [load(row_bytes=640, rows=3, stride=700, pitch=12), nop(5), nop(4)])
    asm.j("loop")
    return asm.assemble()


@cocotb.test()
async def aborts(dut: Any) -> None:
    """An abort at any time drains everything and leaves a working core."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 40), stall=0.2)
    edge = RisingEdge(dut.clk)
    for turn in range(16):
        gemm = Gemm(48, 64, 48, 16, 32, 48, bias=True, scale=(3, 9) if turn % 2 else None)
        code = endless() if turn % 4 == 0 else program(gemm.steps(), BASES)
        await bench.place(code, grid=(4, 4, 1))
        await bench.launch((1, 2, 0))
        pending = turn % 3 == 0
        if pending:
            assert await bench.operate(CoreOperation.START, 3)
        for _ in range(random.choice([0, 3, 10, random.randint(0, 800)])):
            await edge
        assert await bench.operate(CoreOperation.ABORT)
        state = await bench.finished(2000)
        assert (state["status"], state["pipe"]) == (Status.ABORTED, Pipe.SCALAR)
        assert await bench.read("fault_block") == CORE_FAULT_BLOCK.pack(x=1, y=2)
        assert await bench.read("blocks") == turn + 1
        assert not await bench.operate(CoreOperation.START)
        bench.expected[:] = bench.view
    await healthy(bench)


@cocotb.test()
async def pending_blocks(dut: Any) -> None:
    """A fault drops the next block; DROP drops it and lets the present one go on."""
    bench = CoreBench(dut)
    await bench.start()
    asm = Assembler()
    emit_bases(asm, {0: HBM_BASE})
    emit_steps(asm, [load(row_bytes=640, rows=10, stride=700, pitch=12)])
    asm.emit("npu.barrier")
    asm.emit("npu.get", "a1", "block")
    asm.bnez("a1", "fine")
    asm.emit("ebreak")
    asm.label("fine")
    asm.emit("npu.exit")
    code = asm.assemble()
    pc = asm.labels["fine"] - 4
    await bench.place(code, grid=(4, 1, 1))
    await bench.launch((0, 0, 0))
    assert await bench.operate(CoreOperation.START, 1)
    assert (await bench.state())["pending"] == 1
    state = await bench.finished()
    assert state == {"status": Status.BREAKPOINT, "pipe": Pipe.SCALAR, "pc": pc}
    assert await bench.read("blocks") == 1
    assert not await bench.operate(CoreOperation.START, 1)
    await bench.place(code, grid=(4, 1, 1))
    await bench.launch((1, 0, 0))
    assert await bench.operate(CoreOperation.START, 0)
    assert await bench.operate(CoreOperation.DROP)
    assert (await bench.state())["pending"] == 0
    assert await bench.operate(CoreOperation.START, 2)
    assert await bench.operate(CoreOperation.DROP)
    assert await bench.finished() == {"status": 0, "pipe": 0, "pc": 0}
    assert await bench.read("blocks") == 2
    await healthy(bench)


@cocotb.test()
async def junk(dut: Any) -> None:
    """Random fields in commands, random words as code: the core always ends, as the model says."""
    bench = CoreBench(dut)
    bench.fill(np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8))
    await bench.start()
    for record, opcode, pipe in (
        (LOAD_COMMAND, CommandOpcode.LOAD, Pipe.MTE2),
        (MMAD_COMMAND, CommandOpcode.MMAD, Pipe.CUBE),
    ):
        for _ in range(10):
            fields = {
                name: random.randrange(-(1 << f.width - 1), 1 << f.width - 1)
                if f.is_signed
                else random.getrandbits(f.width)
                for name, f in record.fields.items()
                if not name.startswith("reserved")
            }
            await bench.check(raw(pipe, record.pack({**fields, "opcode": opcode})))
    for _ in range(10):
        await bench.place(random.randbytes(64))
        await bench.launch()
        assert (await bench.finished())["status"] != Status.OK
    bench.expected[:] = bench.view
    await bench.fill_buffers()
    result = await bench.check(chain(10), bases={1: HBM_BASE + MEMORY_BYTES})
    assert result.status is Status.OK


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_faults(sim: str) -> None:
    only = "bad_commands|flag_faults" if sim == "icarus" else None
    run_block(core_under_test(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
