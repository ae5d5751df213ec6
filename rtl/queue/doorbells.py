"""The doorbell pages of BAR2: who may ring, how far, and what became of a wrong ring."""

from amaranth import Array, C, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.doorbell import DOORBELL_PAGE
from abi.geometry import QUEUES
from abi.registers_queue import QUEUE_DOORBELL, QUEUE_FETCHED, QUEUE_RING
from rtl.host.register_bus import REGISTER_REQUEST, RegisterPort

__all__ = ["Doorbells"]

PAGE_BITS = DOORBELL_PAGE.nbytes.bit_length() - 1


class Doorbells(wiring.Component):
    """Checks doorbell writes and keeps the last write index of each queue.

    A 64-bit write with all strobes to offset 0 of page q rings queue q, if that accepts doorbells,
    else it is refused: answered with an error, and counted. Everything else in BAR2 is answered
    with an error. A ring below the last one, or more than the ring's depth past the fetched index,
    is a violation: the write is answered without error, the index is not kept, and `violation`
    says which queue it was.

    Members:
        bus: RegisterPort, target; offsets in BAR2.
        accepting: QUEUES bits in; queue is enabled and not faulted.
        ring: QUEUES x QUEUE_RING, in; for the depth.
        fetched: QUEUES x QUEUE_FETCHED, in; read index.
        clear: QUEUES bits in; sets the queue's index to 0.
        doorbell: QUEUES x QUEUE_DOORBELL, out.
        rung: out, 1 cycle; `queue` accepted `index` (it is in `doorbell` one cycle later).
        violation: out, 1 cycle; `queue` was rung wrongly with `index`.
        queue, index: out; 64-bit write index.
        refused: 64 bits out; writes answered with an error, since reset.
        idle: no access on its way; a function of registers.

    Timing: a write accepted in cycle t is checked in t + 1 and answered in t + 2.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(RegisterPort),
                "accepting": In(QUEUES),
                "ring": In(QUEUE_RING).array(QUEUES),
                "fetched": In(QUEUE_FETCHED).array(QUEUES),
                "clear": In(QUEUES),
                "doorbell": Out(QUEUE_DOORBELL).array(QUEUES),
                "rung": Out(1),
                "violation": Out(1),
                "queue": Out(range(QUEUES)),
                "index": Out(64),
                "refused": Out(64),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        request, response = self.bus.request, self.bus.response
        access = Signal(REGISTER_REQUEST, reset_less=True)
        check = Signal()
        failed = Signal()
        is_doorbell = Signal()
        accepted = Signal()
        wrong = Signal()
        last = Signal(64)
        read = Signal(64)
        depth = Signal(64)
        page = access.address[PAGE_BITS:]
        depth_log2 = Array(ring.depth_log2 for ring in self.ring)[self.queue]
        m.d.comb += [
            request.ready.eq(~check & ~response.valid),
            self.idle.eq(~check & ~response.valid),
            response.payload.error.eq(failed),
            self.queue.eq(page),
            self.index.eq(access.data),
            last.eq(Array(latch.write_index for latch in self.doorbell)[self.queue]),
            read.eq(Array(fetched.index for fetched in self.fetched)[self.queue]),
            depth.eq(C(1, 32) << depth_log2),
            is_doorbell.eq(access.write & (access.address[3:PAGE_BITS] == 0) & (page < QUEUES)),
            accepted.eq(
                is_doorbell & access.strobe.all() & self.accepting.bit_select(self.queue, 1)
            ),
            wrong.eq((self.index < last) | ((self.index - read)[:64] > depth)),
            self.rung.eq(check & accepted & ~wrong),
            self.violation.eq(check & accepted & wrong),
        ]
        m.d.sync += check.eq(0)
        with m.If(request.valid & request.ready):
            m.d.sync += [access.eq(request.payload), check.eq(1)]
        with m.If(check):
            m.d.sync += [response.valid.eq(1), failed.eq(~accepted)]
            with m.If(is_doorbell & ~accepted):
                m.d.sync += self.refused.eq(self.refused + 1)
        with m.Elif(response.ready):
            m.d.sync += response.valid.eq(0)
        for queue, latch in enumerate(self.doorbell):
            with m.If(self.clear[queue]):
                m.d.sync += latch.write_index.eq(0)
            with m.Elif(self.rung & (self.queue == queue)):
                m.d.sync += latch.write_index.eq(self.index)
        return m
