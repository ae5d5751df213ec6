"""The completion unit: signals timeline semaphores, and reads them for waiters."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.geometry import VECTORS
from abi.registers_firmware import COMPLETION_BLOCK, CompletionOperation
from abi.semaphore import SEMAPHORE
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.host.line_status import line_status
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort
from rtl.memory.port import ReadPort, WritePort
from rtl.trace.tap import TraceTap

__all__ = ["CompletionUnit"]


def _strobe(*fields: str) -> int:
    """Byte strobes of fields of a semaphore."""
    mask = 0
    for name in fields:
        first, width = SEMAPHORE.offset_of(name) // 8, SEMAPHORE.fields[name].width // 8
        mask |= ((1 << width) - 1) << first
    return mask


class CompletionUnit(wiring.Component):
    """Performs one operation of COMPLETION_BLOCK at a time.

    SIGNAL writes timestamp and status, waits for the response, writes the value, waits for the
    response, and only then, if asked, hands over the interrupt. So whoever sees the value sees the
    status, and whoever gets the interrupt sees the value. An error ends it at once: behind a failed
    write come no value and no interrupt. LOAD reads value and status (0 after an
    error).

    Errors, as the operation's status: BAD_FIELD (operation, or vector that does not exist),
    MISALIGNED (not 64-aligned), ADDRESS_FAULT (bits above the address space, or the line's error),
    BUS_ERROR.

    Members:
        bus: RegisterPort, target: COMPLETION_BLOCK.
        time: 64 bits in; device time, the timestamp is taken as the operation starts.
        read_port: ReadPort; LOAD. write_port: WritePort; SIGNAL.
        interrupt: stream of 5 bits, out; vector.
        done: out, 1 cycle; an operation ended, the registers show its outcome.
        trace: stream of TRACE_EVENT, out: BEGIN (argument operation), END (argument status).
        trace_dropped: out, 1 cycle.
        idle: nothing on its way; a function of registers.
        wake: a request is at the inputs; the clock has to run.

    Timing: the first request is valid 3 cycles after the START write was decoded; each response is
    followed by the next request one cycle later.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(RegisterPort),
                "time": In(64),
                "read_port": Out(ReadPort()),
                "write_port": Out(WritePort()),
                "interrupt": Out(stream.Signature(5)),
                "done": Out(1),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "trace_dropped": Out(1),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.bank = bank = RegisterBank(COMPLETION_BLOCK)
        m.submodules.tap = tap = TraceTap()
        connect(m, flipped(self.bus), bank.bus)
        connect(m, flipped(self.trace), tap.trace)
        read, write = self.read_port, self.write_port
        started, start = bank.member("start", 0, "written"), bank.member("start")
        state = bank.member("state")
        operation = Signal(8)
        interrupt = Signal()
        vector = Signal(7)
        address = Signal(64)
        value = Signal(64)
        status = Signal(64)
        timestamp = Signal(64, reset_less=True)
        strobe = Signal(LINE_BYTES)
        idle = Signal()
        ended = Signal()
        outcome = Signal(8)
        line = address[6:ADDRESS_BITS]

        m.d.comb += [
            bank.member("start", 0, "refuse").eq(state.busy),
            read.request.payload.line.eq(line),
            write.request.payload.line.eq(line),
            write.request.payload.strobe.eq(strobe),
            write.request.payload.data.eq(
                (value << SEMAPHORE.offset_of("value"))
                | (timestamp << SEMAPHORE.offset_of("timestamp"))
                | (status << SEMAPHORE.offset_of("status"))
            ),
            self.interrupt.payload.eq(vector),
            self.idle.eq(idle & bank.idle & tap.idle & ~self.done),
            self.wake.eq(self.bus.request.valid),
        ]
        m.d.sync += self.done.eq(ended)
        with m.If(ended):
            m.d.sync += [state.busy.eq(0), state.status.eq(outcome)]

        with m.FSM():
            with m.State("waiting for a start"):
                m.d.comb += idle.eq(1)
                with m.If(started):
                    m.d.sync += [
                        state.busy.eq(1),
                        state.status.eq(Status.OK),
                        operation.eq(start.operation),
                        interrupt.eq(start.interrupt),
                        vector.eq(start.vector),
                        address.eq(bank.member("address").address),
                        value.eq(bank.member("value").value),
                        status.eq(bank.member("status").status),
                        timestamp.eq(self.time),
                    ]
                    m.next = "checking the operation"
            with m.State("checking the operation"):
                signals = operation == CompletionOperation.SIGNAL
                loads = operation == CompletionOperation.LOAD
                with m.If(~(signals | loads) | (signals & interrupt & (vector >= VECTORS))):
                    m.d.comb += [ended.eq(1), outcome.eq(Status.BAD_FIELD)]
                    m.next = "waiting for a start"
                with m.Elif(address[:6].any()):
                    m.d.comb += [ended.eq(1), outcome.eq(Status.MISALIGNED)]
                    m.next = "waiting for a start"
                with m.Elif(address[ADDRESS_BITS:].any()):
                    m.d.comb += [ended.eq(1), outcome.eq(Status.ADDRESS_FAULT)]
                    m.next = "waiting for a start"
                with m.Elif(loads):
                    m.d.sync += read.request.valid.eq(1)
                    m.next = "requesting the semaphore"
                with m.Else():
                    m.d.sync += [
                        write.request.valid.eq(1),
                        strobe.eq(_strobe("timestamp", "status")),
                    ]
                    m.next = "writing timestamp and status"

            with m.State("requesting the semaphore"), m.If(read.request.ready):
                m.d.sync += read.request.valid.eq(0)
                m.next = "waiting for the semaphore"
            with m.State("waiting for the semaphore"):
                m.d.comb += read.response.ready.eq(1)
                with m.If(read.response.valid):
                    data = read.response.payload.data
                    m.d.comb += [
                        ended.eq(1),
                        outcome.eq(line_status(read.response.payload.error)),
                    ]
                    loaded = {"loaded_value": "value", "loaded_status": "status"}
                    for name, field in loaded.items():
                        word = data.bit_select(SEMAPHORE.offset_of(field), 64)
                        failed = read.response.payload.error.any()
                        m.d.sync += bank.member(name).as_value().eq(Mux(failed, 0, word))
                    m.next = "waiting for a start"

            with m.State("writing timestamp and status"), m.If(write.request.ready):
                m.d.sync += write.request.valid.eq(0)
                m.next = "waiting for timestamp and status"
            with m.State("waiting for timestamp and status"):
                m.d.comb += write.response.ready.eq(1)
                with m.If(write.response.valid & write.response.payload.error.any()):
                    m.d.comb += [
                        ended.eq(1),
                        outcome.eq(line_status(write.response.payload.error)),
                    ]
                    m.next = "waiting for a start"
                with m.Elif(write.response.valid):
                    m.d.sync += [
                        write.request.valid.eq(1),
                        strobe.eq(_strobe("value")),
                    ]
                    m.next = "writing the value"
            with m.State("writing the value"), m.If(write.request.ready):
                m.d.sync += write.request.valid.eq(0)
                m.next = "waiting for the value"
            with m.State("waiting for the value"):
                m.d.comb += write.response.ready.eq(1)
                failed = write.response.payload.error.any()
                with m.If(write.response.valid & interrupt & ~failed):
                    m.d.sync += self.interrupt.valid.eq(1)
                    m.next = "handing over the interrupt"
                with m.Elif(write.response.valid):
                    m.d.comb += [
                        ended.eq(1),
                        outcome.eq(line_status(write.response.payload.error)),
                    ]
                    m.next = "waiting for a start"
            with m.State("handing over the interrupt"), m.If(self.interrupt.ready):
                m.d.comb += ended.eq(1)
                m.d.sync += self.interrupt.valid.eq(0)
                m.next = "waiting for a start"

        m.d.comb += [
            tap.strobe.eq(started | ended),
            tap.event.source.eq(TraceSource.COMPLETION),
            tap.event.instance.eq(0),
            tap.event.code.eq(TraceCode.BEGIN),
            tap.event.argument.eq(start.operation),
            self.trace_dropped.eq(tap.dropped),
        ]
        with m.If(ended):
            m.d.comb += [tap.event.code.eq(TraceCode.END), tap.event.argument.eq(outcome)]
        return m
