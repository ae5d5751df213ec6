"""The core in its test bench: memory agents, registers, golden model, checks of every block."""

from typing import Any

import numpy as np
from amaranth import DomainRenamer, Module
from amaranth.lib import wiring
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from numpy.typing import NDArray

from abi.address import HBM_BASE, LINE_BYTES
from abi.core import PIPES, CommandOpcode, Pipe
from abi.registers_core import (
    CORE_COUNTERS,
    CORE_FAULT_BLOCK,
    CORE_GRID,
    CORE_START,
    CORE_STATE,
    CoreOperation,
)
from abi.registers_firmware import CORE_BLOCK
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.clocking import gated_domain, work_of
from rtl.core.core import UNITS, AiCore
from tb.blocks.core.programs import MEMORY_BYTES, SIZES, Step, load, move, program
from tb.blocks.host.gated import join
from tb.blocks.host.register_agent import RegisterInitiator
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import StreamSink, reset_dut
from tb.models.core import BlockStart, CoreModel, CoreResult

__all__ = ["CODE_OFFSET", "CORE", "CoreBench", "core_under_test"]

CORE = 1
"""Number of the core under test."""

CODE_OFFSET = MEMORY_BYTES * 7 // 8

Coordinates = tuple[int, int, int]


class GatedCore(wiring.Component):
    """The core as the chip has it: itself behind a clock gate, and its units behind others."""

    def __init__(self) -> None:
        self._domains = {unit: f"core_{unit}" for unit in UNITS}
        self._core = AiCore(core=CORE, **SIZES, cache_lines=16, domains=self._domains)
        super().__init__(dict(self._core.signature.members.items()))

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        core = self._core
        gated_domain(m, "core", enable=work_of(core))
        for unit, domain in self._domains.items():
            gated_domain(m, domain, enable=getattr(core.active, unit), source="core")
        m.submodules.core = DomainRenamer("core")(core)
        join(m, self, core, dict(core.signature.members.items()))
        return m


def core_under_test() -> GatedCore:
    """The core that all tests share, and so its build."""
    return GatedCore()


