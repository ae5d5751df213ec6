"""The queue fetcher: packets from the rings into packet SRAM, and the published read indices."""

from amaranth import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from abi.address import SRAM_SLOTS_PER_QUEUE
from abi.geometry import QUEUES
from abi.registers_queue import (
    QUEUE_CONSUMED,
    QUEUE_DOORBELL,
    QUEUE_FETCHED,
    QUEUE_READ_INDEX_ADDRESS,
    QUEUE_RING,
)
from rtl.host.round_robin import RoundRobin
from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS, LineError, ReadPort, WritePort
from rtl.queue.fault import QUEUE_FAULT, line_fault
from rtl.queue.packet_sram import PACKET_SLOTS

__all__ = ["LINES_IN_FLIGHT", "Fetcher"]

LINES_IN_FLIGHT = 16
"""Packets, of all queues, that may be on their way."""

SLOT_BITS = SRAM_SLOTS_PER_QUEUE.bit_length() - 1


class Fetcher(wiring.Component):
    """Fetches the packets that were rung, while the queue's SRAM slots have room.

    Queues take turns, packet by packet; up to `LINES_IN_FLIGHT` reads are outstanding, responses
    come in the order of the requests. Behind the packet, the fetched index grows, and is then
    written to host memory; several steps of one queue may merge into one write, and each queue has
    at most one such write outstanding. The index is never ahead of what lies in SRAM.

    An error of either access makes the queue's fault; packets of a faulted queue that are still on
    their way are dropped and not counted. A queue that is disabled keeps what is on its way:
    `busy` falls when the packets are in SRAM and the index is published.

    Members:
        accepting: QUEUES bits in; enabled and not faulted.
        faulted: QUEUES bits in.
        clear: QUEUES bits in; the queue starts anew (only if it is not busy).
        ring, read_index_address, doorbell, consumed: QUEUES registers each, in.
        fetched: QUEUES x QUEUE_FETCHED, out.
        busy: QUEUES bits out; something of the queue is on its way.
        stored: out, 1 cycle; packet `stored_index` (64 bits) of `stored_queue` is being stored.
        slot, data: out; where and what, for `PacketSram`, with `stored`.
        fetch_fault, publish_fault: QUEUE_FAULT, out; valid for 1 cycle.
        read: ReadPort; packets. write: WritePort; read indices.
        idle: nothing is on its way; a function of registers.

    Timing: doorbell to read request 3 cycles; one request a cycle over all queues, one every 2
    cycles of one queue.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "accepting": In(QUEUES),
                "faulted": In(QUEUES),
                "clear": In(QUEUES),
                "ring": In(QUEUE_RING).array(QUEUES),
                "read_index_address": In(QUEUE_READ_INDEX_ADDRESS).array(QUEUES),
                "doorbell": In(QUEUE_DOORBELL).array(QUEUES),
                "consumed": In(QUEUE_CONSUMED).array(QUEUES),
                "fetched": Out(QUEUE_FETCHED).array(QUEUES),
                "busy": Out(QUEUES),
                "stored": Out(1),
                "stored_queue": Out(range(QUEUES)),
                "stored_index": Out(64),
                "slot": Out(range(PACKET_SLOTS)),
                "data": Out(LINE_BITS),
                "fetch_fault": Out(QUEUE_FAULT),
                "publish_fault": Out(QUEUE_FAULT),
                "read": Out(ReadPort()),
                "write": Out(WritePort()),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.fetches = fetches = SyncFIFO(
            width=len(self.stored_queue), depth=LINES_IN_FLIGHT
        )
        m.submodules.writes = writes = SyncFIFO(width=len(self.stored_queue), depth=QUEUES)
        dirty = Signal(QUEUES)
        publishing = Signal(QUEUES)
        waiting = Signal(QUEUES)
        m.d.comb += [
            self.busy.eq(waiting | dirty | publishing),
            self.idle.eq(~self.busy.any()),
        ]
        self._issue(m, fetches, waiting)
        self._store(m, fetches)
        self._publish(m, writes, dirty, publishing)
        return m

    def _packet_line(self, queue: Value, index: Value) -> Value:
        """Line of a packet; the ring lies inside the address space, so nothing is lost."""
        ring = Array(self.ring)[queue]
        mask = ((C(1, 17) << ring.depth_log2) - 1)[:16]
        return (ring.address[6:] + (index[:16] & mask))[:LINE_NUMBER_BITS]

    def _issue(self, m: Module, fetches: SyncFIFO, waiting: Signal) -> None:
        m.submodules.choose = choose = RoundRobin(width=QUEUES)
        request = self.read.request
        eligible = Signal(QUEUES)
        last = Signal(range(QUEUES))
        picked = Signal()
        picked_queue = Signal(range(QUEUES))
        picked_index = Signal(16, reset_less=True)
        issued = [Signal(64, name=f"issued_{queue}") for queue in range(QUEUES)]
        free = Signal()
        pick = Signal()
        just_picked = Mux(picked, C(1, QUEUES) << picked_queue, 0)
        m.d.comb += [
            # `eligible` is one cycle old: a queue picked in that cycle has to sit out.
            choose.requests.eq(eligible & self.accepting & ~just_picked),
            choose.last.eq(last),
            free.eq(~picked | ~request.valid | request.ready),
            pick.eq(choose.valid & free & fetches.w_rdy),
            fetches.w_en.eq(pick),
            fetches.w_data.eq(choose.choice),
        ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(free):
            m.d.sync += picked.eq(0)
            with m.If(picked):
                m.d.sync += [
                    request.valid.eq(1),
                    request.payload.line.eq(self._packet_line(picked_queue, picked_index)),
                ]
        with m.If(pick):
            m.d.sync += [
                picked.eq(1),
                picked_queue.eq(choose.choice),
                picked_index.eq(Array(issued)[choose.choice]),
                last.eq(choose.choice),
            ]
        for queue, index in enumerate(issued):
            ahead = (index - self.consumed[queue].index)[:64]
            started = Signal(name=f"started_{queue}")
            ended = Signal(name=f"ended_{queue}")
            outstanding = Signal(range(SRAM_SLOTS_PER_QUEUE + 1), name=f"outstanding_{queue}")
            m.d.comb += [
                waiting[queue].eq(outstanding != 0),
                started.eq(pick & (choose.choice == queue)),
                ended.eq(self.read.response.valid & (fetches.r_data == queue)),
            ]
            m.d.sync += [
                eligible[queue].eq(
                    ~self.clear[queue]
                    & (index != self.doorbell[queue].write_index)
                    & (ahead[SLOT_BITS:] == 0)
                ),
                outstanding.eq(outstanding + started - ended),
            ]
            with m.If(self.clear[queue]):
                m.d.sync += index.eq(0)
            with m.Elif(started):
                m.d.sync += index.eq(index + 1)

    def _store(self, m: Module, fetches: SyncFIFO) -> None:
        response = self.read.response
        queue, index = self.stored_queue, self.stored_index
        healthy = ~self.faulted.bit_select(queue, 1)
        good = response.payload.error == LineError.OK
        m.d.comb += [
            response.ready.eq(1),
            fetches.r_en.eq(response.valid),
            queue.eq(fetches.r_data),
            index.eq(Array(fetched.index for fetched in self.fetched)[queue]),
            self.stored.eq(response.valid & healthy & good),
            self.slot.eq(Cat(index[:SLOT_BITS], queue)),
            self.data.eq(response.payload.data),
            self.fetch_fault.eq(
                line_fault(
                    valid=response.valid & healthy & ~good,
                    queue=queue,
                    error=response.payload.error,
                    line=self._packet_line(queue, index),
                )
            ),
        ]
        for number, fetched in enumerate(self.fetched):
            with m.If(self.clear[number]):
                m.d.sync += fetched.index.eq(0)
            with m.Elif(self.stored & (queue == number)):
                m.d.sync += fetched.index.eq(fetched.index + 1)

    def _publish(self, m: Module, writes: SyncFIFO, dirty: Signal, publishing: Signal) -> None:
        m.submodules.choose_publish = choose = RoundRobin(width=QUEUES)
        request, response = self.write.request, self.write.response
        last = Signal(range(QUEUES))
        start = Signal()
        ended = writes.r_data
        value = Signal(64, reset_less=True)
        line = Signal(LINE_NUMBER_BITS, reset_less=True)
        m.d.comb += [
            choose.requests.eq(dirty & ~publishing),
            choose.last.eq(last),
            start.eq(choose.valid & ~request.valid),
            writes.w_en.eq(start),
            writes.w_data.eq(choose.choice),
            request.payload.data.eq(value),
            request.payload.line.eq(line),
            request.payload.strobe.eq(0xFF),
            response.ready.eq(1),
            writes.r_en.eq(response.valid),
            self.publish_fault.eq(
                line_fault(
                    valid=response.valid & (response.payload.error != LineError.OK),
                    queue=ended,
                    error=response.payload.error,
                    line=Array(self.read_index_address)[ended].address[6:],
                )
            ),
        ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(start):
            m.d.sync += [
                request.valid.eq(1),
                line.eq(Array(self.read_index_address)[choose.choice].address[6:]),
                value.eq(Array(fetched.index for fetched in self.fetched)[choose.choice]),
                last.eq(choose.choice),
            ]
        for queue in range(QUEUES):
            with m.If(start & (choose.choice == queue)):
                m.d.sync += [dirty[queue].eq(0), publishing[queue].eq(1)]
            with m.If(self.stored & (self.stored_queue == queue)):
                m.d.sync += dirty[queue].eq(1)
            with m.If(response.valid & (ended == queue)):
                m.d.sync += publishing[queue].eq(0)
