"""Registers of one AI core: control by the firmware, counters for host and firmware."""

from abi.core import Pipe
from abi.packet import KERNEL_ARGUMENTS
from abi.record import Field, Owner
from abi.register import Access, Register

__all__ = [
    "CORE_ARGUMENT",
    "CORE_COUNTERS",
    "CORE_FAULT_ADDRESS",
    "CORE_FAULT_INJECTION",
    "CORE_LENGTH",
    "CORE_PROGRAM",
    "CORE_RETIRED",
    "CORE_START",
    "CORE_STATE",
    "KERNEL_ARGUMENTS",
]

FW, HW, KMD, NONE = Owner.FW, Owner.HW, Owner.KMD, Owner.NONE

CORE_PROGRAM = Register(
    "CORE_PROGRAM",
    Access.RW,
    "Program to run.",
    Field("address", 64, FW, HW, HW, "Device address of the first command, 64-aligned."),
)
CORE_LENGTH = Register(
    "CORE_LENGTH",
    Access.RW,
    "Length of the program.",
    Field("commands", 32, FW, HW, HW, "Commands; running past them is BAD_COMMAND."),
)
CORE_ARGUMENT = Register(
    "CORE_ARGUMENT",
    Access.RW,
    "A base register of the commands.",
    Field("value", 64, FW, HW, HW, "Device address."),
)
CORE_START = Register(
    "CORE_START",
    Access.WO,
    "Starts or aborts the core. A start of a busy core is refused with SLVERR.",
    Field("start", 1, FW, HW, HW, "1: start, 0: abort (drains what is outstanding)."),
)
CORE_STATE = Register(
    "CORE_STATE",
    Access.RO,
    "State of the core and outcome of its last program.",
    Field("busy", 1, HW, FW, FW, "A program runs; stays 1 until all responses are in."),
    Field("unused", 7, NONE, NONE, NONE, "Reads as zero."),
    Field("status", 8, HW, FW, FW, "Status code of the last program; OK while busy."),
    Field("pipe", Pipe, HW, FW, KMD, "Pipe that failed; 0xFF: sequencer.", bits=8),
    Field("command", 32, HW, FW, KMD, "Index of the command that failed."),
)
CORE_FAULT_ADDRESS = Register(
    "CORE_FAULT_ADDRESS",
    Access.RO,
    "Where the last program failed.",
    Field("address", 64, HW, FW, KMD, "Device address of the failing line, or 0."),
)
CORE_RETIRED = Register(
    "CORE_RETIRED",
    Access.RO,
    "Progress.",
    Field("commands", 64, HW, FW, FW, "Commands finished since reset."),
)
CORE_FAULT_INJECTION = Register(
    "CORE_FAULT_INJECTION",
    Access.RW,
    "Error injection, for tests of those who compare results.",
    Field("product_xor", 16, KMD, HW, HW, "XORed into the Cube's product (row 0, column 0)."),
)


def _counter(name: str, meaning: str) -> Register:
    return Register(name, Access.RO, meaning, Field("count", 64, HW, KMD, KMD, meaning))


CORE_COUNTERS: dict[str, Register] = {
    "core_cycles": _counter("CORE_CYCLES", "Cycles in which a program ran, since reset."),
    "core_macs": _counter("CORE_MACS", "MACs done: rows x 16 k_tiles x 16 n_tiles."),
    "core_read_bytes": _counter("CORE_READ_BYTES", "Bytes read from global memory, whole lines."),
    "core_write_bytes": _counter("CORE_WRITE_BYTES", "Bytes written to global memory."),
    **{
        f"{pipe.name.lower()}_{kind}": _counter(
            f"{pipe.name}_{kind.upper()}", f"Cycles in which {pipe.name} was {meaning}."
        )
        for pipe in Pipe
        for kind, meaning in (
            ("busy", "working"),
            ("stall", "holding a command but waiting (flags, memory, operands)"),
            ("idle", "without a command while a program ran"),
        )
    },
}
"""Counters of a core; for each pipe busy + stall + idle = core_cycles."""
