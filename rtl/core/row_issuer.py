"""What LOAD, STORE and SAVE have in common: taking, checking, issuing and ending commands."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.status import Status
from rtl.core.pipe import DONE, ceil_lines
from rtl.memory.port import LINE_NUMBER_BITS, LineError
from rtl.memory.row import ROW

__all__ = ["ROW_BYTES_BITS", "ROW_FIELDS", "ROW_LINES_BITS", "RowIssuer"]

ROW_BYTES_BITS = 18
"""Width of a row's length: 65535 int32."""

ROW_LINES_BITS = 13
"""Width of the number of lines of a row: 65535 int32."""

ROW_FIELDS = (
    "offset",
    "stride",
    "plane_stride",
    "rows",
    "planes",
    "row_bytes",
    "line",
    "pitch",
    "plane_pitch",
)
"""Members that are fields of LOAD and of SAVE."""

OFFSET_BITS = exact_log2(LINE_BYTES)


class RowIssuer(wiring.Component):
    """The control of a pipe that moves rows between a buffer of its own and somewhere else.

    The front takes a command, checks that all of its rows lie inside the buffer and inside the
    address space, and issues them one by one. The back is the pipe's: it counts what arrives or is
    answered, and says how the command ended. While the back works at a command, the front may work
    at the next one.

    Members:
        valid, ready: 1 bit each; the command is taken. Its fields, below, are stable from the next
            cycle until `ready` is 1 again.
        base: 48 bits; offset, stride, plane_stride: 32 bits, signed; rows, planes: 16 bits;
            row_bytes: 18 bits. Byte 0 of row r of plane p is at
            base + offset + p * plane_stride + r * stride.
        inside: 1 bit; the other end is a buffer of `inside_lines` lines (17 bits): base is not
            used, the other numbers count lines, and a row takes ceil(row_bytes / 64) lines.
        line, pitch, plane_pitch: 16 bits; lines: 13 bits; buffer_lines: 17 bits. Rows in the
            pipe's own buffer, lines of each, and its size.
        overflow: 1 bit; the command leaves another buffer.
        stop: 1 bit; forget all commands.
        accepted: 1 bit, for one cycle; the command passed its checks.
        row: stream of `ROW`; row_inside: 1 bit, with it; its address is the number of a line.
        busy: 1 bit; the command cannot leave the front yet.
        take: 1 bit, for one cycle; the command in front becomes the back's.
        active: 1 bit; the back has a command.
        finished, failing: 1 bit each, while `active`; its command ends well or not.
        fault: 2 bits; fault_line: 42 bits; `LineError` and line of the failure, from the cycle
            after `failing` until `stop`.
        done: stream of `DONE`, one per command in order. After one that failed in memory, none
            comes until `stop`.
        quiet: 1 bit; no command is held.

    Timing: first row 5 cycles after the command, then one a cycle.

    Errors: BUFFER_OVERFLOW; ADDRESS_FAULT with the line of the lowest row if it begins below 0,
    else of the highest one.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": In(1),
                "ready": Out(1),
                "base": In(ADDRESS_BITS),
                "offset": In(signed(32)),
                "stride": In(signed(32)),
                "plane_stride": In(signed(32)),
                "rows": In(16),
                "planes": In(16),
                "row_bytes": In(ROW_BYTES_BITS),
                "inside": In(1),
                "inside_lines": In(17),
                "line": In(16),
                "pitch": In(16),
                "plane_pitch": In(16),
                "lines": In(ROW_LINES_BITS),
                "buffer_lines": In(17),
                "overflow": In(1),
                "stop": In(1),
                "accepted": Out(1),
                "row": Out(stream.Signature(ROW)),
                "row_inside": Out(1),
                "busy": In(1),
                "take": Out(1),
                "active": Out(1),
                "finished": In(1),
                "failing": In(1),
                "fault": In(2),
                "fault_line": In(LINE_NUMBER_BITS),
                "done": Out(stream.Signature(DONE)),
                "quiet": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        # Wide enough for any sum of a base, an offset, 65535 strides and 65535 plane strides.
        first, row = (Signal(signed(52), reset_less=True) for _ in range(2))
        low, high = (Signal(signed(52), reset_less=True) for _ in range(2))
        row_span, plane_span = (Signal(signed(49), reset_less=True) for _ in range(2))
        row_end, plane_end = (Signal(32, reset_less=True) for _ in range(2))
        overflow = Signal(reset_less=True)
        rows_left, planes_left = (Signal(16, reset_less=True) for _ in range(2))
        issued = Signal(reset_less=True)
        taken = Signal(reset_less=True)
        offered = Signal()
        failed, reported = Signal(), Signal()
        done_count = Signal(2)
        status = Signal(8)
        address = Signal(64)
        bad_status = Signal(8, reset_less=True)
        bad_address = Signal(64, reset_less=True)
        rows_after = (self.rows - 1)[:16]
        planes_after = (self.planes - 1)[:16]
        # One more command that ends must still fit the count.
        m.d.comb += [
            self.take.eq(offered & (~self.active | self.finished) & ~failed & ~done_count[1]),
        ]
        # A row waits in registers, so that the next command's checks overlap the last row.
        issue, issue_last = Signal(), Signal()
        m.d.comb += issue_last.eq(issue & (rows_left == 1) & (planes_left == 1))
        with m.If(issue):
            m.d.sync += [
                self.row.valid.eq(1),
                self.row.payload.address.eq(row),
                self.row.payload.nbytes.eq(self.row_bytes),
                self.row_inside.eq(self.inside),
            ]
        with m.Elif(self.row.ready):
            m.d.sync += self.row.valid.eq(0)
        with m.FSM():
            with m.State("Empty"):
                m.d.comb += [
                    self.ready.eq(1),
                    self.quiet.eq(~self.active & ~failed & (done_count == 0)),
                ]
                with m.If(self.valid):
                    m.next = "Add the offset"
            with m.State("Add the offset"):
                m.d.sync += [
                    first.eq(Mux(self.inside, 0, self.base) + self.offset),
                    row_span.eq(rows_after * self.stride),
                    plane_span.eq(planes_after * self.plane_stride),
                    row_end.eq(rows_after * self.pitch),
                    plane_end.eq(planes_after * self.plane_pitch),
                ]
                m.next = "Find the lowest and the highest row"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Find the lowest and the highest row"):

                def below(span: Signal) -> Mux:
                    return Mux(span[-1], span, 0)

                def above(span: Signal) -> Mux:
                    return Mux(span[-1], 0, span)

                last = self.line + row_end + plane_end + (self.lines - 1)[:ROW_LINES_BITS]
                m.d.sync += [
                    row.eq(first),
                    low.eq(first + below(row_span) + below(plane_span)),
                    high.eq(first + above(row_span) + above(plane_span)),
                    overflow.eq((last >= self.buffer_lines) | self.overflow),
                ]
                m.next = "Check"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Check"):
                length = Mux(self.inside, ceil_lines(self.row_bytes), self.row_bytes)
                limit = Mux(self.inside, self.inside_lines, 1 << ADDRESS_BITS)
                leaves = Signal()
                failing = Mux(low < 0, low, high)
                line = Cat(failing, failing[-1].replicate(64 - len(failing)))
                in_buffer = overflow | self.inside
                m.d.comb += [
                    leaves.eq((low < 0) | (high + length > limit)),
                    self.accepted.eq(~leaves & ~overflow & ~self.stop),
                ]
                m.d.sync += [
                    rows_left.eq(self.rows),
                    planes_left.eq(self.planes),
                    issued.eq(0),
                    taken.eq(0),
                    bad_status.eq(Mux(in_buffer, Status.BUFFER_OVERFLOW, Status.ADDRESS_FAULT)),
                    bad_address.eq(0),
                ]
                with m.If(~in_buffer):
                    m.d.sync += bad_address[OFFSET_BITS:].eq(line[OFFSET_BITS:])
                m.next = "Issue rows"
                with m.If(self.stop):
                    m.next = "Empty"
                with m.Elif(~self.accepted):
                    m.next = "Report a fault"
            with m.State("Issue rows"):
                m.d.comb += [
                    issue.eq(~issued & (~self.row.valid | self.row.ready)),
                    offered.eq(~taken),
                ]
                with m.If(issue):
                    m.d.sync += [row.eq(row + self.stride), rows_left.eq(rows_left - 1)]
                    with m.If(rows_left == 1):
                        m.d.sync += [
                            row.eq(first + self.plane_stride),
                            first.eq(first + self.plane_stride),
                            rows_left.eq(self.rows),
                            planes_left.eq(planes_left - 1),
                            issued.eq(issue_last),
                        ]
                with m.If(self.take):
                    m.d.sync += taken.eq(1)
                all_issued = issued | issue_last
                with m.If((all_issued & (taken | self.take) & ~self.busy) | self.stop):
                    m.next = "Empty"
            with m.State("Report a fault"):
                with m.If(~self.active & ~failed & (done_count == 0)):
                    m.d.comb += [
                        self.done.valid.eq(1),
                        status.eq(bad_status),
                        address.eq(bad_address),
                    ]
                    with m.If(self.done.ready):
                        m.next = "Empty"
                with m.If(self.stop):
                    m.next = "Empty"

        with m.If(self.finished | self.failing):
            m.d.sync += self.active.eq(0)
        with m.If(self.take):
            m.d.sync += self.active.eq(1)
        with m.If(self.failing):
            m.d.sync += failed.eq(1)

        # Commands that ended well come before the one that failed.
        with m.If(done_count != 0):
            m.d.comb += self.done.valid.eq(1)
        with m.Elif(failed & ~reported):
            bus = self.fault == LineError.BUS
            m.d.comb += [
                self.done.valid.eq(1),
                status.eq(Mux(bus, Status.BUS_ERROR, Status.ADDRESS_FAULT)),
                address[OFFSET_BITS:].eq(self.fault_line),
            ]
            with m.If(self.done.ready):
                m.d.sync += reported.eq(1)
        m.d.comb += [
            self.done.payload.status.eq(status),
            self.done.payload.address.eq(address),
        ]
        taken_ok = (done_count != 0) & self.done.ready
        m.d.sync += done_count.eq(done_count + self.finished - taken_ok)
        with m.If(self.stop):
            m.d.sync += [
                self.active.eq(0),
                failed.eq(0),
                reported.eq(0),
                done_count.eq(0),
                self.row.valid.eq(0),
            ]
        return m
