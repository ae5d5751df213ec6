"""HBM: the device memory behind the crossbar."""

from amaranth import Assert, ClockSignal, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from abi.address import LINE_BYTES
from rtl.memory.delay import Delay
from rtl.memory.port import LINE_BITS, LineError, ReadPort, WritePort

__all__ = ["Hbm"]


class Hbm(wiring.Component):
    """Device memory with one read port and one write port.

    The lines are an instance `hbm_array` of `glass_sram`, so every build needs `Sram.SOURCE`.

    Args:
        nbytes: capacity, a multiple of 64.
        latency: cycles from taking a request to its response, at least 2.

    Members:
        read: In; `ReadPort` with local lines (offset / 64), which must lie inside.
        write: In; `WritePort`, likewise.
        idle: 1 bit; no request is unanswered.

    Timing: fixed latency, 1 read and 1 write a cycle. A read that is requested after the response
    of a write sees it.

    Raises:
        ValueError: a parameter is out of range.
    """

    def __init__(self, *, nbytes: int, latency: int = 24) -> None:
        if nbytes < LINE_BYTES or nbytes % LINE_BYTES:
            raise ValueError(f"nbytes must be a positive multiple of 64, not {nbytes!r}")
        if latency < 2:
            raise ValueError(f"latency must be at least 2 cycles, not {latency!r}")
        self.nbytes = nbytes
        self.latency = latency
        super().__init__({"read": In(ReadPort()), "write": In(WritePort()), "idle": Out(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        lines = self.nbytes // LINE_BYTES
        address = max(1, ceil_log2(lines))
        # Two more than are in flight at full rate, so that the queue is never what limits it.
        most = self.latency + 2

        # The line's number waits in a queue and is looked up last, so no data is ever delayed.
        m.submodules.read_delay = read_delay = Delay(cycles=self.latency - 1, most=most)
        m.submodules.read_lines = read_lines = SyncFIFO(width=address, depth=most)
        request, response = self.read.request, self.read.response
        valid, fetch = Signal(), Signal()
        m.d.comb += [
            request.ready.eq(read_delay.room),
            read_delay.push.eq(request.valid & request.ready),
            read_lines.w_en.eq(read_delay.push),
            read_lines.w_data.eq(request.p.line),
            fetch.eq(read_delay.due & (~valid | response.ready)),
            read_delay.pop.eq(fetch),
            read_lines.r_en.eq(fetch),
            response.valid.eq(valid),
            response.p.error.eq(LineError.OK),
        ]
        with m.If(response.ready):
            m.d.sync += valid.eq(0)
        with m.If(fetch):
            m.d.sync += valid.eq(1)

        m.submodules.write_delay = write_delay = Delay(cycles=self.latency, most=most)
        store = Signal()
        m.d.comb += [
            self.write.request.ready.eq(write_delay.room),
            store.eq(self.write.request.valid & write_delay.room),
            write_delay.push.eq(store),
            self.write.response.valid.eq(write_delay.due),
            self.write.response.p.error.eq(LineError.OK),
            write_delay.pop.eq(write_delay.due & self.write.response.ready),
            self.idle.eq(read_delay.empty & ~valid & write_delay.empty),
        ]

        m.submodules.hbm_array = Instance(
            "glass_sram",
            p_WIDTH=LINE_BITS,
            p_DEPTH=lines,
            p_GRANULE=8,
            i_clk=ClockSignal(),
            i_rd_en=fetch,
            i_rd_addr=read_lines.r_data,
            o_rd_data=response.p.data,
            i_wr_en=store,
            i_wr_addr=self.write.request.p.line[:address],
            i_wr_data=self.write.request.p.data,
            i_wr_mask=self.write.request.p.strobe,
        )
        # The crossbar's guards let nothing else through.
        with m.If(request.valid):
            m.d.sync += Assert(request.p.line < lines, "read outside HBM")
        with m.If(self.write.request.valid):
            m.d.sync += Assert(self.write.request.p.line < lines, "write outside HBM")
        return m
