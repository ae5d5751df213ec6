"""Blocks of 16 by 16 elements, transposed."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_LANES
from rtl.memory.port import LINE_BITS

__all__ = ["Transposer"]

WORD = LINE_BITS // VECTOR_LANES


class Transposer(wiring.Component):
    """Takes up to 16 lines of a block, then gives its columns; elements of lines not taken are 0.

    Lines come column of blocks by column of blocks: for each 16 columns of the matrix, those of
    all its rows.

    Members:
        start: 1 bit; a matrix begins. stop: 1 bit; forget it.
        rows, columns: 16 bits, stable while it is transposed; at least 1.
        in_valid, in_data: 1 bit and 512 bits; a line. in_pop: 1 bit; it is taken.
        out_valid, out_data: 1 bit and 512 bits; a column. out_pop: 1 bit; give the next.

    Timing: a block of r rows and c columns takes r + c cycles.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "in_data": In(LINE_BITS),
                "out_data": Out(LINE_BITS),
                "start": In(1),
                "stop": In(1),
                "rows": In(16),
                "columns": In(16),
                "in_valid": In(1),
                "in_pop": Out(1),
                "out_valid": Out(1),
                "out_pop": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        block = Array(
            Signal(LINE_BITS, name=f"row{row}", reset_less=True) for row in range(VECTOR_LANES)
        )
        rows_left, columns_left = (
            Signal(16, name=name, reset_less=True) for name in ("rows_left", "columns_left")
        )
        place = Signal(range(VECTOR_LANES))
        present = Signal(VECTOR_LANES)
        full = VECTOR_LANES - 1
        # Columns leave by moving all lines down by a word, which needs no selection.
        m.d.comb += self.out_data.eq(
            Cat(Mux(here, line[:WORD], 0) for here, line in zip(present, block, strict=True))
        )
        with m.FSM():
            with m.State("Take lines"):
                m.d.comb += self.in_pop.eq(self.in_valid)
                with m.If(self.in_valid):
                    m.d.sync += [
                        block[place].eq(self.in_data),
                        present.eq(Mux(place == 0, 0, present) | (1 << place)[:VECTOR_LANES]),
                        place.eq(place + 1),
                        rows_left.eq(rows_left - 1),
                    ]
                    with m.If((place == full) | (rows_left == 1)):
                        m.d.sync += place.eq(0)
                        m.next = "Give columns"
                with m.If(self.stop):
                    m.next = "Take lines"
            with m.State("Give columns"):
                m.d.comb += self.out_valid.eq(1)
                with m.If(self.out_pop):
                    m.d.sync += [place.eq(place + 1), *[line.eq(line[WORD:]) for line in block]]
                    with m.If((place == full) | (place + 1 == columns_left)):
                        m.d.sync += place.eq(0)
                        with m.If(rows_left == 0):
                            m.d.sync += [
                                rows_left.eq(self.rows),
                                columns_left.eq(columns_left - VECTOR_LANES),
                            ]
                        m.next = "Take lines"
                with m.If(self.stop):
                    m.next = "Take lines"
        with m.If(self.start):
            m.d.sync += [rows_left.eq(self.rows), columns_left.eq(self.columns)]
        with m.If(self.start | self.stop):
            m.d.sync += place.eq(0)
        return m
