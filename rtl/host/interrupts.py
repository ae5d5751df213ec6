"""MSI-X: pending bits, masks, and the writes that carry the messages."""

from amaranth import Array, C, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from abi.address import HOST_BASE, LINE_BYTES
from abi.geometry import VECTORS
from abi.registers_host import VECTOR_ADDRESS, VECTOR_DATA, VECTOR_PENDING, VECTOR_SENT
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.host.line_status import line_status
from rtl.host.round_robin import RoundRobin
from rtl.memory.port import WritePort
from rtl.trace.tap import TraceTap

__all__ = ["MAILBOX_VECTOR", "InterruptController"]

MAILBOX_VECTOR = 0
"""Vector of the mailbox."""

HOST_BIT = HOST_BASE.bit_length() - 1


class InterruptController(wiring.Component):
    """Sends one MSI-X message at a time, round robin over the vectors that have one pending.

    A request sets the vector's pending bit; while it is set, further ones merge with it. A pending
    vector is sent when it is unmasked and the function is bus master. Its bit falls when the table
    entry is read, so a request that arrives while the message is on its way gives another message.
    The message is a 4-byte write to HOST_BASE + address (bits 0 and 1 are ignored).

    Members:
        send: stream of 5 bits, in; a vector that has a message. Always ready.
        mailbox: in, 1 cycle; the same for `MAILBOX_VECTOR`.
        address, data: VECTORS x the table's registers, in.
        bus_master: in.
        pending: VECTOR_PENDING, out.
        sent: VECTORS x VECTOR_SENT, out; counts behind the write response.
        memory: WritePort; must reach any host address, for messages lie outside the host window.
        fault: out, 1 cycle; a message was answered with an error, or its address is no bus
            address (48th bit set). It is lost and not counted.
        trace: stream of TRACE_EVENT, out, instance vector: BEGIN (argument: the message) when it is
            taken from the pending bits, END (status) when its write was answered.
        trace_dropped: out, 1 cycle; the sink was not ready.
        idle: no message on its way; a function of registers. With pending bits the unit may be
            idle; `wake` tells when one of them can go.
        wake: a request is at the inputs, or a pending vector may go; the clock has to run.

    Timing: the write request is valid 3 cycles after the request, if no other message is on its
    way; that is 2 cycles after BEGIN's strobe.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "send": In(stream.Signature(5)),
                "mailbox": In(1),
                "address": In(VECTOR_ADDRESS).array(VECTORS),
                "data": In(VECTOR_DATA).array(VECTORS),
                "bus_master": In(1),
                "pending": Out(VECTOR_PENDING),
                "sent": Out(VECTOR_SENT).array(VECTORS),
                "memory": Out(WritePort()),
                "fault": Out(1),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "trace_dropped": Out(1),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.choose = choose = RoundRobin(width=VECTORS)
        m.submodules.tap = tap = TraceTap()
        wiring.connect(m, wiring.flipped(self.trace), tap.trace)
        request, response = self.memory.request, self.memory.response
        pending = self.pending.mask
        ready = Signal(VECTORS)
        taken = Signal(VECTORS)
        arrived = Signal(VECTORS)
        vector = Signal(range(VECTORS))
        status = Signal(8)
        entry = Signal(VECTOR_ADDRESS, reset_less=True)
        message = Signal(32, reset_less=True)
        strobe = Signal(LINE_BYTES)
        sent = Signal()
        begun = Signal()
        ended = Signal()

        chosen = Array(table.data for table in self.data)[choose.choice]

        m.d.comb += [
            self.send.ready.eq(1),
            arrived.eq(
                Mux(self.send.valid, (C(1, VECTORS) << self.send.payload)[:VECTORS], 0)
                | (self.mailbox << MAILBOX_VECTOR)
            ),
            ready.eq(
                pending
                & Cat(~table.masked for table in self.data)
                & self.bus_master.replicate(VECTORS)
            ),
            choose.requests.eq(ready),
            choose.last.eq(vector),
            self.wake.eq(self.send.valid | self.mailbox | choose.valid),
            request.payload.line.eq(Cat(entry.address[6:HOST_BIT], 1)),
            request.payload.data.eq(message.replicate(16)),
            request.payload.strobe.eq(strobe),
        ]
        for word in range(16):
            with m.If(entry.address[2:6] == word):
                m.d.comb += strobe.eq(0xF << 4 * word)
        m.d.sync += [pending.eq((pending & ~taken) | arrived), self.fault.eq(0)]

        with m.FSM():
            with m.State("waiting for a message"):
                m.d.comb += self.idle.eq(tap.idle & ~self.fault)
                with m.If(choose.valid):
                    m.d.comb += [taken.eq(C(1, VECTORS) << choose.choice), begun.eq(1)]
                    m.d.sync += [
                        vector.eq(choose.choice),
                        entry.eq(Array(self.address)[choose.choice]),
                        message.eq(chosen),
                    ]
                    m.next = "checking the address"
            with m.State("checking the address"):
                with m.If(entry.address[HOST_BIT]):
                    m.d.comb += [ended.eq(1), status.eq(Status.ADDRESS_FAULT)]
                    m.next = "waiting for a message"
                with m.Else():
                    m.d.sync += request.valid.eq(1)
                    m.next = "writing the message"
            with m.State("writing the message"), m.If(request.ready):
                m.d.sync += request.valid.eq(0)
                m.next = "waiting for the response"
            with m.State("waiting for the response"):
                m.d.comb += response.ready.eq(1)
                with m.If(response.valid):
                    m.d.comb += [ended.eq(1), status.eq(line_status(response.payload.error))]
                    m.next = "waiting for a message"

        m.d.comb += [
            sent.eq(ended & (status == Status.OK)),
            tap.strobe.eq(begun | ended),
            tap.event.source.eq(TraceSource.INTERRUPT),
            tap.event.instance.eq(Mux(begun, choose.choice, vector)),
            tap.event.code.eq(Mux(begun, TraceCode.BEGIN, TraceCode.END)),
            tap.event.argument.eq(Mux(begun, chosen, status)),
            self.trace_dropped.eq(tap.dropped),
        ]
        with m.If(ended & ~sent):
            m.d.sync += self.fault.eq(1)
        for number, counter in enumerate(self.sent):
            with m.If(sent & (vector == number)):
                m.d.sync += counter.count.eq(counter.count + 1)
        return m
