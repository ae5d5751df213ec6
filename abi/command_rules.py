"""Which commands are valid, as data and as a function; what breaks a rule is BAD_COMMAND."""

from collections.abc import Sequence
from dataclasses import dataclass

from abi.core import (
    COMMANDS,
    OPCODE_PIPE,
    PIPES,
    CommandOpcode,
    Local,
    MmadType,
    MoveTarget,
    StoreOutput,
    Transpose,
)
from abi.vector import VectorOperation

__all__ = ["ALLOWED", "AT_LEAST_1", "BELOW", "ONLY_WITH", "OnlyWith", "broken_rule"]

AT_LEAST_1: dict[CommandOpcode, tuple[str, ...]] = {
    CommandOpcode.LOAD: ("row_bytes", "rows", "planes"),
    CommandOpcode.SAVE: ("row_bytes", "rows", "planes"),
    CommandOpcode.MOVE: ("row_lines", "rows"),
    CommandOpcode.IMG2COL: (
        "stride_height",
        "stride_width",
        "pixel_bytes",
        "rows",
        "out_width",
        "kernel_height",
        "kernel_width",
    ),
    CommandOpcode.MMAD: ("rows", "k_tiles", "n_tiles"),
    CommandOpcode.STORE: ("columns", "rows"),
    CommandOpcode.VECTOR: ("columns", "rows"),
}
"""Fields that must not be 0."""

ALLOWED: dict[CommandOpcode, dict[str, Sequence[int]]] = {
    CommandOpcode.LOAD: {"target": (Local.L1, Local.UB)},
    CommandOpcode.SAVE: {"target": (Local.L1, Local.MEMORY)},
    CommandOpcode.MOVE: {"target": tuple(MoveTarget), "transpose": tuple(Transpose)},
    CommandOpcode.IMG2COL: {"target": (MoveTarget.L0A, MoveTarget.L0B)},
    CommandOpcode.MMAD: {"type": tuple(MmadType)},
    CommandOpcode.STORE: {
        "target": (Local.UB, Local.MEMORY),
        "output": tuple(StoreOutput),
        "shift": range(63),
    },
    CommandOpcode.VECTOR: {"operation": tuple(VectorOperation)},
}
"""Values of the fields that may not have any value that fits."""

BELOW: dict[CommandOpcode, tuple[tuple[str, str], ...]] = {
    CommandOpcode.IMG2COL: (("first_column", "out_width"),),
}
"""Pairs of fields of which the first must be less than the second."""


@dataclass(frozen=True)
class OnlyWith:
    """`field` must be 0 unless `other` has one of the `values`."""

    field: str
    other: str
    values: tuple[int, ...]


ONLY_WITH: dict[CommandOpcode, tuple[OnlyWith, ...]] = {
    CommandOpcode.MOVE: (OnlyWith("transpose", "target", (MoveTarget.L0A, MoveTarget.L0B)),),
}
"""Fields that are meaningful only together with some values of another."""

_OPCODES = {int(opcode): opcode for opcode in CommandOpcode}


def broken_rule(pipe: int, command: int) -> str | None:
    """The first rule that a command breaks, or None if it is valid.

    Args:
        pipe: the `Pipe` that it is issued to.
        command: its 256 bits.
    """
    opcode = _OPCODES.get(command & 0xFF)
    if opcode is None:
        return f"opcode must be a CommandOpcode, not {command & 0xFF:#x}"
    if opcode is not CommandOpcode.NOP and OPCODE_PIPE[opcode] != pipe:
        return f"{opcode.name} must be issued to {OPCODE_PIPE[opcode].name}, not {pipe!r}"
    if pipe not in PIPES:
        return f"pipe must have a queue, not {pipe!r}"
    fields = COMMANDS[opcode].unpack(command)
    for name, value in fields.items():
        if name.startswith("reserved") and value:
            return f"{name} must be 0, not {value:#x}"
    for name in AT_LEAST_1.get(opcode, ()):
        if not fields[name]:
            return f"{name} must be at least 1, not 0"
    for name, values in ALLOWED.get(opcode, {}).items():
        if fields[name] not in values:
            return f"{name} must be one of {[int(value) for value in values]}, not {fields[name]!r}"
    for low, high in BELOW.get(opcode, ()):
        if fields[low] >= fields[high]:
            return f"{low} must be below {high} ({fields[high]}), not {fields[low]!r}"
    for rule in ONLY_WITH.get(opcode, ()):
        if fields[rule.field] and fields[rule.other] not in rule.values:
            return f"{rule.field} must be 0 with {rule.other} {fields[rule.other]}"
    return None
