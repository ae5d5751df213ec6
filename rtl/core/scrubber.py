"""Overwrites the core's buffers with zeros."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

__all__ = ["Scrubber"]


class Scrubber(wiring.Component):
    """Counts through the lines of all buffers at once; the core writes zeros there.

    Args:
        lines: size of the largest buffer in lines, a power of two.

    Members:
        start: 1 bit; begins a scrub.
        others: 1 bit; something that scrubs itself is still busy, from the cycle after `start`.
        write: 1 bit; write zeros to `line` of each buffer that has it.
        busy: 1 bit; a scrub runs.
        finished: 1 bit for one cycle; a scrub has ended.

    Timing: `lines` cycles and 3.

    Raises:
        ValueError: `lines` is no power of two of at least 2.
    """

    def __init__(self, *, lines: int) -> None:
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"lines must be a power of two of at least 2, not {lines!r}")
        super().__init__(
            {
                "start": In(1),
                "others": In(1),
                "write": Out(1),
                "line": Out(exact_log2(lines)),
                "busy": Out(1),
                "finished": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.d.sync += self.finished.eq(0)
        with m.If(self.start & ~self.busy):
            m.d.sync += [self.busy.eq(1), self.write.eq(1), self.line.eq(0)]
        with m.Elif(self.write):
            m.d.sync += self.line.eq(self.line + 1)
            with m.If(self.line.all()):
                m.d.sync += self.write.eq(0)
        with m.Elif(self.busy & ~self.others):
            m.d.sync += [self.busy.eq(0), self.finished.eq(1)]
        return m
