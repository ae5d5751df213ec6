"""Where STORE and SAVE put their beats: rows of global memory, or of a buffer of the core."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rtl.core.line_writer import LineWriter
from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS, LineError, WritePort
from rtl.memory.row import OFFSET_BITS, ROW
from rtl.memory.row_writer import RowWriter

__all__ = ["BEATS", "RowSink"]

BEATS = 16
"""Beats that wait; each beat's place is reserved before what goes into it is read."""


class RowSink(wiring.Component):
    """A FIFO of beats, the writers behind it, and the back of a `RowIssuer`.

    ```
    beat ─► FIFO ─┬─► RowWriter ─► memory
                  └─► LineWriter ─► write
    ```

    Args:
        line_bits: width of a line's number in the buffer.
        depth: lines in flight to memory.

    Members:
        inside: 1 bit, of the command in front: it goes to the buffer.
        rows: 16 bits, planes: 16 bits; of the command in front.
        row, row_inside: see `RowIssuer`.
        beat: 512 bits; beat_valid: 1 bit; a beat whose place is reserved.
        reserve: 1 bit; reserve a place; room: 1 bit; there is one.
        memory: `WritePort`; acknowledged: 7 bits; bytes that were written without error, as of
            this cycle.
        write, line, write_data, granted: write port of the buffer, whole lines.
        stop: 1 bit; forget all, drain what is outstanding.
        take, active: as `RowIssuer` gives them; finished, failing, fault, fault_line: what it
            wants. The front must keep a command to the buffer until `more` is 0 and it is drained.
        more: 1 bit; more beats of the command in front will come.
        drained: 1 bit; no beat and no row to the buffer is left.
        idle: 1 bit; nothing is left, nor outstanding.

    Timing: one beat a cycle.
    """

    def __init__(self, *, line_bits: int, depth: int) -> None:
        self._line_bits = line_bits
        self._depth = depth
        super().__init__(
            {
                "row": In(stream.Signature(ROW)),
                "beat": In(LINE_BITS),
                "write_data": Out(LINE_BITS),
                "memory": Out(WritePort()),
                "row_inside": In(1),
                "inside": In(1),
                "rows": In(16),
                "planes": In(16),
                "beat_valid": In(1),
                "reserve": In(1),
                "room": Out(1),
                "acknowledged": Out(OFFSET_BITS + 1),
                "write": Out(1),
                "line": Out(line_bits),
                "granted": In(1),
                "stop": In(1),
                "take": In(1),
                "active": In(1),
                "more": In(1),
                "finished": Out(1),
                "failing": Out(1),
                "fault": Out(2),
                "fault_line": Out(LINE_NUMBER_BITS),
                "drained": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        # Besides the beat, whether it goes to the buffer.
        m.submodules.beats = beats = SyncFIFOBuffered(width=LINE_BITS + 1, depth=BEATS)
        to_buffer = beats.r_data[-1]
        m.submodules.row_writer = row_writer = RowWriter(depth=self._depth)
        m.submodules.line_writer = line_writer = LineWriter(line_bits=self._line_bits)
        wiring.connect(m, row_writer.memory, wiring.flipped(self.memory))

        reserved = Signal(range(BEATS + 1))
        m.d.sync += reserved.eq(reserved + self.reserve - (beats.r_rdy & beats.r_en))
        for writer in (row_writer, line_writer):
            m.d.comb += [
                writer.row.payload.eq(self.row.payload),
                writer.data.payload.data.eq(beats.r_data[:LINE_BITS]),
                writer.flush.eq(self.stop),
            ]
        m.d.comb += [
            row_writer.row.valid.eq(self.row.valid & ~self.row_inside),
            line_writer.row.valid.eq(self.row.valid & self.row_inside),
            self.row.ready.eq(Mux(self.row_inside, line_writer.row.ready, row_writer.row.ready)),
            row_writer.data.valid.eq(beats.r_rdy & ~to_buffer & ~self.stop),
            line_writer.data.valid.eq(beats.r_rdy & to_buffer & ~self.stop),
            beats.r_en.eq(
                Mux(to_buffer, line_writer.data.ready, row_writer.data.ready) | self.stop
            ),
            beats.w_en.eq(self.beat_valid),
            beats.w_data.eq(Cat(self.beat, self.inside)),
            self.room.eq(reserved != BEATS),
            self.write.eq(line_writer.write),
            self.line.eq(line_writer.line),
            self.write_data.eq(line_writer.write_data),
            line_writer.granted.eq(self.granted),
            self.acknowledged.eq(row_writer.acknowledged),
            self.drained.eq((reserved == 0) & line_writer.idle),
            self.idle.eq(row_writer.idle & (beats.level == 0) & line_writer.idle),
        ]

        # The back: rows and planes that are not acknowledged.
        inside = Signal(reset_less=True)
        rows, rows_left, planes_left = (Signal(16, reset_less=True) for _ in range(3))
        row_done, row_error = Signal(), Signal()
        m.d.comb += [
            row_writer.done.ready.eq(self.active | self.stop),
            row_done.eq(self.active & row_writer.done.valid),
            row_error.eq(row_writer.done.payload.error != LineError.OK),
            self.failing.eq(row_done & row_error),
            self.fault.eq(row_writer.fault),
            self.fault_line.eq(row_writer.fault_line),
        ]
        with m.If(self.active & inside):
            m.d.comb += self.finished.eq(~self.more & self.drained)
        with m.Else():
            last = (rows_left == 1) & (planes_left == 1)
            m.d.comb += self.finished.eq(row_done & ~row_error & last)
        with m.If(row_done):
            m.d.sync += rows_left.eq(rows_left - 1)
            with m.If(rows_left == 1):
                m.d.sync += [rows_left.eq(rows), planes_left.eq(planes_left - 1)]
        with m.If(self.take):
            m.d.sync += [
                inside.eq(self.inside),
                rows.eq(self.rows),
                rows_left.eq(self.rows),
                planes_left.eq(self.planes),
            ]
        with m.If(self.stop):
            m.d.sync += reserved.eq(0)
        return m
