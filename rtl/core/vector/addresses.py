"""Lines of a matrix in UB, one after the other."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_LANES

__all__ = ["BlockWalker", "Walker"]


class Walker(wiring.Component):
    """`count` lines `stride` apart, `outer_count` times, from starts `outer_stride` apart.

    Members:
        start: 1 bit; begin with `first`.
        first, stride, outer_stride: 16 bits; lines.
        count, outer_count: 16 bits; at least 1.
        next: 1 bit, while `valid`; go on to the next line.
        line: 16 bits, if `valid`. row_end: 1 bit; it is the last of `count`.
        last: 1 bit; it is the last of all.
        stop: 1 bit; forget the lines that are left.

    Timing: the first line in the cycle after `start`, which may be that of the last `next`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "first": In(16),
                "stride": In(16),
                "count": In(16),
                "outer_stride": In(16),
                "outer_count": In(16),
                "next": In(1),
                "valid": Out(1),
                "line": Out(16),
                "row_end": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        row, left, rows_left = (
            Signal(16, name=name, reset_less=True) for name in ("row", "left", "rows_left")
        )
        line, stride, outer_stride, count = (
            Signal(16, name=name, reset_less=True)
            for name in ("at", "step", "outer_step", "row_count")
        )
        m.d.comb += [
            self.line.eq(line),
            self.row_end.eq(left == 1),
            self.last.eq(self.row_end & (rows_left == 1)),
        ]
        with m.If(self.next):
            m.d.sync += [line.eq(line + stride), left.eq(left - 1)]
            with m.If(self.row_end):
                m.d.sync += [
                    line.eq(row + outer_stride),
                    row.eq(row + outer_stride),
                    left.eq(count),
                    rows_left.eq(rows_left - 1),
                ]
            with m.If(self.last):
                m.d.sync += self.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [
                self.valid.eq(1),
                line.eq(self.first),
                row.eq(self.first),
                left.eq(self.count),
                rows_left.eq(self.outer_count),
                stride.eq(self.stride),
                outer_stride.eq(self.outer_stride),
                count.eq(self.count),
            ]
        with m.If(self.stop):
            m.d.sync += self.valid.eq(0)
        return m


class BlockWalker(wiring.Component):
    """Lines of a matrix of blocks of 16 rows by one line: the order of a transposed matrix.

    For each 16 rows, for each line of a row, the lines of the (up to 16) rows at that place.

    Members:
        start: 1 bit; begin with `first`.
        first, pitch: 16 bits; the first line, and lines from one row to the next.
        rows, lines: 16 bits; rows, and lines of each; at least 1.
        next, line, last: as in `Walker`.

    Timing: the first line in the cycle after `start`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "first": In(16),
                "pitch": In(16),
                "rows": In(16),
                "lines": In(16),
                "next": In(1),
                "line": Out(16),
                "last": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        line, block, band = (
            Signal(16, name=name, reset_less=True) for name in ("at", "block", "band")
        )
        pitch, lines = (Signal(16, name=name, reset_less=True) for name in ("step", "blocks"))
        rows_left, blocks_left = (
            Signal(16, name=name, reset_less=True) for name in ("rows_left", "blocks_left")
        )
        place = Signal(range(VECTOR_LANES), reset_less=True)
        final_band, block_end, band_end = Signal(), Signal(), Signal()
        m.d.comb += [
            self.line.eq(line),
            final_band.eq(rows_left <= VECTOR_LANES),
            block_end.eq((place == VECTOR_LANES - 1) | (place + 1 == rows_left)),
            band_end.eq(block_end & (blocks_left == 1)),
            self.last.eq(band_end & final_band),
        ]
        with m.If(self.next):
            m.d.sync += [line.eq(line + pitch), place.eq(place + 1)]
            with m.If(block_end):
                m.d.sync += [
                    line.eq(block + 1),
                    block.eq(block + 1),
                    place.eq(0),
                    blocks_left.eq(blocks_left - 1),
                ]
            with m.If(band_end):
                # Only the last band may have fewer rows, so this one had sixteen.
                m.d.sync += [
                    line.eq(band + (pitch << 4)),
                    block.eq(band + (pitch << 4)),
                    band.eq(band + (pitch << 4)),
                    blocks_left.eq(lines),
                    rows_left.eq(rows_left - VECTOR_LANES),
                ]
        with m.If(self.start):
            m.d.sync += [
                line.eq(self.first),
                block.eq(self.first),
                band.eq(self.first),
                place.eq(0),
                rows_left.eq(self.rows),
                blocks_left.eq(self.lines),
                pitch.eq(self.pitch),
                lines.eq(self.lines),
            ]
        return m
