"""Merges the writers of the core into one port."""

from collections.abc import Sequence

from amaranth import Cat, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from rtl.memory.arbiter import Arbiter
from rtl.memory.port import WritePort

__all__ = ["StoreArbiter"]


class StoreArbiter(wiring.Component):
    """Sends the requests of several writers to one port, and each response to whom it belongs.

    Args:
        classes: priority class of each writer, see `Arbiter`.
        depth: requests that may be unanswered.

    Members:
        ports: `WritePort` of each writer.
        memory: `WritePort`.
        idle: 1 bit; no request is unanswered.

    Timing: one request a cycle; a request leaves in the cycle after it came, a response passes in
    the same cycle.

    Raises:
        ValueError: no writer is given, or `depth` is below 1.
    """

    def __init__(self, *, classes: Sequence[int], depth: int = 64) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self._arbiter = Arbiter(classes=classes)
        self._depth = depth
        self._count = len(classes)
        super().__init__(
            {
                "ports": In(WritePort()).array(self._count),
                "memory": Out(WritePort()),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = self._arbiter
        m.submodules.order = order = SyncFIFO(width=self._count, depth=self._depth)
        ports = [self.ports[i] for i in range(self._count)]
        request, response = self.memory.request, self.memory.response
        free = Signal()
        m.d.comb += [
            free.eq((~request.valid | request.ready) & order.w_rdy),
            arbiter.requests.eq(Cat(port.request.valid for port in ports)),
            arbiter.advance.eq(free & arbiter.requests.any()),
            order.w_en.eq(arbiter.advance),
            order.w_data.eq(arbiter.grant),
            order.r_en.eq(response.valid & response.ready),
            self.idle.eq(~order.r_rdy),
        ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        payload = Signal.like(Value.cast(request.payload), reset_less=True)
        m.d.comb += Value.cast(request.payload).eq(payload)
        for i, port in enumerate(ports):
            mine = order.r_rdy & order.r_data[i]
            m.d.comb += [
                port.request.ready.eq(free & arbiter.grant[i]),
                port.response.valid.eq(response.valid & mine),
                port.response.payload.eq(response.payload),
            ]
            with m.If(free & arbiter.grant[i]):
                m.d.sync += [request.valid.eq(1), payload.eq(Value.cast(port.request.payload))]
            with m.If(mine):
                m.d.comb += response.ready.eq(port.response.ready)
        return m
