"""Golden model of the AI core: runs blocks of kernels on numpy memories.

What a block computes does not depend on time as long as its flags order every access, so each
command is executed in one step, as soon as its flags are there. Beside that the model keeps what
can be seen from outside: queues of QUEUE_DEPTH commands, flags, the first fault, the counters
that do not depend on time, and an estimate of the time.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from abi.address import LINE_BYTES
from abi.core import (
    COMMANDS,
    CUBE_SIDE,
    FLAG_MAXIMUM,
    FLAGS,
    PIPES,
    VECTOR_LANES,
    CommandOpcode,
    MmadType,
    Pipe,
)
from abi.isa import RAM_BYTES
from abi.status import Status
from runtime.toolchain.events import (
    Barrier,
    Exit,
    FlagSet,
    FlagWait,
    Issue,
    MemoryFaultError,
    Paused,
    Trap,
)
from runtime.toolchain.interpreter import ScalarInterpreter
from runtime.toolchain.scalar_memory import Placed
from tb.models.pipes import AddressFaultError, PipesModel

__all__ = [
    "BF16_DEPTH",
    "QUEUE_DEPTH",
    "BlockStart",
    "CoreModel",
    "CoreResult",
    "Execution",
    "command_cycles",
]

QUEUE_DEPTH = 4
"""Commands that wait in front of a pipe, its head included."""

BF16_DEPTH = 4
"""bf16 products that an output of the Cube gains in a cycle."""

MEMORY_LATENCY = 40
"""Cycles from a request of a pipe or of the scalar unit to its data, for the estimate."""

COMMAND_OVERHEAD = 4
"""Cycles of a command besides its lines, for the estimate."""

Fields = dict[str, int]


@dataclass(frozen=True)
class BlockStart:
    """The registers of a core when a block starts; addresses are device addresses."""

    code: int
    code_bytes: int
    arguments: int = 0
    argument_bytes: int = 0
    entry: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class CoreResult:
    """Outcome of a block, as CORE_STATE, CORE_FAULT_ADDRESS and the counters show it.

    `pipe`, `pc` and `address` are 0 for status OK. `retired` counts finished commands,
    `instructions` those of the scalar unit. `cycles` is an estimate.
    """

    status: Status = Status.OK
    pipe: int = 0
    pc: int = 0
    address: int = 0
    block: tuple[int, int, int] = (0, 0, 0)
    retired: int = 0
    instructions: int = 0
    macs: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    cycles: int = 0


class _FaultError(Exception):
    def __init__(self, status: Status, pipe: int, pc: int, address: int = 0) -> None:
        super().__init__(status, pipe, pc, address)
        self.status, self.pipe, self.pc, self.address = status, pipe, pc, address


class CoreModel:
    """An AI core with its buffers, which keep their contents from one block to the next.

    Args:
        regions: global memory: base device address (a multiple of 64) to a writable uint8 array
            (a multiple of 64 bytes). All else is a fault.
        number: of the core.
        l1_lines, l0a_lines, l0b_lines, l0c_lines, bias_lines, ub_lines: sizes in lines of 64 bytes.

    Attributes: `pipes` (the buffers), `ram` (of the scalar unit), `regions` (may be replaced),
    `status_of` (status of an access to a line without memory; may be replaced).
    """

    def __init__(
        self,
        regions: Mapping[int, NDArray[np.uint8]],
        *,
        number: int = 0,
        l1_lines: int = 4096,
        l0a_lines: int = 512,
        l0b_lines: int = 512,
        l0c_lines: int = 1024,
        bias_lines: int = 64,
        ub_lines: int = 2048,
    ) -> None:
        self.pipes = PipesModel(
            regions,
            l1_lines=l1_lines,
            l0a_lines=l0a_lines,
            l0b_lines=l0b_lines,
            l0c_lines=l0c_lines,
            bias_lines=bias_lines,
            ub_lines=ub_lines,
        )
        self.number = number
        self.ram = bytearray(RAM_BYTES)
        self.status_of: Callable[[int], Status] = lambda _: Status.ADDRESS_FAULT
        self.core_cycles = 0
        """What CORE_CYCLES is at the start of the next block."""

        self._cycles: Callable[[], int] = lambda: 0
        self._interpreter: tuple[bytes, ScalarInterpreter] | None = None

    @property
    def regions(self) -> dict[int, NDArray[np.uint8]]:
        """Global memory."""
        return self.pipes.memory.regions

    @regions.setter
    def regions(self, regions: Mapping[int, NDArray[np.uint8]]) -> None:
        self.pipes.memory.regions = dict(regions)

    @property
    def buffers(self) -> list[NDArray[np.uint8]]:
        """All buffers of the core."""
        pipes = self.pipes
        return [pipes.l1, pipes.l0a, pipes.l0b, pipes.l0c, pipes.bias, pipes.ub]

    def scrub(self) -> int:
        """Overwrite all buffers and the RAM with zeros; returns the cycles that this takes."""
        for buffer in self.buffers:
            buffer[:] = 0
        self.ram[:] = bytes(RAM_BYTES)
        return max(len(buffer) for buffer in self.buffers)

    def run(self, start: BlockStart, *, limit: int = 1_000_000) -> CoreResult:
        """Run a block.

        Raises:
            RuntimeError: it did not end within `limit` instructions.
        """
        execution = Execution(self, start)
        if not execution.advance(limit):
            raise RuntimeError(f"the block must end within {limit} instructions")
        return execution.result()

    def interpreter(self, code: bytes, cycles: Callable[[], int]) -> ScalarInterpreter:
        """The scalar unit with a kernel; one for the same code is used again."""
        if self._interpreter is None or self._interpreter[0] != code:
            interpreter = ScalarInterpreter(
                code,
                read=self._read,
                write=self._write,
                ram=self.ram,
                core=self.number,
                cycles=lambda: self._cycles(),
            )
            self._interpreter = (code, interpreter)
        self._cycles = cycles
        return self._interpreter[1]

    def readable(self, address: int, nbytes: int) -> bytes:
        """Bytes of global memory, up to the first line without memory."""
        data = bytearray()
        while len(data) < nbytes:
            at = address + len(data)
            part = min(nbytes - len(data), LINE_BYTES - at % LINE_BYTES)
            try:
                data += self.pipes.memory.read(at, part).tobytes()
            except AddressFaultError:
                break
        return bytes(data)

    def _read(self, address: int, nbytes: int) -> bytes:
        try:
            return self.pipes.memory.read(address, nbytes).tobytes()
        except AddressFaultError as fault:
            raise MemoryFaultError(self.status_of(fault.address), fault.address) from fault

    def _write(self, address: int, data: bytes) -> None:
        try:
            self.pipes.memory.write(address, np.frombuffer(data, np.uint8))
        except AddressFaultError as fault:
            raise MemoryFaultError(self.status_of(fault.address), fault.address) from fault


@dataclass(frozen=True)
class _Command:
    issue: Issue
    opcode: CommandOpcode
    fields: Fields
    since: int


class Execution:
    """A block on its way: the scalar unit, the queues in front of the pipes, and the flags.

    Attributes:
        cycles: estimate of the time since its start.
        retired: commands that ended.
        busy: estimate, for each pipe's name in lower case, of the cycles in which it worked.
    """

    def __init__(self, model: CoreModel, start: BlockStart) -> None:
        self._model = model
        self._start = start
        code = model.readable(start.code, start.code_bytes)
        self._scalar = model.interpreter(code, lambda: model.core_cycles + self._time)
        self._scalar.start(
            entry=start.entry,
            arguments=Placed(start.arguments, start.argument_bytes),
            grid=start.grid,
            block=start.block,
            code=Placed(start.code, start.code_bytes),
        )
        self._began = self._scalar.retired
        self._time = MEMORY_LATENCY
        """Of the scalar unit."""

        self._free: dict[Pipe, int] = dict.fromkeys(PIPES, 0)
        """When each pipe has ended what it started."""

        # When each count of a flag was added.
        self._flags: list[deque[int]] = [deque() for _ in range(FLAGS)]
        self._queues: dict[Pipe, deque[_Command]] = {pipe: deque() for pipe in PIPES}
        self._fault: _FaultError | None = None
        pipes = model.pipes
        self._before = (pipes.macs, pipes.read_bytes, pipes.write_bytes)
        self.retired = 0
        self.busy = {pipe.name.lower(): 0 for pipe in Pipe}

    @property
    def instructions(self) -> int:
        """Instructions of the scalar unit."""
        return self._scalar.retired - self._began

    @property
    def cycles(self) -> int:
        """Estimate of the time since its start."""
        return max(self._time, *self._free.values())

    def advance(self, instructions: int) -> bool:
        """Go on for about so many instructions; returns whether the block has ended."""
        limit = self._scalar.retired + instructions
        try:
            while self._scalar.retired < limit:
                if self._step(limit):
                    return True
        except _FaultError as fault:
            self._fault = fault
            return True
        return False

    def _step(self, limit: int) -> bool:
        before = self._scalar.retired
        event = self._scalar.run(limit - before)
        self._time += self._scalar.retired - before
        self.busy["scalar"] += self._scalar.retired - before
        match event:
            case Issue():
                self._issue(event)
            case FlagSet():
                self._give(event.flag, self._time, Pipe.SCALAR, event.pc)
                self._pump()
            case FlagWait():
                if not self._flags[event.flag]:
                    raise self._deadlock(event.pc)
                self._time = max(self._time, self._flags[event.flag].popleft())
            case Barrier() | Exit():
                if any(self._queues.values()):
                    raise self._deadlock(event.pc)
                self._time = max(self._time, *self._free.values())
                return isinstance(event, Exit)
            case Trap():
                raise _FaultError(event.status, event.pipe, event.pc, event.address)
            case Paused():
                pass
        return False

    def _issue(self, issue: Issue) -> None:
        opcode = CommandOpcode(issue.command[0])
        queue = self._queues[issue.pipe]
        if len(queue) == QUEUE_DEPTH:
            raise self._deadlock(issue.pc)
        fields = COMMANDS[opcode].unpack_bytes(issue.command)
        queue.append(_Command(issue, opcode, fields, self._time))
        self._pump()

    def _pump(self) -> None:
        """Execute what can start; so a command waits in its queue only for flags."""
        moved = True
        while moved:
            moved = False
            for pipe, queue in self._queues.items():
                while queue and self._ready(queue[0].issue.wait):
                    self._execute(pipe, queue.popleft())
                    moved = True

    def _ready(self, wait: int) -> bool:
        return all(self._flags[flag] for flag in _bits(wait))

    def _execute(self, pipe: Pipe, command: _Command) -> None:
        issue = command.issue
        start = max(command.since, self._free[pipe])
        for flag in _bits(issue.wait):
            start = max(start, self._flags[flag].popleft())
        status, address = self._model.pipes.execute(command.opcode, command.fields, issue.base)
        if status:
            if status is Status.ADDRESS_FAULT:
                status = self._model.status_of(address) or status
            raise _FaultError(status, pipe, issue.pc, address)
        cost = command_cycles(command.opcode, command.fields)
        self.busy[pipe.name.lower()] += cost
        self._free[pipe] = start + cost
        for flag in _bits(issue.set):
            self._give(flag, start + cost, pipe, issue.pc)
        self.retired += 1

    def _give(self, flag: int, time: int, pipe: Pipe, pc: int) -> None:
        if len(self._flags[flag]) == FLAG_MAXIMUM:
            raise _FaultError(Status.FLAG_OVERFLOW, pipe, pc)
        self._flags[flag].append(time)

    def _deadlock(self, pc: int) -> _FaultError:
        """What waits can never go on."""
        for pipe, queue in self._queues.items():
            if queue:
                return _FaultError(Status.FLAG_DEADLOCK, pipe, queue[0].issue.pc)
        return _FaultError(Status.FLAG_DEADLOCK, Pipe.SCALAR, pc)

    @property
    def counts(self) -> dict[str, int]:
        """Gains of the counters that do not depend on time, by their names in CORE_COUNTERS."""
        pipes = self._model.pipes
        now = (pipes.macs, pipes.read_bytes, pipes.write_bytes)
        macs, read_bytes, write_bytes = (a - b for a, b in zip(now, self._before, strict=True))
        return {
            "core_instructions": self.instructions,
            "core_macs": macs,
            "core_read_bytes": read_bytes,
            "core_write_bytes": write_bytes,
        }

    def result(self) -> CoreResult:
        """Outcome of the block, which has ended."""
        if self._fault is None:
            return self._result(Status.OK, 0, 0, 0)
        fault = self._fault
        return self._result(fault.status, fault.pipe, fault.pc, fault.address)

    def aborted(self) -> CoreResult:
        """Outcome of the block if it is aborted now."""
        return self._result(Status.ABORTED, Pipe.SCALAR, self._scalar.pc, 0)

    def _result(self, status: Status, pipe: int, pc: int, address: int) -> CoreResult:
        counts = {name.removeprefix("core_"): count for name, count in self.counts.items()}
        return CoreResult(
            status,
            pipe,
            pc,
            address,
            self._start.block,
            retired=self.retired,
            cycles=self.cycles,
            **counts,
        )


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        found.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return found


def command_cycles(opcode: CommandOpcode, c: Fields) -> int:
    """Rough cycles of a command."""
    rows = c.get("rows", 0) * c.get("planes", 1)
    match opcode:
        case CommandOpcode.LOAD | CommandOpcode.SAVE:
            work = rows * -(-c["row_bytes"] // LINE_BYTES) + MEMORY_LATENCY
        case CommandOpcode.MOVE:
            work = rows * c["row_lines"] * (LINE_BYTES // CUBE_SIDE if c["transpose"] else 1)
        case CommandOpcode.IMG2COL:
            row_bytes = c["kernel_height"] * c["kernel_width"] * c["pixel_bytes"]
            work = rows * -(-row_bytes // LINE_BYTES)
        case CommandOpcode.MMAD:
            depth = BF16_DEPTH if c["type"] == MmadType.BF16 else CUBE_SIDE
            steps = c["n_tiles"] * c["k_tiles"] * (CUBE_SIDE // depth)
            work = steps * max(rows, CUBE_SIDE)
        case CommandOpcode.STORE:
            work = rows * -(-c["columns"] // CUBE_SIDE) + MEMORY_LATENCY
        case CommandOpcode.VECTOR:
            work = rows * -(-c["columns"] // VECTOR_LANES)
        case _:
            work = 0
    return work + COMMAND_OVERHEAD
