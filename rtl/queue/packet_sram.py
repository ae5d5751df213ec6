"""Packet SRAM: the device's own copy of packets, which firmware checks and uses."""

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES, SRAM_SLOTS_PER_QUEUE
from abi.geometry import QUEUES
from rtl.host.register_bus import RegisterPort
from rtl.memory.port import LINE_BITS
from rtl.memory.sram import Sram

__all__ = ["PACKET_SLOTS", "PacketSram"]

PACKET_SLOTS = QUEUES * SRAM_SLOTS_PER_QUEUE
"""Packets that the memory holds."""

WORDS_PER_LINE = LINE_BYTES // 8


class PacketSram(wiring.Component):
    """A line-wide memory that the fetcher writes and the firmware reads in 8-byte words.

    Reset leaves its contents, which nobody reads before a packet was fetched. Builds need
    `Sram.SOURCE`.

    Members:
        bus: RegisterPort, target; offsets in packet SRAM; a write is an error.
        write: in; store `data` in `slot`.
        slot: in; queue * SRAM_SLOTS_PER_QUEUE + slot of the queue.
        data: LINE_BITS in.
        idle: no access on its way; a function of registers.

    Timing: response in the cycle after the request; one line written a cycle. A read in the cycle
    of a write to its line gives the old line.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(RegisterPort),
                "write": In(1),
                "slot": In(range(PACKET_SLOTS)),
                "data": In(LINE_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        request, response = self.bus.request, self.bus.response
        m.submodules.memory = memory = Sram(width=LINE_BITS, depth=PACKET_SLOTS, granule=LINE_BITS)
        accept = Signal()
        outside = Signal()
        word = Signal(range(WORDS_PER_LINE))
        refused = Signal()
        line = request.payload.address[6:]
        m.d.comb += [
            request.ready.eq(~response.valid),
            accept.eq(request.valid & ~response.valid),
            outside.eq(line >= PACKET_SLOTS),
            memory.rd_en.eq(accept),
            memory.rd_addr.eq(line),
            memory.wr_en.eq(self.write),
            memory.wr_addr.eq(self.slot),
            memory.wr_data.eq(self.data),
            memory.wr_mask.eq(1),
            response.payload.error.eq(refused),
            self.idle.eq(~response.valid),
        ]
        shown = Signal(64)
        words = Array(memory.rd_data.word_select(i, 64) for i in range(WORDS_PER_LINE))
        m.d.comb += [shown.eq(words[word]), response.payload.data.eq(Mux(refused, 0, shown))]
        with m.If(accept):
            m.d.sync += [
                response.valid.eq(1),
                refused.eq(request.payload.write | outside),
                word.eq(request.payload.address[3:6]),
            ]
        with m.Elif(response.ready):
            m.d.sync += response.valid.eq(0)
        return m
