"""Writes rows of any alignment and length from packed beats."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS, LineError, WritePort
from rtl.memory.row import (
    OFFSET_BITS,
    ROW,
    ROW_DATA,
    ROW_DONE,
    RowSpan,
    bytes_below,
    funnel,
    validate_depth,
)

__all__ = ["RowWriter"]

_TAG = data.StructLayout({"line": LINE_NUMBER_BITS, "nbytes": OFFSET_BITS + 1, "last": 1})


class RowWriter(wiring.Component):
    """Writes beats of 64 bytes to rows, through a memory port; no other byte is strobed.

    ```
    row ──► span ──────────┬────────────► tags of `depth` lines ─► done
    data ─► funnel with    ▼                     ▲
            the beat before ─► memory.request    memory.response
    ```

    Members:
        row: In; stream of `ROW`, `nbytes` >= 1.
        data: In; stream of `ROW_DATA`, ceil(nbytes / 64) beats for each row, in order.
        done: Out; stream of `ROW_DONE`, one for each row, in order, when all its writes are
            answered.
        memory: Out; `WritePort`.
        flush: In, 1 bit; hold it until `idle`: rows and beats are no longer taken, and nothing
            more is written, not even the rest of the present row. A row that is cut gives no
            `done`; earlier ones give theirs, which has to be taken.
        idle: Out, 1 bit; nothing is left to do. From registers only.
        acknowledged: Out, 7 bits; bytes that were written without error, as of this cycle.
        fault: Out, 2 bits; `LineError` of the first failing line since the last flush, at the
            latest with its row's `done`.
        fault_line: Out, 42 bits; number of that line; it stays through a flush.

    Timing: a row that lies in L lines takes L cycles, and rows follow one another without
    bubbles, with up to `depth` lines in flight. From a beat to its line's request: 1 cycle.

    Raises:
        ValueError: `depth` is no power of two of at least 2.
    """

    def __init__(self, *, depth: int = 64) -> None:
        validate_depth(depth)
        self.depth = depth
        super().__init__(
            {
                "row": In(stream.Signature(ROW)),
                "data": In(stream.Signature(ROW_DATA)),
                "done": Out(stream.Signature(ROW_DONE)),
                "memory": Out(WritePort()),
                "flush": In(1),
                "idle": Out(1),
                "acknowledged": Out(OFFSET_BITS + 1),
                "fault": Out(2),
                "fault_line": Out(LINE_NUMBER_BITS),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        index_bits = exact_log2(self.depth)
        m.submodules.tags = tags = Memory(shape=_TAG, depth=self.depth, init=[])
        tag_write, tag_read = tags.write_port(), tags.read_port()
        m.submodules.rows = rows = SyncFIFOBuffered(width=ROW_DONE.size, depth=self.depth)
        request, response = self.memory.request, self.memory.response

        # A line reserves a place from its request to its response, the last of a row until its
        # `done` is taken; so there is always room for both.
        reserved = Signal(index_bits + 1)
        issued = Signal(index_bits)
        answered = Signal(index_bits)

        span = RowSpan()
        span.elaborate_into(m)
        first = Signal()
        possible, issue, takes_beat = Signal(), Signal(), Signal()
        m.d.comb += [
            possible.eq(
                span.active
                & ~self.flush
                & (reserved != self.depth)
                & (~request.valid | request.ready)
            ),
            takes_beat.eq(~(span.extra & span.is_last_line)),
            issue.eq(possible & (self.data.valid | ~takes_beat)),
            self.data.ready.eq(possible & takes_beat),
            self.row.ready.eq(~self.flush & (~span.active | (issue & span.is_last_line))),
        ]

        # Offset of the row's last byte in its last line, modulo the line.
        end = (span.shift + span.tail)[:OFFSET_BITS]
        skipped = Signal(OFFSET_BITS + 1)
        limit = Signal(OFFSET_BITS + 1)
        m.d.comb += [
            skipped.eq(Mux(first, span.shift, 0)),
            limit.eq(Mux(span.is_last_line, end + 1, LINE_BYTES)),
            tag_write.en.eq(issue),
            tag_write.addr.eq(issued),
            tag_write.data.line.eq(span.line),
            tag_write.data.nbytes.eq(limit - skipped),
            tag_write.data.last.eq(span.is_last_line),
        ]
        # It has a reset so that bytes that are not strobed are never unknown.
        previous = Signal(LINE_BITS)
        beat = self.data.payload.data
        # From byte 64 - shift of the two beats on, so the lowest one is never needed.
        shifted = funnel(m, Cat(previous[8:], beat), ~span.shift)
        with m.If(issue):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.line.eq(span.line),
                request.payload.strobe.eq(bytes_below(limit) & ~bytes_below(skipped)),
                request.payload.data.eq(shifted),
                previous.eq(beat),
                issued.eq(issued + 1),
                first.eq(0),
            ]
            span.step(m)
        with m.Elif(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(self.flush):
            m.d.sync += span.active.eq(0)
        with m.Elif(self.row.valid & self.row.ready):
            span.load(m, self.row.payload)
            m.d.sync += first.eq(1)

        # A response meets its tag one cycle later.
        response_valid = Signal()
        response_error = Signal(2, reset_less=True)
        tag = tag_read.data
        m.d.comb += [
            response.ready.eq(1),
            tag_read.en.eq(response.valid),
            tag_read.addr.eq(answered),
        ]
        m.d.sync += response_valid.eq(response.valid)
        with m.If(response.valid):
            m.d.sync += [response_error.eq(response.payload.error), answered.eq(answered + 1)]
        failed = Signal()
        m.d.comb += failed.eq(response_valid & (response_error != LineError.OK))

        row_error = Signal(2)
        row_line = Signal(LINE_NUMBER_BITS)
        verdict = data.View(ROW_DONE, rows.w_data)
        row_ends = Signal()
        m.d.comb += [
            self.acknowledged.eq(Mux(response_valid & ~failed, tag.nbytes, 0)),
            row_ends.eq(response_valid & tag.last),
            rows.w_en.eq(row_ends),
            verdict.error.eq(row_error),
            verdict.line.eq(row_line),
        ]
        with m.If((row_error == LineError.OK) & failed):
            m.d.comb += [verdict.error.eq(response_error), verdict.line.eq(tag.line)]
            m.d.sync += [row_error.eq(response_error), row_line.eq(tag.line)]
        with m.If(row_ends | (self.flush & self.idle)):
            m.d.sync += row_error.eq(LineError.OK)

        with m.If(self.flush):
            m.d.sync += self.fault.eq(LineError.OK)
        with m.Elif((self.fault == LineError.OK) & failed):
            m.d.sync += [self.fault.eq(response_error), self.fault_line.eq(tag.line)]

        m.d.comb += [
            self.done.valid.eq(rows.r_rdy),
            self.done.payload.eq(rows.r_data),
            rows.r_en.eq(self.done.ready),
        ]
        freed = (response_valid & ~tag.last) + (self.done.valid & self.done.ready)
        m.d.sync += reserved.eq(reserved + issue - freed)
        m.d.comb += self.idle.eq(~span.active & ~request.valid & (reserved == 0))
        return m
