"""The FIXPIPE pipe: STORE, rows of L0C to global memory or UB."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import ADDRESS_BITS
from abi.core import CUBE_SIDE, STORE_COMMAND, Local, StoreOutput
from rtl.core.line_walk import LineWalk
from rtl.core.pipe import DONE
from rtl.core.requantiser import Requantiser
from rtl.core.row_issuer import ROW_LINES_BITS, RowIssuer
from rtl.core.row_sink import RowSink
from rtl.memory.port import LINE_BITS, WritePort
from rtl.memory.row import OFFSET_BITS

__all__ = ["Fixpipe"]

NARROW_BITS = 8 * CUBE_SIDE
HALF_BITS = 16 * CUBE_SIDE


class Fixpipe(wiring.Component):
    """Executes STORE commands in order.

    The front takes a command, checks it, issues its rows and reads its lines; the back counts the
    rows that are acknowledged. While the back waits, the front may work at the next command.

    ```
    L0C, bias ─► requantiser ─► pack (bf16: 2, int8: 4 lines to a beat) ─► RowSink ─► memory, UB
    ```

    Args:
        l0c_lines, bias_lines, ub_lines: sizes of the buffers.
        depth: lines in flight.

    Members:
        command: stream of STORE commands, already checked by the scalar unit, and the value of
            their base register.
        done: stream of `DONE`, one per command in order. OK comes when all writes are answered.
        stop: 1 bit; forget all commands, drain what is outstanding; held until `idle`.
        memory: `WritePort`.
        acknowledged: 7 bits; bytes that were written without error, as of this cycle.
        ub_write, ub_line, ub_data: write port of UB; ub_granted: 1 bit; it happens in this cycle.
        read, read_line: read L0C; read_granted: 1 bit; read_data: the line, in the next cycle.
        bias_read, bias_line, bias_data: read port of the bias buffer (latency 1).
        working: 1 bit; a line of L0C is read.
        idle: 1 bit; no command is held, nothing is outstanding.

    Timing: one line of L0C a cycle, unless L0C, UB or memory refuses; a command's rows follow one
    another without bubbles. Between commands 10 cycles, in which the pipeline runs empty; up
    to 12 behind a command to UB, whose beats that wait are written first.

    Errors: BUFFER_OVERFLOW and, for rows outside the address space, ADDRESS_FAULT before any
    access, see `RowIssuer`; ADDRESS_FAULT and BUS_ERROR with the line of the first write that
    failed.
    """

    def __init__(self, *, l0c_lines: int, bias_lines: int, ub_lines: int, depth: int = 64) -> None:
        self._l0c_lines = l0c_lines
        self._bias_lines = bias_lines
        self._ub_lines = ub_lines
        self._depth = depth
        super().__init__(
            {
                "command": In(
                    stream.Signature(
                        data.StructLayout({"command": STORE_COMMAND, "base": ADDRESS_BITS})
                    )
                ),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "memory": Out(WritePort()),
                "ub_data": Out(LINE_BITS),
                "read_data": In(LINE_BITS),
                "bias_data": In(LINE_BITS),
                "acknowledged": Out(OFFSET_BITS + 1),
                "ub_write": Out(1),
                "ub_line": Out(exact_log2(ub_lines)),
                "ub_granted": In(1),
                "read": Out(1),
                "read_line": Out(exact_log2(l0c_lines)),
                "read_granted": In(1),
                "bias_read": Out(1),
                "bias_line": Out(exact_log2(bias_lines)),
                "working": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.issuer = issuer = RowIssuer()
        m.submodules.requantiser = requantiser = Requantiser()
        sink = RowSink(line_bits=exact_log2(self._ub_lines), depth=self._depth)
        m.submodules.sink = sink
        wiring.connect(m, issuer.row, sink.row)
        wiring.connect(m, issuer.done, wiring.flipped(self.done))
        wiring.connect(m, sink.memory, wiring.flipped(self.memory))

        front = Signal(STORE_COMMAND, reset_less=True)
        base = Signal(ADDRESS_BITS, reset_less=True)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [front.eq(self.command.payload.command), base.eq(self.command.payload.base)]
        to_int8 = front.output == StoreOutput.INT8
        to_bfloat16 = front.output == StoreOutput.BF16
        lines = Signal(ROW_LINES_BITS)
        size_log2 = Mux(to_int8, 0, Mux(to_bfloat16, 1, 2))
        reading = Signal()
        empty = Signal()
        m.d.comb += [
            lines.eq((front.columns + (CUBE_SIDE - 1)) >> exact_log2(CUBE_SIDE)),
            issuer.valid.eq(self.command.valid),
            self.command.ready.eq(issuer.ready),
            issuer.base.eq(base),
            issuer.offset.eq(front.offset),
            issuer.stride.eq(front.stride),
            issuer.rows.eq(front.rows),
            issuer.planes.eq(1),
            issuer.row_bytes.eq(front.columns << size_log2),
            issuer.inside.eq(front.target == Local.UB),
            issuer.inside_lines.eq(self._ub_lines),
            issuer.line.eq(front.c_line),
            issuer.pitch.eq(front.c_pitch),
            issuer.lines.eq(lines),
            issuer.buffer_lines.eq(self._l0c_lines),
            issuer.overflow.eq(front.bias & (front.bias_line + lines > self._bias_lines)),
            issuer.stop.eq(self.stop),
            issuer.busy.eq(sink.more | (issuer.inside & ~sink.drained)),
            issuer.finished.eq(sink.finished),
            issuer.failing.eq(sink.failing),
            issuer.fault.eq(sink.fault),
            issuer.fault_line.eq(sink.fault_line),
            sink.row_inside.eq(issuer.row_inside),
            sink.inside.eq(issuer.inside),
            sink.rows.eq(front.rows),
            sink.planes.eq(1),
            sink.stop.eq(self.stop),
            sink.take.eq(issuer.take),
            sink.active.eq(issuer.active),
            sink.more.eq(reading | ~empty),
            self.acknowledged.eq(sink.acknowledged),
            self.ub_write.eq(sink.write),
            self.ub_line.eq(sink.line),
            self.ub_data.eq(sink.write_data),
            sink.granted.eq(self.ub_granted),
            self.idle.eq(issuer.quiet & sink.idle & empty),
        ]

        # Lines to read.
        walk = LineWalk(m, "walk")
        bias_line = Signal(exact_log2(self._bias_lines), reset_less=True)
        quarter = Signal(2, reset_less=True)
        step = Signal()
        starts_beat = Signal()
        m.d.comb += [
            starts_beat.eq(
                Mux(to_int8, quarter == 0, Mux(to_bfloat16, ~quarter[0], 1)),
            ),
            self.read.eq(reading & (sink.room | ~starts_beat)),
            self.read_line.eq(walk.line),
            step.eq(self.read & self.read_granted),
            sink.reserve.eq(step & starts_beat),
            self.bias_read.eq(step & front.bias),
            self.bias_line.eq(bias_line),
            self.working.eq(step),
        ]
        with m.If(step):
            walk.step()
            m.d.sync += [bias_line.eq(bias_line + 1), quarter.eq(quarter + 1)]
            with m.If(walk.is_row_end):
                m.d.sync += [bias_line.eq(front.bias_line), quarter.eq(0)]
            with m.If(walk.is_last):
                m.d.sync += reading.eq(0)
        with m.If(issuer.accepted):
            walk.load(line=front.c_line, lines=lines, rows=front.rows, pitch=front.c_pitch)
            m.d.sync += [bias_line.eq(front.bias_line), quarter.eq(0), reading.eq(1)]
        with m.If(self.stop):
            m.d.sync += reading.eq(0)

        # The place of a line in its beat travels along with it.
        valid = [Signal(name=f"valid{i}") for i in range(5)]
        places = [Signal(3, name=f"place{i}", reset_less=True) for i in range(4)]
        m.d.sync += [
            valid[0].eq(step & ~self.stop),
            *[valid[i + 1].eq(valid[i] & ~self.stop) for i in range(4)],
            places[0].eq(Cat(quarter, walk.is_row_end)),
            *[places[i + 1].eq(places[i]) for i in range(3)],
        ]
        m.d.comb += [
            empty.eq(~Cat(*valid).any()),
            requantiser.valid.eq(valid[0]),
            requantiser.stop.eq(self.stop),
            requantiser.sums.eq(self.read_data),
            requantiser.bias_line.eq(self.bias_data),
            requantiser.bias.eq(front.bias),
            requantiser.relu.eq(front.relu),
            requantiser.output.eq(front.output),
            requantiser.multiplier.eq(front.multiplier),
            requantiser.shift.eq(front.shift),
        ]
        # A beat that is not full ends with zeros.
        beat = Signal(LINE_BITS, reset_less=True)
        full = Signal()
        m.d.sync += full.eq(0)
        with m.If(requantiser.wide_valid):
            m.d.sync += [beat.eq(requantiser.wide), full.eq(~self.stop)]
        with m.If(requantiser.half_valid):
            place = places[2]
            m.d.sync += full.eq((place[0] | place[2]) & ~self.stop)
            with m.If(place[0]):
                m.d.sync += beat[HALF_BITS:].eq(requantiser.half)
            with m.Else():
                m.d.sync += beat.eq(requantiser.half)
        with m.If(requantiser.narrow_valid):
            place = places[3]
            m.d.sync += full.eq(((place[:2] == 3) | place[2]) & ~self.stop)
            with m.Switch(place[:2]):
                with m.Case(0):
                    m.d.sync += beat.eq(requantiser.narrow)
                for i in range(1, 4):
                    with m.Case(i):
                        part = slice(NARROW_BITS * i, NARROW_BITS * (i + 1))
                        m.d.sync += beat[part].eq(requantiser.narrow)
        m.d.comb += [sink.beat.eq(beat), sink.beat_valid.eq(full)]
        return m
