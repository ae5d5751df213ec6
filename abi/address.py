"""Addresses: the device's address space, the host port's windows, geometry shared by layers."""

__all__ = [
    "ADDRESS_BITS",
    "BAR0_BASE",
    "BAR2_BASE",
    "CONFIG_BASE",
    "DOORBELL_PAGE_BYTES",
    "HBM_BASE",
    "HOST_BASE",
    "HOST_PORT_ADDRESS_BITS",
    "LINE_BYTES",
    "MAILBOX_SLOTS",
    "MESSAGE_BYTES",
    "MSI_BUS_ADDRESS",
    "PACKET_BYTES",
    "PAGE_BYTES",
    "SRAM_SLOTS_PER_QUEUE",
]

ADDRESS_BITS = 48
"""Width of a device address in bits: one flat byte-addressed space."""

LINE_BYTES = 64
"""The unit of every transaction inside the chip: one aligned line."""

PAGE_BYTES = 4096
"""Page size of host memory; no host burst crosses it."""

HBM_BASE = 0x1_0000_0000
"""First device address of HBM. Small integers and null are thus never valid addresses."""

HOST_BASE = 0x8000_0000_0000
"""Device address = HOST_BASE + bus address, for host memory."""

MSI_BUS_ADDRESS = 0xFEE0_0000
"""Bus address to which MSI-X messages are written; the data is the vector's number."""

CONFIG_BASE = 0x000_0000
"""Where PCI config space lies on the host port (4 KiB)."""

BAR0_BASE = 0x100_0000
"""Where BAR0 (privileged registers) lies on the host port."""

BAR2_BASE = 0x200_0000
"""Where BAR2 (one doorbell page per queue) lies on the host port."""

HOST_PORT_ADDRESS_BITS = 28
"""Address width of the host port."""

DOORBELL_PAGE_BYTES = 4096
"""One page of BAR2 per user queue, so that the KMD can map a single queue into a process."""

PACKET_BYTES = 64
"""Size of a ring slot."""

SRAM_SLOTS_PER_QUEUE = 8
"""Packets of one queue that the device holds in its packet SRAM at a time."""

MAILBOX_SLOTS = 8
"""Slots of each of the two mailbox rings."""

MESSAGE_BYTES = 64
"""Size of a mailbox message."""
