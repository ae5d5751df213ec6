"""RowReader: data of rows of any alignment, errors, flush, throughput."""

import random
from collections.abc import Iterable
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from rtl.memory.port import LineError
from rtl.memory.row import ROW, ROW_BEAT, validate_depth
from rtl.memory.row_reader import RowReader
from tb.blocks.harness import parameters, run_block
from tb.blocks.memory.agents import LineMemory, ReadTarget
from tb.blocks.streams import StreamSink, StreamSource, reset_dut

BASE = 0x1_0000_0000
NBYTES = 1 << 16

Row = tuple[int, int]
"""Address and number of bytes."""


class Bench:
    """The reader between a memory, a source of rows and a sink of beats."""

    def __init__(self, dut: Any, *, latency: int | tuple[int, int], stall: float) -> None:
        self.dut = dut
        dut.rst.value, dut.flush.value = 1, 0
        self.memory = LineMemory({BASE: NBYTES})
        self.bytes = self.memory.view(BASE)
        self.bytes[:] = np.frombuffer(random.randbytes(NBYTES), np.uint8)
        self.target = ReadTarget(dut, "memory", self.memory, latency=latency, stall=stall)
        self.rows = StreamSource(dut, "row", layout=ROW, stall=stall)
        self.sink = StreamSink(dut, "data", layout=ROW_BEAT, stall=stall)

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)

    def send(self, rows: Iterable[Row]) -> None:
        for address, nbytes in rows:
            self.rows.send({"address": address, "nbytes": nbytes})

    def expected(self, rows: Iterable[Row]) -> list[dict[str, int]]:
        """The beats of rows without errors."""
        beats = []
        for address, nbytes in rows:
            whole = self.bytes[address - BASE : address - BASE + nbytes].tobytes()
            for at in range(0, nbytes, 64):
                data = int.from_bytes(whole[at : at + 64], "little")
                beats.append({"data": data, "error": 0, "last": int(at + 64 >= nbytes)})
        return beats

    async def settle(self) -> None:
        """Wait until the reader is idle."""
        for _ in range(2000):
            await RisingEdge(self.dut.clk)
            if self.dut.idle.value:
                return
        raise AssertionError("not idle after 2000 cycles")

    async def flush(self) -> None:
        self.dut.flush.value = 1
        await RisingEdge(self.dut.clk)
        await self.settle()
        self.dut.flush.value = 0


