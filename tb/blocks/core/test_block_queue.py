"""The core's registers and its queue of blocks, against a scoreboard that the test plays."""

import random
from typing import Any

import cocotb
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from abi.core import Pipe
from abi.registers_core import CORE_FAULT_BLOCK, CORE_GRID, CORE_START, CORE_STATE, CoreOperation
from abi.registers_firmware import CORE_BLOCK
from abi.status import Status
from rtl.core.block_queue import BLOCK, BlockQueue
from rtl.core.dispatch import SCALAR_FAULT
from rtl.core.scrubber import Scrubber
from tb.blocks.harness import run_block
from tb.blocks.host.gated import join
from tb.blocks.host.register_agent import RegisterInitiator
from tb.blocks.streams import pack, reset_dut, unpack

LINES = 32


class QueueAndScrubber(wiring.Component):
    """A block queue with its scrubber; `others` holds a scrub."""

    def __init__(self) -> None:
        self._queue = BlockQueue()
        members = dict(self._queue.signature.members.items())
        self._scrub = {name: members.pop(name) for name in ("scrubbing", "scrubbed")}
        super().__init__({**members, "others": In(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = self._queue
        m.submodules.scrubber = scrubber = Scrubber(lines=LINES)
        members = dict(queue.signature.members.items())
        join(m, self, queue, {n: x for n, x in members.items() if n not in self._scrub})
        m.d.comb += [
            scrubber.start.eq(queue.scrub),
            scrubber.others.eq(self.others),
            queue.scrubbing.eq(scrubber.busy),
            queue.scrubbed.eq(scrubber.finished),
        ]
        return m


class Bench:
    """Writes registers; plays the scoreboard: a block runs from `start` until `end`."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.bus = RegisterInitiator(dut, "bus")
        for name in ("running", "stop", "finished", "fault", "fault_valid", "others", "retired"):
            getattr(dut, name).value = 0
        self.started: list[dict[str, int]] = []
        self.flushes: list[bool] = []
        self.done = 0
        self._ending: int | None = None
        self._flushed = False
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._play())

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    def end(self, fault: int | None = None) -> None:
        """Let the running block end; `fault`: a packed SCALAR_FAULT."""
        self._ending = fault or 0

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            if not self.dut.rst.value:
                self.done += int(self.dut.done.value)
                self._flushed |= bool(self.dut.flush.value)

    async def _play(self) -> None:
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        while True:
            await edge
            if dut.rst.value or not dut.start.value:
                continue
            assert not int(dut.running.value)
            self.started.append(unpack(BLOCK, int(dut.block.value)))
            self.flushes.append(self._flushed)
            self._flushed = False
            dut.running.value = 1
            self._ending = None
            while self._ending is None:
                await edge
                assert not dut.start.value
                assert not dut.flush.value
                assert unpack(BLOCK, int(dut.block.value)) == self.started[-1]
                if dut.cancel.value:
                    self._ending = fault(Status.ABORTED, 4)
            if self._ending:
                dut.fault.value = self._ending
                dut.fault_valid.value = 1
                await edge
                dut.fault_valid.value = 0
            dut.stop.value = 1
            for _ in range(random.randint(1, 5)):
                await edge
            dut.stop.value = 0
            dut.running.value = 0
            dut.finished.value = 1
            await edge
            dut.finished.value = 0
            # A start comes some cycles behind the end of the block before.
            assert not dut.start.value

    async def write(self, name: str, value: int) -> None:
        await self.bus.write(CORE_BLOCK.address(name), value)

    async def operate(self, operation: int, block_x: int = 0) -> bool:
        """Whether it was accepted."""
        word = CORE_START.pack(operation=operation, block_x=block_x)
        return await self.bus.access_write(CORE_BLOCK.address("start"), word)

    async def state(self) -> dict[str, int]:
        state = CORE_STATE.unpack(await self.bus.read(CORE_BLOCK.address("state")))
        return {name: value for name, value in state.items() if not name.startswith("unused")}

    async def settings(self) -> dict[str, int]:
        """Random settings; what a block that starts now must see, without its x."""
        values = {name: random.getrandbits(shape.width) for name, shape in BLOCK}
        await self.write("code", values["code"])
        await self.write("sizes", values["code_bytes"] | values["argument_bytes"] << 32)
        await self.write("arguments", values["arguments"])
        grid = {axis: values[f"grid_{axis}"] for axis in "xyz"}
        await self.write("grid", CORE_GRID.pack(grid))
        await self.write("entry", values["entry"])
        await self.write("block_yz", values["block_y"] | values["block_z"] << 16)
        return values


def fault(status: int, pc: int, pipe: int = Pipe.SCALAR, address: int = 0) -> int:
    return pack(SCALAR_FAULT, {"status": status, "pc": pc, "pipe": pipe, "address": address})


def numbered(values: dict[str, int], block_x: int) -> dict[str, int]:
    number = block_x + values["grid_x"] * (
        values["block_y"] + values["grid_y"] * values["block_z"] & 0xFFFF_FFFF
    )
    return {**values, "block_x": block_x, "number": number % 2**40}


QUIET = {"busy": 0, "pending": 0, "status": 0, "pipe": 0, "pc": 0}


@cocotb.test()
async def blocks_in_order(dut: Any) -> None:
    """One runs, one waits with the settings of its START; a third is refused."""
    bench = Bench(dut)
    await bench.start()
    assert await bench.state() == QUIET
    expected = []
    for turn in range(12):
        fresh = turn % 3 == 0
        if fresh:
            values = await bench.settings()
        x = random.getrandbits(32)
        assert await bench.operate(CoreOperation.START, x)
        expected.append(numbered(values, x))
        if turn == 0:
            await bench.cycles(10)
            assert await bench.state() == {**QUIET, "busy": 1}
            continue
        assert await bench.state() == {**QUIET, "busy": 1, "pending": 1}
        assert not await bench.operate(CoreOperation.START, 1)
        assert not await bench.operate(CoreOperation.SCRUB)
        bench.end()
        await bench.cycles(15)
        assert bench.started == expected
        assert bench.done == turn
        assert await bench.state() == {**QUIET, "busy": 1}
    assert bench.flushes == [turn % 3 == 0 for turn in range(12)]
    bench.end()
    await bench.cycles(15)
    assert await bench.state() == QUIET
    assert await bench.bus.read(CORE_BLOCK.address("blocks")) == 12 == bench.done
    await bench.cycles(3)
    assert int(dut.idle.value)


@cocotb.test()
async def sticky_faults(dut: Any) -> None:
    """The first fault drops the next block and stays until CORE_CODE is written."""
    bench = Bench(dut)
    await bench.start()
    for pending in (False, True, True):
        values = await bench.settings()
        assert await bench.operate(CoreOperation.START, 7)
        await bench.cycles(10)
        if pending:
            assert await bench.operate(CoreOperation.START, 8)
        ran = len(bench.started)
        pc, address = random.getrandbits(32), random.getrandbits(64)
        bench.end(fault(Status.BUS_ERROR, pc, Pipe.MTE3, address))
        await bench.cycles(30)
        assert len(bench.started) == ran
        shown = {**QUIET, "status": Status.BUS_ERROR, "pipe": Pipe.MTE3, "pc": pc}
        assert await bench.state() == shown
        assert not await bench.operate(CoreOperation.START, 9)
        assert await bench.operate(CoreOperation.DROP)
        assert await bench.operate(CoreOperation.ABORT)
        assert await bench.operate(CoreOperation.SCRUB)
        await bench.cycles(LINES + 20)
        assert await bench.state() == shown
        assert await bench.bus.read(CORE_BLOCK.address("fault_address")) == address
        block = CORE_FAULT_BLOCK.pack(x=7, y=values["block_y"], z=values["block_z"])
        assert await bench.bus.read(CORE_BLOCK.address("fault_block")) == block
        await bench.write("code", 64)
        assert await bench.state() == QUIET
        assert await bench.bus.read(CORE_BLOCK.address("fault_address")) == 0
        assert await bench.bus.read(CORE_BLOCK.address("fault_block")) == 0


@cocotb.test()
async def drops_and_aborts(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for turn in range(40):
        if turn % 2 == 0 or dut.idle.value:
            await bench.write("code", 64 * turn)
        ran = len(bench.started)
        assert await bench.operate(CoreOperation.START, 1)
        # At any distance from the start.
        await bench.cycles(random.choice([0, 0, 1, 2, 20]))
        pending = turn % 3 != 0 and await bench.operate(CoreOperation.START, 2)
        operation = random.choice([CoreOperation.DROP, CoreOperation.ABORT])
        if operation is CoreOperation.DROP:
            await bench.cycles(10)
        assert await bench.operate(operation)
        await bench.cycles(20)
        state = await bench.state()
        assert len(bench.started) == ran + 1
        if operation is CoreOperation.DROP:
            assert state == {**QUIET, "busy": 1}
            bench.end()
            await bench.cycles(20)
            assert await bench.state() == QUIET
        else:
            assert state == {**QUIET, "status": Status.ABORTED, "pipe": Pipe.SCALAR, "pc": 4}
            await bench.write("code", 0)
        assert await bench.bus.read(CORE_BLOCK.address("blocks")) == turn + 1
        assert len(bench.started) == ran + 1, f"pending {pending}"
    # A block that was dropped had to empty the cache; the next one does it in its place.
    await bench.write("code", 128)
    assert await bench.operate(CoreOperation.START, 1)
    await bench.cycles(20)
    await bench.write("code", 192)
    assert await bench.operate(CoreOperation.START, 2)
    assert await bench.operate(CoreOperation.DROP)
    assert await bench.operate(CoreOperation.START, 3)
    bench.end()
    await bench.cycles(30)
    assert (bench.started[-1]["block_x"], bench.flushes[-1]) == (3, True)
    bench.end()
    await bench.cycles(20)
    # An abort of an idle core does nothing, also later.
    assert await bench.operate(CoreOperation.ABORT)
    assert await bench.operate(CoreOperation.START, 4)
    await bench.cycles(20)
    assert await bench.state() == {**QUIET, "busy": 1}
    assert bench.flushes[-1] is False


@cocotb.test()
async def scrubs(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for operation in (4, 5, 255):
        assert not await bench.operate(operation)
    dut.others.value = 1
    assert await bench.operate(CoreOperation.SCRUB)
    assert await bench.state() == {**QUIET, "busy": 1}
    assert not await bench.operate(CoreOperation.SCRUB)
    assert not await bench.operate(CoreOperation.START)
    await bench.cycles(LINES + 20)
    assert (await bench.state())["busy"] == 1
    assert bench.done == 0
    dut.others.value = 0
    await bench.cycles(5)
    assert bench.done == 1
    assert await bench.state() == QUIET
    assert await bench.bus.read(CORE_BLOCK.address("blocks")) == 0
    assert await bench.operate(CoreOperation.START)
    await bench.cycles(10)
    assert len(bench.started) == 1


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_block_queue(sim: str) -> None:
    run_block(QueueAndScrubber(), __name__, sim=sim)
