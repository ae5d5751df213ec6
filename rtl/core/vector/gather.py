"""Lines of elements that numbers choose."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_LANES
from rtl.core.vector.lines import DEPTH
from rtl.memory.port import LINE_BITS

__all__ = ["Gatherer"]

WORD = LINE_BITS // VECTOR_LANES


class Gatherer(wiring.Component):
    """Reads one element for each number of a line of numbers, and makes lines of them.

    A number counts elements from the first line of a row; a negative one counts back. Lanes
    beyond the columns of a row become 0. After a number that leaves UB nothing more is read; the
    lines before that of this number still come.

    Args:
        lines: size of UB.

    Members:
        start: 1 bit; the first row begins. stop: 1 bit; forget all.
        columns, step: 16 bits and 1 bit, stable; with `step` 0, only the first line is used.
        row_valid, row_line: 1 bit and 16 bits; the first line of the row. row_next: go on.
        numbers_valid, numbers: 1 bit and 512 bits; a line of numbers. line_end, row_end: 1 bit
            each; the last number of this line, or of the row, is used now.
        wanted, line, taken: what to read, of a `LineReader`.
        in_valid, in_data, in_pop: the line that was read.
        out_valid, out_data: 1 bit and 512 bits; a line of elements. out_pop: give the next.
        gathered: 1 bit; an element is taken.
        failed: 1 bit; a number left UB. drained: 1 bit; nothing that was read is left.

    Timing: one element a cycle.
    """

    def __init__(self, *, lines: int) -> None:
        self._lines = lines
        super().__init__(
            {
                "numbers": In(LINE_BITS),
                "in_data": In(LINE_BITS),
                "out_data": Out(LINE_BITS),
                "start": In(1),
                "stop": In(1),
                "columns": In(16),
                "step": In(1),
                "row_valid": In(1),
                "row_line": In(16),
                "row_next": Out(1),
                "numbers_valid": In(1),
                "line_end": Out(1),
                "row_end": Out(1),
                "wanted": Out(1),
                "line": Out(16),
                "taken": In(1),
                "in_valid": In(1),
                "in_pop": Out(1),
                "out_valid": Out(1),
                "out_pop": In(1),
                "gathered": Out(1),
                "failed": Out(1),
                "drained": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        # Numbers become places: line, lane, and whether a line of elements ends there.
        place = Signal(range(VECTOR_LANES))
        left = Signal(16, reset_less=True)
        number = Signal(signed(WORD))
        target = Signal(signed(WORD + 1))
        outside, ends, use = Signal(), Signal(), Signal()
        held, held_line = Signal(), Signal(16, reset_less=True)
        held_lane = Signal(range(VECTOR_LANES), reset_less=True)
        held_ends = Signal(reset_less=True)
        lane_bits = len(held_lane)
        m.d.comb += [
            number.eq(self.numbers.word_select(place, WORD)),
            target.eq(self.row_line + Mux(self.step, number >> lane_bits, 0)),
            outside.eq((target < 0) | (target >= self._lines)),
            use.eq(self.row_valid & self.numbers_valid & ~self.failed & (~held | self.taken)),
            self.row_end.eq(use & (left == 1)),
            ends.eq((place == VECTOR_LANES - 1) | (left == 1)),
            self.line_end.eq(use & ends),
            self.row_next.eq(self.row_end),
        ]
        with m.If(self.taken):
            m.d.sync += held.eq(0)
        with m.If(use):
            m.d.sync += [
                held.eq(~outside),
                self.failed.eq(outside),
                held_line.eq(target[:16]),
                held_lane.eq(number[:lane_bits]),
                held_ends.eq(ends),
                place.eq(Mux(ends, 0, place + 1)),
                left.eq(Mux(left == 1, self.columns, left - 1)),
            ]

        # Lanes of the lines under way.
        lanes = Signal(DEPTH * (lane_bits + 1), reset_less=True)
        count = Signal(range(DEPTH + 1))
        entry = Cat(held_lane, held_ends)
        oldest = lanes.word_select((count - 1)[:3], lane_bits + 1)
        with m.If(self.taken):
            m.d.sync += lanes.eq(Cat(entry, lanes[: -(lane_bits + 1)]))
        with m.If(self.taken != self.in_pop):
            m.d.sync += count.eq(count + self.taken - self.in_pop)

        # Elements fill a line from its first lane on.
        line = Signal(LINE_BITS, reset_less=True)
        element = Signal(WORD)
        at = Signal(range(VECTOR_LANES))
        m.d.comb += [
            self.wanted.eq(held),
            self.line.eq(held_line),
            self.in_pop.eq(self.in_valid & (~self.out_valid | self.out_pop)),
            self.gathered.eq(self.in_pop),
            element.eq(self.in_data.word_select(oldest[:lane_bits], WORD)),
            self.out_data.eq(line),
            self.drained.eq(~held & (count == 0)),
        ]
        with m.If(self.out_pop):
            m.d.sync += self.out_valid.eq(0)
        with m.If(self.in_pop):
            m.d.sync += [
                self.out_valid.eq(oldest[-1]),
                at.eq(Mux(oldest[-1], 0, at + 1)),
            ]
            with m.If(at == 0):
                m.d.sync += line.eq(Cat(element, Const(0, LINE_BITS - WORD)))
            with m.Else():
                m.d.sync += line.word_select(at, WORD).eq(element)
        with m.If(self.start):
            m.d.sync += left.eq(self.columns)
        with m.If(self.start | self.stop):
            m.d.sync += [
                held.eq(0),
                place.eq(0),
                at.eq(0),
                count.eq(0),
                self.failed.eq(0),
                self.out_valid.eq(0),
            ]
        return m
