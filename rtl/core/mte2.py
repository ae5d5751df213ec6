"""The MTE2 pipe: LOAD, rows of global memory into L1."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from abi.core import LOAD_COMMAND
from abi.packet import KERNEL_ARGUMENTS
from abi.status import Status
from rtl.core.pipe import DONE, ceil_lines, last_line
from rtl.core.row_issuer import RowIssuer
from rtl.memory.port import LINE_BITS, LineError, ReadPort
from rtl.memory.row_reader import RowReader

__all__ = ["Mte2"]


class Mte2(wiring.Component):
    """Executes LOAD commands in order.

    The front takes a command, checks it and requests its rows; the back writes the beats that
    arrive to L1. While the back waits for data, the front may work at the next command.

    Members:
        command: stream of LOAD commands, already checked by the sequencer.
        done: stream of `DONE`, one per command in order. OK comes when the last line is in L1.
        stop: 1 bit; forget all commands, drain what is outstanding; held until `idle`.
        arguments: base registers, 64 bits each.
        memory: `ReadPort`.
        write, write_line, write_data: write port of L1, whole lines.
        working: 1 bit; a line is written.
        idle: 1 bit; no command is held, nothing is outstanding.

    Timing: 64 bytes a cycle as far as memory gives them and rows are aligned, across rows and
    commands. First request 6 cycles after the command.

    Errors: BUFFER_OVERFLOW and, for rows outside the address space, ADDRESS_FAULT before any
    access; ADDRESS_FAULT and BUS_ERROR with the line of the first response that failed.
    """

    def __init__(self, *, l1_lines: int, depth: int = 64) -> None:
        self._l1_lines = l1_lines
        self._depth = depth
        super().__init__(
            {
                "command": In(stream.Signature(LOAD_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "arguments": In(64).array(KERNEL_ARGUMENTS),
                "memory": Out(ReadPort()),
                "write_data": Out(LINE_BITS),
                "write": Out(1),
                "write_line": Out(exact_log2(l1_lines)),
                "working": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = RowReader(depth=self._depth)
        m.submodules.issuer = issuer = RowIssuer()
        wiring.connect(m, reader.memory, wiring.flipped(self.memory))
        wiring.connect(m, issuer.row, reader.row)

        front = Signal(LOAD_COMMAND, reset_less=True)
        overflow = Signal()
        end = last_line(front.line, front.rows, front.pitch, ceil_lines(front.row_bytes))
        m.d.comb += [
            overflow.eq(end >= self._l1_lines),
            *[to.eq(of) for to, of in zip(issuer.arguments, self.arguments, strict=True)],
            issuer.argument.eq(front.argument),
            issuer.offset.eq(front.offset),
            issuer.stride.eq(front.stride),
            issuer.rows.eq(front.rows),
            issuer.row_bytes.eq(front.row_bytes),
            issuer.stop.eq(self.stop),
            reader.flush.eq(self.stop),
        ]

        receiving = Signal()
        failed = Signal()
        finished = Signal()
        done_count = Signal(2)
        offered = Signal()
        taken = Signal()
        take = Signal()
        quiet = Signal()
        status = Signal(8)
        address = Signal(64)
        bad_status = Signal(8, reset_less=True)
        bad_address = Signal(64, reset_less=True)
        m.d.comb += [
            take.eq(offered & (~receiving | finished) & ~failed),
            quiet.eq(~receiving & ~failed & (done_count == 0)),
        ]
        with m.If(take):
            m.d.sync += taken.eq(1)
        with m.FSM(name="front_state"):
            with m.State("Empty"):
                m.d.comb += [
                    self.command.ready.eq(1),
                    self.idle.eq(quiet & issuer.finished & reader.idle),
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
                    m.next = "Issue rows"
                    with m.If(issuer.bad):
                        m.d.sync += [
                            bad_status.eq(Status.ADDRESS_FAULT),
                            bad_address.eq(issuer.address),
                        ]
                        m.next = "Report a fault"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Issue rows"):
                m.d.comb += offered.eq(~taken)
                with m.If((issuer.finished & (taken | take)) | self.stop):
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

        # The back.
        line = Signal(16, reset_less=True)
        row_line = Signal(16, reset_less=True)
        pitch = Signal(16, reset_less=True)
        rows = Signal(16, reset_less=True)
        beat = reader.data
        accept = Signal()
        m.d.comb += [
            accept.eq(receiving & beat.valid),
            beat.ready.eq(receiving | self.stop),
            self.write.eq(accept & (beat.payload.error == LineError.OK)),
            self.write_line.eq(line),
            self.write_data.eq(beat.payload.data),
            self.working.eq(self.write),
            finished.eq(self.write & beat.payload.last & (rows == 1)),
        ]
        with m.If(self.write):
            m.d.sync += line.eq(line + 1)
            with m.If(beat.payload.last):
                m.d.sync += [
                    line.eq(row_line + pitch),
                    row_line.eq(row_line + pitch),
                    rows.eq(rows - 1),
                ]
        with m.If(finished):
            m.d.sync += receiving.eq(0)
        with m.If(take):
            m.d.sync += [
                receiving.eq(1),
                line.eq(front.line),
                row_line.eq(front.line),
                pitch.eq(front.pitch),
                rows.eq(front.rows),
            ]
        with m.If(accept & (beat.payload.error != LineError.OK)):
            m.d.sync += [receiving.eq(0), failed.eq(1)]

        # Commands that ended well come before the one that failed.
        with m.If(done_count != 0):
            m.d.comb += self.done.valid.eq(1)
        with m.Elif(failed):
            bus = reader.fault == LineError.BUS
            m.d.comb += [
                self.done.valid.eq(1),
                status.eq(Mux(bus, Status.BUS_ERROR, Status.ADDRESS_FAULT)),
                address[exact_log2(LINE_BYTES) :].eq(reader.fault_line),
            ]
            with m.If(self.done.ready):
                m.d.sync += failed.eq(0)
        m.d.comb += Cat(self.done.payload.status, self.done.payload.address).eq(
            Cat(status, address)
        )
        taken_ok = (done_count != 0) & self.done.ready
        m.d.sync += done_count.eq(done_count + finished - taken_ok)
        with m.If(self.stop):
            m.d.sync += [receiving.eq(0), failed.eq(0), done_count.eq(0)]
        return m
