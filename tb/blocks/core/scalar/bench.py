"""The scalar unit in its test bench: memory agents, streams, and the interpreter as model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from abi.address import HBM_BASE, LINE_BYTES
from abi.core import Pipe
from abi.status import Status
from rtl.core.dispatch import DISPATCH, FLAG_OPERATION, SCALAR_FAULT
from rtl.core.scalar.unit import ScalarUnit
from rtl.memory.port import LineError
from runtime.toolchain.events import (
    Barrier,
    Exit,
    FlagSet,
    FlagWait,
    Issue,
    MemoryFaultError,
    Trap,
)
from runtime.toolchain.interpreter import ScalarInterpreter
from runtime.toolchain.scalar_memory import Placed
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import StreamSink, reset_dut, unpack

__all__ = [
    "ARGUMENTS",
    "CODE",
    "DATA",
    "DATA_BYTES",
    "MEMORY_BYTES",
    "Outcome",
    "ScalarBench",
    "fault",
    "unit_under_test",
]

DATA, DATA_BYTES = HBM_BASE, 0x4000
ARGUMENTS = HBM_BASE + DATA_BYTES
CODE = HBM_BASE + 0x8000
MEMORY_BYTES = 0x20000
CORE = 1
INPUTS = (
    *("start", "stop", "flush", "scrub", "code", "code_bytes", "arguments", "argument_bytes"),
    *("entry", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "cycles"),
)


def unit_under_test() -> ScalarUnit:
    """The unit that all tests share, and so its build. Its cache holds 8 lines."""
    return ScalarUnit(core=CORE, cache_lines=8)


@dataclass
class Outcome:
    """What a block did: dispatched commands, flag operations, instructions, and how it ended."""

    issued: list[dict[str, int]] = field(default_factory=list)
    flags: list[dict[str, int]] = field(default_factory=list)
    retired: int = 0
    fault: dict[str, int] | None = None


class ScalarBench:
    """Attributes: `memory`, its bytes in `view`, the unit's RAM as the model has it in `ram`."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.memory = LineMemory({HBM_BASE: MEMORY_BYTES})
        self.view = self.memory.view(HBM_BASE)
        self.expected = np.zeros(MEMORY_BYTES, np.uint8)
        self.ram = bytearray(8192)
        self.edge = RisingEdge(dut.clk)
        self.cycles = 0

    async def start(
        self, *, stall: float = 0.0, latency: int | tuple[int, int] = (1, 20), sinks: bool = True
    ) -> None:
        """Reset; `stall` applies to memory and streams. Without `sinks` those are refused."""
        dut = self.dut
        for name in (*INPUTS, "dispatch__ready", "flag__ready"):
            getattr(dut, name).value = 0
        dut.drained.value = 1
        dut.rst.value = 1
        agents: dict[str, Any] = {"memory": self.memory, "latency": latency, "stall": stall}
        self.reads = ReadTarget(dut, "read_port", **agents)
        self.writes = WriteTarget(dut, "write_port", **agents)
        if sinks:
            self.dispatch = StreamSink(dut, "dispatch", layout=DISPATCH, stall=stall)
            self.flags = StreamSink(dut, "flag", layout=FLAG_OPERATION, stall=stall)
        self.sinks = sinks
        Clock(dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(dut)

    async def begin(
        self,
        code: bytes,
        *,
        arguments: bytes = b"",
        entry: int = 0,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (0, 0, 0),
        flush: bool = True,
        inputs: Mapping[str, int] | None = None,
    ) -> None:
        """Place code and arguments, and start a block. `inputs` override single inputs."""
        dut = self.dut
        for memory in (self.view, self.expected):
            for base, raw in ((CODE, code), (ARGUMENTS, arguments)):
                memory[base - HBM_BASE :][: len(raw)] = np.frombuffer(raw, np.uint8)
        values = {
            "code": CODE,
            "code_bytes": len(code),
            "arguments": ARGUMENTS,
            "argument_bytes": len(arguments),
            "entry": entry,
            **dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True)),
            **dict(zip(("block_x", "block_y", "block_z"), block, strict=True)),
            **(inputs or {}),
        }
        for name, value in values.items():
            getattr(dut, name).value = value
        self.first_issue = len(self.dispatch.received) if self.sinks else 0
        self.first_flag = len(self.flags.received) if self.sinks else 0
        dut.flush.value = int(flush)
        await self.edge
        dut.flush.value = 0
        dut.start.value = 1
        await self.edge
        dut.start.value = 0
        await self.edge

    async def end(self, cycles: int = 60_000) -> Outcome:
        """Wait for the exit or a fault, which is stopped; nothing may be outstanding then."""
        dut, outcome = self.dut, Outcome()
        ended, retired = (dut.exited, dut.fault_valid), dut.retired
        for self.cycles in range(cycles):
            outcome.retired += int(retired.value)
            if any(int(one.value) for one in ended):
                break
            await self.edge
        else:
            raise AssertionError(f"the block must end within {cycles} cycles")
        if int(dut.fault_valid.value):
            outcome.fault = unpack(SCALAR_FAULT, int(dut.fault.value))
            assert not int(dut.exited.value)
            await self.halt()
        await self.quiet()
        if self.sinks:
            outcome.issued = self.dispatch.received[self.first_issue :]
            outcome.flags = self.flags.received[self.first_flag :]
        return outcome

    async def halt(self) -> None:
        """Stop until idle."""
        self.dut.stop.value = 1
        await self.quiet()
        self.dut.stop.value = 0
        assert not int(self.dut.fault_valid.value)
        assert not int(self.dut.exited.value)

    async def quiet(self, cycles: int = 4000) -> None:
        """Wait until the unit is idle; nothing may be outstanding then."""
        await self.edge
        for _ in range(cycles):
            await self.edge
            if int(self.dut.idle.value):
                break
        else:
            raise AssertionError(f"the unit must be idle within {cycles} cycles")
        assert self.reads.outstanding == self.writes.outstanding == 0

    async def run(self, code: bytes, **named: Any) -> Outcome:
        """`begin` and `end`."""
        await self.begin(code, **named)
        return await self.end()

    async def check(
        self,
        code: bytes,
        *,
        arguments: bytes = b"",
        entry: int = 0,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (0, 0, 0),
        inputs: Mapping[str, int] | None = None,
    ) -> Outcome:
        """Run on unit and interpreter: events, end, instructions and memory must be the same."""
        named: dict[str, Any] = {"entry": entry, "grid": grid, "block": block}
        got = await self.run(code, arguments=arguments, inputs=inputs, **named)
        values = {
            "code": CODE,
            "code_bytes": len(code),
            "arguments": ARGUMENTS,
            "argument_bytes": len(arguments),
            "cycles": 0,
            **(inputs or {}),
        }
        machine = ScalarInterpreter(
            self._readable(values["code"], values["code_bytes"]),
            read=self._read,
            write=self._write,
            ram=self.ram,
            core=CORE,
            cycles=lambda: values["cycles"],
        )
        machine.start(
            code=Placed(values["code"], values["code_bytes"]),
            arguments=Placed(values["arguments"], values["argument_bytes"]),
            **named,
        )
        expected = self._expect(machine)
        assert got.fault == expected.fault
        assert got.issued == expected.issued
        assert got.flags == expected.flags
        assert got.retired == expected.retired
        assert np.array_equal(self.view, self.expected), self._difference()
        return got

    def _difference(self) -> str:
        at = np.flatnonzero(self.view != self.expected)
        return f"{at.size} bytes differ, from {at[0]:#x} to {at[-1]:#x}"

    def _read(self, address: int, nbytes: int) -> bytes:
        self._check_line(address)
        return self.expected[address - HBM_BASE :][:nbytes].tobytes()

    def _check_line(self, address: int) -> None:
        """Fail as the memory of the unit does."""
        match self.memory.error_of(address // LINE_BYTES):
            case LineError.BUS:
                raise MemoryFaultError(Status.BUS_ERROR, address)
            case LineError.ADDRESS:
                raise MemoryFaultError(Status.ADDRESS_FAULT, address)

    def _readable(self, address: int, nbytes: int) -> bytes:
        """Bytes of memory, up to the first line that cannot be read."""
        lines = []
        for line in range(address, address + nbytes, LINE_BYTES):
            try:
                lines.append(self._read(line, LINE_BYTES))
            except MemoryFaultError:
                break
        return b"".join(lines)[:nbytes]

    def _write(self, address: int, raw: bytes) -> None:
        self._check_line(address)
        self.expected[address - HBM_BASE :][: len(raw)] = np.frombuffer(raw, np.uint8)

    @staticmethod
    def _expect(machine: ScalarInterpreter) -> Outcome:
        expected = Outcome()
        while True:
            event = machine.run()
            match event:
                case Issue():
                    expected.issued.append(
                        {
                            "command": int.from_bytes(event.command, "little"),
                            "base": event.base,
                            "wait": event.wait,
                            "set": event.set,
                            "pc": event.pc,
                            "pipe": int(event.pipe),
                        }
                    )
                case FlagWait() | FlagSet():
                    give = int(isinstance(event, FlagSet))
                    expected.flags.append({"flag": event.flag, "give": give})
                case Trap():
                    expected.fault = fault(event.status, event.pc, event.address, event.pipe)
                case Barrier():
                    pass
            if isinstance(event, Trap | Exit):
                expected.retired = machine.retired
                return expected


def fault(status: int, pc: int, address: int = 0, pipe: int = Pipe.SCALAR) -> dict[str, int]:
    """A fault as the unit shows it."""
    return {"address": address, "pc": pc, "status": int(status), "pipe": int(pipe)}
