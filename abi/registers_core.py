"""Registers of one AI core: control by the firmware, counters for host and firmware."""

from enum import IntEnum

from abi.core import Pipe
from abi.record import Field, Owner
from abi.register import Access, Register

__all__ = [
    "CORE_ARGUMENTS",
    "CORE_BLOCKS",
    "CORE_BLOCK_YZ",
    "CORE_CODE",
    "CORE_COUNTERS",
    "CORE_ENTRY",
    "CORE_FAULT_ADDRESS",
    "CORE_FAULT_BLOCK",
    "CORE_FAULT_INJECTION",
    "CORE_GRID",
    "CORE_RETIRED",
    "CORE_SIZES",
    "CORE_START",
    "CORE_STATE",
    "CoreOperation",
]

FW, HW, KMD, NONE = Owner.FW, Owner.HW, Owner.KMD, Owner.NONE


class CoreOperation(IntEnum):
    """What a write of CORE_START asks for."""

    ABORT = 0
    """End the present block with ABORTED, drop the next; drains what is outstanding."""

    START = 1
    """Run a block; the core takes one more while it runs one, and starts it behind that."""

    SCRUB = 2
    """Overwrite all buffers and the scalar unit's RAM with zeros; the core is busy until then."""

    DROP = 3
    """Forget the next block, if it has not started; the present one goes on."""


CORE_CODE = Register(
    "CORE_CODE",
    Access.RW,
    "The kernel. A write empties the core's instruction cache.",
    Field("address", 64, FW, HW, HW, "Device address of its first byte, 64-aligned."),
)
CORE_SIZES = Register(
    "CORE_SIZES",
    Access.RW,
    "Sizes; accesses beyond them are ADDRESS_FAULT.",
    Field("code_bytes", 32, FW, HW, HW, "Bytes of the kernel."),
    Field("argument_bytes", 32, FW, HW, HW, "Bytes of the argument block."),
)
CORE_ARGUMENTS = Register(
    "CORE_ARGUMENTS",
    Access.RW,
    "The argument block.",
    Field("address", 64, FW, HW, HW, "Device address of its first byte, 64-aligned."),
)
CORE_GRID = Register(
    "CORE_GRID",
    Access.RW,
    "The grid of blocks.",
    Field("x", 32, FW, HW, HW, "Blocks along x, at least 1."),
    Field("y", 16, FW, HW, HW, "Blocks along y, at least 1."),
    Field("z", 16, FW, HW, HW, "Blocks along z, at least 1."),
)
CORE_ENTRY = Register(
    "CORE_ENTRY",
    Access.RW,
    "Where execution starts.",
    Field("offset", 32, FW, HW, HW, "Bytes from the start of the kernel, 4-aligned."),
    Field("unused", 32, NONE, NONE, NONE, "Reads as zero."),
)
CORE_START = Register(
    "CORE_START",
    Access.WO,
    "Starts, aborts or scrubs. A START while a next block is held, and a START or SCRUB of a core "
    "that scrubs, are refused with SLVERR, as is a SCRUB while a block runs.",
    Field("operation", CoreOperation, FW, HW, HW, "What to do.", bits=8),
    Field("unused", 24, NONE, NONE, NONE, "Ignored."),
    Field("block_x", 32, FW, HW, HW, "Block to run, along x."),
)
CORE_BLOCK_YZ = Register(
    "CORE_BLOCK_YZ",
    Access.RW,
    "The other coordinates of the block that the next START runs.",
    Field("y", 16, FW, HW, HW, "Block along y."),
    Field("z", 16, FW, HW, HW, "Block along z."),
    Field("unused", 32, NONE, NONE, NONE, "Reads as zero."),
)
CORE_STATE = Register(
    "CORE_STATE",
    Access.RO,
    "State of the core and outcome of its last block.",
    Field("busy", 1, HW, FW, FW, "A block runs, or a scrub; 1 until all responses are in."),
    Field("pending", 1, HW, FW, FW, "A next block is held. A fault drops it."),
    Field("unused", 6, NONE, NONE, NONE, "Reads as zero."),
    Field("status", 8, HW, FW, FW, "First fault since the last write of CORE_CODE, or OK."),
    Field("pipe", Pipe, HW, FW, KMD, "Pipe that failed.", bits=8),
    Field("unused_pipe", 8, NONE, NONE, NONE, "Reads as zero."),
    Field("pc", 32, HW, FW, KMD, "Instruction that failed, or issued the command that did."),
)
CORE_FAULT_ADDRESS = Register(
    "CORE_FAULT_ADDRESS",
    Access.RO,
    "Where the core failed.",
    Field("address", 64, HW, FW, KMD, "Device address of the failing line, or 0."),
)
CORE_FAULT_BLOCK = Register(
    "CORE_FAULT_BLOCK",
    Access.RO,
    "The block that failed.",
    Field("x", 32, HW, FW, KMD, "Block along x."),
    Field("y", 16, HW, FW, KMD, "Block along y."),
    Field("z", 16, HW, FW, KMD, "Block along z."),
)
CORE_BLOCKS = Register(
    "CORE_BLOCKS",
    Access.RO,
    "Progress.",
    Field("ended", 64, HW, FW, FW, "Blocks that ended, failed ones included, since reset."),
)
CORE_RETIRED = Register(
    "CORE_RETIRED",
    Access.RO,
    "Progress.",
    Field("commands", 64, HW, FW, FW, "Commands that pipes finished since reset."),
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
    "core_cycles": _counter("CORE_CYCLES", "Cycles in which a block ran, since reset."),
    "core_instructions": _counter("CORE_INSTRUCTIONS", "Instructions of the scalar unit."),
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
            ("idle", "without a command while a block ran"),
        )
    },
}
"""Counters of a core; for each pipe busy + stall + idle = core_cycles."""
