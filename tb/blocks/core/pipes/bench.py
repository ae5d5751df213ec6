"""Drives `PipesMachine` and compares all of its buffers and its memory with the golden model."""

import os
import random
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from numpy.typing import NDArray

from abi.address import HBM_BASE, LINE_BYTES
from abi.core import COMMANDS, OPCODE_PIPE, CommandOpcode, Pipe
from abi.status import Status
from rtl.core.pipe import DONE
from tb.blocks.core.pipes.machine import ALLOWED, BUFFERS, PIPE_NAMES
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import StreamSink, StreamSource, reset_dut
from tb.models.pipes import PipesModel

__all__ = ["HIGH", "LOW", "MAIN", "MAIN_BYTES", "Bench", "Command", "random_place"]

MAIN, MAIN_BYTES = HBM_BASE, 32768
"""The memory that most commands use."""

LOW, HIGH, EDGE_BYTES = 0, (1 << 48) - 4096, 4096
"""Memory at both ends of the address space."""

Command = tuple[CommandOpcode, dict[str, int], int]
"""Opcode, fields, value of the base register."""


def random_place(address: int) -> tuple[int, int]:
    """A base and an offset that make an address."""
    while True:
        offset = random.choice([0, random.randint(-(2**31), 2**31 - 1), random.randint(-500, 500)])
        if 0 <= address - offset < 1 << 48:
            return address - offset, offset


