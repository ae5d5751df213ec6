"""What one block of a kernel does, in the scalar unit's order: commands, flags, own accesses."""

from collections.abc import Callable
from dataclasses import dataclass, field

from abi.address import LINE_BYTES
from abi.core import PIPES, Pipe
from runtime.toolchain.events import Barrier, Exit, FlagSet, FlagWait, Issue, Paused, Trap
from runtime.toolchain.interpreter import ScalarInterpreter
from runtime.toolchain.region import Region

__all__ = ["BlockTrace", "Command", "ScalarAccess", "Step", "trace_block"]

INSTRUCTION_LIMIT = 20_000_000


@dataclass(frozen=True)
class Command:
    """A command: the `index`-th of its pipe, issued in step `step` of the scalar unit."""

    issue: Issue
    index: int
    step: int

    @property
    def pipe(self) -> Pipe:
        """The pipe that executes it."""
        return self.issue.pipe

    @property
    def pc(self) -> int:
        """Its npu.issue."""
        return self.issue.pc


@dataclass(frozen=True)
class ScalarAccess:
    """A load or store of global memory by the scalar unit.

    A load from the line that the scalar unit holds sees what was there in step `seen`.
    """

    write: bool
    region: Region
    pc: int
    step: int
    seen: int


Step = Command | FlagWait | FlagSet | Barrier | Exit | Trap | Paused | ScalarAccess


@dataclass
class BlockTrace:
    """All steps of a block. The last one is Exit, Trap, or Paused when it was too long."""

    steps: list[Step] = field(default_factory=list)
    commands: dict[Pipe, list[Command]] = field(
        default_factory=lambda: {pipe: [] for pipe in PIPES}
    )


class _GlobalMemory:
    """Global memory as the block sees it: the caller's, and what it stored itself."""

    def __init__(self, trace: BlockTrace, read: Callable[[int, int], bytes]) -> None:
        self._trace = trace
        self._below = read
        self._stored: dict[int, int] = {}
        self._held: tuple[int, int] | None = None
        self.interpreter: ScalarInterpreter | None = None

    def drop(self) -> None:
        """Drop the line that the scalar unit holds."""
        self._held = None

    def read(self, address: int, nbytes: int) -> bytes:
        """Serve a load."""
        step = len(self._trace.steps)
        line = address // LINE_BYTES
        if self._held is None or self._held[0] != line:
            self._held = (line, step)
        self._note(False, address, nbytes, self._held[1])
        raw = bytearray(self._below(address, nbytes))
        for at in range(nbytes):
            raw[at] = self._stored.get(address + at, raw[at])
        return bytes(raw)

    def write(self, address: int, raw: bytes) -> None:
        """Serve a store."""
        self._note(True, address, len(raw), len(self._trace.steps))
        self._stored.update({address + at: byte for at, byte in enumerate(raw)})

    def _note(self, write: bool, address: int, nbytes: int, seen: int) -> None:
        pc = self.interpreter.access_pc if self.interpreter else 0
        steps = self._trace.steps
        steps.append(ScalarAccess(write, Region(address, nbytes), pc, len(steps), seen))


def trace_block(
    code: bytes,
    *,
    entry: int = 0,
    arguments: bytes = b"",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (0, 0, 0),
    read: Callable[[int, int], bytes] = lambda _address, nbytes: bytes(nbytes),
    limit: int = INSTRUCTION_LIMIT,
) -> BlockTrace:
    """Run the scalar unit for a block; no pipe executes anything, and no flag is waited for.

    Args:
        code, entry, arguments, grid, block: as `ScalarInterpreter` takes them.
        read: global memory before the block, by device address and size; zeros if not given.
        limit: instructions after which it is given up.
    """
    trace = BlockTrace()
    memory = _GlobalMemory(trace, read)
    interpreter = ScalarInterpreter(code, read=memory.read, write=memory.write, fence=memory.drop)
    memory.interpreter = interpreter
    interpreter.start(entry=entry, arguments=arguments, grid=grid, block=block)
    while True:
        event = interpreter.run(limit - interpreter.retired)
        if isinstance(event, Issue):
            commands = trace.commands[event.pipe]
            commands.append(Command(event, len(commands), len(trace.steps)))
            trace.steps.append(commands[-1])
            continue
        trace.steps.append(event)
        if isinstance(event, Barrier):
            memory.drop()
        if isinstance(event, Exit | Trap | Paused):
            return trace
