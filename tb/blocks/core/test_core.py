"""Whole blocks on the core against the golden model, under random memory behaviour."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest

from abi.address import HBM_BASE
from abi.core import Local, Pipe, StoreOutput
from abi.registers_core import CoreOperation
from abi.registers_firmware import CORE_BLOCK
from abi.status import Status
from abi.trace import TraceSource
from abi.vector import VectorOperation
from rtl.memory.sram import Sram
from runtime.toolchain.assembler import Assembler
from tb.blocks.core.bench import CoreBench, core_under_test
from tb.blocks.core.programs import (
    MEMORY_BYTES,
    Gemm,
    Step,
    emit_bases,
    emit_steps,
    load,
    mmad,
    move,
    nop,
    operands,
    random_gemm,
    save,
    store,
    vector,
)
from tb.blocks.core.random_steps import chain
from tb.blocks.harness import run_block
from tb.models.core import BlockStart

STALLS: list[dict[str, Any]] = [
    {"stall": 0.0, "latency": 24},
    {"stall": 0.3, "latency": (1, 40)},
]

A, B, BIAS, C = 0x0_0003, 0x1_0041, 0x2_0000, 0x3_0007


async def run_gemm(bench: CoreBench, gemm: Gemm) -> None:
    a, b, bias = operands(gemm)
    bench.fill(a.reshape(-1).view(np.uint8), A)
    bench.fill(b.reshape(-1).view(np.uint8), B)
    bench.fill(bias.view(np.uint8), BIAS)
    bases = {i: HBM_BASE + place for i, place in enumerate((A, B, BIAS, C))}
    result = await bench.check(gemm.steps(), bases=bases)
    assert result.status is Status.OK
    expected = gemm.expected(a, b, bias)
    got = bench.view[C : C + expected.nbytes].view(expected.dtype).reshape(expected.shape)
    assert np.array_equal(got, expected), f"{gemm}"


@cocotb.test()
@cocotb.parametrize(memory=STALLS)
async def chains(dut: Any, memory: dict[str, Any]) -> None:
    """Random commands of all kinds, serialised by flags."""
    bench = CoreBench(dut)
    bench.fill(np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8))
    await bench.start(**memory)
    await bench.fill_buffers()
    for _ in range(4):
        result = await bench.check(chain(40), bases={1: HBM_BASE + MEMORY_BYTES})
        assert result.status is Status.OK


@cocotb.test()
@cocotb.parametrize(memory=STALLS)
async def gemms(dut: Any, memory: dict[str, Any]) -> None:
    """Matrix products of random shapes, double-buffered, four pipes at once."""
    bench = CoreBench(dut)
    await bench.start(**memory)
    for _ in range(4):
        await run_gemm(bench, random_gemm(70))


def scalar_work() -> bytes:
    """Adds up arguments, block and grid in the RAM and in global memory, with scalar flags."""
    asm = Assembler()
    emit_bases(asm, {15: HBM_BASE + 0x100})
    asm.emit("lw", "a1", 0, "a0")
    asm.emit("lw", "a2", 4, "a0")
    for i, special in enumerate(
        ("block", "block_x", "block_y", "block_z", "grid_x", "grid_y", "grid_z", "core", "cores")
    ):
        asm.emit("npu.get", "a3", special)
        asm.emit("add", "a1", "a1", "a3")
        asm.emit("addi", "sp", "sp", -4)
        asm.emit("sw", "a1", 0, "sp")
        asm.emit("npu.set", "scalar", i)
    asm.li("s0", 9)
    asm.li("s1", 0x8000_0000)
    asm.label("loop")
    asm.emit("lw", "a3", 0, "sp")
    asm.emit("addi", "sp", "sp", 4)
    asm.emit("mul", "a3", "a3", "a2")
    asm.emit("sw", "a3", 0, "s1")
    asm.emit("addi", "s1", "s1", 4)
    asm.emit("addi", "s0", "s0", -1)
    asm.bnez("s0", "loop")
    for i in range(9):
        asm.emit("npu.wait", "scalar", i)
    asm.emit("npu.exit")
    return asm.assemble()


@cocotb.test()
async def scalar_blocks(dut: Any) -> None:
    """Arguments, special values, RAM, the window to memory and flags of the scalar unit."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 30), stall=0.1)
    for _ in range(3):
        grid = (random.randint(1, 1000), random.randint(1, 99), random.randint(1, 99))
        x, y, z = (random.randrange(size) for size in grid)
        result = await bench.check(
            scalar_work(), random.randbytes(8), grid=grid, block=(x, y, z), entry=0
        )
        assert result.status is Status.OK
        assert bench.spent()["scalar_busy"] > result.instructions


