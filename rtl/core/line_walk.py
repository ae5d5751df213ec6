"""Walks over the lines of a command's rows in a buffer of the core."""

from amaranth import Module, Signal
from amaranth.hdl import Value

__all__ = ["LineWalk"]


class LineWalk:
    """The lines of rows of planes, one by one, in registers.

    Line l of row r of plane p is line + p * plane_pitch + r * pitch + l.

    Attributes:
        line: 16 bits; the present line.
        is_row_end: 1 bit; it is the last one of its row.
        is_last_row: 1 bit; no row follows.
        is_last: 1 bit; no line follows.
    """

    def __init__(self, m: Module, name: str) -> None:
        def register(suffix: str) -> Signal:
            return Signal(16, name=f"{name}_{suffix}", reset_less=True)

        self._m = m
        self.line = register("line")
        self._row = register("row")
        self._plane = register("plane")
        self._pitch = register("pitch")
        self._plane_pitch = register("plane_pitch")
        self._lines, self._lines_left = register("lines"), register("lines_left")
        self._rows, self._rows_left = register("rows"), register("rows_left")
        self._planes_left = register("planes_left")
        self.is_row_end = Signal(name=f"{name}_is_row_end")
        self.is_last_row = Signal(name=f"{name}_is_last_row")
        self.is_last = Signal(name=f"{name}_is_last")
        m.d.comb += [
            self.is_row_end.eq(self._lines_left == 1),
            self.is_last_row.eq((self._rows_left == 1) & (self._planes_left == 1)),
            self.is_last.eq(self.is_row_end & self.is_last_row),
        ]

    def load(
        self,
        *,
        line: Value,
        lines: Value,
        rows: Value,
        pitch: Value,
        planes: Value | int = 1,
        plane_pitch: Value | int = 0,
    ) -> None:
        """Begin with the first line; to be called in the branch where a command is taken."""
        self._m.d.sync += [
            self.line.eq(line),
            self._row.eq(line),
            self._plane.eq(line),
            self._pitch.eq(pitch),
            self._plane_pitch.eq(plane_pitch),
            self._lines.eq(lines),
            self._lines_left.eq(lines),
            self._rows.eq(rows),
            self._rows_left.eq(rows),
            self._planes_left.eq(planes),
        ]

    def step(self) -> None:
        """Go on to the next line; to be called in the branch where the present one is done."""
        m = self._m
        next_row = (self._row + self._pitch)[:16]
        next_plane = (self._plane + self._plane_pitch)[:16]
        with m.If(~self.is_row_end):
            m.d.sync += [self.line.eq(self.line + 1), self._lines_left.eq(self._lines_left - 1)]
        with m.Elif(self._rows_left != 1):
            m.d.sync += [
                self.line.eq(next_row),
                self._row.eq(next_row),
                self._lines_left.eq(self._lines),
                self._rows_left.eq(self._rows_left - 1),
            ]
        with m.Else():
            m.d.sync += [
                self.line.eq(next_plane),
                self._row.eq(next_plane),
                self._plane.eq(next_plane),
                self._lines_left.eq(self._lines),
                self._rows_left.eq(self._rows),
                self._planes_left.eq(self._planes_left - 1),
            ]