class CoreBench:
    """Attributes: `memory` (that of the core), `model` with a memory of its own in `expected`."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.memory = LineMemory({HBM_BASE: MEMORY_BYTES})
        self.view = self.memory.view(HBM_BASE)
        self.expected = np.zeros(MEMORY_BYTES, np.uint8)
        self.model = CoreModel({HBM_BASE: self.expected}, number=CORE, **SIZES)

    async def start(self, *, stall: float = 0.0, latency: int | tuple[int, int] = 24) -> None:
        """Reset; `stall` and `latency` apply to all memory ports."""
        dut = self.dut
        dut.rst.value = 1
        dut.product_xor.value = 0
        agents: dict[str, Any] = {"memory": self.memory, "latency": latency, "stall": stall}
        self.reads = ReadTarget(dut, "read_port", **agents)
        self.loads = ReadTarget(dut, "load_port", **agents)
        self.stores = WriteTarget(dut, "store_port", **agents)
        self.bus = RegisterInitiator(dut, "bus")
        self.trace = StreamSink(dut, "trace", layout=TRACE_EVENT)
        Clock(dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(dut)
        self.mark()

    async def fill_buffers(self) -> None:
        """Buffers keep their contents over a reset: set them all, in core and model."""
        rows, ub_rows = SIZES["l1_lines"] // 64, SIZES["ub_lines"] // 64
        wide = {"stride": 64 * 64, "row_bytes": 64 * 64, "pitch": 64}
        steps = [load(set=1, rows=rows, **wide), load(target=1, rows=ub_rows, **wide)]
        names = ("l0a_lines", "l0b_lines", "l0c_lines", "bias_lines")
        for target, name in enumerate(names):
            steps.append(move(target=target, wait=int(target == 0), row_lines=SIZES[name], rows=1))
        result = await self.check(steps)
        assert result.status is Status.OK

    def fill(self, data: NDArray[np.uint8], offset: int = 0) -> None:
        """Write global memory of core and model."""
        self.view[offset : offset + data.size] = data
        self.expected[offset : offset + data.size] = data

    async def write(self, name: str, value: int) -> None:
        await self.bus.write(CORE_BLOCK.address(name), value)

    async def read(self, name: str) -> int:
        return await self.bus.read(CORE_BLOCK.address(name))

    async def operate(self, operation: CoreOperation, block_x: int = 0) -> bool:
        """Write CORE_START; whether it was accepted."""
        word = CORE_START.pack(operation=operation, block_x=block_x)
        return await self.bus.access_write(CORE_BLOCK.address("start"), word)

    async def place(
        self,
        code: bytes,
        arguments: bytes = b"",
        *,
        entry: int = 0,
        grid: Coordinates = (1, 1, 1),
        code_bytes: int | None = None,
        base: int = HBM_BASE + CODE_OFFSET,
    ) -> BlockStart:
        """Place a kernel and write its registers; the arguments lie behind it."""
        padded = -(-len(code) // LINE_BYTES) * LINE_BYTES
        image = np.frombuffer(code.ljust(padded, b"\0") + arguments, np.uint8)
        assert image.size <= MEMORY_BYTES - CODE_OFFSET
        if base == HBM_BASE + CODE_OFFSET:
            self.fill(image, CODE_OFFSET)
        nbytes = len(code) if code_bytes is None else code_bytes
        await self.write("code", base)
        await self.write("sizes", nbytes | len(arguments) << 32)
        await self.write("arguments", base + padded)
        await self.write("grid", CORE_GRID.pack(dict(zip("xyz", grid, strict=True))))
        await self.write("entry", entry)
        return BlockStart(
            code=base,
            code_bytes=nbytes,
            arguments=base + padded,
            argument_bytes=len(arguments),
            entry=entry,
            grid=grid,
        )

    def mark(self) -> None:
        """What counters and trace gain from now on is that of the next block."""
        self.first_event = len(self.trace.received)
        self.before = self.counters()

    async def launch(self, block: Coordinates = (0, 0, 0)) -> None:
        """Start a block of the kernel that was placed."""
        await self.write("block_yz", block[1] | block[2] << 16)
        self.mark()
        assert await self.operate(CoreOperation.START, block[0])

    async def finished(self, cycles: int = 100_000) -> dict[str, int]:
        """Wait for the end; the fields of CORE_STATE. Nothing may be outstanding then."""
        edge = RisingEdge(self.dut.clk)
        for _ in range(cycles):
            await edge
            if int(self.dut.done.value):
                break
        else:
            raise AssertionError(f"the core must end within {cycles} cycles")
        for agent in (self.reads, self.loads, self.stores):
            assert agent.outstanding == 0
        await self.settle()
        state = await self.state()
        assert state.pop("busy") == state.pop("pending") == 0
        await self.settle()
        assert int(self.dut.idle.value)
        self._check_counters()
        return state

    async def state(self) -> dict[str, int]:
        state = CORE_STATE.unpack(await self.read("state"))
        assert not any(value for name, value in state.items() if name.startswith("unused"))
        return {name: value for name, value in state.items() if not name.startswith("unused")}

    def counters(self) -> dict[str, int]:
        values = {n: int(getattr(self.dut, f"counters__{n}").value) for n in CORE_COUNTERS}
        return {**values, "retired": int(self.dut.retired.value)}

    def spent(self) -> dict[str, int]:
        """What the counters gained since the last launch."""
        return {name: value - self.before[name] for name, value in self.counters().items()}

    def _check_counters(self) -> None:
        spent = self.spent()
        for pipe in Pipe:
            parts = [spent[f"{pipe.name.lower()}_{kind}"] for kind in ("busy", "stall", "idle")]
            assert sum(parts) == spent["core_cycles"], f"{pipe.name}: {parts}"

    def events(self, source: TraceSource, instance: int = CORE) -> list[tuple[int, int]]:
        """Code and argument of the events of the last block."""
        return [
            (event["code"], event["argument"])
            for event in self.trace.received[self.first_event :]
            if (event["source"], event["instance"]) == (source, instance)
        ]

    def spans(self, pipe: Pipe) -> list[tuple[int, int]]:
        """Events of a pipe."""
        return self.events(TraceSource.PIPE, 8 * CORE + pipe)

    def _check_trace(self, status: int, number: int) -> None:
        """BEGIN and END of the core and of every pipe, in pairs, in order of the commands."""
        core = self.events(TraceSource.CORE)
        assert core == [(TraceCode.BEGIN, number), (TraceCode.END, status)]
        count = 2
        for pipe in PIPES:
            events = self.spans(pipe)
            count += len(events)
            begins, ends = events[::2], events[1::2]
            assert len(begins) == len(ends)
            assert all(code == TraceCode.BEGIN for code, _ in begins)
            assert all(code == TraceCode.END for code, _ in ends)
            assert [pc for _, pc in begins] == [argument >> 8 for _, argument in ends]
        assert count == len(self.trace.received) - self.first_event

    async def check(
        self,
        work: list[Step] | bytes,
        arguments: bytes = b"",
        *,
        bases: dict[int, int] | None = None,
        grid: Coordinates = (1, 1, 1),
        block: Coordinates = (0, 0, 0),
        entry: int = 0,
        cycles: int = 100_000,
    ) -> CoreResult:
        """Run steps or code on core and model: outcome, counters, memory and trace must agree.

        `bases` are the base registers of steps; register 0 is HBM_BASE unless it is given.
        """
        code = work if isinstance(work, bytes) else program(work, {0: HBM_BASE, **(bases or {})})
        start = await self.place(code, arguments, entry=entry, grid=grid)
        await self.launch(block)
        state = await self.finished(cycles)
        result = self.model.run(BlockStart(**{**start.__dict__, "block": block}))
        expected = {"status": result.status, "pipe": result.pipe, "pc": result.pc}
        assert state == expected, f"{state}, not {expected}"
        assert await self.read("fault_address") == result.address
        number = (block[0] + grid[0] * (block[1] + grid[1] * block[2])) % 2**40
        await self.settle()
        self._check_trace(result.status, number)
        spent = self.spent()
        if result.status is not Status.OK:
            where = CORE_FAULT_BLOCK.pack(dict(zip("xyz", block, strict=True)))
            assert await self.read("fault_block") == where
            # What happened besides is undefined.
            self.expected[:] = self.view
            return result
        assert await self.read("fault_block") == 0
        assert await self.read("retired") == self.before["retired"] + result.retired
        for name in ("macs", "read_bytes", "write_bytes", "instructions"):
            assert spent[f"core_{name}"] == getattr(result, name), name
        assert np.array_equal(self.view, self.expected), self._difference()
        if not isinstance(work, bytes):
            alone = sum(step.opcode is CommandOpcode.NOP for step in work)
            spans = sum(len(self.spans(pipe)) for pipe in PIPES)
            assert spans == 2 * (result.retired - alone)
        return result

    def _difference(self) -> str:
        at = np.flatnonzero(self.view != self.expected)
        return f"{at.size} bytes differ, from {at[0]:#x} to {at[-1]:#x}"

    async def settle(self, cycles: int = 4) -> None:
        edge = RisingEdge(self.dut.clk)
        for _ in range(cycles):
            await edge
