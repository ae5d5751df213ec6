"""The L0C buffer: int32 sums, in two halves that work in parallel."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from rtl.memory.sram import Sram

__all__ = ["L0c"]


class L0c(wiring.Component):
    """Lines of 16 int32. The lower and the upper half of the lines are two banks.

    Each bank has one read and one write port. The Cube always wins; FIXPIPE's read and MTE1's
    write of a bank that the Cube reads or writes in that cycle have to wait. Programs that let the
    Cube fill one half while FIXPIPE drains the other run both at full rate.

    Members:
        cube_read, cube_write: 1 bit each, with cube_read_line, cube_write_line.
        cube_data: 512 bits, the line of a `cube_read`, in the next cycle only.
        cube_write_data: 512 bits.
        drain: 1 bit; FIXPIPE wants `drain_line`. drain_granted: 1 bit; it is read in this cycle.
        drain_data: 512 bits, the line of a granted read, in the next cycle only.
        fill: 1 bit; MTE1 wants to write `fill_data` to `fill_line`. fill_granted: 1 bit.

    Timing: read latency 1 cycle.

    Raises:
        ValueError: `lines` is no power of two of at least 4.
    """

    def __init__(self, *, lines: int) -> None:
        if lines < 4 or lines & (lines - 1):
            raise ValueError(f"lines must be a power of two of at least 4, not {lines!r}")
        self._lines = lines
        address, line = exact_log2(lines), 8 * LINE_BYTES
        super().__init__(
            {
                "cube_write_data": In(line),
                "fill_data": In(line),
                "cube_data": Out(line),
                "drain_data": Out(line),
                "cube_read": In(1),
                "cube_read_line": In(address),
                "cube_write": In(1),
                "cube_write_line": In(address),
                "drain": In(1),
                "drain_line": In(address),
                "drain_granted": Out(1),
                "fill": In(1),
                "fill_line": In(address),
                "fill_granted": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        banks = []
        for half in range(2):
            bank = Sram(width=8 * LINE_BYTES, depth=self._lines // 2, granule=8 * LINE_BYTES)
            m.submodules[f"half{half}"] = bank
            banks.append(bank)
            cube_reads = self.cube_read & (self.cube_read_line[-1] == half)
            cube_writes = self.cube_write & (self.cube_write_line[-1] == half)
            drains = self.drain & (self.drain_line[-1] == half)
            fills = self.fill & (self.fill_line[-1] == half)
            m.d.comb += [
                bank.rd_en.eq(cube_reads | drains),
                bank.rd_addr.eq(Mux(cube_reads, self.cube_read_line, self.drain_line)),
                bank.wr_en.eq(cube_writes | fills),
                bank.wr_addr.eq(Mux(cube_writes, self.cube_write_line, self.fill_line)),
                bank.wr_data.eq(Mux(cube_writes, self.cube_write_data, self.fill_data)),
                bank.wr_mask.eq(1),
            ]
            with m.If(drains & ~cube_reads):
                m.d.comb += self.drain_granted.eq(1)
            with m.If(fills & ~cube_writes):
                m.d.comb += self.fill_granted.eq(1)

        cube_half = Signal()
        drain_half = Signal()
        with m.If(self.cube_read):
            m.d.sync += cube_half.eq(self.cube_read_line[-1])
        with m.If(self.drain_granted):
            m.d.sync += drain_half.eq(self.drain_line[-1])
        m.d.comb += [
            self.cube_data.eq(Mux(cube_half, banks[1].rd_data, banks[0].rd_data)),
            self.drain_data.eq(Mux(drain_half, banks[1].rd_data, banks[0].rd_data)),
        ]
        return m
