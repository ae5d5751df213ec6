"""The FIXPIPE pipe: STORE, rows of L0C to global memory."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, STORE_COMMAND
from abi.packet import KERNEL_ARGUMENTS
from abi.status import Status
from rtl.core.pipe import DONE, last_line
from rtl.core.requantiser import Requantiser
from rtl.core.row_issuer import RowIssuer
from rtl.memory.port import LINE_BITS, LineError, WritePort
from rtl.memory.row_writer import RowWriter

__all__ = ["Fixpipe"]

BEATS = 16
"""Beats that wait for the writer; each line that is read has its place reserved."""

NARROW_BITS = 8 * CUBE_SIDE


class Fixpipe(wiring.Component):
    """Executes STORE commands in order.

    The front takes a command, checks it, issues its rows and reads its lines; the back counts the
    rows that are acknowledged. While the back waits, the front may work at the next command.

    ```
    L0C, bias ─► requantiser ─► pack (int8: 4 lines to a beat) ─► beats ─► RowWriter ─► memory
    ```

    Members:
        command: stream of STORE commands, already checked by the sequencer.
        done: stream of `DONE`, one per command in order. OK comes when all writes are answered.
        stop: 1 bit; forget all commands, drain what is outstanding; held until `idle`.
        arguments: base registers, 64 bits each.
        memory: `WritePort`.
        acknowledged: 7 bits; bytes that were written without error, as of this cycle.
        read, read_line: read L0C; read_granted: 1 bit; read_data: the line, in the next cycle.
        bias_read, bias_line, bias_data: read port of the bias buffer (latency 1).
        working: 1 bit; a line of L0C is read.
        idle: 1 bit; no command is held, nothing is outstanding.

    Timing: one line of L0C a cycle, unless L0C or memory refuses; a command's rows follow one
    another without bubbles. Between commands, the pipeline of 5 cycles runs empty.

    Errors: BUFFER_OVERFLOW and, for rows outside the address space, ADDRESS_FAULT before any
    access; ADDRESS_FAULT and BUS_ERROR with the line of the first write that failed.
    """

    def __init__(self, *, l0c_lines: int, bias_lines: int, depth: int = 64) -> None:
        self._l0c_lines = l0c_lines
        self._bias_lines = bias_lines
        self._depth = depth
        super().__init__(
            {
                "command": In(stream.Signature(STORE_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "arguments": In(64).array(KERNEL_ARGUMENTS),
                "memory": Out(WritePort()),
                "read_data": In(LINE_BITS),
                "bias_data": In(LINE_BITS),
                "acknowledged": Out(7),
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
        m.submodules.writer = writer = RowWriter(depth=self._depth)
        m.submodules.issuer = issuer = RowIssuer()
        m.submodules.requantiser = requantiser = Requantiser()
        m.submodules.beats = beats = SyncFIFOBuffered(width=LINE_BITS, depth=BEATS)
        wiring.connect(m, writer.memory, wiring.flipped(self.memory))
        wiring.connect(m, issuer.row, writer.row)

        front = Signal(STORE_COMMAND, reset_less=True)
        lines = Signal(13)
        overflow = Signal()
        c_end = last_line(front.c_line, front.rows, front.c_pitch, lines)
        bias_end = front.bias_line + lines - 1
        m.d.comb += [
            lines.eq((front.columns + (CUBE_SIDE - 1)) >> exact_log2(CUBE_SIDE)),
            overflow.eq((c_end >= self._l0c_lines) | (front.bias & (bias_end >= self._bias_lines))),
            *[to.eq(of) for to, of in zip(issuer.arguments, self.arguments, strict=True)],
            issuer.argument.eq(front.argument),
            issuer.offset.eq(front.offset),
            issuer.stride.eq(front.stride),
            issuer.rows.eq(front.rows),
            issuer.row_bytes.eq(Mux(front.requantise, front.columns, front.columns << 2)),
            issuer.stop.eq(self.stop),
            writer.flush.eq(self.stop),
            self.acknowledged.eq(writer.acknowledged),
        ]

        draining = Signal()
        failed = Signal()
        finished = Signal()
        done_count = Signal(2)
        offered, taken, take = Signal(), Signal(), Signal()
        quiet = Signal()
        empty = Signal()
        reading = Signal()
        read_all = Signal()
        status = Signal(8)
        address = Signal(64)
        bad_status = Signal(8, reset_less=True)
        bad_address = Signal(64, reset_less=True)
        m.d.comb += [
            take.eq(offered & (~draining | finished) & ~failed),
            quiet.eq(~draining & ~failed & (done_count == 0)),
        ]
        with m.If(take):
            m.d.sync += taken.eq(1)
        with m.FSM(name="front_state"):
            with m.State("Empty"):
                m.d.comb += [
                    self.command.ready.eq(1),
                    self.idle.eq(quiet & issuer.finished & writer.idle & empty & ~beats.r_rdy),
                ]
                m.d.sync += taken.eq(0)
                with m.If(self.command.valid):
                    m.d.sync += front.eq(self.command.payload)
                    m.next = "Check the bounds"
            with m.State("Check the bounds"):
                m.d.comb += issuer.start.eq(~overflow)
                m.d.sync += [bad_status.eq(Status.BUFFER_OVERFLOW), bad_address.eq(0)]
                m.next = "Check the addresses"
                with m.If(overflow):
                    m.next = "Report a fault"
            with m.State("Check the addresses"):
                with m.If(issuer.checked):
                    m.next = "Read lines"
                    with m.If(issuer.bad):
                        m.d.sync += [
                            bad_status.eq(Status.ADDRESS_FAULT),
                            bad_address.eq(issuer.address),
                        ]
                        m.next = "Report a fault"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Read lines"):
                m.d.comb += [reading.eq(1), offered.eq(~taken)]
                with m.If(read_all):
                    m.next = "Empty the pipeline"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Empty the pipeline"):
                m.d.comb += offered.eq(~taken)
                with m.If((empty & issuer.finished & (taken | take)) | self.stop):
                    m.next = "Empty"
            with m.State("Report a fault"):
                with m.If(quiet):
                    m.d.comb += [
                        self.done.valid.eq(1),
                        status.eq(bad_status),
                        address.eq(bad_address),
                    ]
                with m.If(self.done.valid & self.done.ready | self.stop):
                    m.next = "Empty"

        # Lines to read.
        c_bits, bias_bits = exact_log2(self._l0c_lines), exact_log2(self._bias_lines)
        line = Signal(c_bits, reset_less=True)
        row_line = Signal(c_bits, reset_less=True)
        bias_line = Signal(bias_bits, reset_less=True)
        lines_left = Signal(13, reset_less=True)
        rows_left = Signal(16, reset_less=True)
        quarter = Signal(2, reset_less=True)
        reserved = Signal(range(BEATS + 1))
        step = Signal()
        row_end = lines_left == 1
        starts_beat = ~front.requantise | (quarter == 0)
        m.d.comb += [
            self.read.eq(reading & ((reserved != BEATS) | ~starts_beat)),
            self.read_line.eq(line),
            step.eq(self.read & self.read_granted),
            self.bias_read.eq(step & front.bias),
            self.bias_line.eq(bias_line),
            self.working.eq(step),
            read_all.eq(step & row_end & (rows_left == 1)),
        ]
        with m.If(issuer.checked):
            m.d.sync += [
                line.eq(front.c_line),
                row_line.eq(front.c_line),
                bias_line.eq(front.bias_line),
                lines_left.eq(lines),
                rows_left.eq(front.rows),
                quarter.eq(0),
            ]
        with m.If(step):
            m.d.sync += [
                line.eq(line + 1),
                bias_line.eq(bias_line + 1),
                lines_left.eq(lines_left - 1),
                quarter.eq(quarter + 1),
            ]
            with m.If(row_end):
                m.d.sync += [
                    line.eq(row_line + front.c_pitch),
                    row_line.eq(row_line + front.c_pitch),
                    bias_line.eq(front.bias_line),
                    lines_left.eq(lines),
                    rows_left.eq(rows_left - 1),
                    quarter.eq(0),
                ]
        m.d.sync += reserved.eq(reserved + (step & starts_beat) - (beats.r_rdy & beats.r_en))

        # The place of a line in its beat travels along with it.
        valid = [Signal(name=f"valid{i}") for i in range(5)]
        places = [Signal(3, name=f"place{i}", reset_less=True) for i in range(4)]
        m.d.sync += [
            valid[0].eq(step & ~self.stop),
            *[valid[i + 1].eq(valid[i] & ~self.stop) for i in range(4)],
            places[0].eq(Cat(quarter, row_end)),
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
            requantiser.requantise.eq(front.requantise),
            requantiser.multiplier.eq(front.multiplier),
            requantiser.shift.eq(front.shift),
        ]
        beat = Signal(LINE_BITS, reset_less=True)
        full = Signal()
        m.d.sync += full.eq(0)
        with m.If(requantiser.wide_valid):
            m.d.sync += [beat.eq(requantiser.wide), full.eq(~self.stop)]
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
        m.d.comb += [
            beats.w_en.eq(full),
            beats.w_data.eq(beat),
            writer.data.valid.eq(beats.r_rdy & ~self.stop),
            writer.data.payload.data.eq(beats.r_data),
            beats.r_en.eq(writer.data.ready | self.stop),
        ]

        # The back.
        unacknowledged = Signal(16, reset_less=True)
        row_done = Signal()
        row_error = writer.done.payload.error != LineError.OK
        m.d.comb += [
            writer.done.ready.eq(draining | self.stop),
            row_done.eq(draining & writer.done.valid),
            finished.eq(row_done & ~row_error & (unacknowledged == 1)),
        ]
        with m.If(row_done):
            m.d.sync += unacknowledged.eq(unacknowledged - 1)
        with m.If(finished):
            m.d.sync += draining.eq(0)
        with m.If(take):
            m.d.sync += [draining.eq(1), unacknowledged.eq(front.rows)]
        with m.If(row_done & row_error):
            m.d.sync += [draining.eq(0), failed.eq(1)]

        # Commands that ended well come before the one that failed.
        with m.If(done_count != 0):
            m.d.comb += self.done.valid.eq(1)
        with m.Elif(failed):
            bus = writer.fault == LineError.BUS
            m.d.comb += [
                self.done.valid.eq(1),
                status.eq(Mux(bus, Status.BUS_ERROR, Status.ADDRESS_FAULT)),
                address[exact_log2(LINE_BYTES) :].eq(writer.fault_line),
            ]
            with m.If(self.done.ready):
                m.d.sync += failed.eq(0)
        m.d.comb += Cat(self.done.payload.status, self.done.payload.address).eq(
            Cat(status, address)
        )
        taken_ok = (done_count != 0) & self.done.ready
        m.d.sync += done_count.eq(done_count + finished - taken_ok)
        with m.If(self.stop):
            m.d.sync += [draining.eq(0), failed.eq(0), done_count.eq(0), reserved.eq(0)]
        return m
