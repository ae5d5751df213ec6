"""A synchronous memory as an instance of a SystemVerilog module."""

from pathlib import Path
from typing import ClassVar

from amaranth import ClockSignal, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["Sram"]


class Sram(wiring.Component):
    """One read port and one masked write port on the clock of the component's `sync` domain.

    Amaranth writes out every initial word of a `Memory`, which is infeasible for large ones; this
    one is an `Instance`, so every build needs `Sram.SOURCE` among its sources.

    Members:
        rd_en: 1 bit; read `rd_addr`.
        rd_addr: ceil_log2(depth) bits, at least 1; line.
        rd_data: width bits; the line, from the cycle after `rd_en` until the next `rd_en`.
        wr_en: 1 bit; write `wr_addr`.
        wr_addr: ceil_log2(depth) bits, at least 1; line.
        wr_data: width bits.
        wr_mask: width // granule bits; bit i writes bits [i * granule, (i + 1) * granule).

    Timing: read latency 1 cycle; one read and one write each cycle. A read and a write of the
    same line in the same cycle: the read returns the old line. The memory starts as zero and is
    not touched by reset.

    Raises:
        ValueError: a parameter is out of range.
    """

    SOURCE: ClassVar[Path] = Path(__file__).with_name("sram.sv")

    def __init__(self, *, width: int, depth: int, granule: int = 8) -> None:
        if width < 1:
            raise ValueError(f"width must be a positive number of bits, not {width!r}")
        if depth < 1:
            raise ValueError(f"depth must be a positive number of lines, not {depth!r}")
        if granule < 1 or width % granule:
            raise ValueError(f"granule must divide the width of {width} bits, not {granule!r}")
        self.width = width
        self.depth = depth
        self.granule = granule
        address = max(1, ceil_log2(depth))
        super().__init__(
            {
                "rd_en": In(1),
                "rd_addr": In(address),
                "rd_data": Out(width),
                "wr_en": In(1),
                "wr_addr": In(address),
                "wr_data": In(width),
                "wr_mask": In(width // granule),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.array = Instance(
            "glass_sram",
            p_WIDTH=self.width,
            p_DEPTH=self.depth,
            p_GRANULE=self.granule,
            i_clk=ClockSignal(),
            i_rd_en=self.rd_en,
            i_rd_addr=self.rd_addr,
            o_rd_data=self.rd_data,
            i_wr_en=self.wr_en,
            i_wr_addr=self.wr_addr,
            i_wr_data=self.wr_data,
            i_wr_mask=self.wr_mask,
        )
        return m
