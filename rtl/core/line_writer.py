"""Writes rows into a buffer of the core."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.core.pipe import ceil_lines
from rtl.core.row_issuer import ROW_BYTES_BITS, ROW_LINES_BITS
from rtl.memory.port import LINE_BITS
from rtl.memory.row import ROW, ROW_DATA

__all__ = ["LineWriter"]


class LineWriter(wiring.Component):
    """Writes beats to the lines of rows: what `RowWriter` is for global memory.

    Args:
        line_bits: width of a line's number.

    Members:
        row: stream of `ROW`; its address is the number of a line; `nbytes` is at least 1.
        data: stream of `ROW_DATA`, ceil(nbytes / 64) beats for each row, in order.
        write: 1 bit; line; write_data: 512 bits; what to write.
        granted: 1 bit; the write happens in this cycle.
        flush: 1 bit; forget the row that is left.
        idle: 1 bit; no row is left.

    Timing: one line a cycle, rows follow one another without bubbles.
    """

    def __init__(self, *, line_bits: int) -> None:
        super().__init__(
            {
                "row": In(stream.Signature(ROW)),
                "data": In(stream.Signature(ROW_DATA)),
                "write_data": Out(LINE_BITS),
                "write": Out(1),
                "line": Out(line_bits),
                "granted": In(1),
                "flush": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        active = Signal()
        left = Signal(ROW_LINES_BITS, reset_less=True)
        step, last = Signal(), Signal()
        m.d.comb += [
            self.write.eq(active & self.data.valid & ~self.flush),
            self.write_data.eq(self.data.payload.data),
            step.eq(self.write & self.granted),
            last.eq(step & (left == 1)),
            self.data.ready.eq(active & self.granted & ~self.flush),
            self.row.ready.eq((~active | last) & ~self.flush),
            self.idle.eq(~active),
        ]
        with m.If(step):
            m.d.sync += [self.line.eq(self.line + 1), left.eq(left - 1)]
        with m.If(last | self.flush):
            m.d.sync += active.eq(0)
        with m.If(self.row.valid & self.row.ready):
            m.d.sync += [
                active.eq(1),
                self.line.eq(self.row.payload.address),
                left.eq(ceil_lines(self.row.payload.nbytes[:ROW_BYTES_BITS])),
            ]
        return m
