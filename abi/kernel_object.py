"""Kernel objects: the note that an ELF file of a kernel carries besides its code.

The file is ELF32, little-endian, for RISC-V. `.text` holds code and constant data, loaded at
scalar address 0; `.symtab` names the entry. The section `.note.glassnpu` holds one ELF note of
name `NOTE_NAME` and type `NOTE_TYPE`: a `KERNEL_NOTE`, then as many `KERNEL_ARGUMENT` as it says,
then the arguments' names in UTF-8.
"""

from enum import IntEnum

from abi.core import FLAGS
from abi.record import Field, Owner, Record, reserved

__all__ = [
    "ELF_MACHINE",
    "FLAG_LEFT_BITS",
    "KERNEL_ARGUMENT",
    "KERNEL_NOTE",
    "NOTE_NAME",
    "NOTE_SECTION",
    "NOTE_TYPE",
    "NOTE_VERSION",
    "ArgumentKind",
    "ElementType",
]

HOST, UMD = Owner.HOST, Owner.UMD

ELF_MACHINE = 243
"""e_machine of RISC-V."""

NOTE_SECTION = ".note.glassnpu"
NOTE_NAME = "GlassNPU"
NOTE_TYPE = 1

NOTE_VERSION = 1
"""Version of the note's records. A reader refuses any other."""

FLAG_LEFT_BITS = 4
"""Bits of each flag's count in `flags_left`."""


class ArgumentKind(IntEnum):
    """What an argument is. 0 is no kind."""

    POINTER = 1
    """Device address, 64 bits, 8-aligned."""

    INT32 = 2
    FLOAT32 = 3


class ElementType(IntEnum):
    """What a pointer points to."""

    NONE = 0
    """The argument is no pointer, or points to bytes."""

    INT8 = 1
    UINT8 = 2
    INT16 = 3
    UINT16 = 4
    INT32 = 5
    UINT32 = 6
    BFLOAT16 = 7
    FLOAT32 = 8


KERNEL_NOTE = Record(
    "Kernel note",
    "What a kernel takes and uses.",
    Field("version", 16, HOST, UMD, UMD, "Version of the note: `NOTE_VERSION`."),
    Field("abi_major", 16, HOST, UMD, UMD, "ABI that it was made for: another major is refused."),
    Field("abi_minor", 16, HOST, UMD, UMD, "Likewise; a larger minor is refused."),
    Field("arguments", 16, HOST, UMD, UMD, "Number of arguments."),
    Field("argument_bytes", 32, HOST, UMD, UMD, "Bytes of the argument block."),
    Field("name_bytes", 32, HOST, UMD, UMD, "Bytes of all names of arguments."),
    Field("grid_x", 32, HOST, UMD, UMD, "Largest grid along x, at least 1."),
    Field("grid_y", 16, HOST, UMD, UMD, "Largest grid along y, at least 1."),
    Field("grid_z", 16, HOST, UMD, UMD, "Largest grid along z, at least 1."),
    Field("l1_lines", 32, HOST, UMD, UMD, "Lines of L1 that it uses, from line 0 on."),
    Field("l0a_lines", 32, HOST, UMD, UMD, "Lines of L0A."),
    Field("l0b_lines", 32, HOST, UMD, UMD, "Lines of L0B."),
    Field("l0c_lines", 32, HOST, UMD, UMD, "Lines of L0C."),
    Field("bias_lines", 32, HOST, UMD, UMD, "Lines of the bias buffer."),
    Field("ub_lines", 32, HOST, UMD, UMD, "Lines of UB."),
    Field("ram_bytes", 32, HOST, UMD, UMD, "Bytes of the scalar unit's RAM, stack included."),
    Field("flags", FLAGS, HOST, UMD, UMD, "Mask of the flags that it uses."),
    Field(
        "flags_left",
        FLAGS * FLAG_LEFT_BITS,
        HOST,
        UMD,
        UMD,
        "Count of each flag when a block has ended, 4 bits each; most kernels leave zeros.",
    ),
    bits=576,
)

KERNEL_ARGUMENT = Record(
    "Kernel argument",
    "One argument: its place in the argument block.",
    Field("offset", 32, HOST, UMD, UMD, "Bytes from the start of the block, size-aligned."),
    Field("size", 32, HOST, UMD, UMD, "Bytes: 8 for a pointer, else 4."),
    Field("kind", ArgumentKind, HOST, UMD, UMD, "What it is.", bits=8),
    Field("element", ElementType, HOST, UMD, UMD, "What a pointer points to.", bits=8),
    Field("name_offset", 16, HOST, UMD, UMD, "Where its name starts in the names."),
    Field("name_bytes", 16, HOST, UMD, UMD, "Bytes of its name, at least 1."),
    reserved("reserved", 16),
    bits=128,
)
