"""The queue unit: everything between a doorbell and a packet that firmware can look at."""

from amaranth import Array, C, Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.address import ADDRESS_BITS
from abi.geometry import MAXIMUM_DEPTH_LOG2, QUEUES
from abi.registers_firmware import QUEUE_BLOCK
from abi.registers_queue import QUEUE_CONSUMED, QUEUE_DOORBELL, QUEUE_FETCHED, QUEUE_STATE
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort
from rtl.host.round_robin import RoundRobin
from rtl.memory.port import LINE_NUMBER_BITS, ReadPort, WritePort
from rtl.queue.doorbells import Doorbells
from rtl.queue.fault import QUEUE_FAULT
from rtl.queue.fetcher import Fetcher
from rtl.queue.packet_sram import PacketSram
from rtl.trace.tap import TraceTap

__all__ = ["QueueUnit"]


class QueueUnit(wiring.Component):
    """Doorbells, fetcher, packet SRAM and the QUEUE_BLOCK registers.

    ::

        BAR2 ──► Doorbells ──► Fetcher ──► PacketSram ◄── firmware
                     │            │ └──► read indices in host memory
                     └── faults ──┴────► QUEUE_STATE

    A queue that firmware enables is started once nothing of its former life is on its way: indices
    and fault are cleared, and its registers are checked. A ring or read index address that is not
    64-aligned is MISALIGNED, a depth above 2**MAXIMUM_DEPTH_LOG2 BAD_FIELD, a ring that leaves the
    address space ADDRESS_FAULT; such a queue is faulted from the start. Until the start, which
    takes at most 2 + 2 * QUEUES cycles, doorbells are refused. The first fault of a queue is kept.

    Members:
        bus: RegisterPort, target: QUEUE_BLOCK.
        doorbell_bus: RegisterPort, target: BAR2.
        packet_bus: RegisterPort, target: packet SRAM.
        read_port: ReadPort; packets. write_port: WritePort; read indices.
        doorbell_event, fetched_event, fault_event: out, 1 cycle each, for EVENTS.
        doorbells, fetched, consumed, states: QUEUES registers each, out, for BAR0.
        refused: 64 bits out; refused doorbells.
        traces: 2 streams of TRACE_EVENT, out: DOORBELL and FETCHER, instance queue, argument index.
        trace_dropped: 2 bits out, 1 cycle each.
        idle: nothing to do; a function of registers.
        wake: a request is at the inputs; the clock has to run.

    Timing: a doorbell's read request leaves 5 cycles after the write was accepted on
    `doorbell_bus`; see `Fetcher` for the rest.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(RegisterPort),
                "doorbell_bus": In(RegisterPort),
                "packet_bus": In(RegisterPort),
                "read_port": Out(ReadPort()),
                "write_port": Out(WritePort()),
                "doorbell_event": Out(1),
                "fetched_event": Out(1),
                "fault_event": Out(1),
                "doorbells": Out(QUEUE_DOORBELL).array(QUEUES),
                "fetched": Out(QUEUE_FETCHED).array(QUEUES),
                "consumed": Out(QUEUE_CONSUMED).array(QUEUES),
                "states": Out(QUEUE_STATE).array(QUEUES),
                "refused": Out(64),
                "traces": Out(stream.Signature(TRACE_EVENT)).array(2),
                "trace_dropped": Out(2),
                "idle": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.bank = bank = RegisterBank(QUEUE_BLOCK, clearable=["consumed"])
        m.submodules.doorbell_pages = pages = Doorbells()
        m.submodules.fetcher = fetcher = Fetcher()
        m.submodules.packet_sram = sram = PacketSram()
        for outer, inner in (
            (self.bus, bank.bus),
            (self.doorbell_bus, pages.bus),
            (self.packet_bus, sram.bus),
            (self.read_port, fetcher.read),
            (self.write_port, fetcher.write),
        ):
            connect(m, flipped(outer), inner)
        active = Signal(QUEUES)
        faulted = Signal(QUEUES)
        clear = Signal(QUEUES)
        start = Signal(QUEUES)
        m.d.comb += [
            pages.accepting.eq(active & ~faulted),
            pages.clear.eq(clear),
            fetcher.accepting.eq(active & ~faulted),
            fetcher.faulted.eq(faulted),
            fetcher.clear.eq(clear),
            sram.write.eq(fetcher.stored),
            sram.slot.eq(fetcher.slot),
            sram.data.eq(fetcher.data),
            self.refused.eq(pages.refused),
            bank.member("faulted").mask.eq(faulted),
        ]
        for queue in range(QUEUES):
            consumed = bank.member("consumed", queue)
            fetched, doorbell = fetcher.fetched[queue], pages.doorbell[queue]
            m.d.comb += [
                pages.ring[queue].eq(bank.member("ring", queue)),
                pages.fetched[queue].eq(fetched),
                fetcher.ring[queue].eq(bank.member("ring", queue)),
                fetcher.read_index_address[queue].eq(bank.member("read_index_address", queue)),
                fetcher.doorbell[queue].eq(doorbell),
                fetcher.consumed[queue].eq(consumed),
                bank.member("doorbell", queue).eq(doorbell),
                bank.member("fetched", queue).eq(fetched),
                bank.member("state", queue).eq(self.states[queue]),
                bank.member("consumed", queue, "clear").eq(clear[queue]),
                bank.member("available").mask[queue].eq(fetched.index != consumed.index),
                self.doorbells[queue].eq(doorbell),
                self.fetched[queue].eq(fetched),
                self.consumed[queue].eq(consumed),
                start[queue].eq(
                    bank.member("control", queue).enable & ~active[queue] & ~fetcher.busy[queue]
                ),
            ]
        bad_ring = self._start(m, bank, start, active, clear)
        self._faults(m, pages, fetcher, bad_ring, faulted, clear)
        self._trace(m, pages, fetcher)

        busy = Signal()
        settling = Signal(2)
        m.d.comb += [
            busy.eq(
                ~(bank.idle & pages.idle & sram.idle & fetcher.idle)
                | start.any()
                | clear.any()
                | Cat(tap.valid for tap in self.traces).any()
                | self.trace_dropped.any()
            ),
            # What just changed still has to be seen by the registered stages behind it.
            self.idle.eq(~busy & (settling == 0)),
            self.wake.eq(
                self.bus.request.valid
                | self.doorbell_bus.request.valid
                | self.packet_bus.request.valid
            ),
        ]
        m.d.sync += settling.eq(Cat(busy, settling[0]))
        return m

    def _start(
        self, m: Module, bank: RegisterBank, start: Signal, active: Signal, clear: Signal
    ) -> Value:
        """Starts one queue at a time; gives the QUEUE_FAULT of its registers."""
        m.submodules.choose_start = choose = RoundRobin(width=QUEUES)
        queue = Signal(range(QUEUES))
        checking = Signal()
        bad = Signal(QUEUE_FAULT)
        rings = [bank.member("ring", number) for number in range(QUEUES)]
        indices = [bank.member("read_index_address", number) for number in range(QUEUES)]
        ring, index = Array(rings)[queue], Array(indices)[queue]
        # One line behind the ring; the 43rd bit is set only if the ring passes the last line.
        end = Signal(LINE_NUMBER_BITS + 1)
        size = Signal(MAXIMUM_DEPTH_LOG2 + 1)
        status = Signal(8)
        address = Signal(ADDRESS_BITS)
        m.d.comb += [
            choose.requests.eq(start),
            choose.last.eq(queue),
            size.eq(C(1, 32) << ring.depth_log2),
            end.eq(ring.address[6:] + size - 1),
            address.eq(ring.address),
            bad.queue.eq(queue),
            bad.valid.eq(status != Status.OK),
            bad.status.eq(status),
            bad.address.eq(address),
        ]
        m.d.sync += checking.eq(choose.valid & ~checking)
        with m.If(choose.valid & ~checking):
            m.d.sync += queue.eq(choose.choice)
        with m.If(checking):
            m.d.comb += clear.eq(C(1, QUEUES) << queue)
            with m.If(ring.address[:6].any()):
                m.d.comb += status.eq(Status.MISALIGNED)
            with m.Elif(index.address[:6].any()):
                m.d.comb += [status.eq(Status.MISALIGNED), address.eq(index.address)]
            with m.Elif(ring.depth_log2 > MAXIMUM_DEPTH_LOG2):
                m.d.comb += [status.eq(Status.BAD_FIELD), address.eq(ring.depth_log2)]
            with m.Elif(end[-1]):
                m.d.comb += status.eq(Status.ADDRESS_FAULT)
        for number in range(QUEUES):
            with m.If(~bank.member("control", number).enable):
                m.d.sync += active[number].eq(0)
            with m.Elif(clear[number]):
                m.d.sync += active[number].eq(1)
        return bad

    def _faults(
        self,
        m: Module,
        pages: Doorbells,
        fetcher: Fetcher,
        bad_ring: Value,
        faulted: Signal,
        clear: Signal,
    ) -> None:
        rung = Signal(QUEUE_FAULT)
        m.d.comb += [
            rung.valid.eq(pages.violation),
            rung.queue.eq(pages.queue),
            rung.status.eq(Status.DOORBELL_VIOLATION),
            rung.address.eq(pages.index[:48]),
        ]
        new = Signal(QUEUES)
        m.d.sync += self.fault_event.eq(new.any())
        for number, state in enumerate(self.states):
            status = Signal.like(state.status, name=f"status_{number}")
            address = Signal.like(state.address, name=f"address_{number}")
            m.d.comb += [
                state.busy.eq(fetcher.busy[number]),
                state.fault.eq(faulted[number]),
                state.status.eq(status),
                state.address.eq(address),
            ]
            with m.If(clear[number]):
                m.d.sync += [faulted[number].eq(0), status.eq(0), address.eq(0)]
            for source in (rung, fetcher.publish_fault, fetcher.fetch_fault, bad_ring):
                with m.If(
                    source.valid & (source.queue == number) & (clear[number] | ~faulted[number])
                ):
                    m.d.comb += new[number].eq(1)
                    m.d.sync += [
                        faulted[number].eq(1),
                        status.eq(source.status),
                        address.eq(source.address),
                    ]

    def _trace(self, m: Module, pages: Doorbells, fetcher: Fetcher) -> None:
        m.submodules.doorbell_tap = doorbell = TraceTap()
        m.submodules.fetcher_tap = packet = TraceTap()
        connect(m, flipped(self.traces[0]), doorbell.trace)
        connect(m, flipped(self.traces[1]), packet.trace)
        m.d.comb += [
            doorbell.strobe.eq(pages.rung),
            doorbell.event.source.eq(TraceSource.DOORBELL),
            doorbell.event.instance.eq(pages.queue),
            doorbell.event.code.eq(TraceCode.EVENT),
            doorbell.event.argument.eq(pages.index[:40]),
            packet.strobe.eq(fetcher.stored),
            packet.event.source.eq(TraceSource.FETCHER),
            packet.event.instance.eq(fetcher.stored_queue),
            packet.event.code.eq(TraceCode.EVENT),
            packet.event.argument.eq(fetcher.stored_index[:40]),
            self.trace_dropped.eq(Cat(doorbell.dropped, packet.dropped)),
        ]
        m.d.sync += [self.doorbell_event.eq(pages.rung), self.fetched_event.eq(fetcher.stored)]
