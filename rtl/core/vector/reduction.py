"""Reductions of rows: partial results, and the tail that combines them."""

from enum import IntEnum

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_LANES
from abi.vector import REDUCTION_PARTIALS
from rtl.memory.port import LINE_BITS

__all__ = ["TAG", "Reduction", "Step"]

WORD = LINE_BITS // VECTOR_LANES


class Step(IntEnum):
    """What a slot of the lanes computes."""

    LINE = 0
    """A line; in a reduction, a line and a partial result."""

    LOWER = 1
    """p0 and p1"""

    UPPER = 2
    """p2 and p3"""

    ALL = 3
    """LOWER and UPPER"""

    BY_8 = 4
    """Lanes l and l + 8; then 4, 2 and 1 apart."""

    BY_4 = 5
    BY_2 = 6
    BY_1 = 7


TAG = data.StructLayout({"step": 3, "place": 2, "bank": 1, "end": 1, "valid": 1})
"""What travels with an operation: `place` is the line's number in its row mod 4, `end` the row's
last line, `bank` the set of partial results. Not `valid`: the slot is empty."""


class Reduction(wiring.Component):
    """Keeps the partial results of two rows, and gives the operands of all but the lines.

    The lanes are the only adder. A result that another step needs goes back into them at once,
    before any line; so rows overlap, and a row of n lines takes n + 7 slots. Lines of a row use
    one of two banks of partial results, while those of the row before are combined.

    Members:
        start: 1 bit; a command begins. stop: 1 bit; forget all.
        lines: 16 bits, stable; lines of a row. identity: 32 bits, stable.
        line: 1 bit; a line enters the lanes; line_tag: its `TAG`; line_first: 1 bit, it is the
            first of its row. line_partial: 512 bits; the partial result it meets.
        room: 1 bit; the first line of a row may enter.
        result, tag: 512 bits and `TAG`; what leaves the lanes.
        taken: 1 bit; this slot is for `x`, `y` and `next_tag`, not for a line.

    Timing: combinational; a result goes back in the cycle in which it leaves the lanes. The lanes,
    with their operand registers, take `REDUCTION_PARTIALS` cycles at most.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "result": In(LINE_BITS),
                "line_partial": Out(LINE_BITS),
                "x": Out(LINE_BITS),
                "y": Out(LINE_BITS),
                "lines": In(16),
                "identity": In(32),
                "start": In(1),
                "stop": In(1),
                "line": In(1),
                "line_tag": In(TAG),
                "line_first": In(1),
                "room": Out(1),
                "tag": In(TAG),
                "taken": Out(1),
                "next_tag": Out(TAG),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.partials = partials = memory.Memory(
            shape=LINE_BITS, depth=2 * REDUCTION_PARTIALS, init=[]
        )
        write = partials.write_port()
        even, odd = (partials.read_port(domain="comb") for _ in range(2))
        identity = Signal(LINE_BITS)
        m.d.comb += identity.eq(self.identity.replicate(VECTOR_LANES))

        # Rows whose last line has entered, of which the tail has not taken the partials yet; and
        # of those, rows whose last line has left. The tail takes one bank after the other.
        entered, left = Signal(2), Signal(2)
        bank = Signal()
        upper = Signal()
        again, begins, taken_all = Signal(), Signal(), Signal()
        tag = self.tag
        lands = tag.valid & (tag.step == Step.LINE)
        lower_result = Signal(LINE_BITS, reset_less=True)
        m.d.comb += [
            self.room.eq(entered != 2),
            again.eq(tag.valid & (tag.step >= Step.UPPER) & (tag.step != Step.BY_1)),
            begins.eq((left != 0) & ~again),
            taken_all.eq(begins & upper),
            self.taken.eq(again | begins),
            write.en.eq(lands),
            write.addr.eq(Cat(tag.place, tag.bank)),
            write.data.eq(self.result),
        ]
        with m.If(begins):
            m.d.sync += upper.eq(~upper)
        with m.If(taken_all):
            m.d.sync += bank.eq(~bank)
        m.d.sync += [
            entered.eq(entered + (self.line & self.line_tag.end) - taken_all),
            left.eq(left + (lands & tag.end) - taken_all),
        ]
        with m.If(tag.valid & (tag.step == Step.LOWER)):
            m.d.sync += lower_result.eq(self.result)

        # A row's first four lines meet the identity, the others what their place holds.
        place = Signal(2)
        reached = Signal(REDUCTION_PARTIALS)
        m.d.comb += [
            place.eq(Mux(begins, upper << 1, self.line_tag.place)),
            even.addr.eq(Cat(place, Mux(begins, bank, self.line_tag.bank))),
            odd.addr.eq(Cat(1, upper, bank)),
            reached.eq(Cat(self.lines > number for number in range(REDUCTION_PARTIALS))),
        ]
        fresh = Signal(REDUCTION_PARTIALS)
        unused = Signal()
        with m.If(self.line):
            m.d.sync += fresh.eq(
                Mux(self.line_first, 1, fresh | (1 << self.line_tag.place)[:REDUCTION_PARTIALS])
            )
        m.d.comb += unused.eq(
            self.line_first | ~Array(fresh[i] for i in range(len(fresh)))[self.line_tag.place]
        )
        leaving = lands & (tag.place == self.line_tag.place) & (tag.bank == self.line_tag.bank)
        m.d.comb += self.line_partial.eq(
            Mux(unused, identity, Mux(leaving, self.result, even.data))
        )

        m.d.comb += [
            self.next_tag.valid.eq(1),
            self.next_tag.step.eq(Mux(again, tag.step + 1, Step.LOWER + upper)),
        ]
        rotated = {
            Step.ALL: self.result.rotate_right(8 * WORD),
            Step.BY_8: self.result.rotate_right(4 * WORD),
            Step.BY_4: self.result.rotate_right(2 * WORD),
            Step.BY_2: self.result.rotate_right(WORD),
        }
        with m.If(~again):
            m.d.comb += [
                self.x.eq(Mux(Mux(upper, reached[2], reached[0]), even.data, identity)),
                self.y.eq(Mux(Mux(upper, reached[3], reached[1]), odd.data, identity)),
            ]
        with m.Else():
            m.d.comb += [self.x.eq(self.result), self.y.eq(lower_result)]
            with m.Switch(tag.step):
                for step, value in rotated.items():
                    with m.Case(step):
                        m.d.comb += self.y.eq(value)
        with m.If(self.start | self.stop):
            m.d.sync += [entered.eq(0), left.eq(0), bank.eq(0), upper.eq(0)]
        return m
