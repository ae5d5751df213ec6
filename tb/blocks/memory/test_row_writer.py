"""RowWriter: bytes of rows of any alignment and none beside them, errors, flush, throughput."""

import random
from collections.abc import Iterable
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from rtl.memory.port import LineError
from rtl.memory.row import ROW, ROW_DATA, ROW_DONE
from rtl.memory.row_writer import RowWriter
from tb.blocks.harness import parameters, run_block
from tb.blocks.memory.agents import LineMemory, WriteTarget
from tb.blocks.streams import StreamSink, StreamSource, reset_dut

BASE = 0x1_0000_0000
NBYTES = 1 << 15

Row = tuple[int, int]
"""Address and number of bytes."""


class Bench:
    """The writer between sources of rows and beats, a memory, and a sink of `done`."""

    def __init__(self, dut: Any, *, latency: int | tuple[int, int], stall: float) -> None:
        self.dut = dut
        dut.rst.value, dut.flush.value = 1, 0
        self.memory = LineMemory({BASE: NBYTES})
        self.bytes = self.memory.view(BASE)
        self.bytes[:] = np.frombuffer(random.randbytes(NBYTES), np.uint8)
        self.model = self.bytes.copy()
        self.target = WriteTarget(dut, "memory", self.memory, latency=latency, stall=stall)
        self.rows = StreamSource(dut, "row", layout=ROW, stall=stall)
        self.beats = StreamSource(dut, "data", layout=ROW_DATA, stall=stall)
        self.sink = StreamSink(dut, "done", layout=ROW_DONE, stall=stall)
        self.acknowledged = 0
        self.beat_log: list[bytes] = []

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        cocotb.start_soon(self._count())

    async def _count(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.acknowledged += int(self.dut.acknowledged.value)

    def send_row(self, address: int, nbytes: int) -> None:
        self.rows.send({"address": address, "nbytes": nbytes})

    def send_data(self, data: bytes) -> None:
        """Beats; what lies beyond the row is random."""
        for at in range(0, len(data), 64):
            beat = data[at : at + 64]
            beat += random.randbytes(64 - len(beat))
            self.beat_log.append(beat)
            self.beats.send({"data": int.from_bytes(beat, "little")})

    def send(self, rows: Iterable[Row]) -> None:
        """Rows of random data, which the model has too."""
        for address, nbytes in rows:
            data = random.randbytes(nbytes)
            self.send_row(address, nbytes)
            self.send_data(data)
            self.model[address - BASE : address - BASE + nbytes] = np.frombuffer(data, np.uint8)

    async def settle(self) -> None:
        for _ in range(3000):
            await RisingEdge(self.dut.clk)
            if self.dut.idle.value:
                return
        raise AssertionError("not idle after 3000 cycles")


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
    bench = Bench(dut, latency=random.choice([(1, 1), (5, 5), (1, 90)]), stall=0.0)
    await bench.start()
    for _ in range(4):
        for agent in (bench.target, bench.rows, bench.beats, bench.sink):
            agent.stall = random.choice([0.0, 0.2, 0.7])
        rows = [random_row(1200) for _ in range(60)]
        bench.sink.received.clear()
        bench.target.lines.clear()
        bench.acknowledged = 0
        bench.send(rows)
        await bench.sink.wait(len(rows), 40000)
        assert [done["error"] for done in bench.sink.received] == [0] * len(rows)
        assert (bench.bytes == bench.model).all()
        assert bench.target.lines == lines_of(rows)
        await bench.settle()
        await RisingEdge(dut.clk)
        assert bench.acknowledged == sum(nbytes for _, nbytes in rows)
        assert not dut.fault.value


@cocotb.test()
async def every_offset_and_length(dut: Any) -> None:
    bench = Bench(dut, latency=3, stall=0.0)
    await bench.start()
    shapes = [(at, n) for at in range(64) for n in (1, 2, 63 - at or 1, 64 - at, 64, 65)]
    shapes += [(at, n) for at in range(64) for n in (127 - at, 128 - at, 129 - at)]
    for start in range(0, len(shapes), 100):
        rows = [
            (BASE + 256 * slot + at, n) for slot, (at, n) in enumerate(shapes[start : start + 100])
        ]
        bench.sink.received.clear()
        bench.send(rows)
        await bench.sink.wait(len(rows), 2000)
        # Equal to the model everywhere: nothing beside a row was touched.
        assert (bench.bytes == bench.model).all()
    ones = sum(mask.bit_count() for mask in bench.target.strobes)
    assert ones == sum(n for _, n in shapes)


@cocotb.test()
async def one_line_a_cycle(dut: Any) -> None:
    # A place is held for some cycles more than the memory's latency.
    latency = parameters()["depth"] // 2 - 3
    bench = Bench(dut, latency=latency, stall=0.0)
    await bench.start()
    cases: list[list[Row]] = [
        [(BASE, 64 * 256)],
        [(BASE + 13, 64 * 256)],
        [(BASE + 64 * i, 64) for i in range(256)],
        [(BASE + 64 * i + 60, 8) for i in range(128)],
        [(BASE + 64 * i + i % 40, 3 + i % 20) for i in range(256)],
        [(BASE + 130 * i + i % 64, 1 + i) for i in range(200)],
    ]
    for rows in cases:
        bench.sink.received.clear()
        bench.sink.received_at.clear()
        began = bench.sink.cycle
        bench.send(rows)
        await bench.sink.wait(len(rows), 5000)
        took = bench.sink.received_at[-1] - began
        assert took <= len(lines_of(rows)) + latency + 9, (took, len(lines_of(rows)))
        assert (bench.bytes == bench.model).all()


@cocotb.test()
async def keeps_depth_lines_in_flight(dut: Any) -> None:
    depth = parameters()["depth"]
    bench = Bench(dut, latency=4 * depth, stall=0.0)
    await bench.start()
    bench.send([(BASE + 7, 64 * 4 * depth)])
    await ClockCycles(dut.clk, 3 * depth)
    assert bench.target.most_outstanding == depth
    await bench.sink.wait(1, 40 * depth)
    # Verdicts that nobody takes hold places too.
    bench.sink.stall = 1.0
    await ClockCycles(dut.clk, 2)
    rows = [(BASE + 64 * i + 5, 20) for i in range(3 * depth)]
    bench.target.lines.clear()
    bench.send(rows)
    await ClockCycles(dut.clk, 30 * depth)
    assert bench.target.outstanding == 0
    assert len(bench.target.lines) == depth
    assert not dut.idle.value
    bench.sink.stall = 0.0
    await bench.sink.wait(1 + len(rows), 40 * depth)
    assert (bench.bytes == bench.model).all()


@cocotb.test()
async def errors_name_their_rows(dut: Any) -> None:
    bench = Bench(dut, latency=(1, 20), stall=0.2)
    await bench.start()
    for _ in range(12):
        rows = [random_row(900) for _ in range(6)]
        lines = lines_of(rows)
        failing = random.sample(sorted(set(lines)), 2)
        kinds = random.choices([LineError.ADDRESS, LineError.BUS], k=2)
        errors = dict(zip(failing, kinds, strict=True))
        for line, error in errors.items():
            bench.memory.fail(64 * line, 64, error)
        bench.sink.received.clear()
        bench.acknowledged = 0
        bench.send(rows)
        await bench.sink.wait(len(rows), 10000)
        good = 0
        for done, row in zip(bench.sink.received, rows, strict=True):
            bad = [line for line in lines_of([row]) if line in errors]
            assert done["error"] == (errors[bad[0]] if bad else LineError.OK)
            if bad:
                assert done["line"] == bad[0]
            for address in range(row[0], row[0] + row[1]):
                good += address // 64 not in errors
        first = next(line for line in lines if line in errors)
        assert (int(dut.fault.value), int(dut.fault_line.value)) == (errors[first], first)
        assert bench.acknowledged == good
        for line in errors:
            at = 64 * line - BASE
            bench.model[at : at + 64] = bench.bytes[at : at + 64]
        assert (bench.bytes == bench.model).all()
        bench.memory.heal()
        dut.flush.value = 1
        await ClockCycles(dut.clk, 2)
        assert dut.idle.value
        dut.flush.value = 0
        await RisingEdge(dut.clk)
        assert (int(dut.fault.value), int(dut.fault_line.value)) == (LineError.OK, first)


@cocotb.test()
async def flush_at_any_time(dut: Any) -> None:
    bench = Bench(dut, latency=(1, 40), stall=0.0)
    await bench.start()
    for round_ in range(50):
        bench.target.stall = bench.sink.stall = random.choice([0.0, 0.3, 0.8])
        before = bench.bytes.copy()
        rows = [random_row(2000) for _ in range(random.randint(1, 4))]
        if round_ % 5 == 0:
            bench.memory.fail(rows[0][0], 1, LineError.BUS)
        bench.sink.received.clear()
        bench.target.lines.clear()
        bench.target.strobes.clear()
        bench.send(rows)
        await ClockCycles(dut.clk, random.randint(1, 100))
        dut.flush.value = 1
        await ClockCycles(dut.clk, 3)
        taken = bench.rows.sent, bench.beats.sent
        await bench.settle()
        assert (bench.rows.sent, bench.beats.sent) == taken
        assert bench.target.outstanding == 0
        # A prefix of the lines was written, with the right bytes, and no other.
        lines = lines_of(rows)[: len(bench.target.lines)]
        assert bench.target.lines == lines
        touched = np.zeros(NBYTES, bool)
        for line, strobe in zip(lines, bench.target.strobes, strict=True):
            if bench.memory.error_of(line) is LineError.OK:
                for byte in range(64):
                    touched[64 * line - BASE + byte] |= strobe >> byte & 1
        assert (bench.bytes[~touched] == before[~touched]).all()
        whole, count = 0, 0
        for row in rows:
            count += len(lines_of([row]))
            whole += count <= len(lines)
        await bench.sink.wait(whole, 100)
        await ClockCycles(dut.clk, 3)
        assert len(bench.sink.received) == whole
        if whole and round_ % 5 == 0:
            assert bench.sink.received[0] == {"error": LineError.BUS, "line": rows[0][0] // 64}
        # What was not taken goes on as if nothing had been; a last row takes the beats that the
        # cut row left behind.
        bench.memory.heal()
        bench.model[:] = bench.bytes
        later = rows[len(rows) - bench.rows.pending :] if bench.rows.pending else []
        beats = bench.beat_log[len(bench.beat_log) - bench.beats.pending :]
        left = bench.beats.pending - sum((nbytes + 63) // 64 for _, nbytes in later)
        later.append((BASE + random.randrange(64), 64 * left + 1))
        bench.send_row(*later[-1])
        bench.send_data(b"!")
        stream = [*beats, bench.beat_log[-1]]
        for address, nbytes in later:
            count = (nbytes + 63) // 64
            data = b"".join(stream[:count])[:nbytes]
            del stream[:count]
            bench.model[address - BASE : address - BASE + nbytes] = np.frombuffer(data, np.uint8)
        bench.sink.received.clear()
        dut.flush.value = 0
        await bench.sink.wait(len(later), 20000)
        assert not any(done["error"] for done in bench.sink.received)
        assert (bench.bytes == bench.model).all()


@pytest.mark.parametrize(("sim", "depth"), [("verilator", 8), ("verilator", 64), ("icarus", 16)])
def test_row_writer(sim: str, depth: int) -> None:
    run_block(RowWriter(depth=depth), __name__, sim=sim, parameters={"depth": depth})
