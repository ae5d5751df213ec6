"""The trace collector: many sources, one event a cycle off the chip."""

from amaranth import Array, Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from abi.trace import TRACE_EVENT
from rtl.host.round_robin import RoundRobin

__all__ = ["TraceCollector"]


class TraceCollector(wiring.Component):
    """Takes every event at once, and drops and counts those that find their FIFO full.

    Each source has a FIFO of `depth` events; one event a cycle leaves, round robin. Nothing here
    can hold a source up, whether tracing is on or off; off, events are discarded uncounted.

    Args:
        sources: number of streams.
        depth: events that a source's FIFO holds.

    Members:
        events: sources x stream of TRACE_EVENT, in; always ready.
        dropped: sources bits, in; the source itself dropped an event in this cycle.
        enable: in; tracing is on.
        valid: out, 1 cycle an event; `payload`: TRACE_EVENT, out. There is no back-pressure.
        drops: 64 bits out; events lost while tracing was on, since reset.
        idle: no event is held; a function of registers.
        wake: an event or a drop is at the inputs; the clock has to run.

    Timing: an event leaves 2 cycles after it came, if no other source has one. FIFO order per
    source; between sources, events may overtake one another by at most sources * depth cycles.

    Raises:
        ValueError: a parameter is not positive.
    """

    def __init__(self, *, sources: int, depth: int = 4) -> None:
        if sources < 1:
            raise ValueError(f"sources must be at least 1, not {sources!r}")
        if depth < 1:
            raise ValueError(f"depth must be at least 1 event, not {depth!r}")
        self.sources = sources
        self.depth = depth
        super().__init__(
            {
                "events": In(stream.Signature(TRACE_EVENT)).array(sources),
                "dropped": In(sources),
                "enable": In(1),
                "valid": Out(1),
                "payload": Out(TRACE_EVENT),
                "drops": Out(64),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.choose = choose = RoundRobin(width=max(2, 1 << ceil_log2(self.sources)))
        last = Signal.like(choose.last)
        present = Signal(self.sources)
        lost = Signal(self.sources)
        arrives = Signal(self.sources)
        heads = []
        for number, events in enumerate(self.events):
            fifo = SyncFIFO(width=TRACE_EVENT.size, depth=self.depth)
            m.submodules[f"fifo_{number}"] = fifo
            m.d.comb += [
                events.ready.eq(1),
                arrives[number].eq(events.valid & self.enable),
                fifo.w_en.eq(arrives[number]),
                fifo.w_data.eq(events.payload),
                fifo.r_en.eq(choose.valid & (choose.choice == number)),
                present[number].eq(fifo.r_rdy),
                lost[number].eq(
                    (arrives[number] & ~fifo.w_rdy) | (self.dropped[number] & self.enable)
                ),
            ]
            heads.append(fifo.r_data)
        m.d.comb += [
            choose.requests.eq(present),
            choose.last.eq(last),
            self.idle.eq(~present.any() & ~self.valid),
            self.wake.eq(self.enable & Cat(arrives, self.dropped).any()),
        ]
        m.d.sync += self.valid.eq(choose.valid)
        with m.If(choose.valid):
            m.d.sync += [last.eq(choose.choice), self.payload.eq(Array(heads)[choose.choice])]
        with m.If(lost.any()):
            m.d.sync += self.drops.eq(self.drops + sum(lost))
        return m
