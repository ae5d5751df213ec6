"""The AI core's front: registers and time around the golden model of what a program computes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from abi.address import ADDRESS_BITS, HBM_BASE, HOST_BASE, LINE_BYTES
from abi.core import COMMAND_BYTES, Pipe
from abi.geometry import CORES
from abi.packet import KERNEL_ARGUMENTS
from abi.registers_core import CORE_COUNTERS, CORE_LENGTH, CORE_START, CORE_STATE
from abi.registers_firmware import CORE_BLOCK
from abi.status import Status
from tb.models.core import SEQUENCER, CoreModel, CoreResult
from tb.models.device.clock import EventClock
from tb.models.device.memory import DeviceMemory, MemoryFaultError
from tb.models.device.registers import RegisterFile, SlaveError
from tb.models.device.timing import ModelTiming

__all__ = ["CoreUnit"]

LARGEST_PROGRAM = 65536
"""Commands that are fetched at most; a longer program ends with a fault of its own anyway."""

SPARE_COMMANDS = 4096
"""A program that dispatched this many commands beyond its length is taken for endless."""

MACS_PER_CYCLE = 256
LOAD_WIDTH = 64
STORE_WIDTH = 16


@dataclass
class _Core:
    model: CoreModel
    busy: bool = False
    abort: bool = False
    result: CoreResult = field(default_factory=lambda: CoreResult(Status.OK, 0, 0, 0, 0, 0, 0, 0))
    retired: int = 0
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CORE_COUNTERS, 0))


class CoreUnit:
    """All cores. Attributes for tests: `hang`, programs do not end until they are aborted."""

    def __init__(
        self,
        clock: EventClock,
        memory: DeviceMemory,
        timing: ModelTiming,
        event: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._timing = timing
        self._event = event
        self.hang = False
        self.registers = RegisterFile(CORE_BLOCK)
        self.registers.on_read["state"] = self.read_state
        self.registers.on_read["fault_address"] = self.read_fault_address
        self.registers.on_read["retired"] = self.read_retired
        self.registers.on_write["start"] = self._start
        self.reset()

    def reset(self) -> None:
        """Idle; counters are zero."""
        self.registers.reset()
        self.cores = [_Core(CoreModel({})) for _ in range(CORES)]

    def read_state(self, index: int) -> int:
        """Word of CORE_STATE."""
        core = self.cores[index]
        return CORE_STATE.pack(
            busy=core.busy,
            status=core.result.status,
            pipe=core.result.pipe,
            command=core.result.command,
        )

    def read_fault_address(self, index: int) -> int:
        """Word of CORE_FAULT_ADDRESS."""
        return self.cores[index].result.address

    def read_retired(self, index: int) -> int:
        """Word of CORE_RETIRED."""
        return self.cores[index].retired

    def read_counter(self, name: str, index: int) -> int:
        """Word of one of CORE_COUNTERS."""
        return self.cores[index].counters[name]

    def _start(self, index: int, word: int) -> None:
        core = self.cores[index]
        if not CORE_START.unpack(word)["start"]:
            core.abort = core.busy
            return
        if core.busy:
            raise SlaveError
        core.busy, core.abort = True, False
        core.result = CoreResult(Status.OK, 0, 0, 0, 0, 0, 0, 0)
        self._clock.process(self._run(index, core))

    def _run(self, index: int, core: _Core) -> Iterator[int]:
        began = self._clock.now
        yield self._timing.host_latency
        result = self._compute(index, core)
        if result is not None and not self.hang:
            loads = result.read_bytes // LOAD_WIDTH
            work = max(result.macs // MACS_PER_CYCLE, loads, result.write_bytes // STORE_WIDTH)
            total, done = work + self._timing.command * result.retired, 0
            before = core.retired
            while done < total and not core.abort:
                step = min(total - done, self._timing.host_latency)
                yield step
                done += step
                core.retired = before + result.retired * done // total
        while (result is None or self.hang) and not core.abort:
            if not self.hang:
                core.retired += self._timing.host_latency // self._timing.command
            yield self._timing.host_latency
        if core.abort or result is None:
            result = CoreResult(Status.ABORTED, SEQUENCER, 0, 0, 0, 0, 0, 0)
        self._count(core, result, self._clock.now - began)
        core.busy, core.result = False, result
        self._event("core")

    def _count(self, core: _Core, result: CoreResult, cycles: int) -> None:
        busy = {
            Pipe.MTE2: result.read_bytes // LOAD_WIDTH,
            Pipe.MTE1: 0,
            Pipe.CUBE: result.macs // MACS_PER_CYCLE,
            Pipe.FIXPIPE: result.write_bytes // STORE_WIDTH,
        }
        core.counters["core_cycles"] += cycles
        core.counters["core_macs"] += result.macs
        core.counters["core_read_bytes"] += result.read_bytes
        core.counters["core_write_bytes"] += result.write_bytes
        for pipe, worked in busy.items():
            core.counters[f"{pipe.name.lower()}_busy"] += worked
            core.counters[f"{pipe.name.lower()}_idle"] += cycles - worked

    def _compute(self, index: int, core: _Core) -> CoreResult | None:
        """Run the program on memory; None means that it does not end."""
        words = {name: values[index] for name, values in self.registers.words.items()}
        address, length = words["program"], CORE_LENGTH.unpack(words["length"])["commands"]
        for wrong, status in (
            (address % LINE_BYTES, Status.MISALIGNED),
            (address >> ADDRESS_BITS, Status.ADDRESS_FAULT),
        ):
            if wrong:
                line = address & -LINE_BYTES
                return CoreResult(status, SEQUENCER, 0, line, 0, 0, 0, 0)
        program, fault = self._fetch(address, min(length, LARGEST_PROGRAM))
        core.model.regions = self._regions()
        arguments = [words[f"argument{i}"] for i in range(KERNEL_ARGUMENTS)]
        try:
            result = core.model.run(
                program, arguments, length=length, limit=length + SPARE_COMMANDS
            )
        except RuntimeError:
            return None
        missing = result.command * COMMAND_BYTES >= len(program) and result.command < length
        if fault and result.status is Status.BAD_COMMAND and missing:
            return replace(result, status=fault.status, address=fault.address)
        if result.status is Status.ADDRESS_FAULT:
            return replace(result, status=self._memory.status_of(result.address))
        return result

    def _fetch(self, address: int, commands: int) -> tuple[bytes, MemoryFaultError | None]:
        program = bytearray()
        while len(program) < commands * COMMAND_BYTES:
            try:
                program += self._memory.read(address + len(program), LINE_BYTES).tobytes()
            except MemoryFaultError as fault:
                return bytes(program), fault
        return bytes(program[: commands * COMMAND_BYTES]), None

    def _regions(self) -> dict[int, npt.NDArray[np.uint8]]:
        regions = {HBM_BASE: self._memory.hbm}
        for part in self._memory.reachable_host():
            regions[HOST_BASE + part.start] = self._memory.host[part.start : part.stop]
        return regions
