"""The host link: lines of host memory over AXI4."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from abi.address import ADDRESS_BITS, LINE_BYTES
from rtl.memory.axi import Axi4, Burst
from rtl.memory.port import LineError, ReadPort, WritePort

__all__ = ["HOST_AXI", "IN_FLIGHT", "HostLink"]

BEAT_BITS = 256
BEAT_BYTES = BEAT_BITS // 8
OFFSET_BITS = LINE_BYTES.bit_length() - 1

HOST_AXI = Axi4(data_width=BEAT_BITS, address_width=ADDRESS_BITS, id_width=4)
"""The bus between the chip and host memory: 32 bytes a beat."""

WRITE_BEAT = data.StructLayout({"data": BEAT_BITS, "strobe": BEAT_BYTES, "last": 1})

IN_FLIGHT = 64
"""Reads, and as many writes, that may be unanswered on the bus."""


class HostLink(wiring.Component):
    """Turns each line into a burst of two beats on AXI4; a manager of one ID, 0.

    No burst crosses 4 KiB, since each covers one aligned line. A read and a write are not ordered,
    except that one which is requested after the other's response comes after it.

    Members:
        read, write: In; `ReadPort`, `WritePort`. `line` is the bus address / 64.
        host_axi: Out; `HOST_AXI`.
        bus_master: 1 bit; 0: requests are answered with `LineError.BUS`, once those
            that are on the bus are answered, and none reaches the bus.
        quiesce: 1 bit; no request is taken, nor answered with an error; a burst that was
            begun is finished.
        outstanding_none: 1 bit; nothing is on the bus, begun or unanswered.
        idle: 1 bit; `outstanding_none`, and no response waits.

    Timing: 1 cycle from a request to its address on the bus, 1 cycle from a line's last beat to its
    response. 32 bytes a cycle in each direction, so one line in 2 cycles, with up to 64 reads and
    64 writes unanswered. `rready` depends on the initiator's `response.ready` in the same cycle.

    Errors: SLVERR or DECERR on any beat gives `LineError.BUS` for the line.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "read": In(ReadPort()),
                "write": In(WritePort()),
                "host_axi": Out(HOST_AXI),
                "bus_master": In(1),
                "quiesce": In(1),
                "outstanding_none": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        reads, reads_refused = self._reads(m)
        writes, writes_refused = self._writes(m)
        none = (reads == 0) & (writes == 0)
        m.d.comb += [
            self.outstanding_none.eq(none),
            self.idle.eq(none & ~reads_refused & ~writes_refused),
        ]
        return m

    def _refusal(
        self, m: Module, name: str, port: wiring.PureInterface, unanswered: Value
    ) -> tuple[Signal, Signal]:
        """Answers requests while bus mastering is off. Returns: one is taken, one is unanswered."""
        take, refused = Signal(name=f"refuse_{name}"), Signal(name=f"{name}_refused")
        off = ~self.bus_master & ~self.quiesce & (unanswered == 0) & ~refused
        m.d.comb += take.eq(port.request.valid & off)
        with m.If(take):
            m.d.sync += refused.eq(1)
        with m.Elif(port.response.ready):
            m.d.sync += refused.eq(0)
        return take, refused

    def _reads(self, m: Module) -> tuple[Signal, Signal]:
        axi, port = self.host_axi, self.read
        unanswered = Signal(range(IN_FLIGHT + 1), name="reads")
        refuse, refused = self._refusal(m, "read", port, unanswered)
        valid = Signal(name="arvalid")
        line = Signal.like(port.request.p.line, name="arline", reset_less=True)
        go = Signal(name="start_read")
        m.d.comb += [
            go.eq(
                port.request.valid
                & (~valid | axi.arready)
                & (unanswered != IN_FLIGHT)
                & self.bus_master
                & ~self.quiesce
                & ~refused
            ),
            port.request.ready.eq(go | refuse),
            axi.arvalid.eq(valid),
            axi.araddr.eq(line << OFFSET_BITS),
            axi.arlen.eq(LINE_BYTES // BEAT_BYTES - 1),
            axi.arsize.eq(BEAT_BYTES.bit_length() - 1),
            axi.arburst.eq(Burst.INCR),
        ]
        with m.If(axi.arready):
            m.d.sync += valid.eq(0)
        with m.If(go):
            m.d.sync += [valid.eq(1), line.eq(port.request.p.line)]

        low = Signal(BEAT_BITS, name="read_low", reset_less=True)
        high = Signal(BEAT_BITS, name="read_high", reset_less=True)
        half, full = Signal(name="read_half"), Signal(name="read_full")
        low_failed, failed = Signal(name="read_low_failed"), Signal(name="read_failed")
        m.d.comb += [
            axi.rready.eq(~full | port.response.ready),
            port.response.valid.eq(full | refused),
            port.response.p.data.eq(Cat(low, high)),
            port.response.p.error.eq(Mux(refused | failed, LineError.BUS, LineError.OK)),
        ]
        with m.If(port.response.ready):
            m.d.sync += full.eq(0)
        with m.If(axi.rvalid & axi.rready):
            m.d.sync += half.eq(~half)
            with m.If(~half):
                m.d.sync += [low.eq(axi.rdata), low_failed.eq(axi.rresp[1])]
            with m.Else():
                m.d.sync += [high.eq(axi.rdata), failed.eq(low_failed | axi.rresp[1]), full.eq(1)]
        self._count(m, unanswered, go, full & port.response.ready)
        return unanswered, refused

    def _writes(self, m: Module) -> tuple[Signal, Signal]:
        axi, port = self.host_axi, self.write
        unanswered = Signal(range(IN_FLIGHT + 1), name="writes")
        refuse, refused = self._refusal(m, "write", port, unanswered)
        awvalid, second = Signal(), Signal(name="write_second")
        line = Signal.like(port.request.p.line, name="awline", reset_less=True)
        go, push = Signal(name="start_write"), Signal(name="push_beat")
        # A subordinate may want the address before it takes data: beats queue, so that addresses
        # run ahead. The line itself stays at the port until its second beat is in the queue.
        m.submodules.write_beats = beats = SyncFIFO(width=WRITE_BEAT.size, depth=4)
        first = data.View(WRITE_BEAT, beats.r_data)
        pushed = Signal(WRITE_BEAT, name="pushed_beat")
        m.d.comb += [
            go.eq(
                port.request.valid
                & ~second
                & beats.w_rdy
                & (~awvalid | axi.awready)
                & (unanswered != IN_FLIGHT)
                & self.bus_master
                & ~self.quiesce
                & ~refused
            ),
            push.eq(go | (second & beats.w_rdy)),
            pushed.data.eq(port.request.p.data.word_select(second, BEAT_BITS)),
            pushed.strobe.eq(port.request.p.strobe.word_select(second, BEAT_BYTES)),
            pushed.last.eq(second),
            beats.w_en.eq(push),
            beats.w_data.eq(pushed),
            port.request.ready.eq((second & beats.w_rdy) | refuse),
            axi.awvalid.eq(awvalid),
            axi.awaddr.eq(line << OFFSET_BITS),
            axi.awlen.eq(LINE_BYTES // BEAT_BYTES - 1),
            axi.awsize.eq(BEAT_BYTES.bit_length() - 1),
            axi.awburst.eq(Burst.INCR),
            axi.wvalid.eq(beats.r_rdy),
            axi.wdata.eq(first.data),
            axi.wstrb.eq(first.strobe),
            axi.wlast.eq(first.last),
            beats.r_en.eq(axi.wready),
        ]
        with m.If(axi.awready):
            m.d.sync += awvalid.eq(0)
        with m.If(go):
            m.d.sync += [awvalid.eq(1), line.eq(port.request.p.line)]
        with m.If(push):
            m.d.sync += second.eq(~second)

        full, failed = Signal(name="write_full"), Signal(name="write_failed")
        m.d.comb += [
            # One response in two cycles is all that the data channel can cause.
            axi.bready.eq(~full),
            port.response.valid.eq(full | refused),
            port.response.p.error.eq(Mux(refused | failed, LineError.BUS, LineError.OK)),
        ]
        with m.If(axi.bvalid & ~full):
            m.d.sync += [full.eq(1), failed.eq(axi.bresp[1])]
        with m.Elif(port.response.ready):
            m.d.sync += full.eq(0)
        self._count(m, unanswered, go, full & port.response.ready)
        return unanswered, refused

    @staticmethod
    def _count(m: Module, unanswered: Signal, asked: Value, answered: Value) -> None:
        with m.If(asked != answered):
            m.d.sync += unanswered.eq(Mux(asked, unanswered + 1, unanswered - 1))
