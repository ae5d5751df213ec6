"""MOVE and IMG2COL against the golden model: values, transposes, windows, faults, stop, speed."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from abi.address import LINE_BYTES
from abi.core import CommandOpcode, MoveTarget, Transpose
from abi.status import Status
from rtl.memory.sram import Sram
from tb.blocks.core.pipes.bench import Bench, Command
from tb.blocks.core.pipes.machine import BUFFERS, PipesMachine
from tb.blocks.harness import run_block

TARGETS = dict(zip(MoveTarget, ("l0a", "l0b", "l0c", "bias"), strict=True))


def move(**fields: int) -> Command:
    return CommandOpcode.MOVE, {"rows": 1, "row_lines": 1, **fields}, 0


def img2col(**fields: int) -> Command:
    defaults = {"target": MoveTarget.L0B, "stride_height": 1, "stride_width": 1, "pixel_bytes": 1}
    defaults |= {"rows": 1, "out_width": 1, "kernel_height": 1, "kernel_width": 1}
    return CommandOpcode.IMG2COL, {**defaults, **fields}, 0


def random_move() -> Command:
    """A MOVE; most stay inside the buffers."""
    rows, lines = random.randint(1, 7), random.randint(1, 3)
    target = random.choice(list(MoveTarget))
    return move(
        target=target,
        source=random.randrange(110),
        source_pitch=random.choice([lines, 0, 1, 4]),
        line=random.randrange(12 if target == MoveTarget.BIAS else 50),
        pitch=random.choice([lines, 0, 1, 2]),
        row_lines=lines,
        rows=rows,
    )


def random_transpose() -> Command:
    """A transposing MOVE, whose rows do not overlap in the destination."""
    transpose = random.choice([Transpose.BYTES, Transpose.HALVES])
    size = 2 if transpose == Transpose.HALVES else 1
    target = random.choice([MoveTarget.L0A, MoveTarget.L0B, MoveTarget.L0B, MoveTarget.L0C])
    rows = random.choice([1, 31, 32, 33, 63, 64, 65, random.randint(1, 100)])
    lines = random.randint(1, 4)
    out_lines = -(-rows * size // LINE_BYTES)
    columns = lines * LINE_BYTES // size
    pitch = max(1, out_lines)
    while columns * pitch > BUFFERS[TARGETS[target]] and rows > 1 and random.random() < 0.98:
        rows, lines = max(1, rows // 2), max(1, lines // 2)
        pitch = out_lines = -(-rows * size // LINE_BYTES)
        columns = lines * LINE_BYTES // size
    source_pitch = random.choice([lines, 0, 1])
    spare = BUFFERS[TARGETS[target]] - columns * pitch
    return move(
        target=target,
        transpose=transpose,
        source=random.randint(0, max(0, 126 - rows * source_pitch - lines)),
        source_pitch=source_pitch,
        line=random.randint(0, max(0, spare) + (random.random() < 0.1)),
        pitch=pitch,
        row_lines=lines,
        rows=rows,
    )


def random_img2col() -> Command:
    """An IMG2COL; most stay inside the buffers."""
    pixel = random.choice([1, 2, 3, 4, 16, 32, 64, 100, random.randint(1, 130)])
    height, width = random.randint(1, 8), random.randint(1, 8)
    kernel_height, kernel_width = random.randint(1, 4), random.randint(1, 4)
    if random.random() < 0.2:
        # One byte less or more than whole lines.
        kernel_height = 1
        kernel_width, pixel = random.choice([(1, 65), (3, 43), (5, 13), (1, 63), (3, 21), (1, 129)])
    if random.random() < 0.05:
        height, width = random.choice([(0, width), (height, 0)])
    lines = -(-width * pixel // LINE_BYTES)
    out_lines = -(-kernel_height * kernel_width * pixel // LINE_BYTES)
    target, name = random.choice([(MoveTarget.L0A, "l0a"), (MoveTarget.L0B, "l0b")])
    rows = random.randint(1, max(1, min(20, BUFFERS[name] // out_lines)))
    out_width = random.randint(1, 8)
    pitch = random.choice([out_lines, out_lines, 1, 0])
    source_pitch = random.choice([lines, lines + 1, 1])
    return img2col(
        target=target,
        stride_height=random.randint(1, random.choice([2, 15])),
        stride_width=random.randint(1, random.choice([2, 15])),
        source=random.randint(0, max(0, BUFFERS["l1"] - height * source_pitch - lines)),
        source_pitch=source_pitch,
        line=random.randint(0, max(0, BUFFERS[name] - rows * pitch - out_lines + 1)),
        pitch=pitch,
        pixel_bytes=pixel,
        rows=rows,
        height=height,
        width=width,
        out_width=out_width,
        kernel_height=kernel_height,
        kernel_width=kernel_width,
        pad_top=random.choice([0, 1, 2, random.randrange(12)]),
        pad_left=random.choice([0, 1, 2, random.randrange(12)]),
        first_row=random.choice([0, random.randrange(4)]),
        first_column=random.randrange(out_width),
    )


def random_command() -> Command:
    return random.choice([random_move, random_move, random_transpose, random_img2col])()


@cocotb.test()
async def moves(dut: Any) -> None:
    bench = Bench(dut, stall=0.2)
    await bench.start()
    for _ in range(15):
        await bench.run([random_move() for _ in range(6)])


@cocotb.test()
async def transposes(dut: Any) -> None:
    bench = Bench(dut, stall=0.2)
    await bench.start()
    good = 0
    for _ in range(20):
        got = await bench.run([random_transpose() for _ in range(2)])
        good += sum(status is Status.OK for status, _ in got)
        await bench.fill()
    assert good > 20


@cocotb.test()
async def images(dut: Any) -> None:
    bench = Bench(dut, stall=0.2)
    await bench.start()
    good = 0
    for _ in range(60):
        got = await bench.run([random_img2col() for _ in range(4)])
        good += sum(status is Status.OK for status, _ in got)
        if random.random() < 0.2:
            await bench.fill()
    assert good > 150


@cocotb.test()
async def far_windows(dut: Any) -> None:
    """The largest numbers: windows beyond the image are zeros, wherever they are."""
    bench = Bench(dut)
    await bench.start()
    small = {"height": 3, "width": 3, "pixel_bytes": 5, "source_pitch": 1, "rows": 3, "pitch": 2}
    for fields in (
        {"first_row": 0xFFFF, "stride_height": 15, "out_width": 9},
        {"first_column": 0xFFFE, "out_width": 0xFFFF, "stride_width": 15, "rows": 4},
        {"pad_top": 255, "pad_left": 255, "kernel_height": 1},
        {"pad_top": 1, "pad_left": 255, "out_width": 255, "first_column": 253},
        {"pad_left": 17, "kernel_width": 20, "kernel_height": 1, "stride_width": 3},
        # 65535 pixels of 65535 bytes do not fit 32 lines, and no product wraps around.
        {"width": 0xFFFF, "pixel_bytes": 0xFFFF},
        {"kernel_width": 255, "kernel_height": 255, "pixel_bytes": 0xFFFF, "width": 0},
        {"kernel_width": 255, "kernel_height": 1, "pixel_bytes": 32, "rows": 1, "line": 0},
    ):
        kernel = {"kernel_height": 2, "kernel_width": 3}
        await bench.run([img2col(**{**small, **kernel, **fields})])
    assert sum(item["status"] == 0 for item in bench.done["mte1"].received) == 6


@cocotb.test()
async def edges(dut: Any) -> None:
    """The last line of each buffer, and one further; the next command is not touched."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    overflow = Status.BUFFER_OVERFLOW
    image = {"pixel_bytes": 20, "width": 4, "height": 5, "source_pitch": 3, "pitch": 3, "rows": 4}
    image |= {"kernel_height": 3, "kernel_width": 2, "out_width": 2}
    plain = {"row_lines": 2, "rows": 3, "source_pitch": 5, "pitch": 4}
    across = {"row_lines": 1, "rows": 40, "source_pitch": 2, "transpose": Transpose.HALVES}
    across |= {"pitch": 1, "target": MoveTarget.L0A}
    cases: list[tuple[Command, int, str]] = [
        (move(**plain, source=116, target=target), BUFFERS[name] - 10, name)
        for target, name in TARGETS.items()
    ]
    across["pitch"] = 2
    cases.append((move(**{**across, "rows": 32}, source=65), BUFFERS["l0a"] - 63, "l0a"))
    cases.append((img2col(**image, source=128 - 14), BUFFERS["l0b"] - 11, "l0b"))
    for (opcode, fields, _), line, _name in cases:
        fits = (opcode, {**fields, "line": line}, 0)
        beyond = (opcode, {**fields, "line": line + 1}, 0)
        source = (opcode, {**fields, "line": line, "source": fields["source"] + 1}, 0)
        got = await bench.run([fits, beyond, random_move(), source, fits])
        statuses = [status for status, _ in got]
        assert statuses[:2] == [Status.OK, overflow]
        assert statuses[3:] == [overflow, Status.OK]
    huge = {"rows": 0xFFFF, "row_lines": 0xFFFF, "source_pitch": 0xFFFF, "pitch": 0xFFFF}
    for transpose in Transpose:
        assert await bench.run([move(**huge, transpose=transpose)]) == [(overflow, 0)]
    many = {"row_lines": 1, "rows": 1, "transpose": Transpose.BYTES}
    assert await bench.run([move(**{**many, "row_lines": 1024, "source_pitch": 0})]) == [
        (overflow, 0)
    ]


