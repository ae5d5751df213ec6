"""Tables of the core's instructions, vector operations and rules, for the contract page."""

from collections.abc import Iterable, Sequence

from abi.command_rules import ALLOWED, AT_LEAST_1, BELOW, ONLY_WITH
from abi.core import OPCODE_PIPE
from abi.isa import INSTRUCTIONS, REGISTER_NAMES
from abi.vector import SOURCES

__all__ = ["EXTRA", "Table"]

Table = tuple[str, Sequence[str], list[list[str]]]
"""Heading, column names, rows."""


def _numbers(values: Sequence[int]) -> str:
    """A range, or the values one by one."""
    if isinstance(values, range) and values.step == 1:
        return f"{values.start} to {values.stop - 1}"
    numbers = [int(value) for value in values]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(
        f"`{value.name}`" if hasattr(value, "name") else str(value) for value in values
    )


def _instructions() -> Iterable[Table]:
    rows = [
        [
            f"`{instruction.name}`",
            instruction.format.value,
            f"{instruction.match:#010x}",
            f"{instruction.mask:#010x}",
            instruction.meaning,
        ]
        for instruction in INSTRUCTIONS.values()
    ]
    yield "Instructions", ("Name", "Operands", "Match", "Mask", "Meaning"), rows
    names = [[f"x{number}", f"`{name}`"] for number, name in enumerate(REGISTER_NAMES)]
    yield "Registers of the scalar unit", ("Register", "Name"), names


def _vector() -> Iterable[Table]:
    rows = [[f"`{operation.name}`", str(count)] for operation, count in SOURCES.items()]
    yield "Sources of vector operations", ("Operation", "Sources"), rows


def _pipes() -> Iterable[Table]:
    rows = [[f"`{opcode.name}`", f"`{pipe.name}`"] for opcode, pipe in OPCODE_PIPE.items()]
    yield "Pipes of commands", ("Command", "Pipe"), rows


def _rules() -> Iterable[Table]:
    rows = []
    for opcode, names in AT_LEAST_1.items():
        rows += [[f"`{opcode.name}`", f"`{name}`", "at least 1"] for name in names]
    for opcode, allowed in ALLOWED.items():
        rows += [[f"`{opcode.name}`", f"`{name}`", _numbers(v)] for name, v in allowed.items()]
    for opcode, pairs in BELOW.items():
        rows += [[f"`{opcode.name}`", f"`{low}`", f"below `{high}`"] for low, high in pairs]
    for opcode, only in ONLY_WITH.items():
        rows += [
            [
                f"`{opcode.name}`",
                f"`{rule.field}`",
                f"0 unless `{rule.other}` is {_numbers(rule.values)}",
            ]
            for rule in only
        ]
    yield "Rules of commands", ("Command", "Field", "Must be"), rows


EXTRA = {"core": _pipes, "isa": _instructions, "vector": _vector, "command_rules": _rules}
"""Tables of a module that are not records, enums or constants."""
