"""Registers of one DMA channel, as the firmware programs them."""

from enum import IntEnum

from abi.record import Field, Owner
from abi.register import Access, Register

__all__ = [
    "DMA_BYTES",
    "DMA_CYCLES",
    "DMA_DESTINATION",
    "DMA_FAULT_ADDRESS",
    "DMA_PATTERN",
    "DMA_SIZE",
    "DMA_SOURCE",
    "DMA_START",
    "DMA_STATE",
    "DMA_STRIDE",
    "DmaStart",
]

FW, HW, KMD, NONE = Owner.FW, Owner.HW, Owner.KMD, Owner.NONE


class DmaStart(IntEnum):
    """What a write to DMA_START does."""

    ABORT = 0
    COPY = 1
    FILL = 2
    CHAIN = 3


DMA_SOURCE = Register(
    "DMA_SOURCE",
    Access.RW,
    "Source of a COPY, first descriptor of a CHAIN.",
    Field("address", 64, FW, HW, HW, "Device address."),
)
DMA_DESTINATION = Register(
    "DMA_DESTINATION",
    Access.RW,
    "Destination of a COPY or FILL.",
    Field("address", 64, FW, HW, HW, "Device address."),
)
DMA_SIZE = Register(
    "DMA_SIZE",
    Access.RW,
    "Size of a COPY or FILL.",
    Field("row_bytes", 32, FW, HW, HW, "Bytes of a row, at least 1."),
    Field("rows", 32, FW, HW, HW, "Number of rows, at least 1."),
)
DMA_STRIDE = Register(
    "DMA_STRIDE",
    Access.RW,
    "Strides of a COPY or FILL.",
    Field("source", -32, FW, HW, HW, "Bytes from one source row to the next."),
    Field("destination", -32, FW, HW, HW, "Bytes from one destination row to the next."),
)
DMA_PATTERN = Register(
    "DMA_PATTERN",
    Access.RW,
    "Pattern of a FILL.",
    Field("pattern", 64, FW, HW, HW, "Byte i of a row is byte i mod 8."),
)
DMA_START = Register(
    "DMA_START",
    Access.WO,
    "Starts or aborts the channel. A start of a busy channel is refused with SLVERR.",
    Field("kind", DmaStart, FW, HW, HW, "What to do.", bits=2),
)
DMA_STATE = Register(
    "DMA_STATE",
    Access.RO,
    "State of the channel and outcome of its last run.",
    Field("busy", 1, HW, FW, FW, "A run is on its way; stays 1 until all responses are in."),
    Field("unused", 7, NONE, NONE, NONE, "Reads as zero."),
    Field("status", 8, HW, FW, FW, "Status code of the last run; OK while busy."),
    Field("descriptor", 32, HW, FW, KMD, "Number of descriptors that the run has finished."),
)
DMA_FAULT_ADDRESS = Register(
    "DMA_FAULT_ADDRESS",
    Access.RO,
    "Where the last run failed.",
    Field("address", 64, HW, FW, KMD, "Device address of the failing line or descriptor."),
)
DMA_BYTES = Register(
    "DMA_BYTES",
    Access.RO,
    "Performance: bytes written since reset.",
    Field("bytes", 64, HW, KMD, KMD, "Bytes whose write response is in."),
)
DMA_CYCLES = Register(
    "DMA_CYCLES",
    Access.RO,
    "Performance: busy cycles since reset.",
    Field("cycles", 64, HW, KMD, KMD, "Cycles with busy = 1."),
)
