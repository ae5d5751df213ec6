"""AXI4-Lite: the port's signature, and a slave that turns accesses into register requests."""

from enum import IntEnum

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from rtl.host.register_bus import RegisterPort

__all__ = ["AxiLitePort", "AxiLiteSlave", "AxiResponse"]


class AxiResponse(IntEnum):
    """BRESP and RRESP."""

    OKAY = 0
    SLVERR = 2


class AxiLitePort(Signature):
    """AXI4-Lite with 64-bit data, from the master's view; names as in the AXI specification.

    Raises:
        ValueError: `address_bits` is not between 4 and 28.
    """

    def __init__(self, *, address_bits: int) -> None:
        if not 4 <= address_bits <= 28:
            raise ValueError(f"address_bits must be between 4 and 28, not {address_bits!r}")
        self.address_bits = address_bits
        super().__init__(
            {
                "awaddr": Out(address_bits),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(64),
                "wstrb": Out(8),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_bits),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(64),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class AxiLiteSlave(wiring.Component):
    """64-bit AXI4-Lite to a register port, one access at a time.

    Address and data of a write may come in any order. One address or data item per channel is
    held while an access is on its way. If a read and a write wait, they take turns. Addresses are
    those of 8-byte words; the low 3 bits are ignored. An error is SLVERR, with read data 0.

    Members:
        axi: AxiLitePort, slave.
        bus: RegisterPort, initiator. Its response is always taken at once.
        idle: nothing is held or on its way; a function of registers.
        wake: a valid is at the inputs; the clock has to run.

    Timing: address in cycle t, request in t + 1, and the response leaves one cycle after the one
    on `bus`: with a `RegisterBank`, rvalid (bvalid) in t + 4. All outputs but `bus.request.payload`
    and its valid (a choice between two registers) come from registers.
    """

    def __init__(self, *, address_bits: int) -> None:
        super().__init__(
            {
                "axi": In(AxiLitePort(address_bits=address_bits)),
                "bus": Out(RegisterPort),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        axi, request, response = self.axi, self.bus.request, self.bus.response
        aw_held = Signal()
        w_held = Signal()
        ar_held = Signal()
        awaddr = Signal.like(axi.awaddr, reset_less=True)
        araddr = Signal.like(axi.araddr, reset_less=True)
        wdata = Signal(64, reset_less=True)
        wstrb = Signal(8, reset_less=True)
        outstanding = Signal()
        writing = Signal()
        last_wrote = Signal()
        locked = Signal()
        locked_write = Signal()
        write = Signal()
        answered = Signal()
        # A reset that reaches this domain late must not swallow an access that came before it.
        awake = Signal()
        m.d.sync += awake.eq(1)

        for held, valid, ready, pairs in (
            (aw_held, axi.awvalid, axi.awready, [(awaddr, axi.awaddr)]),
            (w_held, axi.wvalid, axi.wready, [(wdata, axi.wdata), (wstrb, axi.wstrb)]),
            (ar_held, axi.arvalid, axi.arready, [(araddr, axi.araddr)]),
        ):
            m.d.comb += ready.eq(awake & ~held)
            with m.If(valid & ready):
                m.d.sync += [held.eq(1), *(register.eq(value) for register, value in pairs)]

        # A request that waits keeps its kind, whatever else arrives.
        m.d.comb += [
            write.eq(Mux(locked, locked_write, aw_held & w_held & ~(ar_held & last_wrote))),
            request.valid.eq(
                (ar_held | (aw_held & w_held)) & ~outstanding & ~axi.bvalid & ~axi.rvalid
            ),
            request.payload.write.eq(write),
            request.payload.address.eq(Mux(write, awaddr[3:], araddr[3:]) << 3),
            # A write may arrive while a read waits, whose payload must not change.
            request.payload.data.eq(Mux(write, wdata, 0)),
            request.payload.strobe.eq(Mux(write, wstrb, 0)),
            response.ready.eq(outstanding),
            answered.eq(response.valid & outstanding),
            self.idle.eq(awake & ~Cat(aw_held, w_held, ar_held, axi.bvalid, axi.rvalid).any()),
            self.wake.eq(axi.awvalid | axi.wvalid | axi.arvalid),
        ]
        with m.If(request.valid):
            m.d.sync += [
                locked.eq(~request.ready),
                locked_write.eq(write),
                outstanding.eq(request.ready),
                writing.eq(write),
            ]
        with m.If(answered):
            resp = Mux(response.payload.error, AxiResponse.SLVERR, AxiResponse.OKAY)
            m.d.sync += [outstanding.eq(0), last_wrote.eq(writing)]
            with m.If(writing):
                m.d.sync += [axi.bvalid.eq(1), axi.bresp.eq(resp), aw_held.eq(0), w_held.eq(0)]
            with m.Else():
                m.d.sync += [
                    axi.rvalid.eq(1),
                    axi.rresp.eq(resp),
                    axi.rdata.eq(Mux(response.payload.error, 0, response.payload.data)),
                    ar_held.eq(0),
                ]
        with m.If(axi.bvalid & axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        with m.If(axi.rvalid & axi.rready):
            m.d.sync += axi.rvalid.eq(0)
        return m
