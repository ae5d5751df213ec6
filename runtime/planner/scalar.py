"""What the scalar unit of a block does, and the cycles that it takes between its events."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from abi.address import LINE_BYTES
from abi.isa import ARGUMENTS_BASE, CODE_BASE, RAM_BASE, RAM_BYTES, WINDOW_BASE, Format
from runtime.planner.chip import Chip
from runtime.toolchain.compute import Closure
from runtime.toolchain.events import Barrier, Event, Exit, Paused, Trap
from runtime.toolchain.interpreter import Read, ScalarInterpreter
from runtime.toolchain.operands import Decoded

__all__ = ["BlockSteps", "InstructionCache", "Step", "block_steps"]

PLAIN = 2
"""Cycles of an instruction: decode, execute."""

MULTIPLY = 3
DIVIDE = 35
RAM_ACCESS = 3
KEPT_ACCESS = 4
"""A load from a line that the unit keeps."""

LINE_FETCH = 5
"""A line of code that is missing: so much, and the latency of memory."""

DATA_FETCH = 3
"""A line of data that is missing, likewise."""

FLUSH_LEAD = 4
"""The instruction cache begins to be emptied so long before a block starts."""

CLEAR_CYCLES = 32
"""From the start of a block to its first instruction: its registers are set."""

INSTRUCTION_LIMIT = 20_000_000


class Step(NamedTuple):
    """The scalar unit works for `busy` cycles, waits for memory for `wait`, and then needs
    `event` to happen, which takes a cycle more."""

    busy: int
    wait: int
    event: Event


@dataclass(frozen=True)
class BlockSteps:
    """A block: its steps, the last of which is the exit, and instructions."""

    steps: list[Step]
    instructions: int


class InstructionCache:
    """Which lines of the code a scalar unit holds; the line after the present one is fetched
    ahead."""

    def __init__(self, chip: Chip) -> None:
        self.lines = chip.icache_lines
        self.fetch = chip.memory_latency + LINE_FETCH
        self._held: dict[int, int] = {}
        self._coming = -1
        self._there = 0

    @property
    def is_cold(self) -> bool:
        """Whether it was emptied, and nothing was fetched since."""
        return not self._held

    def enter(self, line: int, last: int, now: int) -> int:
        """Cycles that the unit waits for `line`; the code ends with line `last`."""
        wait = 0
        if line == self._coming:
            wait = self.busy(now)
            self._coming = -1
        elif self._held.get(line % self.lines) != line:
            # One line is on its way at a time.
            wait = self.busy(now) + self.fetch
            self._coming = -1
        self._held[line % self.lines] = line
        ahead = line + 1
        arrived = now + wait
        free = self._there <= arrived
        if ahead <= last and self._held.get(ahead % self.lines) != ahead and free:
            self._held[ahead % self.lines] = ahead
            self._coming, self._there = ahead, arrived + self.fetch
        return wait

    def busy(self, now: int) -> int:
        """Cycles until no line is on its way."""
        return max(0, self._there - now)

    def start_block(self) -> None:
        """Time starts again at 0."""
        self._coming = -1
        self._there = 0


class _TimedInterpreter(ScalarInterpreter):
    """The interpreter, which also counts cycles."""

    def __init__(self, code: bytes, chip: Chip, cache: InstructionCache, read: Read) -> None:
        super().__init__(code, read=read, write=lambda _address, _raw: None, fence=self.drop)
        self.busy = self.wait = 0
        self._now = 0
        self._latency = chip.memory_latency
        self._cache = cache
        self._line = -1
        self._last = (len(code) - 1) // LINE_BYTES
        self._kept: dict[int, int] = {}

    def drop(self) -> None:
        """The lines of data that the unit keeps are forgotten."""
        self._kept.clear()

    def begin(self) -> None:
        """A block starts: its registers are set, and the cache may have to be emptied first."""
        self.busy, self.wait, self._now = CLEAR_CYCLES, 0, CLEAR_CYCLES
        self._line = -1
        self.drop()
        cold = self._cache.is_cold
        self._cache.start_block()
        if cold:
            self._pause(max(0, self._cache.lines - CLEAR_CYCLES - FLUSH_LEAD))

    def take(self) -> tuple[int, int]:
        """Busy and waiting cycles since the last call."""
        taken = self.busy, self.wait
        self.busy = self.wait = 0
        return taken

    def _pause(self, cycles: int) -> None:
        self.wait += cycles
        self._now += cycles

    def _make(self, at: int, decoded: Decoded) -> Closure:
        step = super()._make(at, decoded)
        line = at * 4 // LINE_BYTES
        name, form = decoded.instruction.name, decoded.instruction.format
        is_access = form in (Format.LOAD, Format.STORE) and name != "jalr"
        if name.startswith(("mul",)):
            cycles = MULTIPLY
        elif name.startswith(("div", "rem")):
            cycles = DIVIDE
        else:
            cycles = PLAIN

        def run() -> int:
            if line != self._line:
                self._line = line
                self._pause(self._cache.enter(line, self._last, self._now))
            self.busy += cycles
            self._now += cycles
            return step()

        return partial(self._access, decoded, run) if is_access else run

    def _access(self, decoded: Decoded, run: Closure) -> int:
        _, immediate, register = decoded.values
        address = (self._x[register] + immediate) & 0xFFFF_FFFF
        following = run()
        if 0 <= address - RAM_BASE < RAM_BYTES:
            extra = RAM_ACCESS - PLAIN
        else:
            extra = KEPT_ACCESS - PLAIN
            region = next(
                base for base in (WINDOW_BASE, ARGUMENTS_BASE, CODE_BASE) if address >= base
            )
            device = address - region
            if region == WINDOW_BASE:
                device += self._bases[15]
            line = device // LINE_BYTES
            if decoded.instruction.format is Format.STORE:
                self._pause(self._latency + LINE_FETCH)
                if self._kept.get(region) == line:
                    del self._kept[region]
            elif self._kept.get(region) != line:
                # The read port is the cache's until its line has come.
                self._pause(self._cache.busy(self._now) + self._latency + DATA_FETCH)
                self._kept[region] = line
        self.busy += extra
        self._now += extra
        return following


def block_steps(
    chip: Chip,
    code: bytes,
    cache: InstructionCache,
    *,
    entry: int = 0,
    arguments: bytes = b"",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (0, 0, 0),
    read: Read = lambda _address, nbytes: bytes(nbytes),
) -> BlockSteps:
    """Run the scalar unit for a block.

    Args:
        code, entry, arguments, grid, block: as `ScalarInterpreter` takes them.
        cache: of the core that the block runs on.
        read: global memory; zeros if not given.

    Raises:
        ValueError: the block fails, or does not end.
    """
    interpreter = _TimedInterpreter(code, chip, cache, read)
    interpreter.start(entry=entry, arguments=arguments, grid=grid, block=block)
    interpreter.begin()
    steps: list[Step] = []
    while True:
        event = interpreter.run(INSTRUCTION_LIMIT - interpreter.retired)
        if isinstance(event, Trap | Paused):
            raise ValueError(f"the block must end, not with {event}")
        steps.append(Step(*interpreter.take(), event))
        if isinstance(event, Barrier):
            interpreter.drop()
        if isinstance(event, Exit):
            return BlockSteps(steps, interpreter.retired)
