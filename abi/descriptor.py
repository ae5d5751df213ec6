"""DMA descriptors: one 64-byte line each, chained through memory."""

from enum import IntEnum

from abi.record import Field, Owner, Record, reserved

__all__ = ["DESCRIPTOR", "DESCRIPTOR_MAGIC", "DescriptorOpcode"]

UMD, HW = Owner.UMD, Owner.HW

DESCRIPTOR_MAGIC = 0x444D
"""`MD` in memory order; anything else there means that this is no descriptor."""


class DescriptorOpcode(IntEnum):
    """What a descriptor asks for."""

    COPY = 1
    FILL = 2


DESCRIPTOR = Record(
    "DMA descriptor",
    "One 1-D or 2-D transfer of a chain. Hardware checks each field when it fetches the line, "
    "since the user may change it at any time.",
    Field("opcode", DescriptorOpcode, UMD, HW, HW, "COPY or FILL.", bits=8),
    reserved("reserved_header", 8),
    Field("magic", 16, UMD, HW, HW, "DESCRIPTOR_MAGIC."),
    reserved("reserved_word", 32),
    Field("source", 64, UMD, HW, HW, "Device address of the first source byte; FILL: zero."),
    Field("destination", 64, UMD, HW, HW, "Device address of the first destination byte."),
    Field("row_bytes", 32, UMD, HW, HW, "Bytes of a row, at least 1."),
    Field("rows", 32, UMD, HW, HW, "Number of rows, at least 1."),
    Field("source_stride", -32, UMD, HW, HW, "Bytes from one source row to the next."),
    Field("destination_stride", -32, UMD, HW, HW, "Bytes from one destination row to the next."),
    Field("pattern", 64, UMD, HW, HW, "FILL: byte i of a row is byte i mod 8 of the pattern."),
    Field("next", 64, UMD, HW, HW, "Device address of the next descriptor, 64-aligned; 0: end."),
    reserved("reserved", 64),
    bits=512,
)
