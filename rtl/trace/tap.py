"""Where a unit hands its trace events over."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from abi.trace import TRACE_EVENT

__all__ = ["TraceTap"]


class TraceTap(wiring.Component):
    """Holds one event until it is taken; an event that finds it full is dropped.

    Members:
        event: TRACE_EVENT, in.
        strobe: in, 1 cycle; `event` happened.
        trace: stream of TRACE_EVENT, out.
        dropped: out, 1 cycle; an event was dropped.
        idle: holds no event; a function of registers.

    Timing: an event leaves in the cycle after its strobe; one event a cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "event": In(TRACE_EVENT),
                "strobe": In(1),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        trace = self.trace
        m.d.comb += self.idle.eq(~trace.valid & ~self.dropped)
        m.d.sync += self.dropped.eq(self.strobe & trace.valid & ~trace.ready)
        with m.If(trace.ready):
            m.d.sync += trace.valid.eq(0)
        with m.If(self.strobe & (trace.ready | ~trace.valid)):
            m.d.sync += [trace.valid.eq(1), trace.payload.eq(self.event)]
        return m
