"""Arbiter: strict priority between classes, round robin within a class."""

from collections.abc import Sequence

from amaranth import Module, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Arbiter"]


class Arbiter(wiring.Component):
    """Picks one of n requests, combinationally.

    Args:
        classes: the class of each request; a lower class always goes first.

    Members:
        requests: n bits; who asks.
        grant: n bits; at most one bit, 0 only if nobody asks.
        advance: 1 bit; the grant was used: its owner now comes last within its class.

    Timing: combinational. Within a class a request is granted after at most as many uses of the
    class as it has other members.

    Source: the masked lowest-bit round robin (`x & -x` of the requests above the last grant, else
    of all), a standard construction.

    Raises:
        ValueError: no class is given, or a class is negative.
    """

    def __init__(self, *, classes: Sequence[int]) -> None:
        if not classes:
            raise ValueError(f"classes must name at least one request, not {classes!r}")
        if min(classes) < 0:
            raise ValueError(f"classes must be at least 0, not {min(classes)!r}")
        self.classes = tuple(classes)
        width = len(self.classes)
        super().__init__({"requests": In(width), "grant": Out(width), "advance": In(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        width = len(self.classes)

        def lowest(value: Value) -> Value:
            return (value & -value)[:width]

        served = Signal()
        for order in sorted(set(self.classes)):
            mine = Signal(width, name=f"requests_{order}")
            above = Signal(width, name=f"above_{order}")
            pick = Signal(width, name=f"pick_{order}")
            members = sum(1 << i for i, own in enumerate(self.classes) if own == order)
            m.d.comb += mine.eq(self.requests & members)
            later = mine & above
            with m.If(later.any()):
                m.d.comb += pick.eq(lowest(later))
            with m.Else():
                m.d.comb += pick.eq(lowest(mine))
            taken, served = served, Signal(name=f"served_{order}")
            m.d.comb += served.eq(taken | mine.any())
            with m.If(~taken & mine.any()):
                m.d.comb += self.grant.eq(pick)
                with m.If(self.advance):
                    m.d.sync += above.eq(~(pick | (pick - 1)))
        return m
