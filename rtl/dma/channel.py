"""One DMA channel."""

from amaranth import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.address import ADDRESS_BITS
from abi.descriptor import DESCRIPTOR, DescriptorOpcode
from abi.status import Status
from rtl.dma.descriptor import COMMAND, DescriptorCheck
from rtl.dma.rows import RowGenerator
from rtl.memory.port import LINE_BITS, LineError, ReadPort, WritePort
from rtl.memory.row import OFFSET_BITS
from rtl.memory.row_reader import RowReader
from rtl.memory.row_writer import RowWriter

__all__ = ["DmaChannel"]


class DmaChannel(wiring.Component):
    """Copies or fills byte ranges of memory, 1-D or 2-D, one descriptor or a chain of them.

    ```
    start ─► descriptor ─┬─► source rows ─► RowReader ─► beats ─► RowWriter ─► write
                ▲        └─► destination rows ──────────────────────┘
                └──────────── a descriptor is a row of 64 bytes ◄─┘
    ```

    A descriptor is fetched when all writes of the one before are acknowledged, is checked on
    the copy that is then performed, and is performed in order of its rows. Source and destination
    of one descriptor must not overlap, else the result is undefined within the destination.

    The first error ends the run: nothing more is requested, everything outstanding is awaited,
    and `status` and `fault_address` keep that error. All rows before one that leaves the address
    space are written; before an erroneous line some bytes of its row may be missing. No byte
    outside the destination rows is ever touched.

    Members:
        start: In; stream of `COMMAND`; taken when no run is on its way.
        stop: In, 1 bit, pulse; end the run on its way with ABORTED, if there is one.
        read, write: Out; `ReadPort` and `WritePort`.
        busy: Out, 1 bit; a run is on its way; 0 only after every response is in.
        done: Out, 1 bit; pulse in the first cycle with `busy` = 0.
        status: Out, 8 bits; Status of the last run; valid while `busy` = 0.
        descriptor: Out, 32 bits; descriptors that the run has finished; saturates.
        fault_address: Out, 64 bits; address of the failing line or descriptor; 0 if none.
        bytes: Out, 64 bits; bytes written and acknowledged since reset.
        cycles: Out, 64 bits; cycles with `busy` = 1 since reset.
        idle: Out, 1 bit; no run, nothing outstanding, no pulse: the clock may stop. From
            registers only.

    Timing: a row whose ranges lie in S source and D destination lines takes max(S, D) cycles,
    and up to 2 more in a row that is not aligned; rows follow one another without bubbles. A
    descriptor of a chain costs the latency of its fetch, and that of its last write.

    Raises:
        ValueError: `depth` is no power of two of at least 2.
    """

    def __init__(self, *, depth: int = 64) -> None:
        self._reader = RowReader(depth=depth)
        self._writer = RowWriter(depth=depth)
        super().__init__(
            {
                "start": In(stream.Signature(COMMAND)),
                "stop": In(1),
                "read": Out(ReadPort()),
                "write": Out(WritePort()),
                "busy": Out(1),
                "done": Out(1),
                "status": Out(8),
                "descriptor": Out(32),
                "fault_address": Out(64),
                "bytes": Out(64),
                "cycles": Out(64),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = self._reader
        m.submodules.writer = writer = self._writer
        m.submodules.source = source = RowGenerator()
        m.submodules.destination = destination = RowGenerator()
        m.submodules.check = check = DescriptorCheck()
        connect(m, reader.memory, flipped(self.read))
        connect(m, writer.memory, flipped(self.write))
        connect(m, destination.row, writer.row)

        present = Signal(DESCRIPTOR, reset_less=True)
        chain = Signal(reset_less=True)
        location = Signal(64, reset_less=True)
        fills = Signal()
        # Rows whose writes are not all acknowledged.
        open_rows = Signal(32)
        moving = Signal()
        m.d.comb += [
            check.descriptor.eq(present),
            check.chain.eq(chain),
            check.location.eq(location),
            fills.eq(present.opcode == DescriptorOpcode.FILL.value),
            source.first.eq(present.source[:ADDRESS_BITS]),
            source.rows.eq(Mux(fills, 0, present.rows)),
            source.stride.eq(present.source_stride),
            source.nbytes.eq(present.row_bytes),
            source.enable.eq(moving),
            destination.first.eq(present.destination[:ADDRESS_BITS]),
            destination.rows.eq(present.rows),
            destination.stride.eq(present.destination_stride),
            destination.nbytes.eq(present.row_bytes),
            destination.enable.eq(moving),
            destination.load.eq(source.load),
        ]

        beat = reader.data.payload
        read_failed = reader.data.valid & (beat.error != LineError.OK)
        m.d.comb += writer.data.payload.data.eq(
            Mux(fills, present.pattern.replicate(LINE_BITS // 64), beat.data)
        )

        with m.If(writer.acknowledged != 0):
            m.d.sync += self.bytes.eq(self.bytes + writer.acknowledged)
        with m.If(self.busy):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        m.d.sync += self.done.eq(0)

        def fail(status: ValueLike, address: ValueLike) -> None:
            m.d.sync += [self.status.eq(status), self.fault_address.eq(address)]
            m.next = "Drain"

        with m.FSM() as machine:
            with m.State("Wait for start"):
                m.d.comb += self.start.ready.eq(1)
                with m.If(self.start.valid):
                    command = self.start.payload
                    m.d.sync += [
                        present.eq(command.descriptor),
                        chain.eq(command.chain),
                        location.eq(Mux(command.chain, command.descriptor.next, 0)),
                        self.busy.eq(1),
                        self.status.eq(Status.OK.value),
                        self.fault_address.eq(0),
                        self.descriptor.eq(0),
                    ]
                    m.next = "Check descriptor"
            with m.State("Check descriptor"):
                m.d.comb += source.load.eq(~chain)
                m.d.sync += open_rows.eq(present.rows)
                with m.If(self.stop):
                    fail(Status.ABORTED.value, 0)
                with m.Elif(check.status != Status.OK.value):
                    fail(check.status, check.address)
                with m.Elif(chain):
                    m.next = "Fetch descriptor"
                with m.Else():
                    m.next = "Move rows"
            with m.State("Fetch descriptor"):
                m.d.comb += reader.row.valid.eq(1)
                m.d.sync += location.eq(present.next)
                with m.If(self.stop):
                    fail(Status.ABORTED.value, 0)
                with m.Elif(reader.row.ready):
                    m.next = "Await descriptor"
            with m.State("Await descriptor"):
                m.d.comb += reader.data.ready.eq(1)
                with m.If(read_failed):
                    fail(_status_of(reader.fault), _address_of(reader.fault_line))
                with m.Elif(self.stop):
                    fail(Status.ABORTED.value, 0)
                with m.Elif(reader.data.valid):
                    m.d.sync += [present.eq(beat.data), chain.eq(0)]
                    m.next = "Check descriptor"
            with m.State("Move rows"):
                m.d.comb += [
                    moving.eq(1),
                    writer.data.valid.eq(fills | (reader.data.valid & ~read_failed)),
                    reader.data.ready.eq(writer.data.ready & ~fills & ~read_failed),
                    writer.done.ready.eq(1),
                ]
                with m.If(writer.done.valid):
                    m.d.sync += open_rows.eq(open_rows - 1)
                with m.If(writer.fault != LineError.OK):
                    fail(_status_of(writer.fault), _address_of(writer.fault_line))
                with m.Elif(read_failed):
                    fail(_status_of(reader.fault), _address_of(reader.fault_line))
                # A row outside counts only when all before it are through, so that an error
                # of one of these comes first.
                with m.Elif(source.bad & (source.left == open_rows)):
                    fail(Status.ADDRESS_FAULT.value, source.bad_address)
                with m.Elif(destination.bad & (destination.left == open_rows)):
                    fail(Status.ADDRESS_FAULT.value, destination.bad_address)
                with m.Elif(self.stop):
                    fail(Status.ABORTED.value, 0)
                with m.Elif(open_rows == 0):
                    with m.If(~self.descriptor.all()):
                        m.d.sync += self.descriptor.eq(self.descriptor + 1)
                    with m.If(present.next == 0):
                        m.next = "Finish"
                    with m.Else():
                        m.next = "Fetch descriptor"
            with m.State("Drain"):
                m.d.comb += [
                    reader.flush.eq(1),
                    writer.flush.eq(1),
                    reader.data.ready.eq(1),
                    writer.done.ready.eq(1),
                ]
                with m.If(reader.idle & writer.idle):
                    m.next = "Finish"
            with m.State("Finish"):
                m.d.sync += [self.busy.eq(0), self.done.eq(1)]
                m.next = "Wait for start"

        # The row of a fetch, or those of the source.
        with m.If(moving):
            m.d.comb += [
                reader.row.valid.eq(source.row.valid),
                reader.row.payload.eq(source.row.payload),
                source.row.ready.eq(reader.row.ready),
            ]
        with m.Else():
            m.d.comb += [
                reader.row.payload.address.eq(present.next[:ADDRESS_BITS]),
                reader.row.payload.nbytes.eq(DESCRIPTOR.nbytes),
            ]

        m.d.comb += self.idle.eq(
            machine.ongoing("Wait for start") & ~self.done & reader.idle & writer.idle
        )
        return m


def _status_of(error: Value) -> Value:
    """`rtl.memory.port.status_of` in hardware, for an error that is not OK."""
    return Mux(error == LineError.ADDRESS.value, Status.ADDRESS_FAULT.value, Status.BUS_ERROR.value)


def _address_of(line: Value) -> Value:
    return Cat(Const(0, OFFSET_BITS), line)
