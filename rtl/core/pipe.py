"""What the pipes of the core have in common: how a command ends, and its bounds check."""

from amaranth.hdl import Value
from amaranth.lib import data

from abi.address import LINE_BYTES

__all__ = ["DONE", "ceil_lines", "last_line"]

DONE = data.StructLayout({"address": 64, "status": 8})
"""A command of a pipe has ended: its `abi.status.Status`, and where it failed, or 0."""


def last_line(first: Value, rows: Value, pitch: Value, row_lines: Value) -> Value:
    """The last line of `rows` rows of `row_lines` lines, `pitch` lines apart; all at least 1."""
    return first + (rows - 1)[: len(rows)] * pitch + (row_lines - 1)[: len(row_lines)]


def ceil_lines(nbytes: Value) -> Value:
    """Lines that hold `nbytes` bytes."""
    shift = LINE_BYTES.bit_length() - 1
    return (nbytes + (LINE_BYTES - 1)) >> shift
