"""Packets: the 64-byte commands in a queue's ring."""

from enum import IntEnum

from abi.record import Field, Owner, Record, reserved

__all__ = [
    "CHAIN_PACKET",
    "COPY_PACKET",
    "FILL_PACKET",
    "KERNEL_PACKET",
    "NOP_PACKET",
    "PACKETS",
    "SIGNAL_PACKET",
    "WAIT_PACKET",
    "PacketOpcode",
]

UMD, FW, HW = Owner.UMD, Owner.FW, Owner.HW


class PacketOpcode(IntEnum):
    """What a packet asks for. 0 is no opcode, so that a slot never written is refused."""

    NOP = 1
    COPY = 2
    FILL = 3
    CHAIN = 4
    WAIT = 5
    SIGNAL = 6
    KERNEL = 7


_HEADER = (
    Field("opcode", PacketOpcode, UMD, FW, FW, "What the packet asks for.", bits=8),
    reserved("reserved_header", 24),
    Field(
        "sequence",
        32,
        UMD,
        FW,
        FW,
        "Low 32 bits of the packet's ring index. Another value means that the slot is stale: "
        "the doorbell overtook the stores.",
    ),
)

NOP_PACKET = Record("NOP packet", "Does nothing, in order.", *_HEADER, reserved("reserved", 448))

COPY_PACKET = Record(
    "COPY packet",
    "Copies `rows` rows of `row_bytes` bytes; runs on a DMA channel.",
    *_HEADER,
    Field("source", 64, UMD, FW, HW, "Device address of the first source byte."),
    Field("destination", 64, UMD, FW, HW, "Device address of the first destination byte."),
    Field("row_bytes", 32, UMD, FW, HW, "Bytes of a row, at least 1."),
    Field("rows", 32, UMD, FW, HW, "Number of rows, at least 1."),
    Field("source_stride", -32, UMD, FW, HW, "Bytes from one source row to the next."),
    Field("destination_stride", -32, UMD, FW, HW, "Bytes from one destination row to the next."),
    reserved("reserved", 192),
    bits=512,
)

FILL_PACKET = Record(
    "FILL packet",
    "Fills rows with an 8-byte pattern that starts anew at each row; runs on a DMA channel.",
    *_HEADER,
    reserved("reserved_source", 64),
    Field("destination", 64, UMD, FW, HW, "Device address of the first destination byte."),
    Field("row_bytes", 32, UMD, FW, HW, "Bytes of a row, at least 1."),
    Field("rows", 32, UMD, FW, HW, "Number of rows, at least 1."),
    reserved("reserved_stride", 32),
    Field("destination_stride", -32, UMD, FW, HW, "Bytes from one destination row to the next."),
    Field("pattern", 64, UMD, HW, HW, "Byte i of a row is byte i mod 8 of the pattern."),
    reserved("reserved", 128),
    bits=512,
)

CHAIN_PACKET = Record(
    "CHAIN packet",
    "Runs a chain of DMA descriptors that lies in memory.",
    *_HEADER,
    Field("descriptor", 64, UMD, FW, HW, "Device address of the first descriptor, 64-aligned."),
    reserved("reserved", 384),
    bits=512,
)

WAIT_PACKET = Record(
    "WAIT packet",
    "Holds the queue until a semaphore has reached a value.",
    *_HEADER,
    Field("semaphore", 64, UMD, FW, HW, "Device address of the semaphore, 64-aligned."),
    Field("value", 64, UMD, FW, FW, "The queue goes on once the semaphore is at least this."),
    Field("timeout", 64, UMD, FW, FW, "Cycles after which the wait fails; 0 means the queue's."),
    reserved("reserved", 256),
    bits=512,
)

SIGNAL_PACKET = Record(
    "SIGNAL packet",
    "Completes: writes status and timestamp, then the value, then sends the interrupt.",
    *_HEADER,
    Field("semaphore", 64, UMD, FW, HW, "Device address of the semaphore, 64-aligned."),
    Field("value", 64, UMD, HW, UMD, "New value; larger than all before it."),
    Field("interrupt", 1, UMD, FW, HW, "1: send the queue's interrupt vector afterwards."),
    reserved("reserved_flags", 63),
    reserved("reserved", 256),
    bits=512,
)

KERNEL_PACKET = Record(
    "KERNEL packet",
    "Runs a kernel for each block of a grid, on the AI cores.",
    *_HEADER,
    Field("code", 64, UMD, FW, HW, "Device address of the kernel, 64-aligned."),
    Field("code_bytes", 32, UMD, FW, HW, "Bytes of the kernel, at least 4."),
    Field("entry", 32, UMD, FW, HW, "Where execution starts: bytes from its start, 4-aligned."),
    Field("arguments", 64, UMD, FW, HW, "Device address of the argument block, 64-aligned."),
    Field("argument_bytes", 32, UMD, FW, HW, "Bytes of the argument block."),
    Field("timeout", 32, UMD, FW, FW, "Cycles after which it is aborted; 0 means the queue's."),
    Field("grid_x", 32, UMD, FW, HW, "Blocks along x, at least 1."),
    Field("grid_y", 16, UMD, FW, HW, "Blocks along y, at least 1."),
    Field("grid_z", 16, UMD, FW, HW, "Blocks along z, at least 1."),
    reserved("reserved", 128),
    bits=512,
)

PACKETS: dict[PacketOpcode, Record] = {
    PacketOpcode.NOP: NOP_PACKET,
    PacketOpcode.COPY: COPY_PACKET,
    PacketOpcode.FILL: FILL_PACKET,
    PacketOpcode.CHAIN: CHAIN_PACKET,
    PacketOpcode.WAIT: WAIT_PACKET,
    PacketOpcode.SIGNAL: SIGNAL_PACKET,
    PacketOpcode.KERNEL: KERNEL_PACKET,
}
