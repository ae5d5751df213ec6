"""Registers of one queue, as the firmware programs them."""

from abi.record import Field, Owner
from abi.register import Access, Register

__all__ = [
    "QUEUE_CONSUMED",
    "QUEUE_CONTROL",
    "QUEUE_DOORBELL",
    "QUEUE_FETCHED",
    "QUEUE_READ_INDEX_ADDRESS",
    "QUEUE_RING",
    "QUEUE_STATE",
]

UMD, FW, HW, KMD, NONE = Owner.UMD, Owner.FW, Owner.HW, Owner.KMD, Owner.NONE

QUEUE_RING = Register(
    "QUEUE_RING",
    Access.RW,
    "Where the ring lies.",
    Field("address", 48, FW, HW, HW, "Device address of slot 0, 64-aligned."),
    Field("depth_log2", 5, FW, HW, HW, "The ring has 2**depth_log2 slots."),
)
QUEUE_READ_INDEX_ADDRESS = Register(
    "QUEUE_READ_INDEX_ADDRESS",
    Access.RW,
    "Where hardware publishes the read index.",
    Field("address", 48, FW, HW, UMD, "Device address, 64-aligned, of the 8-byte read index."),
)
QUEUE_CONTROL = Register(
    "QUEUE_CONTROL",
    Access.RW,
    "Turns a queue on and off. 0 to 1 clears its indices and its fault.",
    Field("enable", 1, FW, HW, HW, "1: doorbells are accepted and packets are fetched."),
)
QUEUE_DOORBELL = Register(
    "QUEUE_DOORBELL",
    Access.RO,
    "The doorbell's latch.",
    Field("write_index", 64, HW, FW, FW, "Last write index that the host rang."),
)
QUEUE_FETCHED = Register(
    "QUEUE_FETCHED",
    Access.RO,
    "How far the fetcher is; also the read index in host memory.",
    Field("index", 64, HW, FW, UMD, "Packets before this lie in, or have left, packet SRAM."),
)
QUEUE_CONSUMED = Register(
    "QUEUE_CONSUMED",
    Access.RW,
    "How far the firmware is. A write frees SRAM slots.",
    Field("index", 64, FW, HW, KMD, "Packets before this have been taken by the firmware."),
)
QUEUE_STATE = Register(
    "QUEUE_STATE",
    Access.RO,
    "State and fault of a queue.",
    Field("busy", 1, HW, FW, FW, "A fetch or read-index write is outstanding."),
    Field(
        "fault",
        1,
        HW,
        FW,
        FW,
        "The queue faulted; fetch and doorbell stay off until it is disabled and enabled again.",
    ),
    Field("unused", 6, NONE, NONE, NONE, "Reads as zero."),
    Field("status", 8, HW, FW, KMD, "Status code of the fault."),
    Field("address", 48, HW, FW, KMD, "Address (fetch) or low bits of the write index (doorbell)."),
)
