"""The doorbell page of a queue: the only thing of the device that user mode can write."""

from abi.record import Field, Owner
from abi.register import Access, Place, Register, RegisterMap

__all__ = ["DOORBELL", "DOORBELL_PAGE"]

DOORBELL = Register(
    "DOORBELL",
    Access.WO,
    "One 64-bit write with all strobes, else SLVERR. It only moves forward, and at most `depth` "
    "past the read index; a violation faults this queue alone. A write to a disabled queue is "
    "answered with SLVERR and counted.",
    Field("write_index", 64, Owner.UMD, Owner.HW, Owner.FW, "Packets before this are published."),
)

DOORBELL_PAGE = RegisterMap(
    "Doorbell page", "BAR2, page q: queue q.", 4096, Place("doorbell", 0, DOORBELL)
)
