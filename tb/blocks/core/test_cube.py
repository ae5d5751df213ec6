"""The Cube against the golden model: values, faults, hazards between rows, throughput."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from numpy.typing import NDArray

from abi.core import CUBE_SIDE, MMAD_COMMAND, CommandOpcode
from abi.status import Status
from rtl.core.cube import Cube
from rtl.core.l0c import L0c
from rtl.core.matrix_unit import MatrixUnit
from rtl.core.pipe import DONE
from rtl.memory.sram import Sram
from tb.blocks.harness import run_block
from tb.blocks.streams import StreamSink, StreamSource, reset_dut
from tb.models.pipes import PipesModel

LINES = {"l0a_lines": 64, "l0b_lines": 128, "l0c_lines": 128}


class CubeWithBuffers(wiring.Component):
    """A Cube, its three buffers, and access to them from outside: `target` 0 L0A, 1 L0B, 2 L0C."""

    def __init__(self, cube: Cube | MatrixUnit) -> None:
        self._cube = cube
        super().__init__(
            {
                "command": In(stream.Signature(MMAD_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "product_xor": In(16),
                "working": Out(1),
                "idle": Out(1),
                "write": In(1),
                "target": In(2),
                "line": In(8),
                "write_data": In(512),
                "drain": In(1),
                "drain_granted": Out(1),
                "drain_data": Out(512),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.cube = cube = self._cube
        m.submodules.l0a = l0a = Sram(width=512, depth=LINES["l0a_lines"], granule=512)
        m.submodules.l0b = l0b = Sram(width=512, depth=LINES["l0b_lines"], granule=512)
        m.submodules.l0c = l0c = L0c(lines=LINES["l0c_lines"])
        for target, buffer in enumerate((l0a, l0b)):
            m.d.comb += [
                buffer.wr_en.eq(self.write & (self.target == target)),
                buffer.wr_addr.eq(self.line),
                buffer.wr_data.eq(self.write_data),
                buffer.wr_mask.eq(1),
            ]
        wiring.connect(m, wiring.flipped(self.command), cube.command)
        wiring.connect(m, wiring.flipped(self.done), cube.done)
        m.d.comb += [
            cube.stop.eq(self.stop),
            cube.product_xor.eq(self.product_xor),
            self.working.eq(cube.working),
            self.idle.eq(cube.idle),
            l0a.rd_en.eq(cube.a_enable),
            l0a.rd_addr.eq(cube.a_line),
            cube.a_data.eq(l0a.rd_data),
            l0b.rd_en.eq(cube.b_enable),
            l0b.rd_addr.eq(cube.b_line),
            cube.b_data.eq(l0b.rd_data),
            l0c.cube_read.eq(cube.c_read),
            l0c.cube_read_line.eq(cube.c_read_line),
            cube.c_data.eq(l0c.cube_data),
            l0c.cube_write.eq(cube.c_write),
            l0c.cube_write_line.eq(cube.c_write_line),
            l0c.cube_write_data.eq(cube.c_write_data),
            l0c.fill.eq(self.write & (self.target == 2)),
            l0c.fill_line.eq(self.line),
            l0c.fill_data.eq(self.write_data),
            l0c.drain.eq(self.drain),
            l0c.drain_line.eq(self.line),
            self.drain_granted.eq(l0c.drain_granted),
            self.drain_data.eq(l0c.drain_data),
        ]
        return m


def mmad(**fields: int) -> bytes:
    return MMAD_COMMAND.pack_bytes(opcode=CommandOpcode.MMAD, **fields)


class Bench:
    """The Cube, and the model with the same contents."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.model = PipesModel({}, l1_lines=1, bias_lines=1, ub_lines=1, **LINES)
        self.working = 0
        self.first_work: int | None = None
        self.last_work = 0
        self.cycle = 0

    def execute(self, command: bytes) -> tuple[Status, int]:
        """Execute a command on the model."""
        return self.model.execute(CommandOpcode.MMAD, MMAD_COMMAND.unpack_bytes(command))

    async def start(self, stall: float = 0.0) -> None:
        dut = self.dut
        for name in ("stop", "product_xor", "write", "target", "line", "write_data", "drain"):
            getattr(dut, name).value = 0
        dut.rst.value = 1
        self.commands = StreamSource(dut, "command", stall=stall)
        self.done = StreamSink(dut, "done", layout=DONE, stall=stall)
        Clock(dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(dut)
        cocotb.start_soon(self._watch())
        await self.fill()

    async def _watch(self) -> None:
        edge = RisingEdge(self.dut.clk)
        while True:
            await edge
            if int(self.dut.working.value):
                self.working += 1
                self.last_work = self.cycle
                if self.first_work is None:
                    self.first_work = self.cycle
            self.cycle += 1

    async def fill(self) -> None:
        """Random contents, with many -128s."""
        model = self.model
        self.dut.write.value = 1
        for target, buffer in enumerate((model.l0a, model.l0b, model.l0c)):
            values = np.frombuffer(random.randbytes(buffer.size), np.uint8).reshape(buffer.shape)
            buffer[:] = values
            if target < 2:
                buffer[
                    np.frombuffer(random.randbytes(buffer.size), np.uint8).reshape(buffer.shape)
                    < 64
                ] = 0x80
            for line, data in enumerate(buffer):
                self.dut.target.value = target
                self.dut.line.value = line
                self.dut.write_data.value = int.from_bytes(data.tobytes(), "little")
                await RisingEdge(self.dut.clk)
        self.dut.write.value = 0

    async def sums(self) -> NDArray[np.uint8]:
        """What L0C holds."""
        rows = []
        self.dut.drain.value = 1
        edge, settled = RisingEdge(self.dut.clk), ReadOnly()
        for line in range(LINES["l0c_lines"]):
            self.dut.line.value = line
            await edge
            await settled
            data = int(self.dut.drain_data.value).to_bytes(64, "little")
            rows.append(np.frombuffer(data, np.uint8))
            await edge
        self.dut.drain.value = 0
        return np.array(rows)


def random_mmad(small: bool) -> dict[str, int]:
    """Fields of a random MMAD; most stay inside the buffers."""
    rows = random.choice([1, 2, 3, 15, 16, 17, random.randint(1, 40)])
    k_tiles, n_tiles = random.randint(1, 2 if small else 5), random.randint(1, 2 if small else 5)
    return {
        "accumulate": random.randrange(2),
        "a_line": random.randrange(24),
        "a_pitch": random.choice([0, 1, 1, 2]),
        "b_line": random.randrange(40),
        "b_pitch": random.choice([0, 1, 1, 1]),
        "c_line": random.randrange(20),
        "c_pitch": random.choice([0, 1, n_tiles, n_tiles, n_tiles, 3]),
        "rows": rows,
        "k_tiles": k_tiles,
        "n_tiles": n_tiles,
    }


async def run_all(bench: Bench, commands: list[bytes], cycles: int = 100000) -> None:
    """Execute and compare the outcome of each command and all of L0C."""
    before = len(bench.done.received)
    expected = []
    for command in commands:
        bench.commands.send(int.from_bytes(command, "little"))
        status, address = bench.execute(command)
        expected.append({"status": int(status), "address": address})
    received = await bench.done.wait(before + len(commands), cycles)
    assert received[before:] == expected
    await RisingEdge(bench.dut.clk)
    assert int(bench.dut.idle.value)
    assert np.array_equal(await bench.sums(), bench.model.l0c)


@cocotb.test()
async def random_commands(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start(stall=0.2)
    for turn in range(12):
        await run_all(bench, [mmad(**random_mmad(turn % 2 == 0)) for _ in range(8)])


@cocotb.test()
async def extreme_operands(dut: Any) -> None:
    """-128 * -128 everywhere, wrapping sums."""
    bench = Bench(dut)
    await bench.start()
    edges = ((0, 0x80), (1, 0x80), (2, 0x7F))
    dut.write.value = 1
    for target, byte in edges:
        buffer = (bench.model.l0a, bench.model.l0b, bench.model.l0c)[target]
        buffer[:] = byte
        for line in range(len(buffer)):
            dut.target.value, dut.line.value = target, line
            dut.write_data.value = int.from_bytes(bytes([byte]) * 64, "little")
            await RisingEdge(dut.clk)
    dut.write.value = 0
    fields = {"a_pitch": 1, "b_pitch": 1, "c_pitch": 1, "rows": 20, "k_tiles": 4, "n_tiles": 1}
    await run_all(bench, [mmad(accumulate=1, **fields)])
    values = bench.model.l0c.view(np.int32)
    assert values[0, 0] == 0x7F7F7F7F + 64 * 16384
    deep = {**fields, "a_pitch": 0, "b_pitch": 0, "k_tiles": 4, "c_pitch": 0}
    await run_all(bench, [mmad(accumulate=1, **deep) for _ in range(8)])
    assert values[0, 0] < 0


@cocotb.test()
async def faults(dut: Any) -> None:
    """A command that leaves a buffer by one line is refused, the neighbours are not touched."""
    bench = Bench(dut)
    await bench.start(stall=0.1)
    fits = {"a_pitch": 1, "b_pitch": 1, "c_pitch": 1, "rows": 16, "k_tiles": 1, "n_tiles": 1}
    last = {"a_line": 48, "b_line": 112, "c_line": 112}
    await run_all(bench, [mmad(**fits, **last)])
    assert all(item["status"] == Status.OK for item in bench.done.received)
    for name in last:
        seen = len(bench.done.received)
        bad = {**fits, **last, name: last[name] + 1}
        await run_all(bench, [mmad(**fits), mmad(**bad), mmad(**fits, accumulate=1)])
        statuses = [item["status"] for item in bench.done.received[seen:]]
        assert statuses == [Status.OK, Status.BUFFER_OVERFLOW, Status.OK]
    wide = {"a_pitch": 0xFFFF, "b_pitch": 0xFFFF, "c_pitch": 0xFFFF, "rows": 0xFFFF}
    tiles = {"k_tiles": 0xFFFF, "n_tiles": 0xFFFF}
    for fields in ({**fits, "rows": 0x4001, "a_pitch": 4}, {**fits, **wide}, {**fits, **tiles}):
        assert bench.execute(mmad(**fields)) == (Status.BUFFER_OVERFLOW, 0)
        await run_all(bench, [mmad(**fields)])


@cocotb.test()
async def injected_error(dut: Any) -> None:
    """product_xor changes column 0 by one product of the first k of each step, and no other."""
    bench = Bench(dut)
    await bench.start()
    fields = {"a_pitch": 1, "b_pitch": 1, "c_pitch": 1, "rows": 30, "k_tiles": 1, "n_tiles": 1}
    for xor in (1, 0x8000, 0x7FFF, 0xFFFF):
        dut.product_xor.value = xor
        command = mmad(**fields)
        bench.execute(command)
        seen = len(bench.done.received)
        bench.commands.send(int.from_bytes(command, "little"))
        await bench.done.wait(seen + 1)
        a = bench.model.l0a[:30, 0].view(np.int8).astype(np.int16)
        b = bench.model.l0b[0, 0].astype(np.int8).astype(np.int16)
        product = a * b
        wrong = (product.view(np.uint16) ^ np.uint16(xor)).view(np.int16)
        expected = bench.model.l0c.view(np.int32)
        expected[:30, 0] += wrong.astype(np.int32) - product
        assert np.array_equal(await bench.sums(), bench.model.l0c)


@cocotb.test()
async def stop(dut: Any) -> None:
    """A stop at any time leaves a Cube that works."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(15):
        fields = {"rows": random.randint(1, 30), "k_tiles": 3, "n_tiles": 2, "c_pitch": 2}
        bench.commands.send(int.from_bytes(mmad(a_pitch=1, b_pitch=1, **fields), "little"))
        await bench.commands.drained()
        for _ in range(random.randint(0, 120)):
            await RisingEdge(dut.clk)
        bench.done.stall = 1.0
        dut.stop.value = 1
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.stop.value = 0
        bench.done.stall = 0.0
        await RisingEdge(dut.clk)
        assert int(dut.idle.value)
        model = bench.model.l0c.view(np.uint8)
        model[:] = await bench.sums()
        await run_all(bench, [mmad(**random_mmad(True)) for _ in range(2)])


@cocotb.test()
async def throughput(dut: Any) -> None:
    """256 MACs a cycle across tiles and commands for 18 rows and more."""
    bench = Bench(dut)
    await bench.start()
    for rows, commands, bubbles in ((16, 4, 2), (18, 4, 0), (32, 6, 0), (37, 3, 0)):
        fields = {"a_pitch": 1, "b_pitch": 1, "c_pitch": 2, "rows": rows}
        bench.working, bench.first_work = 0, None
        await run_all(bench, [mmad(k_tiles=4, n_tiles=2, **fields) for _ in range(commands)])
        assert bench.first_work is not None
        window = bench.last_work - bench.first_work + 1
        assert bench.working == rows * 8 * commands
        assert window == bench.working + bubbles * (commands - 1)
    # Fewer rows than a tile's load takes: 16 cycles a tile.
    bench.first_work = None
    few = {"a_pitch": 1, "b_pitch": 1, "c_pitch": 2, "rows": 4, "k_tiles": 4, "n_tiles": 2}
    await run_all(bench, [mmad(**few)])
    assert bench.first_work is not None
    assert bench.last_work - bench.first_work + 1 == 7 * CUBE_SIDE + 4


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_cube(sim: str) -> None:
    only = "faults|throughput" if sim == "icarus" else None
    run_block(CubeWithBuffers(Cube(**LINES)), __name__, sim=sim, sources=[Sram.SOURCE], only=only)
