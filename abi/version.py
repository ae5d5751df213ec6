"""The version of the contract. The driver reads it at probe and refuses another major."""

__all__ = ["ABI_MAJOR", "ABI_MINOR", "DEVICE_ID", "VENDOR_ID"]

ABI_MAJOR = 2
"""Raised when an old driver or firmware would misread something."""

ABI_MINOR = 0
"""Raised when something was added that old code may ignore."""

VENDOR_ID = 0x1D7E
"""PCI vendor of the simulated function (not an assigned number)."""

DEVICE_ID = 0x6E01
"""PCI device of the reference chip."""
