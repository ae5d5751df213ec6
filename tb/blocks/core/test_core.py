"""Whole programs on the core against the golden model, under random memory behaviour."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest

from abi.address import HBM_BASE
from abi.core import Pipe
from rtl.memory.sram import Sram
from tb.blocks.core.bench import CoreBench, core_under_test
from tb.blocks.core.programs import (
    MEMORY_BYTES,
    Gemm,
    chain,
    end,
    jump,
    load,
    mmad,
    move,
    nop,
    random_gemm,
    store,
)
from tb.blocks.harness import run_block

STALLS: list[dict[str, Any]] = [
    {"stall": 0.0, "latency": 24},
    {"stall": 0.3, "latency": (1, 40)},
]

A, B, BIAS, C = 0x0_0003, 0x1_0041, 0x2_0000, 0x3_0007


def operands(gemm: Gemm) -> tuple[Any, Any, Any]:
    """Random operands with runs of -128 and 127."""
    values = []
    for size in (gemm.m * gemm.k, gemm.k * gemm.n):
        data = np.frombuffer(random.randbytes(size), np.int8).copy()
        at = random.randrange(size)
        data[at : at + size // 3] = random.choice([-128, 127])
        values.append(data)
    bias = np.frombuffer(random.randbytes(4 * gemm.n), np.int32) >> random.choice([0, 8, 16, 20])
    return values[0].reshape(gemm.m, -1), values[1].reshape(gemm.k, -1), bias


async def run_gemm(bench: CoreBench, gemm: Gemm) -> None:
    a, b, bias = operands(gemm)
    bench.fill(a.reshape(-1).view(np.uint8), A)
    bench.fill(b.reshape(-1).view(np.uint8), B)
    bench.fill(bias.view(np.uint8), BIAS)
    await bench.check(gemm.commands(), [HBM_BASE + place for place in (A, B, BIAS, C)])
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
        await bench.check(chain(40), [HBM_BASE, HBM_BASE + MEMORY_BYTES])


@cocotb.test()
@cocotb.parametrize(memory=STALLS)
async def gemms(dut: Any, memory: dict[str, Any]) -> None:
    """Matrix products of random shapes, double-buffered, all pipes at once."""
    bench = CoreBench(dut)
    await bench.start(**memory)
    for _ in range(5):
        await run_gemm(bench, random_gemm(70))


@cocotb.test()
async def saturation(dut: Any) -> None:
    """Sums at both ends of int32 and results at both ends of int8."""
    bench = CoreBench(dut)
    await bench.start()
    ends = np.array([2**31 - 1, -(2**31), 2**31 - 129, 127, 128, -128, -129, -1], np.int32)
    bench.fill(np.tile(ends, 2).view(np.uint8))
    for shift, multiplier in ((0, 1), (1, 1), (1, 3), (31, 2**31 - 1), (62, 2**31 - 1), (8, 255)):
        for relu in (0, 1):
            commands = [
                load(argument=0, row_bytes=64, rows=1, set=1),
                move(wait=1, target=2, row_lines=1, rows=1),
                move(target=3, row_lines=1, rows=1, set=2),
                store(
                    wait=2,
                    argument=0,
                    offset=256,
                    columns=16,
                    rows=1,
                    bias=random.randrange(2),
                    relu=relu,
                    requantise=1,
                    shift=shift,
                    multiplier=multiplier,
                ),
                end(),
            ]
            await bench.check(commands)
            if (shift, multiplier, relu) == (0, 1, 0) and not commands[3][6] & 1:
                got = bench.view[256:264].view(np.int8)
                assert got.tolist() == [127, -128, 127, 127, 127, -128, -128, -1]


@cocotb.test()
async def jumps(dut: Any) -> None:
    """A loop that counts with a flag, jumps to odd and even commands, and over commands."""
    bench = CoreBench(dut)
    await bench.start(latency=(1, 30))
    word = np.arange(256, dtype=np.uint8)
    bench.fill(word)

    def copy(line: int, give: int) -> bytes:
        return load(argument=0, offset=64 * line, line=line, row_bytes=64, rows=1, set=give)

    # Sequence: 0 jump to 3; 3 load, jump 1; 1 load, 2 jump to 6; 6 end.
    commands = [jump(3), copy(1, 2), jump(6), copy(0, 1), jump(1), nop(Pipe.CUBE), end(wait=3)]
    result = bench.model.run(b"".join(commands), [HBM_BASE])
    await bench.launch(commands, [HBM_BASE])
    state = await bench.finished()
    assert state == {"status": 0, "pipe": 0, "command": 0}
    assert bench.spent()["retired"] == result.retired == 6
    assert bench.spent()["core_read_bytes"] == 128


@cocotb.test()
@cocotb.parametrize(memory=STALLS)
async def parallel(dut: Any, memory: dict[str, Any]) -> None:
    """All pipes at once, on their own lines of the same buffers and of the same half of L0C."""
    bench = CoreBench(dut)
    bench.fill(np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8))
    await bench.start(**memory)
    await bench.fill_buffers()
    for _ in range(3):
        streams: list[list[bytes]] = [[], [], [], []]
        for _ in range(8):
            rows = random.randint(1, 20)
            narrow = random.randrange(2)
            streams[Pipe.MTE2].append(
                load(
                    argument=0,
                    offset=random.randrange(0x1_0000),
                    stride=random.randrange(400),
                    row_bytes=random.randint(1, 200),
                    rows=rows,
                    line=512 + random.randrange(256),
                    pitch=4,
                )
            )
            streams[Pipe.MTE1].append(
                move(
                    target=2,
                    source=random.randrange(256),
                    source_pitch=3,
                    line=random.randrange(64),
                    pitch=3,
                    row_lines=3,
                    rows=rows,
                )
            )
            streams[Pipe.CUBE].append(
                mmad(
                    a_pitch=1,
                    b_pitch=1,
                    c_line=128 + random.randrange(64),
                    c_pitch=2,
                    rows=rows,
                    k_tiles=random.randint(1, 4),
                    n_tiles=random.randint(1, 2),
                    accumulate=random.randrange(2),
                )
            )
            streams[Pipe.FIXPIPE].append(
                store(
                    argument=0,
                    offset=0x2_0000 + random.randrange(0x1_0000),
                    stride=random.randrange(400),
                    columns=random.randint(1, 80),
                    rows=rows,
                    c_line=256 + random.randrange(64),
                    c_pitch=5,
                    requantise=narrow,
                    shift=24,
                    multiplier=random.randint(1, 9),
                )
            )
        commands = [command for group in zip(*streams, strict=True) for command in group]
        await bench.check([*commands, end()])
        await bench.check([*_sweep(), end()])


def _sweep() -> list[bytes]:
    """Store the halves of L0C and, through L0C, what L1 holds, so that it can be compared."""
    whole = {"argument": 0, "columns": 16, "stride": 64, "c_pitch": 1}
    return [
        store(**whole, offset=0x4_0000, rows=512, set=1),
        move(target=2, wait=1, row_lines=512, rows=1, source=512, set=2),
        store(**whole, offset=0x5_0000, rows=512, wait=2),
    ]


@cocotb.test()
async def pipe_rates(dut: Any) -> None:
    """A line a cycle in each pipe but the Cube, with memory that gives and takes a line a cycle."""
    bench = CoreBench(dut)
    await bench.start()
    await bench.fill_buffers()
    rate = {}
    for pipe, make, fields in (
        (Pipe.MTE2, load, {"argument": 0, "row_bytes": 256, "stride": 256, "rows": 32, "pitch": 4}),
        (Pipe.MTE1, move, {"target": 1, "row_lines": 4, "source_pitch": 4, "pitch": 4, "rows": 32}),
        (Pipe.FIXPIPE, store, {"argument": 0, "columns": 64, "stride": 256, "rows": 32}),
    ):
        await bench.check([*[make(**fields) for _ in range(6)], end()])
        spent, name = bench.spent(), pipe.name.lower()
        assert spent[f"{name}_busy"] == 6 * 128
        rate[name] = spent[f"{name}_busy"] / (spent[f"{name}_busy"] + spent[f"{name}_stall"])
    dut._log.info("lines a cycle: %s", rate)
    assert rate["mte1"] > 0.97
    assert rate["mte2"] > 0.9
    assert rate["fixpipe"] > 0.85


@cocotb.test()
async def halves(dut: Any) -> None:
    """FIXPIPE stalls while the Cube adds in the same half of L0C, and not in the other."""
    bench = CoreBench(dut)
    await bench.start()
    await bench.fill_buffers()
    busy = mmad(a_pitch=1, b_pitch=1, c_pitch=4, rows=100, k_tiles=4, n_tiles=4, accumulate=1)
    stalls = []
    for line in (256, 512):
        drain = store(argument=0, columns=16, stride=64, rows=200, c_line=line, c_pitch=1)
        await bench.check([busy, nop(Pipe.FIXPIPE), drain, end()])
        spent = bench.spent()
        assert spent["cube_busy"] == 1600
        assert spent["cube_stall"] < 40
        stalls.append(spent["fixpipe_stall"])
    assert stalls[0] > 1500
    assert stalls[1] < 100


@cocotb.test()
async def throughput(dut: Any) -> None:
    """256 x 256 x 256, double-buffered: 0.9 of 256 MACs a cycle over the whole program."""
    bench = CoreBench(dut)
    await bench.start()
    gemm = Gemm(256, 256, 256, 64, 128, 128, scale=(1, 12))
    a, b, _ = operands(gemm)
    places = (0x0000, 0x1_0000, 0, 0x3_0000)
    bench.fill(a.reshape(-1).view(np.uint8), places[0])
    bench.fill(b.reshape(-1).view(np.uint8), places[1])
    await bench.check(gemm.commands(), [HBM_BASE + place for place in places])
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
    products = [mmad(accumulate=int(i > 0), **sizes) for i in range(3)]
    await bench.check([*products, end()])
    spent = bench.spent()
    share = spent["cube_busy"] / (spent["cube_busy"] + spent["cube_stall"])
    dut._log.info("3 x 128 x 128 x 128: %.4f of the cycles that the Cube holds a command", share)
    assert share >= 0.97


ONLY_ICARUS = "saturation|jumps"


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_core(sim: str) -> None:
    only = ONLY_ICARUS if sim == "icarus" else None
    run_block(core_under_test(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
