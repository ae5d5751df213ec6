"""The vector unit with its buffer, and the golden model with the same contents."""

import random
from typing import Any

import cocotb
import numpy as np
from amaranth import DomainRenamer, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from numpy.typing import NDArray

from abi.core import VECTOR_COMMAND, CommandOpcode
from abi.status import Status
from rtl.clocking import gated_domain, work_of
from rtl.core.pipe import DONE
from rtl.core.unified_buffer import UnifiedBuffer
from rtl.core.vector.unit import VectorUnit
from tb.blocks.core.vector.commands import random_words
from tb.blocks.streams import StreamSink, StreamSource, reset_dut
from tb.models.vector import execute_vector

__all__ = ["LINES", "SCRATCH", "VectorBench", "VectorWithBuffer"]

LINES = 256
"""Size of UB under test. Competing accesses use its last eight lines, commands the others."""

SCRATCH = LINES - 8


class VectorWithBuffer(wiring.Component):
    """A vector unit with a gated clock, on UB. The ports of the other pipes lead outside."""

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(stream.Signature(VECTOR_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "working": Out(1),
                "idle": Out(1),
                "read": In(1),
                "read_line": In(8),
                "read_granted": Out(1),
                "read_data": Out(512),
                "write": In(2),
                "write_line": In(8).array(2),
                "write_data": In(512).array(2),
                "write_granted": Out(2),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        vector = VectorUnit(lines=LINES)
        gated_domain(m, "vector", enable=work_of(vector) | self.stop)
        m.submodules.vector = DomainRenamer("vector")(vector)
        m.submodules.ub = ub = UnifiedBuffer(lines=LINES)
        wiring.connect(m, wiring.flipped(self.command), vector.command)
        wiring.connect(m, wiring.flipped(self.done), vector.done)
        m.d.comb += [
            vector.stop.eq(self.stop),
            self.working.eq(vector.working),
            self.idle.eq(vector.idle),
            ub.write[0].eq(vector.write),
            ub.write_line[0].eq(vector.write_line),
            ub.write_data[0].eq(vector.write_data),
            vector.write_granted.eq(ub.write_granted[0]),
            ub.read[3].eq(self.read),
            ub.read_line[3].eq(self.read_line),
            self.read_granted.eq(ub.read_granted[3]),
            self.read_data.eq(ub.read_data[3]),
        ]
        for port in range(3):
            m.d.comb += [
                ub.read[port].eq(vector.read[port]),
                ub.read_line[port].eq(vector.read_line[port]),
                vector.read_granted[port].eq(ub.read_granted[port]),
                vector.read_data[port].eq(ub.read_data[port]),
            ]
        for port in range(2):
            m.d.comb += [
                ub.write[port + 1].eq(self.write[port]),
                ub.write_line[port + 1].eq(self.write_line[port]),
                ub.write_data[port + 1].eq(self.write_data[port]),
                self.write_granted[port].eq(ub.write_granted[port + 1]),
            ]
        return m


class VectorBench:
    """Attributes: `model`, the contents of UB; `work`, the cycles with `working`.

    `competition` is the chance that a foreign port wants a bank in a cycle.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.model = np.zeros((LINES, 64), np.uint8)
        self.cycle = 0
        self.work: list[int] = []
        self.competition = 0.0

    async def start(self, stall: float = 0.0) -> None:
        dut = self.dut
        for name in ("stop", "read", "read_line", "write"):
            getattr(dut, name).value = 0
        for port in range(2):
            getattr(dut, f"write_line__{port}").value = 0
            getattr(dut, f"write_data__{port}").value = 0
        dut.rst.value = 1
        self.commands = StreamSource(dut, "command", stall=stall)
        self.done = StreamSink(dut, "done", layout=DONE, stall=stall)
        Clock(dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(dut)
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._compete())
        await self.fill()

    async def _watch(self) -> None:
        edge = RisingEdge(self.dut.clk)
        while True:
            await edge
            self.cycle += 1
            if int(self.dut.working.value):
                self.work.append(self.cycle)

    async def _compete(self) -> None:
        edge = RisingEdge(self.dut.clk)
        data = random.getrandbits(512)
        active = False
        while True:
            await edge
            if not self.competition and not active:
                continue
            chance = self.competition
            self.dut.read.value = int(random.random() < chance)
            self.dut.read_line.value = random.randrange(LINES)
            wanted = (random.random() < chance) | (random.random() < chance) << 1
            self.dut.write.value = wanted
            for port in range(2):
                getattr(self.dut, f"write_line__{port}").value = random.randrange(SCRATCH, LINES)
                getattr(self.dut, f"write_data__{port}").value = data
            active = bool(chance)
            if not active:
                self.dut.read.value = self.dut.write.value = 0

    async def write(self, line: int, data: NDArray[np.uint8]) -> None:
        """Write lines of UB of unit and model, without competition."""
        self.model[line : line + len(data)] = data
        for number, value in enumerate(data):
            self.dut.write.value = 1
            self.dut.write_line__0.value = line + number
            self.dut.write_data__0.value = int.from_bytes(value.tobytes(), "little")
            await RisingEdge(self.dut.clk)
        self.dut.write.value = 0

    async def fill(self) -> None:
        """Numbers of all kinds in all of UB."""
        await self.write(0, random_words(LINES * 16).view(np.uint8).reshape(LINES, 64))

    async def contents(self) -> NDArray[np.uint8]:
        """What UB holds, without competition."""
        rows = []
        edge, settled = RisingEdge(self.dut.clk), ReadOnly()
        await edge
        self.dut.read.value = 1
        for line in range(LINES):
            self.dut.read_line.value = line
            await edge
            await settled
            data = int(self.dut.read_data.value).to_bytes(64, "little")
            rows.append(np.frombuffer(data, np.uint8))
            await edge
        self.dut.read.value = 0
        return np.array(rows)

    async def compare(self, what: object) -> None:
        """UB and model agree in every bit, but in the scratch lines."""
        found = await self.contents()
        wrong = np.flatnonzero((found != self.model).any(axis=1)[:SCRATCH])
        self.model[SCRATCH:] = found[SCRATCH:]
        if wrong.size:
            line = int(wrong[0])
            got, expected = (x[line].view(np.uint32) for x in (found, self.model))
            lanes = np.flatnonzero(got != expected)
            raise AssertionError(
                f"{what}: lines {wrong} differ; line {line}, lanes {lanes}: "
                f"{[hex(word) for word in got[lanes]]}, not "
                f"{[hex(word) for word in expected[lanes]]}"
            )

    async def run(
        self, commands: list[dict[str, int]], *, competition: float = 0.0, cycles: int = 60000
    ) -> list[Status]:
        """Execute, and compare the outcome of each command and then all of UB."""
        before = len(self.done.received)
        self.competition = competition
        expected = []
        for fields in commands:
            self.commands.send(VECTOR_COMMAND.pack(fields, opcode=CommandOpcode.VECTOR))
            expected.append(execute_vector(self.model, fields))
        try:
            received = await self.done.wait(before + len(commands), cycles)
        except AssertionError as error:
            raise AssertionError(f"{error}: {commands}") from None
        self.competition = 0.0
        want = [{"status": int(status), "address": 0} for status in expected]
        assert received[before:] == want, f"{commands}: {received[before:]}, not {want}"
        for _ in range(2):
            await RisingEdge(self.dut.clk)
        assert int(self.dut.idle.value)
        await self.compare(commands)
        return expected
