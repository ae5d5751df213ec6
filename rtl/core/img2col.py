"""Lays out the windows of an image in L1 as rows of a matrix."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from abi.core import IMG2COL_COMMAND
from rtl.memory.port import LINE_BITS

__all__ = ["Img2Col"]

SEGMENT_BITS = 24
"""Width of the bytes of one row of a window: 255 pixels of 65535 bytes."""

LEFT_BITS = 38
"""Width of the first byte of a window in its image rows, signed."""

_WINDOW = data.StructLayout(
    {
        # First byte inside the image, in its image row.
        "start": 32,
        # Bytes of a row of the window left of the image, inside it and right of it.
        "before": SEGMENT_BITS,
        "inside": SEGMENT_BITS,
        "behind": SEGMENT_BITS,
        # The image row of the window's first, and its line in L1.
        "top": signed(23),
        "line": 16,
        # The window touches the image's columns.
        "touches": 1,
    }
)


class Img2Col(wiring.Component):
    """Executes IMG2COL commands.

    A row of a window is a segment: zeros, bytes of an image row, zeros. Each cycle takes up to 64
    zeros, or what one line of L1 has of the segment, and appends them to the bytes that wait for
    their line of the destination to be full.

    ```
    window ─► steps ─► L1 line ─► cut out ─► shift behind the bytes that wait ─► write
    ```

    Members:
        command: an IMG2COL command, stable from `start` until `busy` is 0.
        start: 1 bit; begin.
        read, read_line, read_data: read port of L1 (latency 1; the data stays until the next).
        write, write_line, write_data: what to write; granted: 1 bit; it happens in this cycle.
        finished: 1 bit; the last line is written in this cycle.
        busy: 1 bit; it works at a command.
        stop: 1 bit; forget the command; held until `busy` is 0.

    Timing: for each row of a window, one cycle for each line of L1 that it touches and for each
    64 zeros on either side; one more where the last of these fills a line and does not end in it.
    First write 8 cycles after `start` at the earliest.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(IMG2COL_COMMAND),
                "read_data": In(LINE_BITS),
                "write_data": Out(LINE_BITS),
                "start": In(1),
                "read": Out(1),
                "read_line": Out(16),
                "write": Out(1),
                "write_line": Out(16),
                "granted": In(1),
                "finished": Out(1),
                "busy": Out(1),
                "stop": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        c = self.command

        # Products, and the windows: `following` is the one after the present one.
        segment = Signal(SEGMENT_BITS, reset_less=True)
        width_bytes = Signal(32, reset_less=True)
        step_bytes = Signal(20, reset_less=True)
        pad_bytes = Signal(SEGMENT_BITS, reset_less=True)
        stride_lines = Signal(16, reset_less=True)
        left = Signal(signed(LEFT_BITS), reset_less=True)
        top = Signal(signed(23), reset_less=True)
        top_line = Signal(16, reset_less=True)
        columns_left = Signal(16, reset_less=True)
        following = Signal(_WINDOW, reset_less=True)
        window = Signal(_WINDOW, reset_less=True)
        next_window = Signal()
        with m.If(next_window):
            end = Signal(signed(LEFT_BITS))
            start = Signal(32)
            inside = (end - start)[:SEGMENT_BITS]
            before = Mux(left < 0, -left, 0)[:SEGMENT_BITS]
            m.d.comb += [
                end.eq(Mux(left + segment < width_bytes, left + segment, width_bytes)),
                start.eq(Mux(left < 0, 0, left)),
            ]
            m.d.sync += [
                following.start.eq(start),
                following.before.eq(before),
                following.inside.eq(inside),
                following.behind.eq(segment - before - inside),
                following.top.eq(top),
                following.line.eq(top_line),
                following.touches.eq((end > start) & (left < width_bytes)),
                left.eq(left + step_bytes),
                columns_left.eq(columns_left - 1),
            ]
            with m.If(columns_left == 1):
                m.d.sync += [
                    left.eq(-pad_bytes),
                    top.eq(top + c.stride_height),
                    top_line.eq(top_line + stride_lines),
                    columns_left.eq(c.out_width),
                ]

        # The present segment: zeros before it, bytes of the image, zeros behind it.
        y = Signal(signed(23), reset_less=True)
        row_line = Signal(16, reset_less=True)
        kernel_rows_left = Signal(8, reset_less=True)
        windows_left = Signal(16, reset_less=True)
        in_before, in_image = Signal(reset_less=True), Signal(reset_less=True)
        left_over = Signal(SEGMENT_BITS, reset_less=True)
        image_line = Signal(16, reset_less=True)
        image_byte = Signal(6, reset_less=True)

        def begin(of: data.View, row: Value, line: Value) -> None:
            has_image = of.touches & (row >= 0) & (row < c.height)
            before = has_image & (of.before != 0)
            rest = Mux(before, of.before, of.inside)
            m.d.sync += [
                y.eq(row),
                row_line.eq(line),
                in_before.eq(before),
                in_image.eq(has_image & ~before),
                left_over.eq(Mux(has_image, rest, segment)),
                image_line.eq(line + of.start[6:]),
                image_byte.eq(of.start[:6]),
            ]

        # A step: how many bytes it takes, and where they go in their line.
        running, flushing, flushing_last = Signal(), Signal(), Signal()
        advance, step = Signal(), Signal()
        place = Signal(6, reset_less=True)
        room = Signal(7)
        count = Signal(7)
        ends_part, ends_segment, ends_row = Signal(), Signal(), Signal()
        total = Signal(8)
        emits, flush_next = Signal(), Signal()
        m.d.comb += [
            step.eq(running & advance & ~flushing),
            room.eq(Mux(in_image, LINE_BYTES - image_byte, LINE_BYTES)),
            ends_part.eq(left_over <= room),
            count.eq(Mux(flushing, 0, Mux(ends_part, left_over, room))),
            ends_segment.eq(
                ends_part & ~in_before & (~in_image | (window.behind == 0)),
            ),
            ends_row.eq(ends_segment & (kernel_rows_left == 1)),
            total.eq(place + count),
            flush_next.eq(ends_row & (total > LINE_BYTES) & ~flushing),
            emits.eq(flushing | ends_row | (total >= LINE_BYTES)),
            self.read.eq(step & in_image),
            self.read_line.eq(image_line),
        ]
        with m.If(step):
            m.d.sync += [
                left_over.eq(left_over - room),
                image_line.eq(image_line + 1),
                image_byte.eq(0),
            ]
            with m.If(ends_row):
                begin(following, following.top, following.line)
                m.d.sync += [
                    window.eq(following),
                    kernel_rows_left.eq(c.kernel_height),
                    windows_left.eq(windows_left - 1),
                ]
            with m.Elif(ends_segment):
                begin(window, y + 1, (row_line + c.source_pitch)[:16])
                m.d.sync += kernel_rows_left.eq(kernel_rows_left - 1)
            with m.Elif(ends_part):
                m.d.sync += [
                    in_before.eq(0),
                    in_image.eq(in_before),
                    left_over.eq(Mux(in_before, window.inside, window.behind)),
                    # Nothing of the image row was read yet, if these were the zeros before it.
                    image_line.eq(image_line),
                    image_byte.eq(image_byte),
                ]
            with m.Elif(~in_image):
                m.d.sync += [image_line.eq(image_line), image_byte.eq(image_byte)]

        out_line, out_row = (Signal(16, reset_less=True) for _ in range(2))
        last = Signal()
        m.d.comb += last.eq(
            Mux(flushing, flushing_last, ends_row & ~flush_next & (windows_left == 1))
        )
        with m.If(running & advance):
            row_is_out = flushing | (ends_row & ~flush_next)
            m.d.sync += [
                place.eq(Mux(row_is_out, 0, total[:6])),
                flushing.eq(flush_next),
                flushing_last.eq(windows_left == 1),
            ]
            with m.If(emits):
                m.d.sync += out_line.eq(out_line + 1)
            with m.If(row_is_out):
                m.d.sync += [out_line.eq(out_row + c.pitch), out_row.eq(out_row + c.pitch)]
            with m.If(last):
                m.d.sync += running.eq(0)

        # Behind the read: cut out the bytes, then append them.
        stage = data.StructLayout(
            {"line": 16, "count": 7, "byte": 6, "place": 6, "image": 1, "emits": 1, "last": 1}
        )
        cutting, appending = (Signal(stage, name=name, reset_less=True) for name in ("cut", "app"))
        cut_valid, append_valid = Signal(), Signal()
        cut = Signal(LINE_BITS, reset_less=True)
        waiting = Signal(2 * LINE_BITS - 8, reset_less=True)
        emitted = Signal(reset_less=True)
        write_last = Signal(reset_less=True)
        ones = Const(2**LINE_BITS - 1, LINE_BITS)
        m.d.comb += advance.eq(~self.write | self.granted)
        with m.If(advance):
            m.d.sync += [
                cut_valid.eq(running),
                append_valid.eq(cut_valid),
                self.write.eq(append_valid & appending.emits),
            ]
            with m.If(running):
                m.d.sync += [
                    cutting.line.eq(out_line),
                    cutting.count.eq(count),
                    cutting.byte.eq(image_byte),
                    cutting.place.eq(place),
                    cutting.image.eq(in_image & ~flushing),
                    cutting.emits.eq(emits),
                    cutting.last.eq(last),
                ]
            with m.If(cut_valid):
                m.d.sync += appending.eq(cutting)
                with m.If(cutting.image):
                    kept = ones >> Cat(Const(0, 3), (LINE_BYTES - cutting.count)[:7])
                    m.d.sync += cut.eq((self.read_data >> Cat(Const(0, 3), cutting.byte)) & kept)
                with m.Else():
                    m.d.sync += cut.eq(0)
            with m.If(append_valid):
                before = Mux(emitted, waiting[LINE_BITS:], waiting)
                m.d.sync += [
                    waiting.eq(before | (cut << Cat(Const(0, 3), appending.place))),
                    emitted.eq(appending.emits),
                    self.write_line.eq(appending.line),
                    write_last.eq(appending.last),
                ]
        m.d.comb += [
            self.write_data.eq(waiting),
            self.finished.eq(self.write & self.granted & write_last),
        ]

        with m.FSM() as machine:
            with m.State("Idle"), m.If(self.start & ~self.stop):
                m.next = "Multiply"
            with m.State("Multiply"):
                m.d.sync += [
                    segment.eq(c.kernel_width * c.pixel_bytes),
                    width_bytes.eq(c.width * c.pixel_bytes),
                    step_bytes.eq(c.stride_width * c.pixel_bytes),
                    pad_bytes.eq(c.pad_left * c.pixel_bytes),
                    stride_lines.eq(c.stride_height * c.source_pitch),
                    top.eq(c.first_row * c.stride_height - c.pad_top),
                ]
                m.next = "Place the first window"
            with m.State("Place the first window"):
                m.d.sync += [
                    left.eq(c.first_column * step_bytes - pad_bytes),
                    top_line.eq(c.source + top[:16] * c.source_pitch),
                    columns_left.eq(c.out_width - c.first_column),
                ]
                m.next = "Cut the first window"
            with m.State("Cut the first window"):
                m.d.comb += next_window.eq(1)
                m.next = "Begin"
            with m.State("Begin"):
                begin(following, following.top, following.line)
                m.d.comb += next_window.eq(1)
                m.d.sync += [
                    window.eq(following),
                    kernel_rows_left.eq(c.kernel_height),
                    windows_left.eq(c.rows),
                    out_line.eq(c.line),
                    out_row.eq(c.line),
                    place.eq(0),
                    waiting.eq(0),
                    emitted.eq(0),
                    running.eq(1),
                    flushing.eq(0),
                ]
                m.next = "Take steps"
            with m.State("Take steps"):
                m.d.comb += next_window.eq(step & ends_row)
                with m.If(self.finished | self.stop):
                    m.next = "Idle"
        m.d.comb += self.busy.eq(~machine.ongoing("Idle"))
        with m.If(self.stop):
            m.d.sync += [
                running.eq(0),
                cut_valid.eq(0),
                append_valid.eq(0),
                self.write.eq(0),
            ]
        return m
