"""The MTE1 pipe: MOVE and IMG2COL, L1 into L0A, L0B, L0C or the bias buffer."""

from amaranth import Array, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.core import IMG2COL_COMMAND, MOVE_COMMAND, CommandOpcode, MoveTarget, Transpose
from abi.status import Status
from rtl.core.img2col import Img2Col
from rtl.core.pipe import DONE, ceil_lines, last_line
from rtl.core.transposer import Transposer
from rtl.memory.port import LINE_BITS

__all__ = ["Mte1"]


class Mte1(wiring.Component):
    """Executes MOVE and IMG2COL commands in order.

    The front takes and checks the next command while the present one is worked at.

    ```
          ┌─► lines as they are ─┐
    L1 ───┼─► Transposer ────────┼─► L0A, L0B, L0C, bias
          └─► Img2Col ───────────┘
    ```

    Args:
        l1_lines: size of L1.
        target_lines: size of each target buffer.

    Members:
        command: stream of MOVE commands, or of IMG2COL commands in their place, already checked
            by the scalar unit.
        done: stream of `DONE`, one per command in order. OK comes when the last line is written.
        stop: 1 bit; forget all commands.
        read, read_line, read_data: read port of L1 (latency 1; the data stays until the next).
        write: 4 bits, one per `MoveTarget`; write_line, write_data: what to write, whole lines.
        granted: 1 bit; `write` happens in this cycle.
        working: 1 bit; a line is written.
        idle: 1 bit; no command is held.

    Timing: without transposing, one line a cycle across rows and commands, unless the target
    refuses; first write 5 cycles after the command. Else see `Transposer` and `Img2Col`, which
    begin when the command before has ended.

    Errors: BUFFER_OVERFLOW, before any access; for IMG2COL, all rows of the image must lie in L1.
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
        window = data.View(IMG2COL_COMMAND, front.as_value())
        is_image = front.opcode == CommandOpcode.IMG2COL
        halves = front.transpose == Transpose.HALVES
        plain = Signal(reset_less=True)
        # What it reads and writes, as rows of lines.
        shape = data.StructLayout({"lines": 28, "rows": 22})
        source_shape, target_shape = (
            Signal(shape, name=name, reset_less=True) for name in ("source_shape", "target_shape")
        )
        no_source = Signal(reset_less=True)
        overflow = Signal()
        limits = Array(Const(self._target_lines[target], 17) for target in MoveTarget)
        ends = [
            last_line(line, size.rows, pitch, size.lines)
            for line, pitch, size in (
                (front.source, front.source_pitch, source_shape),
                (front.line, front.pitch, target_shape),
            )
        ]
        m.d.comb += overflow.eq(
            (~no_source & (ends[0] >= self._l1_lines)) | (ends[1] >= limits[front.target[:2]])
        )

        moving = Signal()
        reading = Signal()
        written = Signal()
        last_read = Signal()
        done_count = Signal(2)
        offered, take, take_other = Signal(), Signal(), Signal()
        started = Signal()
        m.submodules.transposer = transposer = Transposer()
        m.submodules.img2col = img2col = Img2Col()
        others: list[Transposer | Img2Col] = [transposer, img2col]
        other_busy = Signal()
        # One more command that ends must still fit the count.
        m.d.comb += [
            other_busy.eq(started | transposer.busy | img2col.busy),
            take.eq(offered & plain & (~moving | last_read) & ~other_busy & ~done_count[1]),
            take_other.eq(offered & ~plain & ~moving & ~reading & ~other_busy & ~done_count[1]),
        ]
        quiet = ~moving & ~reading & ~other_busy & (done_count == 0)
        with m.FSM(name="front_state"):
            with m.State("Empty"):
                m.d.comb += [self.command.ready.eq(1), self.idle.eq(quiet)]
                with m.If(self.command.valid):
                    m.d.sync += front.eq(self.command.payload)
                    m.next = "Measure"
            with m.State("Measure"):
                columns = front.row_lines << Mux(halves, 5, 6)
                column_bytes = front.rows << halves
                pixels = window.kernel_height * window.kernel_width
                m.d.sync += [
                    plain.eq(~is_image & (front.transpose == Transpose.NONE)),
                    no_source.eq(is_image & ((window.height == 0) | (window.width == 0))),
                    source_shape.rows.eq(Mux(is_image, window.height, front.rows)),
                    source_shape.lines.eq(front.row_lines),
                    target_shape.rows.eq(front.rows),
                    target_shape.lines.eq(front.row_lines),
                ]
                with m.If(is_image):
                    m.d.sync += [
                        source_shape.lines.eq(ceil_lines(window.width * window.pixel_bytes)),
                        target_shape.lines.eq(ceil_lines(pixels * window.pixel_bytes)),
                    ]
                with m.Elif(front.transpose != Transpose.NONE):
                    m.d.sync += [
                        target_shape.rows.eq(columns),
                        target_shape.lines.eq(ceil_lines(column_bytes)),
                    ]
                m.next = "Check the bounds"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Check the bounds"):
                m.next = "Hand over"
                with m.If(overflow):
                    m.next = "Report a fault"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Hand over"):
                m.d.comb += offered.eq(1)
                with m.If(take | take_other | self.stop):
                    m.next = "Empty"
            with m.State("Report a fault"):
                with m.If(quiet):
                    m.d.comb += [
                        self.done.valid.eq(1),
                        self.done.payload.status.eq(Status.BUFFER_OVERFLOW),
                    ]
                    with m.If(self.done.ready):
                        m.next = "Empty"
                with m.If(self.stop):
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
            self.read.eq(step | transposer.read | img2col.read),
            self.read_line.eq(
                Mux(
                    transposer.read,
                    transposer.read_line,
                    Mux(img2col.read, img2col.read_line, source),
                )
            ),
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

        # The command of the transposer or of IMG2COL.
        present = Signal(MOVE_COMMAND, reset_less=True)
        m.d.sync += started.eq(take_other & ~self.stop)
        with m.If(take_other):
            m.d.sync += present.eq(front)
        is_window = present.opcode == CommandOpcode.IMG2COL
        m.d.comb += [
            transposer.command.eq(present),
            img2col.command.eq(present.as_value()),
            transposer.start.eq(started & ~is_window),
            img2col.start.eq(started & is_window),
        ]
        for other in others:
            m.d.comb += [
                other.read_data.eq(self.read_data),
                other.granted.eq(self.granted),
                other.stop.eq(self.stop),
            ]
        m.d.comb += [
            self.write_line.eq(to_line),
            self.write_data.eq(self.read_data),
            self.write.eq(Mux(reading, 1 << to_target, 0)),
            written.eq(reading & self.granted),
        ]
        for other in others:
            with m.If(other.write):
                m.d.comb += [
                    self.write.eq(1 << present.target[:2]),
                    self.write_line.eq(other.write_line),
                    self.write_data.eq(other.write_data),
                ]
        other_finished = transposer.finished | img2col.finished
        m.d.comb += self.working.eq((self.write != 0) & self.granted)

        with m.If(done_count != 0):
            m.d.comb += self.done.valid.eq(1)
        m.d.comb += self.done.payload.address.eq(0)
        taken_ok = (done_count != 0) & self.done.ready
        m.d.sync += done_count.eq(done_count + ((written & to_last) | other_finished) - taken_ok)
        with m.If(self.stop):
            m.d.sync += [moving.eq(0), reading.eq(0), done_count.eq(0)]
        return m