def marking(base: int) -> bytes:
    """Each block of a row of blocks stores its number, twice, by the scalar unit and a SAVE."""
    asm = Assembler()
    emit_bases(asm, {0: HBM_BASE + base, 15: HBM_BASE + base})
    asm.emit("npu.get", "a1", "block")
    asm.emit("slli", "a2", "a1", 6)
    asm.li("a3", 0x8000_0000)
    asm.emit("add", "a3", "a3", "a2")
    asm.emit("sw", "a1", 0, "a3")
    emit_steps(
        asm,
        [
            vector(operation=VectorOperation.FILL, rows=1, columns=16, immediate=7, line=3, set=1),
        ],
    )
    # The SAVE's place depends on the block.
    emit_steps(asm, [save(rows=1, row_bytes=60, line=3, wait=1, offset=0x1004)])
    asm.emit("npu.word", "mte3", 1, "a2")
    emit_steps(asm, [nop(Pipe.MTE3)])
    asm.emit("npu.barrier")
    asm.emit("npu.get", "a4", "core")
    asm.emit("sw", "a4", 4, "a3")
    asm.emit("npu.exit")
    return asm.assemble()


@cocotb.test()
async def blocks_in_succession(dut: Any) -> None:
    """A next block is held while one runs, and starts right behind it, with a warm cache."""
    bench = CoreBench(dut)
    await bench.start()
    kernel = await bench.place(marking(0x800), grid=(8, 1, 1))
    assert await bench.read("blocks") == 0
    assert await bench.operate(CoreOperation.START, 0)
    seen, held = 0, 1
    while seen < 8:
        # As a firmware would: one runs, one waits.
        if held < 8 and not (await bench.state())["pending"]:
            assert await bench.operate(CoreOperation.START, held)
            held += 1
        ended = await bench.read("blocks")
        assert ended in (seen, seen + 1)
        seen = ended
    state = await bench.state()
    assert state == {"busy": 0, "pending": 0, "status": 0, "pipe": 0, "pc": 0}
    for x in range(8):
        result = bench.model.run(BlockStart(**{**kernel.__dict__, "block": (x, 0, 0)}))
        assert result.status is Status.OK
    assert np.array_equal(bench.view, bench.expected)
    await bench.settle()
    events = bench.events(TraceSource.CORE)
    assert [argument for _, argument in events[::2]] == list(range(8))
    # The code is fetched once: two lines of it for the first block only.
    code_lines = [line for line in bench.reads.lines if line * 64 >= kernel.code]
    assert len(code_lines) == len(set(code_lines))
    spent = bench.spent()
    dut._log.info("8 small blocks: %d cycles", spent["core_cycles"])
    for pipe in Pipe:
        parts = [spent[f"{pipe.name.lower()}_{kind}"] for kind in ("busy", "stall", "idle")]
        assert sum(parts) == spent["core_cycles"]


@cocotb.test()
async def new_code(dut: Any) -> None:
    """Another kernel at the same address: a write of CORE_CODE empties the cache."""
    bench = CoreBench(dut)
    await bench.start()
    for base in (0x0, 0x4_0000, 0x800):
        result = await bench.check(marking(base), grid=(1, 2, 3), block=(0, 1, 2))
        assert result.status is Status.OK


