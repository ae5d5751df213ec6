"""The MTE3 pipe: SAVE, rows of UB to global memory or L1."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import ADDRESS_BITS
from abi.core import SAVE_COMMAND, Local
from rtl.core.line_walk import LineWalk
from rtl.core.pipe import DONE, ceil_lines
from rtl.core.row_issuer import ROW_FIELDS, RowIssuer
from rtl.core.row_sink import RowSink
from rtl.memory.port import LINE_BITS, WritePort
from rtl.memory.row import OFFSET_BITS

__all__ = ["Mte3"]


class Mte3(wiring.Component):
    """Executes SAVE commands in order.

    The front takes a command, checks it, issues its rows and reads its lines; the back counts the
    rows that are acknowledged. While the back waits, the front may work at the next command.

    Args:
        ub_lines, l1_lines: sizes of the buffers.
        depth: lines in flight.

    Members:
        command: stream of SAVE commands, already checked by the scalar unit, and the value of
            their base register.
        done: stream of `DONE`, one per command in order. OK comes when all writes are answered.
        stop: 1 bit; forget all commands, drain what is outstanding; held until `idle`.
        memory: `WritePort`.
        acknowledged: 7 bits; bytes that were written without error, as of this cycle.
        l1_write, l1_line, l1_data: write port of L1, whole lines; l1_granted: 1 bit; it happens in
            this cycle.
        ub_read, ub_line: read UB; ub_granted: 1 bit; ub_data: the line, in the next cycle.
        working: 1 bit; a line of UB is read.
        idle: 1 bit; no command is held, nothing is outstanding.

    Timing: 64 bytes a cycle, unless UB, L1 or memory refuses or rows are not aligned; a command's
    rows follow one another without bubbles. Between commands 6 cycles, 8 behind one to L1,
    whose beats that wait are written first.

    Errors: BUFFER_OVERFLOW and, for rows outside the address space, ADDRESS_FAULT before any
    access, see `RowIssuer`; ADDRESS_FAULT and BUS_ERROR with the line of the first write that
    failed.
    """

    def __init__(self, *, ub_lines: int, l1_lines: int, depth: int = 64) -> None:
        self._ub_lines = ub_lines
        self._l1_lines = l1_lines
        self._depth = depth
        super().__init__(
            {
                "command": In(
                    stream.Signature(
                        data.StructLayout({"command": SAVE_COMMAND, "base": ADDRESS_BITS})
                    )
                ),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "memory": Out(WritePort()),
                "l1_data": Out(LINE_BITS),
                "ub_data": In(LINE_BITS),
                "acknowledged": Out(OFFSET_BITS + 1),
                "l1_write": Out(1),
                "l1_line": Out(exact_log2(l1_lines)),
                "l1_granted": In(1),
                "ub_read": Out(1),
                "ub_line": Out(exact_log2(ub_lines)),
                "ub_granted": In(1),
                "working": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.issuer = issuer = RowIssuer()
        sink = RowSink(line_bits=exact_log2(self._l1_lines), depth=self._depth)
        m.submodules.sink = sink
        wiring.connect(m, issuer.row, sink.row)
        wiring.connect(m, issuer.done, wiring.flipped(self.done))
        wiring.connect(m, sink.memory, wiring.flipped(self.memory))

        front = Signal(SAVE_COMMAND, reset_less=True)
        base = Signal(ADDRESS_BITS, reset_less=True)
        reading = Signal()
        arrives = Signal()
        step = Signal()
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [front.eq(self.command.payload.command), base.eq(self.command.payload.base)]
        m.d.comb += [
            issuer.valid.eq(self.command.valid),
            self.command.ready.eq(issuer.ready),
            issuer.base.eq(base),
            *[getattr(issuer, name).eq(getattr(front, name)) for name in ROW_FIELDS],
            issuer.inside.eq(front.target == Local.L1),
            issuer.inside_lines.eq(self._l1_lines),
            issuer.lines.eq(ceil_lines(front.row_bytes)),
            issuer.buffer_lines.eq(self._ub_lines),
            issuer.stop.eq(self.stop),
            issuer.busy.eq(sink.more | (issuer.inside & ~sink.drained)),
            issuer.finished.eq(sink.finished),
            issuer.failing.eq(sink.failing),
            issuer.fault.eq(sink.fault),
            issuer.fault_line.eq(sink.fault_line),
            sink.row_inside.eq(issuer.row_inside),
            sink.inside.eq(issuer.inside),
            sink.rows.eq(front.rows),
            sink.planes.eq(front.planes),
            sink.stop.eq(self.stop),
            sink.take.eq(issuer.take),
            sink.active.eq(issuer.active),
            sink.more.eq(reading | arrives),
            self.acknowledged.eq(sink.acknowledged),
            self.l1_write.eq(sink.write),
            self.l1_line.eq(sink.line),
            self.l1_data.eq(sink.write_data),
            sink.granted.eq(self.l1_granted),
            self.idle.eq(issuer.quiet & sink.idle & ~arrives),
        ]

        walk = LineWalk(m, "walk")
        m.d.comb += [
            self.ub_read.eq(reading & sink.room),
            self.ub_line.eq(walk.line),
            step.eq(self.ub_read & self.ub_granted),
            sink.reserve.eq(step),
            sink.beat.eq(self.ub_data),
            sink.beat_valid.eq(arrives),
            self.working.eq(step),
        ]
        m.d.sync += arrives.eq(step & ~self.stop)
        with m.If(step):
            walk.step()
            with m.If(walk.is_last):
                m.d.sync += reading.eq(0)
        with m.If(issuer.accepted):
            walk.load(
                line=front.line,
                lines=issuer.lines,
                rows=front.rows,
                pitch=front.pitch,
                planes=front.planes,
                plane_pitch=front.plane_pitch,
            )
            m.d.sync += reading.eq(1)
        with m.If(self.stop):
            m.d.sync += reading.eq(0)
        return m
