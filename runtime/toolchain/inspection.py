"""Looks into a kernel's file: its text, and a check of its blocks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from abi.address import HBM_BASE
from abi.kernel_object import ArgumentKind
from runtime.toolchain.assumptions import Assumption, AssumptionKind
from runtime.toolchain.block_trace import BlockTrace, Command, trace_block
from runtime.toolchain.disassembler import disassemble
from runtime.toolchain.elf import load_object
from runtime.toolchain.events import FlagSet, FlagWait
from runtime.toolchain.footprint import Buffer
from runtime.toolchain.happens_before import flags_of
from runtime.toolchain.hazards import HazardReport, check_trace
from runtime.toolchain.memory_image import MemoryImage
from runtime.toolchain.object import KernelObject, ObjectError

__all__ = ["ObjectReport", "check_object", "disassemble_object"]

POINTER_SPACING = 1 << 36
"""Bytes between the addresses that are made up for pointers."""

EVERY_BLOCK = 64
"""Grids of at most so many blocks are checked completely, others at their edges."""

Block = tuple[int, int, int]


def disassemble_object(path: str | Path) -> str:
    """What a kernel takes and uses, and its instructions.

    Raises:
        ObjectError: it is no kernel object.
        OSError: the file cannot be read.
    """
    kernel = load_object(path)
    lines = [f"# kernel {kernel.name}, entry {kernel.entry:#x}, {len(kernel.code)} bytes"]
    lines += [
        f"# argument {argument.name}: {argument.kind.name.lower()}"
        f"{f' to {argument.element.name.lower()}' if argument.element else ''}, "
        f"bytes {argument.offset} to {argument.offset + argument.size - 1}"
        for argument in kernel.arguments
    ]
    used = ", ".join(f"{buffer.value} {lines}" for buffer, lines in _declared(kernel).items())
    lines.append(f"# lines: {used}; scalar RAM {kernel.ram_bytes} bytes")
    flags = ", ".join(map(str, flags_of(kernel.flags))) or "none"
    lines.append(f"# flags: {flags}; grid up to {' x '.join(map(str, kernel.grid_limit))}")
    symbols = {**kernel.symbols, kernel.name: kernel.entry}
    return "\n".join(lines) + "\n" + disassemble(kernel.code, symbols)


@dataclass
class ObjectReport:
    """What the check of a kernel found, block by block. It holds for the memory that was given;
    what the kernel loads besides is in each block's `assumptions`."""

    name: str
    blocks: dict[Block, HazardReport] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    complete: bool = True
    """Whether all blocks of the grid were checked."""

    arrays: dict[str, int] = field(default_factory=dict)
    """Device addresses of the pointers."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and all(report.is_clean for report in self.blocks.values())

    @property
    def assumed(self) -> set[AssumptionKind]:
        """What was taken for granted of the values that the kernel loads."""
        return {each.kind for report in self.blocks.values() for each in report.assumptions}

    def __str__(self) -> str:
        count = f"{len(self.blocks)} blocks" + ("" if self.complete else ", at the grid's edges")
        verdict = "no hazards" if self.is_clean else "hazards"
        condition = ", if memory holds what is assumed" if self.assumed else ""
        lines = [f"{self.name}: {verdict} in {count}{condition}", *self.problems]
        findings: dict[str, list[Block]] = {}
        notes: dict[str, list[Block]] = {}
        for block, report in self.blocks.items():
            for finding in report.findings:
                findings.setdefault(str(finding), []).append(block)
            for note in report.notes:
                notes.setdefault(f"note: {note}", []).append(block)
        for text, blocks in (findings | self._assumptions() | notes).items():
            more = f" and {len(blocks) - 1} more" if len(blocks) > 1 else ""
            lines.append(f"{text} [block {blocks[0]}{more}]")
        return "\n".join(lines)

    def _assumptions(self) -> dict[str, list[Block]]:
        """Assumptions in words, the bytes of an array in all blocks as one range."""
        spans: dict[tuple[Assumption, str], tuple[int, int]] = {}
        blocks: dict[tuple[Assumption, str], list[Block]] = {}
        for block, report in self.blocks.items():
            for assumption in report.assumptions:
                for low, high in assumption.ranges:
                    array = "" if assumption.pc is None else self._array_at(low)
                    key = (replace(assumption, ranges=()), array)
                    first, last = spans.get(key, (low, high))
                    spans[key] = (min(first, low), max(last, high))
                    if block not in blocks.setdefault(key, []):
                        blocks[key].append(block)
        texts = {}
        for (assumption, array), (low, high) in spans.items():
            start = self.arrays.get(array, 0)
            named = f"bytes {low - start} to {high - start} of {array}"
            where = named if array else f"bytes {low:#x} to {high:#x}"
            texts[f"assumed: {assumption.describe(where)}"] = blocks[assumption, array]
        return texts

    def _array_at(self, address: int) -> str:
        """The pointer that an address lies behind, or nothing."""
        before = [(at, name) for name, at in self.arrays.items() if at <= address]
        return max(before)[1] if before else ""


def check_object(
    path: str | Path,
    grid: tuple[int, int, int] = (1, 1, 1),
    arguments: Mapping[str, int | float] | None = None,
    data: Mapping[str, bytes] | None = None,
) -> ObjectReport:
    """Check the blocks of a kernel for hazards, and that it uses no more than it declares.

    The pipes execute nothing, and memory is known only as far as `data` gives it. All else that
    the scalar unit loads reads as zeros, and the report says so: with other values the kernel may
    go another way.

    Args:
        path: the kernel's file.
        grid: blocks along x, y and z. Of large grids, the first and last blocks along each axis
            and those in the middle are checked.
        arguments: values by name. Pointers that are left out get addresses far from each other.
        data: what memory holds from a pointer on, by the pointer's name.

    Raises:
        ObjectError: it is no kernel object, or grid, arguments or data do not fit it.
        OSError: the file cannot be read.
    """
    kernel = load_object(path)
    for axis, blocks, limit in zip("xyz", grid, kernel.grid_limit, strict=True):
        if not 1 <= blocks <= limit:
            raise ObjectError(f"grid along {axis} must be between 1 and {limit}, not {blocks!r}")
    values = _pointers(kernel) | dict(arguments or {})
    packed = kernel.pack_arguments(values)
    arrays = {name: int(values[name]) for name in _pointers(kernel)}
    for name in data or {}:
        if name not in arrays:
            raise ObjectError(f"data must name a pointer of {kernel.name}, not {name!r}")
    memory = MemoryImage({arrays[name]: bytes(raw) for name, raw in (data or {}).items()})
    report = ObjectReport(kernel.name, arrays=arrays)
    report.complete = grid[0] * grid[1] * grid[2] <= EVERY_BLOCK
    used = ram_bytes = 0
    for block in _blocks(grid):
        trace = trace_block(
            kernel.code,
            entry=kernel.entry,
            arguments=packed,
            grid=grid,
            block=block,
            memory=memory,
        )
        used |= _flags_used(trace)
        ram_bytes = max(ram_bytes, sum(trace.ram.touched))
        report.blocks[block] = check_trace(
            trace, sizes=_declared(kernel), flags_left=kernel.flags_left
        )
    undeclared = flags_of(used & ~kernel.flags)
    if undeclared:
        names = ", ".join(map(str, undeclared))
        report.problems.append(f"flags {names} are used, but not declared")
    if ram_bytes > kernel.ram_bytes:
        report.problems.append(
            f"{ram_bytes} bytes of the scalar RAM are used, but {kernel.ram_bytes} declared"
        )
    return report


def _pointers(kernel: KernelObject) -> dict[str, int | float]:
    """Addresses that are made up for the pointers, far from each other."""
    return {
        argument.name: HBM_BASE + POINTER_SPACING * number
        for number, argument in enumerate(kernel.arguments)
        if argument.kind is ArgumentKind.POINTER
    }


def _declared(kernel: KernelObject) -> dict[Buffer, int]:
    use = kernel.buffers
    return {
        Buffer.L1: use.l1,
        Buffer.L0A: use.l0a,
        Buffer.L0B: use.l0b,
        Buffer.L0C: use.l0c,
        Buffer.BIAS: use.bias,
        Buffer.UB: use.ub,
    }


def _flags_used(trace: BlockTrace) -> int:
    """Mask of the flags that are given or taken."""
    used = 0
    for step in trace.steps:
        if isinstance(step, Command):
            used |= step.issue.wait | step.issue.set
        elif isinstance(step, FlagWait | FlagSet):
            used |= 1 << step.flag
    return used


def _blocks(grid: Block) -> Iterator[Block]:
    if grid[0] * grid[1] * grid[2] <= EVERY_BLOCK:
        axes = [list(range(blocks)) for blocks in grid]
    else:
        axes = [sorted({0, blocks // 2, blocks - 1}) for blocks in grid]
    yield from product(axes[0], axes[1], axes[2])
