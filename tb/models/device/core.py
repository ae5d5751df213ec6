"""The AI cores' front: registers, the block that waits, scrubs and time around the golden model."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from abi.geometry import CORES
from abi.registers_core import (
    CORE_BLOCK_YZ,
    CORE_COUNTERS,
    CORE_ENTRY,
    CORE_FAULT_BLOCK,
    CORE_GRID,
    CORE_SIZES,
    CORE_START,
    CORE_STATE,
    CoreOperation,
)
from abi.registers_firmware import CORE_BLOCK
from tb.models.core import BlockStart, CoreModel, CoreResult, Execution
from tb.models.device.clock import EventClock
from tb.models.device.memory import DeviceMemory
from tb.models.device.registers import RegisterFile, SlaveError
from tb.models.device.timing import ModelTiming

__all__ = ["CoreUnit"]

CHUNK_INSTRUCTIONS = 2_000
"""Instructions that are executed at a time; an abort takes effect in between."""

STEP_CYCLES = 100
"""An abort is noticed within this time."""

NO_FAULT = CoreResult()


@dataclass
class _Core:
    model: CoreModel
    running: bool = False
    scrubbing: bool = False
    abort: bool = False
    next: BlockStart | None = None
    first_fault: CoreResult = NO_FAULT
    ended: int = 0
    retired: int = 0
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CORE_COUNTERS, 0))

    @property
    def busy(self) -> bool:
        return self.running or self.scrubbing


class CoreUnit:
    """All cores. Attributes for tests: `hang`, blocks do not end until they are aborted."""

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
        for name in ("state", "fault_address", "fault_block", "blocks", "retired"):
            self.registers.on_read[name] = getattr(self, f"read_{name}")
        self.registers.on_write["start"] = self._operate
        self.registers.on_write["code"] = self._write_code
        self.reset()

    def reset(self) -> None:
        """Idle; counters are zero."""
        self.registers.reset()
        self.cores = [_Core(CoreModel({}, number=number)) for number in range(CORES)]
        for core in self.cores:
            core.model.status_of = self._memory.status_of

    def read_state(self, index: int) -> int:
        """Word of CORE_STATE."""
        core = self.cores[index]
        return CORE_STATE.pack(
            busy=core.busy,
            pending=core.next is not None,
            status=core.first_fault.status,
            pipe=core.first_fault.pipe,
            pc=core.first_fault.pc,
        )

    def read_fault_address(self, index: int) -> int:
        """Word of CORE_FAULT_ADDRESS."""
        return self.cores[index].first_fault.address

    def read_fault_block(self, index: int) -> int:
        """Word of CORE_FAULT_BLOCK."""
        x, y, z = self.cores[index].first_fault.block
        return CORE_FAULT_BLOCK.pack(x=x, y=y, z=z)

    def read_blocks(self, index: int) -> int:
        """Word of CORE_BLOCKS."""
        return self.cores[index].ended

    def read_retired(self, index: int) -> int:
        """Word of CORE_RETIRED."""
        return self.cores[index].retired

    def read_counter(self, name: str, index: int) -> int:
        """Word of one of CORE_COUNTERS."""
        return self.cores[index].counters[name]

    def _write_code(self, index: int, _: int) -> None:
        self.cores[index].first_fault = NO_FAULT

    def _operate(self, index: int, word: int) -> None:
        core, fields = self.cores[index], CORE_START.unpack(word)
        match fields["operation"]:
            case CoreOperation.ABORT:
                core.abort = core.running
                core.next = None
            case CoreOperation.DROP:
                core.next = None
            case CoreOperation.START:
                if core.next is not None or core.scrubbing or core.first_fault.status:
                    raise SlaveError
                block = self._block(index, fields["block_x"])
                if core.running:
                    core.next = block
                else:
                    core.running = True
                    self._clock.process(self._run(core, block))
            case CoreOperation.SCRUB:
                if core.busy:
                    raise SlaveError
                core.scrubbing = True
                self._clock.process(self._scrub(core))
            case _:
                raise SlaveError

    def _scrub(self, core: _Core) -> Iterator[int]:
        yield core.model.scrub()
        core.scrubbing = False
        self._event("core")

    def _run(self, core: _Core, first: BlockStart) -> Iterator[int]:
        """Run a block, and the next one after it as long as there is one."""
        block: BlockStart | None = first
        while block is not None:
            core.abort = False
            result = yield from self._execute(core, block)
            core.ended += 1
            if result.status:
                core.next = None
                if not core.first_fault.status:
                    core.first_fault = result
            block, core.next = core.next, None
            core.running = block is not None
            self._event("core")

    def _block(self, index: int, x: int) -> BlockStart:
        """The block that the registers describe at present."""
        words = {name: values[index] for name, values in self.registers.words.items()}
        sizes, grid = CORE_SIZES.unpack(words["sizes"]), CORE_GRID.unpack(words["grid"])
        row = CORE_BLOCK_YZ.unpack(words["block_yz"])
        return BlockStart(
            code=words["code"],
            code_bytes=sizes["code_bytes"],
            arguments=words["arguments"],
            argument_bytes=sizes["argument_bytes"],
            entry=CORE_ENTRY.unpack(words["entry"])["offset"],
            grid=(grid["x"], grid["y"], grid["z"]),
            block=(x, row["y"], row["z"]),
        )

    def _execute(self, core: _Core, block: BlockStart) -> Generator[int, None, CoreResult]:
        began, retired = self._clock.now, core.retired
        core.model.regions = self._memory.regions()
        core.model.core_cycles = core.counters["core_cycles"]
        execution = Execution(core.model, block)
        yield self._timing.host_latency
        while not core.abort:
            ended = execution.advance(CHUNK_INSTRUCTIONS)
            core.retired = retired + execution.retired
            until = began + execution.cycles
            while self._clock.now < until and not core.abort:
                yield min(until - self._clock.now, STEP_CYCLES)
            if ended:
                break
        while self.hang and not core.abort:
            yield self._timing.host_latency
        result = execution.aborted() if core.abort else execution.result()
        self._count(core, execution, self._clock.now - began)
        return result

    @staticmethod
    def _count(core: _Core, execution: Execution, cycles: int) -> None:
        counters = core.counters
        counters["core_cycles"] += cycles
        for name, value in execution.counts.items():
            counters[name] += value
        for name, busy in execution.busy.items():
            worked = min(busy, cycles)
            counters[f"{name}_busy"] += worked
            counters[f"{name}_idle"] += cycles - worked
