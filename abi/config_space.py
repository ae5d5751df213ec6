"""PCI config space, as far as the driver needs it: 8-byte words of the function's first page."""

from abi.record import Field, Owner
from abi.register import Access, Place, Register, RegisterMap

__all__ = ["CONFIG_SPACE"]

KMD, HW = Owner.KMD, Owner.HW

CONFIG_SPACE = RegisterMap(
    "Config space",
    "Config space of the function.",
    4096,
    Place(
        "identity",
        0x00,
        Register(
            "CONFIG_IDENTITY",
            Access.RW,
            "Who made it, and what it may do.",
            Field("vendor", 16, HW, KMD, KMD, "Vendor ID; writes are ignored."),
            Field("device", 16, HW, KMD, KMD, "Device ID; writes are ignored."),
            Field(
                "unused", 1, Owner.NONE, Owner.NONE, Owner.NONE, "I/O space; writes are ignored."
            ),
            Field("memory_enable", 1, KMD, HW, HW, "1: BARs answer; 0: SLVERR."),
            Field("bus_master", 1, KMD, HW, HW, "1: the device may start host transactions."),
        ),
    ),
    Place(
        "class",
        0x08,
        Register(
            "CONFIG_CLASS",
            Access.RO,
            "Kind of function.",
            Field("revision", 8, HW, KMD, KMD, "Revision."),
            Field("class_code", 24, HW, KMD, KMD, "0x120000: processing accelerator."),
        ),
    ),
    Place(
        "bar_size",
        0x10,
        Register(
            "CONFIG_BAR_SIZE",
            Access.RO,
            "Sizes of the BARs in bytes.",
            Field("bar0", 32, HW, KMD, KMD, "BAR0."),
            Field("bar2", 32, HW, KMD, KMD, "BAR2."),
        ),
    ),
)