@cocotb.test()
async def saturation(dut: Any) -> None:
    """Sums at both ends of int32 and results at both ends of int8."""
    bench = CoreBench(dut)
    await bench.start()
    ends = np.array([2**31 - 1, -(2**31), 2**31 - 129, 127, 128, -128, -129, -1], np.int32)
    bench.fill(np.tile(ends, 2).view(np.uint8))
    for shift, multiplier in ((0, 1), (1, 1), (1, 3), (31, 2**31 - 1), (62, 2**31 - 1), (8, 255)):
        for relu in (0, 1):
            steps = [
                load(row_bytes=64, rows=1, set=1),
                move(wait=1, target=2, row_lines=1, rows=1),
                move(target=3, row_lines=1, rows=1, set=2),
                store(
                    wait=2,
                    offset=256,
                    columns=16,
                    rows=1,
                    bias=random.randrange(2),
                    relu=relu,
                    output=StoreOutput.INT8,
                    shift=shift,
                    multiplier=multiplier,
                ),
            ]
            await bench.check(steps)
            if (shift, multiplier, relu, steps[3].fields["bias"]) == (0, 1, 0, 0):
                got = bench.view[256:264].view(np.int8)
                assert got.tolist() == [127, -128, 127, 127, 127, -128, -128, -1]


@cocotb.test()
@cocotb.parametrize(memory=STALLS)
async def parallel(dut: Any, memory: dict[str, Any]) -> None:
    """All pipes at once, on their own lines of the same buffers and of the same half of L0C."""
    bench = CoreBench(dut)
    bench.fill(np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8))
    await bench.start(**memory)
    await bench.fill_buffers()
    for _ in range(2):
        steps: list[Step] = []
        for turn in range(8):
            rows = random.randint(1, 20)
            narrow = random.randrange(2)
            to_ub = turn % 2
            steps += [
                load(
                    offset=random.randrange(0x1_0000),
                    stride=random.randrange(400),
                    row_bytes=random.randint(1, 200),
                    rows=rows,
                    target=to_ub,
                    line=random.randrange(44) if to_ub else 512 + random.randrange(128),
                    pitch=4,
                ),
                move(
                    target=2,
                    source=random.randrange(256),
                    source_pitch=3,
                    line=random.randrange(64),
                    pitch=3,
                    row_lines=3,
                    rows=rows,
                ),
                mmad(
                    a_pitch=1,
                    b_pitch=1,
                    c_line=128 + random.randrange(64),
                    c_pitch=2,
                    rows=rows,
                    k_tiles=random.randint(1, 4),
                    n_tiles=random.randint(1, 2),
                    accumulate=random.randrange(2),
                ),
                store(
                    target=Local.UB,
                    offset=128 + random.randrange(100),
                    stride=1,
                    columns=16,
                    rows=rows,
                    c_line=256 + random.randrange(64),
                    c_pitch=5,
                )
                if to_ub
                else store(
                    offset=0x2_0000 + random.randrange(0x1_0000),
                    stride=random.randrange(400),
                    columns=random.randint(1, 80),
                    rows=rows,
                    c_line=256 + random.randrange(64),
                    c_pitch=5,
                    output=narrow,
                    shift=24,
                    multiplier=random.randint(1, 9),
                ),
                vector(
                    operation=random.choice([VectorOperation.IADD, VectorOperation.FMUL]),
                    rows=rows,
                    columns=random.randint(1, 32),
                    line=320 + random.randrange(24),
                    pitch=2,
                    a_line=256 + random.randrange(24),
                    a_pitch=2,
                    a_step=1,
                    b_line=256 + random.randrange(24),
                    b_pitch=1,
                ),
                save(
                    target=Local.L1 if to_ub else Local.MEMORY,
                    offset=900 + random.randrange(40) if to_ub else 0x4_8000,
                    stride=4 if to_ub else random.randrange(400),
                    row_bytes=random.randint(1, 200),
                    line=384 + random.randrange(40),
                    pitch=4,
                    rows=rows,
                ),
            ]
        random.shuffle(steps)
        assert (await bench.check(steps)).status is Status.OK
        assert (await bench.check(_sweep())).status is Status.OK


def _sweep() -> list[Step]:
    """Store half of L0C, all of UB and, through L0C, half of L1, so that they can be compared."""
    whole = {"columns": 16, "stride": 64, "c_pitch": 1}
    return [
        save(offset=0x6_0000 - 0x8000, row_bytes=64, stride=64, rows=512, pitch=1),
        store(**whole, offset=0x4_0000, rows=512, set=1),
        move(target=2, wait=1, row_lines=512, rows=1, source=512, set=2),
        store(**whole, offset=0x4_8000, rows=512, wait=2),
    ]


