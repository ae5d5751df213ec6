"""The words of the mailbox: two small memories that host and firmware both reach."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from abi.address import MAILBOX_SLOTS, MESSAGE_BYTES
from rtl.host.register_bus import RegisterPort

__all__ = ["REQUEST_OFFSET", "RESPONSE_OFFSET", "WINDOW_BYTES", "Mailbox"]

WORDS = MAILBOX_SLOTS * MESSAGE_BYTES // 8
RING_BYTES = WORDS * 8

REQUEST_OFFSET = 0
"""Where the slots of the requests lie in the mailbox's window."""

RESPONSE_OFFSET = RING_BYTES
"""Where the slots of the responses lie in the mailbox's window."""

WINDOW_BYTES = 2 * RING_BYTES
"""Size of the mailbox's window, on either side."""


class _Side(wiring.Component):
    """One side's register port: writes one ring, reads both.

    The side's own ring is at `own_offset`; a write elsewhere is an error.
    """

    def __init__(self, *, own_is_response: bool) -> None:
        self.own_is_response = own_is_response
        super().__init__(
            {
                "bus": In(RegisterPort),
                "hold": In(1),
                "address": Out(range(WORDS)),
                "read": Out(1),
                "data": Out(64),
                "strobe": Out(8),
                "request_word": In(64),
                "response_word": In(64),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        request, response = self.bus.request, self.bus.response
        payload = request.payload
        accept = Signal()
        own = Signal()
        is_response = Signal()
        show = Signal()
        failed = Signal()
        show_response = Signal()
        word = payload.address[3:]
        m.d.comb += [
            request.ready.eq(~response.valid & ~self.hold),
            accept.eq(request.valid & request.ready),
            is_response.eq(word[len(self.address)]),
            own.eq(is_response == int(self.own_is_response)),
            self.address.eq(word),
            self.read.eq(accept & ~payload.write),
            self.data.eq(payload.data),
            self.strobe.eq(Mux(accept & payload.write & own, payload.strobe, 0)),
            response.payload.data.eq(
                Mux(show, Mux(show_response, self.response_word, self.request_word), 0)
            ),
            response.payload.error.eq(failed),
            self.idle.eq(~response.valid),
        ]
        with m.If(accept):
            m.d.sync += [
                response.valid.eq(1),
                failed.eq(payload.write & ~own),
                show.eq(~payload.write),
                show_response.eq(is_response),
            ]
        with m.Elif(response.ready):
            m.d.sync += response.valid.eq(0)
        return m


class Mailbox(wiring.Component):
    """The message slots of both rings; the ring indices are in the register banks.

    Each side sees a window of 2 x 64 words: requests, then responses. The host writes requests,
    the firmware writes responses, both read all; a write into the other side's ring is an error.
    Both sides may access at the same time; of a word that is written at that moment, a read gives
    the old or the new value. After reset, all words are zero.

    Members:
        host, firmware: RegisterPort, target; addresses relative to the window.
        idle: no access on its way, not clearing; a function of registers.
        wake: a request is at the inputs; the clock has to run.

    Timing: response in the cycle after the request; no request is taken in the first 64 cycles
    after reset, in which the words are cleared.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "host": In(RegisterPort),
                "firmware": In(RegisterPort),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.host_side = host = _Side(own_is_response=False)
        m.submodules.firmware_side = firmware = _Side(own_is_response=True)
        clearing = Signal(init=1)
        line = Signal(range(WORDS))
        with m.If(clearing):
            m.d.sync += line.eq(line + 1)
            with m.If(line == WORDS - 1):
                m.d.sync += clearing.eq(0)
        for side, bus in ((host, self.host), (firmware, self.firmware)):
            wiring.connect(m, wiring.flipped(bus), side.bus)
            m.d.comb += side.hold.eq(clearing)
        for name, owner in (("request", host), ("response", firmware)):
            memory = Memory(shape=64, depth=WORDS, init=[])
            m.submodules[f"{name}_words"] = memory
            write = memory.write_port(granularity=8)
            m.d.comb += [
                write.addr.eq(Mux(clearing, line, owner.address)),
                write.data.eq(Mux(clearing, 0, owner.data)),
                write.en.eq(Mux(clearing, 0xFF, owner.strobe)),
            ]
            for side in (host, firmware):
                read = memory.read_port()
                m.d.comb += [
                    read.addr.eq(side.address),
                    read.en.eq(side.read),
                    getattr(side, f"{name}_word").eq(read.data),
                ]
        m.d.comb += [
            self.idle.eq(host.idle & firmware.idle & ~clearing),
            self.wake.eq(self.host.request.valid | self.firmware.request.valid),
        ]
        return m
