"""The MTE1 pipe: MOVE, lines of L1 into L0A, L0B, L0C or the bias buffer."""

from amaranth import Array, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.core import MOVE_COMMAND, MoveTarget
from abi.status import Status
from rtl.core.pipe import DONE, last_line
from rtl.memory.port import LINE_BITS

__all__ = ["Mte1"]


class Mte1(wiring.Component):
    """Executes MOVE commands in order.

    The front takes and checks the next command while the present one is moved.

    Args:
        l1_lines: size of L1.
        target_lines: size of each target buffer.

    Members:
        command: stream of MOVE commands, already checked by the sequencer.
        done: stream of `DONE`, one per command in order. OK comes when the last line is written.
        stop: 1 bit; forget all commands.
        read, read_line, read_data: read port of L1 (latency 1; the data stays until the next).
        write: 4 bits, one per `MoveTarget`; write_line, write_data: what to write, whole lines.
        granted: 1 bit; `write` happens in this cycle.
        working: 1 bit; a line is written.
        idle: 1 bit; no command is held.

    Timing: one line a cycle across rows and commands, unless L0C refuses. First write 4 cycles
    after the command.

    Errors: BUFFER_OVERFLOW, before any access.
    """

    def __init__(self, *, l1_lines: int, target_lines: dict[MoveTarget, int]) -> None:
        if set(target_lines) != set(MoveTarget):
            raise ValueError(f"target_lines must have all targets, not {target_lines!r}")
        self._l1_lines = l1_lines
        self._target_lines = target_lines
        super().__init__(
            {
                "command": In(stream.Signature(MOVE_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "read_data": In(LINE_BITS),
                "write_data": Out(LINE_BITS),
                "read": Out(1),
                "read_line": Out(exact_log2(l1_lines)),
                "write": Out(len(MoveTarget)),
                "write_line": Out(16),
                "granted": In(1),
                "working": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        front = Signal(MOVE_COMMAND, reset_less=True)
        overflow = Signal()
        limits = Array(Const(self._target_lines[target], 17) for target in MoveTarget)
        source_end = last_line(front.source, front.rows, front.source_pitch, front.row_lines)
        target_end = last_line(front.line, front.rows, front.pitch, front.row_lines)
        m.d.comb += overflow.eq(
            (source_end >= self._l1_lines) | (target_end >= limits[front.target[:2]])
        )

        moving = Signal()
        reading = Signal()
        written = Signal()
        last_read = Signal()
        done_count = Signal(2)
        offered, take = Signal(), Signal()
        m.d.comb += take.eq(offered & (~moving | last_read))
        quiet = ~moving & ~reading & (done_count == 0)
        with m.FSM(name="front_state"):
            with m.State("Empty"):
                m.d.comb += [self.command.ready.eq(1), self.idle.eq(quiet)]
                with m.If(self.command.valid):
                    m.d.sync += front.eq(self.command.payload)
                    m.next = "Check the bounds"
            with m.State("Check the bounds"):
                m.next = "Hand over"
                with m.If(overflow):
                    m.next = "Report a fault"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Hand over"):
                m.d.comb += offered.eq(1)
                with m.If(take | self.stop):
                    m.next = "Empty"
            with m.State("Report a fault"):
                with m.If(quiet):
                    m.d.comb += [
                        self.done.valid.eq(1),
                        self.done.payload.status.eq(Status.BUFFER_OVERFLOW),
                    ]
                with m.If(self.done.valid & self.done.ready | self.stop):
                    m.next = "Empty"

        source, source_row, source_pitch = (Signal(16, reset_less=True) for _ in range(3))
        line, line_row, line_pitch = (Signal(16, reset_less=True) for _ in range(3))
        row_lines, lines_left, rows_left = (Signal(16, reset_less=True) for _ in range(3))
        target = Signal(2, reset_less=True)
        step = Signal()
        row_end = lines_left == 1
        m.d.comb += [
            step.eq(moving & (~reading | written)),
            last_read.eq(step & row_end & (rows_left == 1)),
            self.read.eq(step),
            self.read_line.eq(source),
        ]
        with m.If(step):
            m.d.sync += [
                source.eq(source + 1),
                line.eq(line + 1),
                lines_left.eq(lines_left - 1),
            ]
            with m.If(row_end):
                m.d.sync += [
                    source.eq(source_row + source_pitch),
                    source_row.eq(source_row + source_pitch),
                    line.eq(line_row + line_pitch),
                    line_row.eq(line_row + line_pitch),
                    lines_left.eq(row_lines),
                    rows_left.eq(rows_left - 1),
                ]
        with m.If(last_read):
            m.d.sync += moving.eq(0)
        with m.If(take):
            m.d.sync += [
                moving.eq(1),
                source.eq(front.source),
                source_row.eq(front.source),
                source_pitch.eq(front.source_pitch),
                line.eq(front.line),
                line_row.eq(front.line),
                line_pitch.eq(front.pitch),
                row_lines.eq(front.row_lines),
                lines_left.eq(front.row_lines),
                rows_left.eq(front.rows),
                target.eq(front.target),
            ]

        # The line that was read in the cycle before, or that the target has not taken yet.
        to_line = Signal(16, reset_less=True)
        to_target = Signal(2, reset_less=True)
        to_last = Signal(reset_less=True)
        with m.If(step):
            m.d.sync += [
                reading.eq(1),
                to_line.eq(line),
                to_target.eq(target),
                to_last.eq(row_end & (rows_left == 1)),
            ]
        with m.Elif(written):
            m.d.sync += reading.eq(0)
        m.d.comb += [
            self.write.eq(Mux(reading, 1 << to_target, 0)),
            self.write_line.eq(to_line),
            self.write_data.eq(self.read_data),
            written.eq(reading & self.granted),
            self.working.eq(written),
        ]

        with m.If(done_count != 0):
            m.d.comb += self.done.valid.eq(1)
        m.d.comb += self.done.payload.address.eq(0)
        taken_ok = (done_count != 0) & self.done.ready
        m.d.sync += done_count.eq(done_count + (written & to_last) - taken_ok)
        with m.If(self.stop):
            m.d.sync += [moving.eq(0), reading.eq(0), done_count.eq(0)]
        return m