@cocotb.test()
async def scrub(dut: Any) -> None:
    """All buffers and the RAM are zero behind a SCRUB, and the core works."""
    bench = CoreBench(dut)
    bench.fill(np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8))
    await bench.start()
    await bench.fill_buffers()
    await bench.check(fill_ram())
    bench.mark()
    assert await bench.operate(CoreOperation.SCRUB)
    assert not await bench.operate(CoreOperation.SCRUB)
    assert not await bench.operate(CoreOperation.START)
    state = await bench.finished(10_000)
    assert state == {"status": 0, "pipe": 0, "pc": 0}
    assert bench.spent()["core_cycles"] == 0
    bench.model.scrub()
    await bench.check(_sweep())
    assert not bench.view[0x5_8000:0x6_0000].any()
    assert not bench.view[0x4_0000:0x5_0000].any()
    # L0A and L0B through the Cube, one after the other against ones; the RAM by its own loads.
    ones = [
        vector(operation=VectorOperation.FILL, immediate=0x0101_0101, columns=1024, rows=1, set=1),
        save(target=Local.L1, row_bytes=4096, rows=1, wait=1, set=2),
    ]
    product = {"rows": 64, "k_tiles": 4, "n_tiles": 4, "c_pitch": 4, "a_pitch": 1, "b_pitch": 1}
    for target, whole in ((1, "a_line"), (0, "b_line")):
        steps = [
            *ones,
            move(target=target, wait=2, row_lines=64, rows=1, set=4),
            *(mmad(**product, wait=4 * (i == 0), set=8, **{whole: 64 * i}) for i in range(2, 8)),
            store(wait=8, columns=64, stride=256, rows=64, c_pitch=4, offset=0x2_0000),
        ]
        assert (await bench.check(steps)).status is Status.OK
    assert (await bench.check(read_ram())).status is Status.OK


def fill_ram() -> bytes:
    asm = Assembler()
    asm.li("a0", 0x1000_0000)
    asm.li("a1", 0x1000_2000)
    asm.label("loop")
    asm.emit("sw", "a1", 0, "a0")
    asm.emit("addi", "a0", "a0", 4)
    asm.emit("bne", "a0", "a1", "loop")
    asm.emit("npu.exit")
    return asm.assemble()


def read_ram() -> bytes:
    """Stores the bitwise or of all words of the RAM."""
    asm = Assembler()
    emit_bases(asm, {15: HBM_BASE})
    asm.li("a0", 0x1000_0000)
    asm.li("a1", 0x1000_2000)
    asm.li("a2", 0x8000_0000)
    asm.label("loop")
    asm.emit("lw", "a3", 0, "a0")
    asm.emit("or", "a4", "a4", "a3")
    asm.emit("addi", "a0", "a0", 4)
    asm.emit("bne", "a0", "a1", "loop")
    asm.emit("sw", "a4", 0, "a2")
    asm.emit("npu.exit")
    return asm.assemble()


@cocotb.test()
async def registers(dut: Any) -> None:
    """Every register of the core at its place; nothing beyond."""
    bench = CoreBench(dut)
    await bench.start()
    for name in ("code", "sizes", "arguments", "grid", "entry", "block_yz"):
        value = random.getrandbits(64)
        await bench.write(name, value)
        unused = {"entry": 32, "block_yz": 32}.get(name, 0)
        assert await bench.read(name) == value & ((1 << 64 - unused) - 1)
    for name in ("state", "fault_address", "fault_block", "blocks", "retired"):
        assert await bench.read(name) == 0
        assert not await bench.bus.access_write(CORE_BLOCK.address(name), 1)
    assert (await bench.bus.access_read(CORE_BLOCK.address("start")))[1] is False
    assert (await bench.bus.access_read(0x60))[1] is False


ONLY_ICARUS = "saturation|registers"


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_core(sim: str) -> None:
    only = ONLY_ICARUS if sim == "icarus" else None
    run_block(core_under_test(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
