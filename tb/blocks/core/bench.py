"""The core in its test bench: memory agents, registers, golden model, checks of every run."""

from typing import Any

import numpy as np
from amaranth import DomainRenamer, Module
from amaranth.lib import wiring
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from numpy.typing import NDArray

from abi.address import HBM_BASE
from abi.core import CommandOpcode, Pipe
from abi.packet import KERNEL_ARGUMENTS
from abi.registers_core import CORE_COUNTERS, CORE_STATE
from abi.registers_firmware import CORE_BLOCK
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.clocking import gated_domain, work_of
from rtl.core.core import AiCore
from tb.blocks.core.programs import MEMORY_BYTES, SIZES, end, load, move
from tb.blocks.host.gated import join
from tb.blocks.host.register_agent import RegisterInitiator
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import StreamSink, reset_dut
from tb.models.core import CoreModel, CoreResult

__all__ = ["CoreBench", "core_under_test"]

PROGRAM_OFFSET = MEMORY_BYTES * 7 // 8


class GatedCore(wiring.Component):
    """The core as a chip has it: itself and each pipe behind a clock gate."""

    def __init__(self) -> None:
        self._domains = {pipe: f"core_{pipe.name.lower()}" for pipe in Pipe}
        self._core = AiCore(
            l1_lines=SIZES["l1_lines"],
            l0a_lines=SIZES["l0a_lines"],
            l0b_lines=SIZES["l0b_lines"],
            l0c_lines=SIZES["l0c_lines"],
            bias_lines=SIZES["bias_lines"],
            domains=self._domains,
        )
        super().__init__(dict(self._core.signature.members.items()))

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        core = self._core
        gated_domain(m, "core", enable=work_of(core))
        for pipe, domain in self._domains.items():
            gated_domain(m, domain, enable=core.pipe_active[pipe])
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
        self.model = CoreModel({HBM_BASE: self.expected}, **SIZES)

    async def start(self, *, stall: float = 0.0, latency: int | tuple[int, int] = 24) -> None:
        """Reset; `stall` and `latency` apply to all memory ports."""
        dut = self.dut
        dut.rst.value = 1
        dut.product_xor.value = 0
        agents: dict[str, Any] = {"memory": self.memory, "latency": latency, "stall": stall}
        self.fetches = ReadTarget(dut, "program_port", **agents)
        self.loads = ReadTarget(dut, "load_port", **agents)
        self.stores = WriteTarget(dut, "store_port", **agents)
        self.bus = RegisterInitiator(dut, "bus")
        self.trace = StreamSink(dut, "trace", layout=TRACE_EVENT)
        Clock(dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(dut)

    async def fill_buffers(self) -> None:
        """Buffers keep their contents over a reset: set them all, in core and model."""
        flags = {"stride": 64 * 64, "rows": SIZES["l1_lines"] // 64, "row_bytes": 64 * 64}
        commands = [load(argument=0, set=1, pitch=64, **flags)]
        names = ("l0a_lines", "l0b_lines", "l0c_lines", "bias_lines")
        for target, name in enumerate(names):
            commands.append(
                move(target=target, wait=int(target == 0), row_lines=SIZES[name], rows=1)
            )
        await self.check([*commands, end()])

    def fill(self, data: NDArray[np.uint8], offset: int = 0) -> None:
        """Write global memory of core and model."""
        self.view[offset : offset + data.size] = data
        self.expected[offset : offset + data.size] = data

    async def write(self, name: str, value: int) -> None:
        await self.bus.write(CORE_BLOCK.address(name), value)

    async def read(self, name: str) -> int:
        return await self.bus.read(CORE_BLOCK.address(name))

    async def launch(
        self, commands: list[bytes], arguments: list[int], length: int | None = None
    ) -> None:
        """Place a program and start it."""
        program = np.frombuffer(b"".join(commands), np.uint8)
        self.fill(program, PROGRAM_OFFSET)
        await self.write("program", HBM_BASE + PROGRAM_OFFSET)
        await self.write("length", len(commands) if length is None else length)
        for i in range(KERNEL_ARGUMENTS):
            await self.write(f"argument{i}", arguments[i] if i < len(arguments) else 0)
        self.first_event = len(self.trace.received)
        self.before = self.counters()
        await self.write("start", 1)

    async def finished(self, cycles: int = 100_000) -> dict[str, int]:
        """Wait for the end; the fields of CORE_STATE. Nothing may be outstanding then."""
        edge = RisingEdge(self.dut.clk)
        for _ in range(cycles):
            await edge
            if int(self.dut.done.value):
                break
        else:
            raise AssertionError(f"the core must end within {cycles} cycles")
        for agent in (self.fetches, self.loads, self.stores):
            assert agent.outstanding == 0
        state = CORE_STATE.unpack(await self.read("state"))
        assert state.pop("busy") == 0
        assert state.pop("unused") == 0
        await self.settle()
        assert int(self.dut.idle.value)
        self._check_counters()
        return state

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

    def events(self, source: TraceSource, instance: int = 0) -> list[tuple[int, int]]:
        """Code and argument of the events of the last program."""
        return [
            (event["code"], event["argument"])
            for event in self.trace.received[self.first_event :]
            if (event["source"], event["instance"]) == (source, instance)
        ]

    def _check_trace(self, status: int) -> None:
        """BEGIN and END of the core and of every pipe, in pairs, in order of the commands."""
        core = self.events(TraceSource.CORE)
        program = (HBM_BASE + PROGRAM_OFFSET) % 2**40
        assert core == [(TraceCode.BEGIN, program), (TraceCode.END, status)]
        for pipe in Pipe:
            events = self.events(TraceSource.PIPE, pipe)
            begins, ends = events[::2], events[1::2]
            assert len(begins) == len(ends)
            assert all(code == TraceCode.BEGIN for code, _ in begins)
            assert all(code == TraceCode.END for code, _ in ends)
            assert [index for _, index in begins] == [argument >> 8 for _, argument in ends]

    async def check(
        self, commands: list[bytes], arguments: list[int] | None = None, cycles: int = 100_000
    ) -> CoreResult:
        """Run on core and model: outcome, counters, memory and trace have to be the same."""
        given = [HBM_BASE] if arguments is None else arguments
        await self.launch(commands, given)
        state = await self.finished(cycles)
        result = self.model.run(b"".join(commands), given)
        expected = {"status": result.status, "pipe": result.pipe, "command": result.command}
        assert state == expected, f"{state}, not {expected}"
        assert await self.read("fault_address") == result.address
        if result.status is Status.OK:
            spent = self.spent()
            assert await self.read("retired") == self.before["retired"] + result.retired
            assert spent["core_macs"] == result.macs
            assert spent["core_read_bytes"] == result.read_bytes
            assert spent["core_write_bytes"] == result.write_bytes
            assert np.array_equal(self.view, self.expected), self._difference()
        await self.settle()
        self._check_trace(result.status)
        if result.status is Status.OK:
            spans = sum(len(self.events(TraceSource.PIPE, pipe)) for pipe in Pipe)
            assert spans == 2 * (result.retired - self._without_span(commands))
        return result

    @staticmethod
    def _without_span(commands: list[bytes]) -> int:
        """Commands without a span, in a program without JUMPs."""
        alone = (CommandOpcode.NOP, CommandOpcode.END)
        return sum(command[0] in alone for command in commands)

    def _difference(self) -> str:
        at = np.flatnonzero(self.view != self.expected)
        return f"{at.size} bytes differ, from {at[0]:#x} to {at[-1]:#x}"

    async def settle(self, cycles: int = 4) -> None:
        edge = RisingEdge(self.dut.clk)
        for _ in range(cycles):
            await edge

    async def abort(self) -> None:
        await self.write("start", 0)
