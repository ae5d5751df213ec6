"""What a check takes for granted: loads of the scalar unit whose values it does not know.

What the scalar unit loads decides where it branches and what it issues, so a check with other
values may find other hazards.
"""

from dataclasses import dataclass
from enum import Enum

from abi.core import Pipe
from abi.isa import RAM_BASE
from runtime.toolchain.block_trace import BlockTrace, Command, ScalarAccess
from runtime.toolchain.footprint import BufferOverflowError, footprint
from runtime.toolchain.region import Region

__all__ = ["Assumption", "AssumptionKind", "assumptions_of"]

Range = tuple[int, int]


class AssumptionKind(Enum):
    """What is taken for granted of the bytes that are loaded."""

    ZERO = "zeros"
    """Nobody said what memory holds there."""

    BEFORE = "what was there before the block"
    """A command of the block writes there, and commands are not executed."""

    RAM = "zeros, as the block has not written them"
    """Bytes of the scalar RAM, which keeps what the block before left."""


@dataclass(frozen=True)
class Assumption:
    """Bytes that an instruction loads, or that any loads from the RAM.

    Args:
        kind: what is taken for granted.
        ranges: first and last address of each range; device addresses, but of the RAM scalar ones.
        pc: the load; None for the RAM.
        writer: the command that writes there, for BEFORE.
    """

    kind: AssumptionKind
    ranges: tuple[Range, ...]
    pc: int | None = None
    writer: str = ""

    @property
    def reader(self) -> str:
        """What loads."""
        return Pipe.SCALAR.name if self.pc is None else f"{Pipe.SCALAR.name} at pc {self.pc:#x}"

    def describe(self, where: str) -> str:
        """In words, with words for where the bytes lie."""
        written = f", though {self.writer} writes there" if self.writer else ""
        return f"{self.reader} takes {where} for {self.kind.value}{written}"

    def __str__(self) -> str:
        return self.describe(f"bytes {self.ranges[0][0]:#x} to {self.ranges[-1][1]:#x}")


def assumptions_of(trace: BlockTrace) -> list[Assumption]:
    """What the trace of a block took for granted, in order of the instructions."""
    found: dict[tuple[int, AssumptionKind, str], set[Range]] = {}
    written: dict[Region, str] = {}
    for step in trace.steps:
        if isinstance(step, Command):
            name = f"{step.pipe.name} at pc {step.pc:#x}"
            written |= {region: name for region in _written(step) if region not in written}
        elif isinstance(step, ScalarAccess) and not step.write:
            writer = next(
                (name for each, name in written.items() if each.overlaps(step.region)), ""
            )
            if not writer and not step.unknown:
                continue
            kind = AssumptionKind.BEFORE if writer else AssumptionKind.ZERO
            ranges = found.setdefault((step.pc, kind, writer), set())
            ranges.add((step.region.start, step.region.end - 1))
    result = [
        Assumption(kind, _merged(ranges), pc, writer)
        for (pc, kind, writer), ranges in sorted(found.items(), key=lambda item: item[0][0])
    ]
    unset = {(RAM_BASE + at, RAM_BASE + at) for at, read in enumerate(trace.ram.unset) if read}
    if unset:
        result.append(Assumption(AssumptionKind.RAM, _merged(unset)))
    return result


def _written(command: Command) -> tuple[Region, ...]:
    """Global memory that a command writes."""
    try:
        return footprint(command.issue.command, command.issue.base).memory_writes
    except BufferOverflowError:
        return ()


def _merged(ranges: set[Range]) -> tuple[Range, ...]:
    """Ranges in order, those that touch as one."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)
