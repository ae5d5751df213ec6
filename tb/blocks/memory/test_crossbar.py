"""The crossbar: data, order, errors, isolation, priority, fairness, rate."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from abi.address import HBM_BASE, HOST_BASE, MSI_BUS_ADDRESS
from rtl.memory.crossbar import Crossbar
from rtl.memory.port import LineError
from tb.blocks.harness import run_block
from tb.blocks.memory.agents import (
    LineMemory,
    ReadInitiator,
    ReadTarget,
    WriteInitiator,
    WriteTarget,
)
from tb.blocks.streams import reset_dut

HBM_LINES = 1024
WINDOW = (16, 24)
"""Host pages."""
READERS = [0, 1, 1, 1]
WRITERS = [0, 1, 1, 1]
TRUSTED = 0
"""The writer that may send interrupt messages."""
PAGE_LINES = 64

HBM = HBM_BASE // 64
HOST = HOST_BASE // 64
MESSAGE = HOST + MSI_BUS_ADDRESS // 64
REFUSED = [
    0,
    HBM - 1,
    HBM + HBM_LINES,
    HBM | 1 << 40,
    HOST + WINDOW[0] * PAGE_LINES - 1,
    HOST + WINDOW[1] * PAGE_LINES,
    HOST,
    MESSAGE,
    (1 << 42) - 1,
]


class Bench:
    """The crossbar between initiators and two memories, addressed as the targets see them."""

    def __init__(self, dut: Any, *, stall: float, latency: int | tuple[int, int]) -> None:
        self.dut = dut
        self.hbm = LineMemory({0: HBM_LINES * 64})
        window = {WINDOW[0] * 4096: (WINDOW[1] - WINDOW[0]) * 4096, MSI_BUS_ADDRESS: 64}
        self.host = LineMemory(window)
        for view in (self.hbm.view(0), self.host.view(WINDOW[0] * 4096)):
            view[:] = np.frombuffer(random.randbytes(len(view)), np.uint8)
        dut.rst.value = 1
        dut.window_base.value, dut.window_limit.value = WINDOW
        options: dict[str, Any] = {"latency": latency, "stall": stall}
        self.readers = [
            ReadInitiator(dut, f"read_ports__{i}", stall=stall) for i in range(len(READERS))
        ]
        self.writers = [
            WriteInitiator(dut, f"write_ports__{i}", stall=stall) for i in range(len(WRITERS))
        ]
        self.hbm_read = ReadTarget(dut, "hbm_read", self.hbm, **options)
        self.hbm_write = WriteTarget(dut, "hbm_write", self.hbm, **options)
        self.host_read = ReadTarget(dut, "host_read", self.host, **options)
        self.host_write = WriteTarget(dut, "host_write", self.host, **options)
        Clock(dut.clk, 1, unit="ns").start(start_high=False)

    async def finished(self) -> None:
        for initiator in [*self.readers, *self.writers]:
            await initiator.finished()
        await ClockCycles(self.dut.clk, 3)
        assert int(self.dut.idle.value) == 1

    def peek(self, line: int) -> tuple[int, int]:
        """What a read of a device line answers now, as a reference."""
        if HBM <= line < HBM + HBM_LINES:
            memory, local = self.hbm, line - HBM
        elif WINDOW[0] * PAGE_LINES <= line - HOST < WINDOW[1] * PAGE_LINES:
            memory, local = self.host, line - HOST
        else:
            return 0, LineError.ADDRESS
        error = memory.error_of(local)
        return (memory.read_line(local)[0], error) if error is LineError.OK else (0, error)


async def start(dut: Any, *, stall: float = 0.0, latency: int | tuple[int, int] = (1, 30)) -> Bench:
    bench = Bench(dut, stall=stall, latency=latency)
    await reset_dut(dut)
    return bench


def some_lines(count: int, base: int, lines: int, first: int = 0, step: int = 1) -> list[int]:
    """Random lines of a region whose number is `first` modulo `step`."""
    return [base + random.randrange(lines // step) * step + first for _ in range(count)]


HOST_LINES = (WINDOW[1] - WINDOW[0]) * PAGE_LINES
HOST_FIRST = HOST + WINDOW[0] * PAGE_LINES


def mixed_lines(count: int, first: int = 0, step: int = 1) -> list[int]:
    """Runs of lines in HBM, in host memory and nowhere."""
    found: list[int] = []
    while len(found) < count:
        run = random.randint(1, 6)
        kind = random.random()
        if kind < 0.5:
            found += some_lines(run, HBM, HBM_LINES, first, step)
        elif kind < 0.85:
            found += some_lines(run, HOST_FIRST, HOST_LINES, first, step)
        else:
            found += random.choices(REFUSED, k=random.randint(1, 2))
    return found[:count]


@cocotb.test()
async def reads(dut: Any) -> None:
    bench = await start(dut, stall=random.choice([0.1, 0.5]))
    bench.hbm.fail(7 * 64, 20 * 64, LineError.BUS)
    wanted = [mixed_lines(150) for _ in READERS]
    expected = [[bench.peek(line) for line in lines] for lines in wanted]
    for reader, lines in zip(bench.readers, wanted, strict=True):
        for line in lines:
            reader.request(line)
    await bench.finished()
    good = 0
    for reader, lines, answers in zip(bench.readers, wanted, expected, strict=True):
        for line, answer, (value, error) in zip(lines, reader.sink.received, answers, strict=True):
            assert answer["error"] == error, f"{line:#x}"
            if error is LineError.OK:
                good += 1
                assert answer["data"] == value, f"{line:#x}"
    moved = int(dut.hbm_read_bytes.value) + int(dut.host_read_bytes.value)
    assert moved == 64 * good
    assert int(dut.hbm_write_bytes.value) == int(dut.host_write_bytes.value) == 0


@cocotb.test()
async def writes(dut: Any) -> None:
    """Writers share both memories, interleaved line by line; only strobed bytes may change."""
    bench = await start(dut, stall=random.choice([0.1, 0.5]))
    bench.host.fail((WINDOW[0] * PAGE_LINES + 5) * 64, 64 * 64, LineError.BUS)
    model = {"hbm": bench.hbm.view(0).copy(), "host": bench.host.view(WINDOW[0] * 4096).copy()}
    errors: list[list[int]] = []
    for i, writer in enumerate(bench.writers):
        errors.append([])
        for line in mixed_lines(150, i, len(WRITERS)):
            value = random.getrandbits(512)
            strobe = random.choice([(1 << 64) - 1, random.getrandbits(64)])
            writer.request(line, value, strobe)
            # A trusted writer reaches all of host memory; this one has only window and message.
            trusted = i == TRUSTED and line >= HOST
            error = bench.host.error_of(line - HOST) if trusted else bench.peek(line)[1]
            errors[-1].append(error)
            if error is LineError.OK and line != MESSAGE:
                place = "host" if line >= HOST else "hbm"
                local = line - (HOST_FIRST if place == "host" else HBM)
                raw = value.to_bytes(64, "little")
                for k in range(64):
                    if strobe >> k & 1:
                        model[place][local * 64 + k] = raw[k]
    await bench.finished()
    for writer, wanted in zip(bench.writers, errors, strict=True):
        assert [answer["error"] for answer in writer.sink.received] == wanted
    assert (bench.hbm.view(0) == model["hbm"]).all()
    assert (bench.host.view(WINDOW[0] * 4096) == model["host"]).all()
    moved = int(dut.hbm_write_bytes.value) + int(dut.host_write_bytes.value)
    assert moved == 64 * sum(error == 0 for wanted in errors for error in wanted)


@cocotb.test()
async def only_the_trusted_writer_sends_messages(dut: Any) -> None:
    bench = await start(dut)
    for i, writer in enumerate(bench.writers):
        expected = LineError.OK if i == TRUSTED else LineError.ADDRESS
        assert await writer.write(MESSAGE, i, 0xF) == expected
        dut.window_base.value, dut.window_limit.value = 0, 0xFFFFFFFF
        assert await writer.write(MESSAGE, i, 0xF) == expected
        dut.window_base.value, dut.window_limit.value = WINDOW
    assert bench.host_write.lines == [MESSAGE - HOST] * 2
    dut.window_limit.value = WINDOW[0]
    assert (await bench.readers[1].read(HOST_FIRST))[1] == LineError.ADDRESS
    assert bench.host_read.lines == []


@cocotb.test()
async def full_rate_on_all_four_paths(dut: Any) -> None:
    """1 line a cycle from each target in each direction, all at the same time."""
    bench = await start(dut, latency=24)
    count = 200
    for i in range(1, 4):
        for k in range(count):
            line = (HBM if i != 2 else HOST_FIRST) + k
            bench.readers[i].request(line)
            bench.writers[i].request(line, k)
    await bench.finished()
    for initiators in (bench.readers, bench.writers):
        # Ports 1 and 3 share HBM, port 2 has host memory for itself.
        shared = sorted(initiators[1].sink.received_at + initiators[3].sink.received_at)
        for cycles in (shared, initiators[2].sink.received_at):
            assert cycles[-1] - cycles[0] == len(cycles) - 1
            assert len(set(cycles)) == len(cycles)
        assert len(shared) == 2 * count
        # Latency: 1 cycle for the crossbar.
        alone = initiators[2]
        assert alone.sink.received_at[0] - alone.source.sent_at[0] == 24 + 1
        # Round robin: at any time both have got the same, give or take one.
        for k in range(count):
            gap = initiators[1].source.sent_at[k] - initiators[3].source.sent_at[k]
            assert abs(gap) <= 1
    assert int(dut.hbm_read_bytes.value) == int(dut.hbm_write_bytes.value) == 2 * count * 64
    assert int(dut.host_read_bytes.value) == int(dut.host_write_bytes.value) == count * 64


@cocotb.test()
async def control_traffic_goes_first(dut: Any) -> None:
    bench = await start(dut, latency=24)
    for i in range(1, 4):
        for k in range(300):
            bench.readers[i].request(HBM + k)
            bench.writers[i].request(HBM + k, k)
    await ClockCycles(dut.clk, 60)
    for control in (bench.readers[0], bench.writers[0]):
        first = control.source.cycle
        if isinstance(control, ReadInitiator):
            await control.read(HBM + 5)
        else:
            await control.write(HBM + 5, 5)
        # The agent shows its request after one edge; the crossbar grants it at the next.
        assert control.source.sent_at[-1] - first == 2
        assert control.sink.received_at[-1] - control.source.sent_at[-1] <= 24 + 1
    assert bench.readers[1].source.pending > 0
    await bench.finished()


@cocotb.test()
async def a_slow_target_does_not_stop_the_other(dut: Any) -> None:
    bench = await start(dut, latency=10)
    bench.host_read.stall = 1.0
    for k in range(100):
        bench.readers[1].request(HOST_FIRST + k)
        bench.readers[2].request(HBM + k)
    await bench.readers[2].finished(140)
    assert bench.readers[1].sink.received == []
    bench.host_read.stall = 0.0
    await bench.finished()


@cocotb.test()
async def refusals_wait_for_their_turn(dut: Any) -> None:
    """A refused line between granted ones is answered between them."""
    bench = await start(dut, latency=20)
    wanted = [HBM, HBM + 1, 0, 0, HOST_FIRST, 0, HBM + 2]
    for line in wanted:
        bench.readers[1].request(line)
    answers = await bench.readers[1].finished()
    assert [answer["error"] for answer in answers] == [0, 0, 1, 1, 0, 1, 0]
    assert bench.hbm_read.lines == [0, 1, 2]
    assert bench.host_read.lines == [HOST_FIRST - HOST]


@cocotb.test()
async def full_queues_lose_nothing(dut: Any) -> None:
    """A target that answers late fills the order queue, which holds further requests back."""
    bench = await start(dut, latency=300)
    for k in range(100):
        for i in (1, 2, 3):
            bench.readers[i].request(HBM + 100 * i + k)
            bench.writers[i].request(HBM + 100 * i + k, k)
    await bench.finished()
    assert bench.hbm_read.most_outstanding == bench.hbm_write.most_outstanding == 64
    for i in (1, 2, 3):
        answers = [answer["error"] for answer in bench.readers[i].sink.received]
        assert answers == [0] * 100
        assert [bench.peek(HBM + 100 * i + k)[0] for k in range(100)] == list(range(100))


@cocotb.test()
async def many_refusals_are_counted(dut: Any) -> None:
    bench = await start(dut)
    bench.readers[1].sink.stall = 1.0
    for _ in range(150):
        bench.readers[1].request(0)
    await ClockCycles(dut.clk, 200)
    assert bench.readers[1].source.sent == 64
    bench.readers[1].sink.stall = 0.0
    answers = await bench.readers[1].finished()
    assert answers == [{"data": 0, "error": LineError.ADDRESS}] * 150


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_crossbar(sim: str) -> None:
    crossbar = Crossbar(
        readers=READERS, writers=WRITERS, hbm_bytes=HBM_LINES * 64, trusted_writers=[TRUSTED]
    )
    run_block(crossbar, __name__, sim=sim)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_refuses_bad_parameters() -> None:
    with pytest.raises(ValueError, match="trusted must name existing ports, not 2"):
        Crossbar(readers=[0], writers=[0, 1], hbm_bytes=64, trusted_writers=[2])
    with pytest.raises(ValueError, match="multiple of 64, not 65"):
        Crossbar(readers=[0], writers=[0], hbm_bytes=65)
