"""What the scalar unit hands to the rest of the core: commands, flag operations, its faults."""

from amaranth.lib import data

from abi.address import ADDRESS_BITS
from abi.core import COMMAND_BYTES, FLAGS

__all__ = ["COMMAND_BITS", "DISPATCH", "FLAG_OPERATION", "QUEUED", "SCALAR_FAULT"]

COMMAND_BITS = 8 * COMMAND_BYTES

_QUEUED = {
    "command": COMMAND_BITS,
    "base": ADDRESS_BITS,
    "wait": FLAGS,
    "set": FLAGS,
    "pc": 32,
}

QUEUED = data.StructLayout(_QUEUED)
"""A valid command in a pipe's queue; `base` is the value, at issue, of the base register that
bits 8 to 11 of the command name; `wait` and `set` are masks of flags; `pc` is that of the
npu.issue."""

DISPATCH = data.StructLayout({**_QUEUED, "pipe": 3})
"""A command for the queue of `pipe`; the other fields as in `QUEUED`."""

FLAG_OPERATION = data.StructLayout({"flag": 5, "give": 1})
"""The scalar unit's own npu.set (`give`) or npu.wait of a flag; ready: it happened."""

SCALAR_FAULT = data.StructLayout({"address": 64, "pc": 32, "status": 8, "pipe": 8})
"""A fault that the scalar unit found, as CORE_STATE and CORE_FAULT_ADDRESS show it."""
