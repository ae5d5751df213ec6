"""The address guard: decides where a line lies and whether an initiator may reach it."""

from enum import IntEnum

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.address import HBM_BASE, HOST_BASE, LINE_BYTES, MSI_BUS_ADDRESS, PAGE_BYTES
from rtl.memory.port import LINE_NUMBER_BITS

__all__ = ["AddressGuard", "Target"]

HOST_LINE_BIT = (HOST_BASE // LINE_BYTES).bit_length() - 1
PAGE_SHIFT = (PAGE_BYTES // LINE_BYTES).bit_length() - 1


class Target(IntEnum):
    """Where a line lies."""

    NONE = 0
    """Nowhere, or not granted: the request is answered with `LineError.ADDRESS`."""

    HBM = 1
    """Device memory."""

    HOST = 2
    """Host memory, over the host link."""


class AddressGuard(wiring.Component):
    """Classifies one line for one initiator; combinational. The MMU will take its place.

    A line is granted if it lies in HBM, or in the window of host pages that the KMD opened, and is
    not the page where interrupt messages go. Addresses are compared in full, never wrapped.

    Args:
        hbm_bytes: size of HBM, a multiple of 64.
        trusted: the initiator sends interrupt messages: the KMD gave it its addresses, so all of
            host memory and the interrupt page are open to it.

    Members:
        line: 42 bits; device address / 64.
        window_base: 32 bits; first granted host page (bus address / 4096).
        window_limit: 32 bits; first page behind the window; the window is empty unless it is larger
            than `window_base`.
        target: 2 bits; `Target`.
        local_line: 42 bits; the line's offset in HBM, or its bus address / 64; undefined for NONE.

    Raises:
        ValueError: `hbm_bytes` is no multiple of 64, or HBM would reach into host addresses.
    """

    def __init__(self, *, hbm_bytes: int, trusted: bool = False) -> None:
        if hbm_bytes < LINE_BYTES or hbm_bytes % LINE_BYTES:
            raise ValueError(f"hbm_bytes must be a positive multiple of 64, not {hbm_bytes!r}")
        if HBM_BASE + hbm_bytes > HOST_BASE:
            raise ValueError(f"hbm_bytes must end below {HOST_BASE:#x}, not {hbm_bytes!r}")
        self.hbm_bytes = hbm_bytes
        self.trusted = trusted
        super().__init__(
            {
                "line": In(LINE_NUMBER_BITS),
                "window_base": In(32),
                "window_limit": In(32),
                "target": Out(2),
                "local_line": Out(LINE_NUMBER_BITS),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        first = HBM_BASE // LINE_BYTES
        in_hbm = (self.line >= first) & (self.line < first + self.hbm_bytes // LINE_BYTES)
        bus_line = self.line[:HOST_LINE_BIT]
        page = bus_line >> PAGE_SHIFT
        granted = (page >= self.window_base) & (page < self.window_limit)
        granted &= page != MSI_BUS_ADDRESS // PAGE_BYTES
        in_host = self.line[HOST_LINE_BIT] & (granted | self.trusted)
        with m.If(in_host):
            m.d.comb += [self.target.eq(Target.HOST), self.local_line.eq(bus_line)]
        with m.Elif(in_hbm):
            m.d.comb += [self.target.eq(Target.HBM), self.local_line.eq(self.line - first)]
        return m