class Bench:
    """The pipes, the memory behind them, and the model with the same contents.

    Args:
        stall: chance per cycle that a stream, a memory or a buffer refuses.
        latency: of memory, in cycles.
    """

    def __init__(
        self, dut: Any, *, stall: float = 0.0, latency: int | tuple[int, int] = (1, 20)
    ) -> None:
        self.dut = dut
        sizes = {MAIN: MAIN_BYTES, LOW: EDGE_BYTES, HIGH: EDGE_BYTES}
        self.memory = LineMemory(sizes)
        self.model = PipesModel(
            {base: np.zeros(nbytes, np.uint8) for base, nbytes in sizes.items()},
            **{f"{name}_lines": lines for name, lines in BUFFERS.items()},
        )
        self.stall = stall
        self.cycle = 0
        self.acknowledged = 0
        self.worked: dict[str, list[int]] = {name: [] for name in PIPE_NAMES}
        inputs = ("host", "host_write", "host_buffer", "host_line", "host_data", "stop", "allowed")
        for name in inputs:
            getattr(dut, name).value = 0
        dut.rst.value = 1
        self.commands = {
            name: StreamSource(dut, f"{name}_command", stall=stall) for name in PIPE_NAMES
        }
        self.done = {
            name: StreamSink(dut, f"{name}_done", layout=DONE, stall=stall) for name in PIPE_NAMES
        }
        options: dict[str, Any] = {"latency": latency, "stall": stall}
        self.load = ReadTarget(dut, "load", self.memory, **options)
        self.store = WriteTarget(dut, "store", self.memory, **options)
        self.save = WriteTarget(dut, "save", self.memory, **options)

    async def start(self) -> None:
        """Reset, and fill everything with random bytes."""
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        cocotb.start_soon(self._run())
        await self.fill()

    async def _run(self) -> None:
        edge = RisingEdge(self.dut.clk)
        allowed = 0
        working = {name: getattr(self.dut, f"{name}_working") for name in PIPE_NAMES}
        acknowledged = self.dut.acknowledged
        while True:
            await edge
            self.cycle += 1
            self.acknowledged += int(acknowledged.value)
            for name, handle in working.items():
                if int(handle.value):
                    self.worked[name].append(self.cycle)
            wanted = sum((random.random() >= self.stall) << i for i in range(len(ALLOWED)))
            if wanted != allowed:
                allowed = wanted
                self.dut.allowed.value = allowed

    async def settle(self, cycles: int) -> None:
        """Let cycles pass."""
        edge = RisingEdge(self.dut.clk)
        for _ in range(cycles):
            await edge

    def model_buffers(self) -> dict[str, NDArray[np.uint8]]:
        """The model's buffers by name."""
        return {name: getattr(self.model, name) for name in BUFFERS}

    async def fill(self) -> None:
        """Random bytes in all buffers and in memory, and in the model."""
        for array in self.model.memory.regions.values():
            array[:] = np.frombuffer(random.randbytes(array.size), np.uint8)
        for buffer in self.model_buffers().values():
            buffer[:] = np.frombuffer(random.randbytes(buffer.size), np.uint8).reshape(buffer.shape)
        await self.restore()

    async def restore(self) -> None:
        """Give buffers and memory the model's contents."""
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        for base, array in self.model.memory.regions.items():
            self.memory.view(base)[:] = array
        dut.host.value = dut.host_write.value = 1
        for number, buffer in enumerate(self.model_buffers().values()):
            dut.host_buffer.value = number
            for line, values in enumerate(buffer):
                dut.host_line.value = line
                dut.host_data.value = int.from_bytes(values.tobytes(), "little")
                await edge
        dut.host.value = dut.host_write.value = 0
        await edge

    async def contents(self) -> dict[str, NDArray[np.uint8]]:
        """What the buffers hold."""
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        dut.host.value = 1
        result = {}
        for number, (name, lines) in enumerate(BUFFERS.items()):
            dut.host_buffer.value = number
            rows = []
            for line in range(lines + 1):
                dut.host_line.value = line % lines
                await edge
                if line:
                    value = int(dut.host_read.value)
                    rows.append(np.frombuffer(value.to_bytes(LINE_BYTES, "little"), np.uint8))
            result[name] = np.array(rows)
        dut.host.value = 0
        await edge
        return result

    async def compare(self) -> None:
        """All buffers and all memory are as in the model."""
        for name, values in (await self.contents()).items():
            expected = getattr(self.model, name)
            wrong = np.flatnonzero((values != expected).any(axis=1))
            assert wrong.size == 0, f"{name}: lines {wrong.tolist()} differ"
        for base, array in self.model.memory.regions.items():
            wrong = np.flatnonzero(self.memory.view(base) != array)
            assert wrong.size == 0, f"memory: {wrong.size} bytes from {base + wrong[0]:#x} differ"

    def send(self, command: Command) -> str:
        """Queue a command; the name of its pipe."""
        opcode, fields, base = command
        name = Pipe(OPCODE_PIPE[opcode]).name.lower()
        word = COMMANDS[opcode].pack(opcode=opcode, **fields)
        self.commands[name].send(word if name == "mte1" else word | base << 256)
        return name

    async def run(
        self, commands: Sequence[Command], *, compare: bool = True, cycles: int = 50000
    ) -> list[tuple[Status, int]]:
        """Execute commands of one pipe and compare outcomes, counters and, at the end, everything.

        The last one may fail in memory. Gives status and address of each.
        """
        before = self.model.read_bytes, self.model.write_bytes
        lines, acknowledged = len(self.load.lines), self.acknowledged
        outcomes = []
        name = ""
        for opcode, fields, base in commands:
            name = self.send((opcode, fields, base))
            record = COMMANDS[opcode]
            whole = record.unpack(record.pack(opcode=opcode, **fields))
            outcomes.append(self.model.execute(opcode, whole, base))
        seen = len(self.done[name].received)
        try:
            received = await self.done[name].wait(seen + len(commands), cycles)
        except AssertionError:
            print(self.done[name].received[seen:], outcomes, self.commands[name].pending)
            raise
        got = [(Status(item["status"]), item["address"]) for item in received[seen:]]
        assert got == outcomes, f"{got}, not {outcomes}: {commands}"
        await self.settle(2)
        failed = any(status not in (Status.OK, Status.BUFFER_OVERFLOW) for status, _ in outcomes)
        if failed:
            return got
        assert int(getattr(self.dut, f"{name}_idle").value)
        assert len(self.load.lines) - lines == (self.model.read_bytes - before[0]) // LINE_BYTES
        assert self.acknowledged - acknowledged == self.model.write_bytes - before[1]
        if compare:
            try:
                await self.compare()
            except AssertionError:
                print(os.linesep.join(map(str, commands)))
                raise
        return got

    async def halt(self) -> None:
        """Stop all pipes until they are idle; nothing is left to happen then."""
        sinks = list(self.done.values())
        # Else an outcome that waits would be withdrawn, which breaks the stream's rule.
        for sink in sinks:
            sink.stall = 0.0
        await self.settle(2)
        self.dut.stop.value = 1
        for _ in range(1000):
            await self.settle(1)
            idle = all(int(getattr(self.dut, f"{name}_idle").value) for name in PIPE_NAMES)
            if idle and not any(source.pending for source in self.commands.values()):
                break
        else:
            raise AssertionError("stop must end within 1000 cycles")
        self.dut.stop.value = 0
        await self.settle(1)
        counts = [len(sink.received) for sink in sinks]
        lines = len(self.load.lines), len(self.store.lines), len(self.save.lines)
        await self.settle(30)
        assert [len(sink.received) for sink in sinks] == counts
        assert lines == (len(self.load.lines), len(self.store.lines), len(self.save.lines))
        assert [port.outstanding for port in (self.load, self.store, self.save)] == [0, 0, 0]
        for sink in sinks:
            sink.stall = self.stall

    async def adopt(self) -> None:
        """Give the model what buffers and memory hold."""
        for name, values in (await self.contents()).items():
            getattr(self.model, name)[:] = values
        for base, array in self.model.memory.regions.items():
            array[:] = self.memory.view(base)
