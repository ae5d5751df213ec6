"""Reads rows of any alignment and length as packed beats."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS, READ_RESPONSE, LineError, ReadPort
from rtl.memory.row import (
    OFFSET_BITS,
    ROW,
    ROW_BEAT,
    RowSpan,
    funnel,
    keep_bytes,
    validate_depth,
)

__all__ = ["RowReader"]

_TAG = data.StructLayout(
    {
        "line": LINE_NUMBER_BITS,
        "shift": OFFSET_BITS,
        "tail": OFFSET_BITS,
        # The line's beat also takes bytes from the next line.
        "joins": 1,
        # The line has a beat of its number; else all its bytes went into the beat before.
        "beats": 1,
        # That beat is the row's last.
        "last": 1,
    }
)


class RowReader(wiring.Component):
    """Reads rows through a memory port and packs them into beats of 64 bytes.

    ```
    row ─► span ─► memory.request        ring of `depth` lines
              └──────────────────tags──►┌──────────────────┐
           memory.response ────────────►│ lines      tags  │─► following ─► present ─► beat ─► data
                                        └──────────────────┘        └──── funnel ────┘
    ```

    A slot of the ring is reserved when a line is requested, so every response is taken at once.

    Members:
        row: In; stream of `ROW`, `nbytes` >= 1.
        data: Out; stream of `ROW_BEAT`, ceil(nbytes / 64) beats for each row, in order.
        memory: Out; `ReadPort`.
        flush: In, 1 bit; hold it until `idle`: rows are no longer taken, nothing more is
            requested, and what was read is discarded, except for a beat that `data` already
            offers, which has to be taken.
        idle: Out, 1 bit; nothing is left to do. From registers only.
        fault: Out, 2 bits; `LineError` of the first erroneous line since the last flush, at the
            latest with its beat.
        fault_line: Out, 42 bits; number of that line; it stays through a flush.

    Timing: a row that lies in L lines takes L cycles, and rows follow one another without
    bubbles, with up to `depth` lines in flight. From the response to its beat: 4 cycles.

    Raises:
        ValueError: `depth` is no power of two of at least 2.
    """

    def __init__(self, *, depth: int = 64) -> None:
        validate_depth(depth)
        self.depth = depth
        super().__init__(
            {
                "row": In(stream.Signature(ROW)),
                "data": Out(stream.Signature(ROW_BEAT)),
                "memory": Out(ReadPort()),
                "flush": In(1),
                "idle": Out(1),
                "fault": Out(2),
                "fault_line": Out(LINE_NUMBER_BITS),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        index_bits = exact_log2(self.depth)
        m.submodules.lines = lines = Memory(shape=READ_RESPONSE, depth=self.depth, init=[])
        m.submodules.tags = tags = Memory(shape=_TAG, depth=self.depth, init=[])
        line_write, line_read = lines.write_port(), lines.read_port()
        tag_write, tag_read = tags.write_port(), tags.read_port()
        request, response = self.memory.request, self.memory.response

        # The ring's next slot to request, to fill and to read.
        issued = Signal(index_bits + 1)
        filled = Signal(index_bits + 1)
        taken = Signal(index_bits + 1)

        span = RowSpan()
        span.elaborate_into(m)
        issue = Signal()
        m.d.comb += [
            issue.eq(
                span.active
                & ~self.flush
                & ((issued - taken)[: index_bits + 1] != self.depth)
                & (~request.valid | request.ready)
            ),
            self.row.ready.eq(~self.flush & (~span.active | (issue & span.is_last_line))),
            tag_write.en.eq(issue),
            tag_write.addr.eq(issued[:index_bits]),
            tag_write.data.line.eq(span.line),
            tag_write.data.shift.eq(span.shift),
            tag_write.data.tail.eq(span.tail),
            tag_write.data.joins.eq((span.shift != 0) & ~span.is_last_line),
            tag_write.data.beats.eq(~(span.extra & span.is_last_line)),
            tag_write.data.last.eq(span.is_last_beat),
        ]
        with m.If(issue):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.line.eq(span.line),
                issued.eq(issued + 1),
            ]
            span.step(m)
        with m.Elif(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(self.flush):
            m.d.sync += span.active.eq(0)
        with m.Elif(self.row.valid & self.row.ready):
            span.load(m, self.row.payload)

        m.d.comb += [
            response.ready.eq(1),
            line_write.en.eq(response.valid),
            line_write.addr.eq(filled[:index_bits]),
            line_write.data.eq(response.payload),
        ]
        with m.If(response.valid):
            m.d.sync += filled.eq(filled + 1)

        # The memories' read registers hold the line that follows the present one.
        following, tag = line_read.data, tag_read.data
        following_valid = Signal()
        present_valid = Signal()
        present = Signal(LINE_BITS, reset_less=True)
        present_error = Signal(2, reset_less=True)
        present_tag = Signal(_TAG, reset_less=True)
        present_done = Signal()
        advance = Signal()
        m.d.comb += [
            present_done.eq(
                present_valid
                & (following_valid | ~present_tag.joins)
                & (~self.data.valid | self.data.ready | ~present_tag.beats)
            ),
            advance.eq(following_valid & (~present_valid | present_done)),
            line_read.en.eq((filled != taken) & (~following_valid | advance)),
            line_read.addr.eq(taken[:index_bits]),
            tag_read.en.eq(line_read.en),
            tag_read.addr.eq(taken[:index_bits]),
        ]
        with m.If(self.flush):
            m.d.sync += [taken.eq(filled), following_valid.eq(0), present_valid.eq(0)]
        with m.Else():
            m.d.sync += [
                taken.eq(taken + line_read.en),
                following_valid.eq(line_read.en | (following_valid & ~advance)),
                present_valid.eq(advance | (present_valid & ~present_done)),
            ]
        with m.If(advance):
            m.d.sync += [
                present.eq(following.data),
                present_error.eq(following.error),
                present_tag.eq(tag),
            ]

        beat = self.data.payload
        joined = funnel(m, Cat(present, following.data[:-8]), present_tag.shift)
        kept = keep_bytes(m, joined, present_tag.tail)
        with m.If(present_done & present_tag.beats & ~self.flush):
            error = Mux(
                present_tag.joins & (following.error > present_error),
                following.error,
                present_error,
            )
            m.d.sync += [
                self.data.valid.eq(1),
                beat.data.eq(Mux(present_tag.last, kept, joined)),
                beat.error.eq(error),
                beat.last.eq(present_tag.last),
            ]
        with m.Elif(self.data.ready):
            m.d.sync += self.data.valid.eq(0)

        with m.If(self.flush):
            m.d.sync += self.fault.eq(LineError.OK)
        with m.Elif(advance & (self.fault == LineError.OK) & (following.error != LineError.OK)):
            m.d.sync += [self.fault.eq(following.error), self.fault_line.eq(tag.line)]

        m.d.comb += self.idle.eq(
            ~span.active
            & ~request.valid
            & (issued == taken)
            & ~following_valid
            & ~present_valid
            & ~self.data.valid
        )
        return m
