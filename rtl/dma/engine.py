"""The DMA engine: channels behind their registers."""

from collections.abc import Sequence

from amaranth import Cat, DomainRenamer, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.descriptor import DESCRIPTOR_MAGIC, DescriptorOpcode
from abi.geometry import DMA_CHANNELS
from abi.registers_dma import DMA_STATE, DmaStart
from abi.registers_firmware import DMA_BLOCK
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.dma.channel import DmaChannel
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort
from rtl.memory.port import ReadPort, WritePort

__all__ = ["DmaEngine"]


class DmaEngine(wiring.Component):
    """DMA channels, each started, aborted and read through its registers (`DMA_BLOCK`).

    A write to `start` copies the channel's registers, so that the next run can be prepared while
    one is on its way; it is refused with an error while the channel is busy, except for ABORT,
    which does nothing to a channel that is not busy. Registers of channels that the engine does
    not have are kept, and their `start` is refused.

    Args:
        channels: number of channels, at most `abi.geometry.DMA_CHANNELS`.
        depth: lines in flight of each channel and direction, a power of two.
        channel_domains: clock domain of each channel; empty: all in `sync`. All must be clocks
            of the same source that stop at most while `channel_active` of the channel is 0, and
            be reset together with `sync`.

    Members:
        bus: In; `RegisterPort`, addresses as in `DMA_BLOCK`.
        read_ports, write_ports: Out; `ReadPort` and `WritePort` of each channel.
        done: Out, 1 bit; pulse: some channel ended a run. Its state is final in this cycle.
        states: Out; `DMA_STATE` of each channel.
        bytes, cycles: Out, 64 bits each; counters of each channel, see `DmaChannel`.
        trace: Out; stream of `TRACE_EVENT`, source DMA, instance = channel. BEGIN has the
            `DmaStart` as argument; END the status in bits 0 to 7, the finished descriptors above.
            An event that finds the one before it of its channel still waiting is dropped.
        trace_dropped: Out, 1 bit; pulse: events were dropped.
        channel_active: Out, `channels` bits; bit c: channel c needs its clock at the next edge.
        front_active: Out, 1 bit; the same for the registers and everything else in `sync`.
        idle: Out, 1 bit; no channel and no register access has anything left to do. From
            registers only.

    Timing: a channel is busy 2 cycles after the bank's write pulse, its first read request is
    valid 3 cycles later, that of a descriptor too. An event is on `trace` 2 cycles after it
    happened, later if others wait.

    Raises:
        ValueError: a parameter is out of range, or `channel_domains` has another length.
    """

    def __init__(
        self,
        *,
        channels: int = DMA_CHANNELS,
        depth: int = 64,
        channel_domains: Sequence[str] = (),
    ) -> None:
        if not 1 <= channels <= DMA_CHANNELS:
            raise ValueError(f"channels must be 1 to {DMA_CHANNELS}, not {channels!r}")
        domains = list(channel_domains) or ["sync"] * channels
        if len(domains) != channels:
            raise ValueError(
                f"channel_domains must name {channels} domains, not {list(channel_domains)!r}"
            )
        self._domains = domains
        self._channels = [DmaChannel(depth=depth) for _ in range(channels)]
        self._bank = RegisterBank(DMA_BLOCK)
        super().__init__(
            {
                "bus": In(RegisterPort),
                "read_ports": Out(ReadPort()).array(channels),
                "write_ports": Out(WritePort()).array(channels),
                "done": Out(1),
                "states": Out(DMA_STATE).array(channels),
                "bytes": Out(64).array(channels),
                "cycles": Out(64).array(channels),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "trace_dropped": Out(1),
                "channel_active": Out(channels),
                "front_active": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        bank, channels = self._bank, self._channels
        m.submodules.registers = bank
        connect(m, flipped(self.bus), bank.bus)
        for number, (channel, domain) in enumerate(zip(channels, self._domains, strict=True)):
            named = channel if domain == "sync" else DomainRenamer(domain)(channel)
            m.submodules[f"channel_{number}"] = named
            connect(m, channel.read, flipped(self.read_ports[number]))
            connect(m, channel.write, flipped(self.write_ports[number]))

        # The bank asks for a refusal one cycle before it shows what was written.
        kind = Signal(2, reset_less=True)
        request = self.bus.request
        with m.If(request.valid & request.ready):
            m.d.sync += kind.eq(request.payload.data[:2] & request.payload.strobe[0].replicate(2))

        busy = Signal(len(channels))
        starting = Signal(len(channels))
        aborting = Signal(len(channels))
        began = Signal(len(channels))
        for number in range(DMA_CHANNELS):
            refuse = bank.member("start", number, "refuse")
            if number < len(channels):
                m.d.comb += refuse.eq(busy[number] & (kind != DmaStart.ABORT.value))
            else:
                m.d.comb += refuse.eq(1)
        for number, channel in enumerate(channels):
            asked = bank.member("start", number).kind
            written = bank.member("start", number, "written")
            m.d.comb += [
                began[number].eq(written & (asked != DmaStart.ABORT.value)),
                busy[number].eq(starting[number] | channel.busy),
                channel.start.valid.eq(starting[number]),
                channel.stop.eq(aborting[number]),
                self.channel_active[number].eq(~channel.idle | starting[number] | aborting[number]),
                self.states[number].busy.eq(busy[number]),
                self.states[number].status.eq(Mux(busy[number], 0, channel.status)),
                self.states[number].descriptor.eq(channel.descriptor),
                bank.member("state", number).eq(self.states[number]),
                bank.member("fault_address", number).address.eq(channel.fault_address),
                self.bytes[number].eq(channel.bytes),
                self.cycles[number].eq(channel.cycles),
            ]
            m.d.sync += aborting[number].eq(written & (asked == DmaStart.ABORT.value))
            started = Signal(2, name=f"started_{number}", reset_less=True)
            self._elaborate_command(m, number, started)
            with m.If(began[number]):
                m.d.sync += [starting[number].eq(1), started.eq(asked)]
            with m.Elif(channel.start.ready):
                m.d.sync += starting[number].eq(0)
        ended = Cat(channel.done for channel in channels)
        m.d.comb += [bank.busy.mask.eq(busy), self.done.eq(ended.any())]

        waiting = self._elaborate_trace(m, began, ended)
        front = (
            ~bank.idle | starting.any() | aborting.any() | waiting.any() | self.trace.valid
        ) | self.trace_dropped
        m.d.comb += [
            self.front_active.eq(front | bank.wake | self.done),
            self.idle.eq(~front & ~(~Cat(channel.idle for channel in channels)).any()),
        ]
        return m

    def _elaborate_command(self, m: Module, number: int, kind: Value) -> None:
        """Start a channel with its registers."""
        bank = self._bank
        size = bank.member("size", number)
        stride = bank.member("stride", number)
        source = bank.member("source", number).address
        command = self._channels[number].start.payload
        asked = command.descriptor
        copies = kind == DmaStart.COPY.value
        # Not read back from the payload: to a simulator a word that depends on itself is a loop.
        chain = kind == DmaStart.CHAIN.value
        m.d.comb += [
            command.chain.eq(chain),
            asked.opcode.eq(Mux(copies, DescriptorOpcode.COPY.value, DescriptorOpcode.FILL.value)),
            asked.magic.eq(DESCRIPTOR_MAGIC),
            asked.source.eq(Mux(copies, source, 0)),
            asked.destination.eq(bank.member("destination", number).address),
            asked.row_bytes.eq(size.row_bytes),
            asked.rows.eq(size.rows),
            asked.source_stride.eq(stride.source),
            asked.destination_stride.eq(stride.destination),
            asked.pattern.eq(bank.member("pattern", number).pattern),
            asked.next.eq(Mux(chain, source, 0)),
        ]

    def _elaborate_trace(self, m: Module, began: Value, ended: Value) -> Signal:
        """A slot for each channel, and one event at a time out; returns which slots are full."""
        count = len(self._channels)
        waiting = Signal(count)
        codes = [Signal(8, name=f"code_{n}", reset_less=True) for n in range(count)]
        arguments = [Signal(40, name=f"argument_{n}", reset_less=True) for n in range(count)]
        dropped = Signal(count)
        sends = Signal(count)

        event = self.trace.payload
        with m.If(~self.trace.valid | self.trace.ready):
            m.d.sync += self.trace.valid.eq(waiting.any())
            # The lowest channel goes first: events are much rarer than cycles.
            for number in reversed(range(count)):
                with m.If(waiting[number]):
                    m.d.comb += sends.eq(1 << number)
                    m.d.sync += [
                        event.source.eq(TraceSource.DMA.value),
                        event.instance.eq(number),
                        event.code.eq(codes[number]),
                        event.argument.eq(arguments[number]),
                    ]
        for number, channel in enumerate(self._channels):
            m.d.comb += dropped[number].eq(
                (began[number] | ended[number]) & waiting[number] & ~sends[number]
            )
            with m.If(dropped[number]):
                pass
            with m.Elif(began[number]):
                m.d.sync += [
                    waiting[number].eq(1),
                    codes[number].eq(TraceCode.BEGIN.value),
                    arguments[number].eq(self._bank.member("start", number).kind),
                ]
            with m.Elif(ended[number]):
                m.d.sync += [
                    waiting[number].eq(1),
                    codes[number].eq(TraceCode.END.value),
                    arguments[number].eq(Cat(channel.status, channel.descriptor)),
                ]
            with m.Elif(sends[number]):
                m.d.sync += waiting[number].eq(0)
        m.d.sync += self.trace_dropped.eq(dropped.any())
        return waiting