def lines_of(rows: Iterable[Row]) -> list[int]:
    return [
        line
        for address, nbytes in rows
        for line in range(address // 64, (address + nbytes - 1) // 64 + 1)
    ]


def random_row(longest: int) -> Row:
    nbytes = random.choice([1, 63, 64, 65, random.randint(1, longest), random.randint(1, 130)])
    offset = random.choice([0, 64 * random.randrange(500), random.randrange(NBYTES)])
    return BASE + min(offset, NBYTES - nbytes), nbytes


@cocotb.test()
async def random_rows(dut: Any) -> None:
    for_stall = random.choice([0.0, 0.1, 0.5])
    bench = Bench(dut, latency=random.choice([(1, 1), (5, 5), (1, 90)]), stall=for_stall)
    await bench.start()
    for _ in range(4):
        for agent in (bench.target, bench.rows, bench.sink):
            agent.stall = random.choice([0.0, 0.2, 0.7])
        rows = [random_row(1500) for _ in range(60)]
        bench.sink.received.clear()
        bench.target.lines.clear()
        expected = bench.expected(rows)
        bench.send(rows)
        await bench.sink.wait(len(expected), 40000)
        assert bench.sink.received == expected
        assert bench.target.lines == lines_of(rows)
        await bench.settle()
        assert not dut.fault.value


@cocotb.test()
async def every_offset_and_length(dut: Any) -> None:
    bench = Bench(dut, latency=3, stall=0.0)
    await bench.start()
    rows = [(BASE + 64 * 5 + at, n) for at in range(64) for n in (1, 2, 63 - at or 1, 64 - at)]
    rows += [(BASE + at, n) for at in range(64) for n in (64, 65, 127 - at, 128 - at, 129 - at)]
    bench.send(rows)
    expected = bench.expected(rows)
    await bench.sink.wait(len(expected), 5000)
    assert bench.sink.received == expected


@cocotb.test()
async def one_line_a_cycle(dut: Any) -> None:
    latency = parameters()["depth"] // 2
    bench = Bench(dut, latency=latency, stall=0.0)
    await bench.start()
    cases: list[list[Row]] = [
        [(BASE, 64 * 256)],
        [(BASE + 13, 64 * 256)],
        [(BASE + 64 * i, 64) for i in range(256)],
        [(BASE + 64 * i + 60, 8) for i in range(128)],
        [(BASE + 64 * i + i % 40, 3 + i % 20) for i in range(256)],
        [(BASE + 200 * i + i % 64, 1 + i) for i in range(200)],
    ]
    for rows in cases:
        bench.sink.received.clear()
        bench.sink.received_at.clear()
        began = bench.sink.cycle
        bench.send(rows)
        count = len(bench.expected(rows))
        await bench.sink.wait(count, 5000)
        assert bench.sink.received == bench.expected(rows)
        # The last beat comes after all lines but the bubble-free pipeline's fill.
        took = bench.sink.received_at[-1] - began
        assert took <= len(lines_of(rows)) + latency + 9, (took, len(lines_of(rows)))


@cocotb.test()
async def keeps_depth_lines_in_flight(dut: Any) -> None:
    depth = parameters()["depth"]
    bench = Bench(dut, latency=4 * depth, stall=0.0)
    await bench.start()
    bench.send([(BASE + 7, 64 * 4 * depth)])
    await ClockCycles(dut.clk, 3 * depth)
    assert bench.target.most_outstanding == depth
    # A reader that nobody listens to holds the lines and asks for no more than it has room for.
    bench.sink.stall = 1.0
    await ClockCycles(dut.clk, 12 * depth)
    assert bench.target.outstanding == 0
    assert len(bench.target.lines) == depth + 3
    bench.sink.stall = 0.0
    await bench.sink.wait(4 * depth, 40 * depth)
    assert bench.sink.received == bench.expected([(BASE + 7, 64 * 4 * depth)])


@cocotb.test()
async def errors_mark_their_beats(dut: Any) -> None:
    bench = Bench(dut, latency=(1, 20), stall=0.2)
    await bench.start()
    for _ in range(12):
        rows = [random_row(900) for _ in range(6)]
        lines = lines_of(rows)
        failing = random.sample(sorted(set(lines)), 2)
        errors = dict(
            zip(failing, random.choices([LineError.ADDRESS, LineError.BUS], k=2), strict=True)
        )
        for line, error in errors.items():
            bench.memory.fail(64 * line, 64, error)
        bench.sink.received.clear()
        bench.send(rows)
        expected = bench.expected(rows)
        await bench.sink.wait(len(expected), 10000)
        worst = [
            max(errors.get(line, 0) for line in lines_of([(address + at, min(64, nbytes - at))]))
            for address, nbytes in rows
            for at in range(0, nbytes, 64)
        ]
        assert [beat["error"] for beat in bench.sink.received] == worst
        assert [beat["last"] for beat in bench.sink.received] == [b["last"] for b in expected]
        for beat, good in zip(bench.sink.received, expected, strict=True):
            if not beat["error"]:
                assert beat["data"] == good["data"]
        first = next(line for line in lines if line in errors)
        assert (int(dut.fault.value), int(dut.fault_line.value)) == (errors[first], first)
        bench.memory.heal()
        await bench.flush()
        await RisingEdge(dut.clk)
        assert (int(dut.fault.value), int(dut.fault_line.value)) == (LineError.OK, first)


@cocotb.test()
async def a_fault_comes_no_later_than_its_beat(dut: Any) -> None:
    bench = Bench(dut, latency=2, stall=0.0)
    await bench.start()
    bench.memory.fail(BASE + 64 * 7, 1, LineError.BUS)
    bench.send([(BASE + 3, 64 * 12)])
    for _ in range(40):
        await RisingEdge(dut.clk)
        if dut.data__valid.value and int(dut.data__payload.value) >> 512 & 3:
            assert int(dut.fault.value) == LineError.BUS
            assert int(dut.fault_line.value) == BASE // 64 + 7
            return
    raise AssertionError("no erroneous beat")


@cocotb.test()
async def flush_at_any_time(dut: Any) -> None:
    bench = Bench(dut, latency=(1, 40), stall=0.0)
    await bench.start()
    for _ in range(60):
        stall = random.choice([0.0, 0.3, 0.8])
        bench.target.stall = bench.sink.stall = stall
        rows = [random_row(2500) for _ in range(random.randint(1, 4))]
        bench.sink.received.clear()
        bench.send(rows)
        await ClockCycles(dut.clk, random.randint(1, 120))
        dut.flush.value = 1
        # Rows are not taken during a flush: replaced by ones of the next run.
        await RisingEdge(dut.clk)
        sent = bench.rows.sent
        await ClockCycles(dut.clk, 10)
        assert bench.rows.sent <= sent + 1
        bench.rows.stall = 1.0
        await bench.settle()
        assert bench.target.outstanding == 0
        got = len(bench.sink.received)
        assert bench.sink.received == bench.expected(rows)[:got]
        await ClockCycles(dut.clk, 3)
        assert len(bench.sink.received) == got
        left = rows[len(rows) - bench.rows.pending :]
        bench.sink.received.clear()
        dut.flush.value = 0
        bench.rows.stall = 0.0
        again = [*left, random_row(300)]
        bench.send(again[-1:])
        await bench.sink.wait(len(bench.expected(again)), 20000)
        assert bench.sink.received == bench.expected(again)


@pytest.mark.parametrize(("sim", "depth"), [("verilator", 8), ("verilator", 64), ("icarus", 16)])
def test_row_reader(sim: str, depth: int) -> None:
    run_block(RowReader(depth=depth), __name__, sim=sim, parameters={"depth": depth})


@pytest.mark.parametrize("depth", [0, 1, 48, -8])
def test_depth_is_checked(depth: int) -> None:
    with pytest.raises(ValueError, match=f"depth must be .* of at least 2, not {depth}"):
        validate_depth(depth)