@cocotb.test()
async def mixed(dut: Any) -> None:
    """Commands of all kinds behind one another, and a stop at any time."""
    bench = Bench(dut, stall=0.1)
    await bench.start()
    for _ in range(12):
        await bench.run([random_command() for _ in range(8)])
    for _ in range(20):
        for _ in range(3):
            bench.send(random_command())
        await bench.settle(random.randint(0, 250))
        await bench.halt()
        await bench.adopt()
        await bench.run([random_command() for _ in range(2)])


async def cycles_of(bench: Bench, command: Command) -> int:
    """Cycles from the first to the last line that is written."""
    worked = bench.worked["mte1"]
    worked.clear()
    await bench.run([command], compare=False)
    await RisingEdge(bench.dut.clk)
    return worked[-1] - worked[0] + 1


@cocotb.test()
async def throughput(dut: Any) -> None:
    """Lines as they are: one a cycle, across commands. Transposes and windows: as pinned here."""
    bench = Bench(dut)
    await bench.start()
    worked = bench.worked["mte1"]
    rows = {"row_lines": 4, "rows": 4, "source_pitch": 4, "pitch": 4, "target": MoveTarget.L0B}
    await bench.run([move(**rows, line=16 * i) for i in range(4)], compare=False)
    assert len(worked) == 64
    assert worked[-1] - worked[0] + 1 == 64
    # Two blocks of 64 rows: write 64 lines, load 64, write 64.
    block = {"row_lines": 2, "rows": 32, "source_pitch": 2, "pitch": 1, "target": MoveTarget.L0B}
    spent = await cycles_of(bench, move(**block, transpose=Transpose.BYTES))
    assert spent == 64 + 32 + 64 + 7
    image = {"source_pitch": 2, "height": 8, "width": 8, "pitch": 3, "rows": 36, "out_width": 6}
    for pixel, kernel, expected in ((16, 3, 173), (4, 3, 106), (64, 1, 36), (32, 2, 108)):
        # 108, 36, 36 and 72 lines.
        lines = -(-kernel * kernel * pixel // LINE_BYTES)
        shape = {**image, "pitch": lines, "pixel_bytes": pixel, "source_pitch": -(-8 * pixel // 64)}
        shape |= {"kernel_height": kernel, "kernel_width": kernel}
        spent = await cycles_of(bench, img2col(**shape))
        assert spent == expected


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_mte1(sim: str) -> None:
    only = "throughput|far_windows" if sim == "icarus" else None
    run_block(PipesMachine(), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
