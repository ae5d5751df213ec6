"""What a traced kernel consists of: regions of commands, loops, conditions and barriers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from abi.core import CommandOpcode, Pipe
from runtime.compiler.scalar import Binary, Scalar, ScalarLike, Variable

__all__ = [
    "Access",
    "Barrier",
    "Buffer",
    "Command",
    "Define",
    "Fetch",
    "FlagUse",
    "Line",
    "Loop",
    "Memory",
    "Node",
    "Pointer",
    "Region",
    "When",
    "commands_in",
]


class Memory(Enum):
    """The buffers of a core."""

    L1 = "L1"
    L0A = "L0A"
    L0B = "L0B"
    L0C = "L0C"
    BIAS = "bias"
    UB = "UB"


@dataclass(eq=False)
class Buffer:
    """Lines of one of the core's buffers that hold one tile at a time.

    Attributes:
        lines: size of a slot.
        region: where it was made; each run of the region uses the next slot.
        slots: how many runs of the region may work on it at a time; set by the compiler.
        single: one slot is asked for.
        line: its first line; stride: lines from one slot to the next; set by the compiler.
    """

    name: str
    memory: Memory
    lines: int
    region: "Region"
    slots: int = 1
    single: bool = False
    line: int = -1
    stride: int = 0


@dataclass(frozen=True)
class Line:
    """The line number `extra` of the present slot of a buffer, as a command's field."""

    buffer: Buffer
    extra: ScalarLike = 0


@dataclass(eq=False)
class Pointer:
    """An argument that points to global memory, in base register `base`."""

    name: str
    dtype: str
    base: int
    offset: int


@dataclass(frozen=True)
class Access:
    """A command reads or writes a buffer."""

    buffer: Buffer
    writes: bool


@dataclass(frozen=True)
class FlagUse:
    """A command waits for a flag, or sets it; not if `unless` is there and not 0."""

    flag: int
    unless: Scalar | None = None


@dataclass(eq=False)
class Command:
    """A command for a pipe. `wait` and `give` are flags, added by the compiler.

    A field is a number, an expression, or a `Line`. `updates`: it is the copy of an update.
    """

    pipe: Pipe
    opcode: CommandOpcode
    fields: dict[str, "ScalarLike | Line"]
    accesses: tuple[Access, ...]
    origin: str
    wait: list[FlagUse] = field(default_factory=list)
    give: list[FlagUse] = field(default_factory=list)
    updates: bool = False


@dataclass(eq=False)
class Define:
    """An expression that was made here. It gets a variable if it is used more than once."""

    value: Binary


@dataclass(eq=False)
class Fetch:
    """The scalar unit reads an int32 of global memory, `offset` bytes behind a pointer."""

    value: Variable
    pointer: Pointer
    offset: Scalar


@dataclass(eq=False)
class Barrier:
    """All commands before it have ended."""


@dataclass(eq=False)
class Loop:
    """`for index in range(start, stop, step)`; step >= 1."""

    index: Variable
    start: Scalar
    stop: Scalar
    step: Scalar
    body: "Region"


@dataclass(eq=False)
class When:
    """The body runs if the condition is not 0."""

    condition: Scalar
    body: "Region"


Node = Command | Define | Fetch | Barrier | Loop | When


@dataclass(eq=False)
class Region:
    """Nodes in order.

    Attributes:
        parent: the region around it.
        repeats: whether it may run more than once in a stage.
        slot: counts its runs modulo the slots of its buffers; None until it is needed.
    """

    parent: "Region | None"
    repeats: bool
    nodes: list[Node] = field(default_factory=list)
    slot: Variable | None = None

    def inside(self, other: "Region") -> bool:
        """Whether it is `other` or lies in it."""
        region: Region | None = self
        while region is not None and region is not other:
            region = region.parent
        return region is other


def commands_in(node: Node) -> Iterator[Command]:
    """All commands of a node and of what lies in it."""
    match node:
        case Command():
            yield node
        case Loop() | When():
            for inner in node.body.nodes:
                yield from commands_in(inner)
