"""What one block of a kernel does, in the scalar unit's order: commands, flags, own accesses."""

from dataclasses import dataclass, field

from abi.core import PIPES, Pipe
from runtime.toolchain.events import Barrier, Exit, FlagSet, FlagWait, Issue, Paused, Trap
from runtime.toolchain.interpreter import ScalarInterpreter
from runtime.toolchain.memory_image import MemoryImage, TrackedRam
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

    A load from the line that the scalar unit holds sees what was there in step `seen`. `unknown`:
    it loads bytes of which nobody said what they are, and which the block did not store.
    """

    write: bool
    region: Region
    pc: int
    step: int
    seen: int
    unknown: bool = False


Step = Command | FlagWait | FlagSet | Barrier | Exit | Trap | Paused | ScalarAccess


@dataclass
class BlockTrace:
    """All steps of a block. The last one is Exit, Trap, or Paused when it was too long. `ram` is
    the scalar unit's RAM after it, and what of it was used."""

    steps: list[Step] = field(default_factory=list)
    commands: dict[Pipe, list[Command]] = field(
        default_factory=lambda: {pipe: [] for pipe in PIPES}
    )
    ram: TrackedRam = field(default_factory=TrackedRam)


class _GlobalMemory:
    """Global memory as the block sees it: what is known before it, and what it stored itself."""

    def __init__(self, trace: BlockTrace, before: MemoryImage) -> None:
        self._steps = trace.steps
        self._before = before
        self._stored: dict[int, int] = {}
        self._seen = 0

    def read(self, address: int, nbytes: int) -> bytes:
        """Serve the read of a line."""
        self._seen = len(self._steps)
        raw = bytearray(self._before.read(address, nbytes))
        for at in range(nbytes):
            raw[at] = self._stored.get(address + at, raw[at])
        return bytes(raw)

    def write(self, address: int, raw: bytes) -> None:
        """Serve a store."""
        self._stored.update({address + at: byte for at, byte in enumerate(raw)})

    def note(self, pc: int, store: bool, address: int, nbytes: int) -> None:
        """Add a load or store to the trace."""
        step = len(self._steps)
        seen = step if store else self._seen
        unknown = not store and not all(
            at in self._stored or self._before.knows(at) for at in range(address, address + nbytes)
        )
        region = Region(address, nbytes)
        self._steps.append(ScalarAccess(store, region, pc, step, seen, unknown))


def trace_block(
    code: bytes,
    *,
    entry: int = 0,
    arguments: bytes = b"",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (0, 0, 0),
    memory: MemoryImage | None = None,
    limit: int = INSTRUCTION_LIMIT,
) -> BlockTrace:
    """Run the scalar unit for a block; no pipe executes anything, and no flag is waited for.

    Args:
        code, entry, arguments, grid, block: as `ScalarInterpreter` takes them.
        memory: what is known of global memory before the block; all else reads as zeros.
        limit: instructions after which it is given up.
    """
    trace = BlockTrace()
    served = _GlobalMemory(trace, memory or MemoryImage())
    interpreter = ScalarInterpreter(
        code, read=served.read, write=served.write, ram=trace.ram, accessed=served.note
    )
    interpreter.start(entry=entry, arguments=arguments, grid=grid, block=block)
    while True:
        event = interpreter.run(limit - interpreter.retired)
        if isinstance(event, Issue):
            commands = trace.commands[event.pipe]
            commands.append(Command(event, len(commands), len(trace.steps)))
            trace.steps.append(commands[-1])
            continue
        trace.steps.append(event)
        if isinstance(event, Exit | Trap | Paused):
            return trace
