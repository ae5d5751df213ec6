"""The chip: all units, their clocks, and the wires between them."""

from typing import Any

from amaranth import (
    Cat,
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Module,
    ResetSignal,
    Signal,
)
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.address import HOST_PORT_ADDRESS_BITS
from abi.core import Pipe
from abi.registers_core import CORE_COUNTERS
from abi.registers_firmware import FIRMWARE_PORT_ADDRESS_BITS
from abi.trace import TRACE_EVENT
from rtl.clocking import gated_domain, work_of
from rtl.completion.completion_unit import CompletionUnit
from rtl.config import NpuConfig
from rtl.core.core import AiCore
from rtl.dma.engine import DmaEngine
from rtl.host.axi_lite import AxiLitePort
from rtl.host.firmware_interface import FirmwareInterface
from rtl.host.host_interface import HostInterface
from rtl.memory.crossbar import Crossbar
from rtl.memory.hbm import Hbm
from rtl.memory.host_link import HOST_AXI, HostLink
from rtl.queue.queue_unit import QueueUnit
from rtl.trace.collector import TraceCollector

__all__ = ["Npu"]

CONTROL, BULK = 0, 1
"""Priority classes of the crossbar's ports."""


class Npu(wiring.Component):
    """GlassNPU, the reference chip.

    ::

        host ─► HostInterface ─► BAR2 ─► QueueUnit ─┐ fetch
          ▲         │ mailbox        ▲              │
          │         ▼                │ registers    ▼
        fw ──► FirmwareInterface ────┴► DMA ─────► Crossbar ─► HBM
                                     ├► core ────►    └──────► HostLink ─► host_axi
                                     └► completion, interrupts ─► ┘

    Every unit has a clock of its own that stops while it sleeps (`rtl.clocking`).

    Members:
        host: AxiLitePort, slave; config space and BARs (28-bit byte addresses).
        fw: AxiLitePort, slave; the firmware's registers (20-bit byte addresses).
        host_axi: AXI4, master; host memory and interrupt messages (256-bit data).
        fw_event: out; the firmware has an enabled event.
        fw_run: out; the firmware's CPU is out of reset.
        trace: out; `valid` for a cycle with each `payload`, a TRACE_EVENT; no back-pressure.

    Timing: one clock, 1 GHz. Inputs change after the rising edge and before the falling one.
    """

    def __init__(self, *, config: NpuConfig | None = None) -> None:
        self.config = config or NpuConfig()
        trace = wiring.Signature({"valid": Out(1), "payload": Out(TRACE_EVENT)})
        super().__init__(
            {
                "host": In(AxiLitePort(address_bits=HOST_PORT_ADDRESS_BITS)),
                "fw": In(AxiLitePort(address_bits=FIRMWARE_PORT_ADDRESS_BITS)),
                "host_axi": Out(HOST_AXI),
                "fw_event": Out(1),
                "fw_run": Out(1),
                "trace": Out(trace),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        config = self.config
        host = HostInterface(
            hbm_bytes=config.hbm_bytes,
            buffer_lines={
                name: getattr(config, name)
                for name in ("l1_lines", "l0a_lines", "l0b_lines", "l0c_lines", "bias_lines")
            },
        )
        firmware = FirmwareInterface()
        queue, completion = QueueUnit(), CompletionUnit()
        channels = [f"dma{channel}" for channel in range(config.dma_channels)]
        dma = DmaEngine(channels=len(channels), channel_domains=channels)
        pipes = {pipe: f"core0_{pipe.name.lower()}" for pipe in Pipe}
        core = AiCore(
            l1_lines=config.l1_lines,
            l0a_lines=config.l0a_lines,
            l0b_lines=config.l0b_lines,
            l0c_lines=config.l0c_lines,
            bias_lines=config.bias_lines,
            domains=pipes,
        )
        reads, writes = self._initiators(host, queue, completion, dma, core)
        crossbar = Crossbar(
            readers=[priority for priority, _ in reads],
            writers=[priority for priority, _ in writes],
            hbm_bytes=config.hbm_bytes,
            trusted_writers=[
                i for i, (_, port) in enumerate(writes) if port is host.interrupt_port
            ],
        )
        hbm = Hbm(nbytes=config.hbm_bytes, latency=config.hbm_latency)
        link = HostLink()

        # Clocks. The reset is registered, since what hangs off a port is evaluated twice a cycle,
        # and by a clock that runs only when it changes, or that logic is evaluated at each edge.
        m.domains.root = ClockDomain()
        root_reset = Signal(init=1, reset_less=True)
        gated_domain(m, "power", enable=ResetSignal("sync") ^ root_reset)
        m.d.power += root_reset.eq(ResetSignal("sync"))
        m.d.comb += [
            ClockSignal("root").eq(ClockSignal("sync")),
            ResetSignal("root").eq(root_reset),
        ]
        # "host" lives through a reset of the chip; everything else does not.
        reset = host.chip_reset
        awake = ~(host.host_idle & firmware.host_idle) | host.host_wake | firmware.host_wake
        gated_domain(m, "host", enable=awake, source="root")
        gated_domain(m, "time", source="root")
        for name, enable in (
            ("registers", ~host.idle | host.wake),
            ("interrupt", ~host.interrupt_idle | host.interrupt_wake),
            ("firmware", ~firmware.idle | firmware.wake),
            ("queue", ~queue.idle | queue.wake),
            ("completion", ~completion.idle | completion.wake | work_of(completion)),
            ("dma", dma.front_active),
            ("core0", ~core.idle | work_of(core)),
            ("crossbar", work_of(crossbar)),
            ("hbm", work_of(hbm)),
            ("link", work_of(link)),
            *((name, dma.channel_active[channel]) for channel, name in enumerate(channels)),
            *((name, core.pipe_active[pipe]) for pipe, name in pipes.items()),
        ):
            gated_domain(m, name, enable=enable, reset=reset, source="root")
        for name, unit, domain in (
            ("host_interface", host, "registers"),
            ("firmware_interface", firmware, "firmware"),
            ("queue", queue, "queue"),
            ("completion", completion, "completion"),
            ("dma", dma, "dma"),
            ("core0", core, "core0"),
            ("crossbar", crossbar, "crossbar"),
            ("hbm", hbm, "hbm"),
            ("link", link, "link"),
        ):
            m.submodules[name] = DomainRenamer(domain)(unit)

        connect(m, flipped(self.host), host.host)
        connect(m, flipped(self.fw), firmware.fw)
        connect(m, link.host_axi, flipped(self.host_axi))
        for i, (_, port) in enumerate(reads):
            connect(m, port, crossbar.read_ports[i])
        for i, (_, port) in enumerate(writes):
            connect(m, port, crossbar.write_ports[i])
        connect(m, crossbar.hbm_read, hbm.read)
        connect(m, crossbar.hbm_write, hbm.write)
        connect(m, crossbar.host_read, link.read)
        connect(m, crossbar.host_write, link.write)
        connect(m, host.doorbell_bus, queue.doorbell_bus)
        connect(m, firmware.mailbox_bus, host.mailbox_bus)
        connect(m, firmware.queue_bus, queue.bus)
        connect(m, firmware.packet_bus, queue.packet_bus)
        connect(m, firmware.dma_bus, dma.bus)
        connect(m, firmware.completion_bus, completion.bus)
        connect(m, firmware.core_bus, core.bus)
        connect(m, completion.interrupt, host.interrupt)

        # The first edge that counts is the third after the reset at the port.
        time = Signal(64, init=2)
        m.d.time += time.eq(time + 1)
        m.d.comb += [
            self.fw_event.eq(firmware.event),
            self.fw_run.eq(host.fw_run),
            host.time.eq(time),
            firmware.time.eq(time),
            completion.time.eq(time),
            host.link_quiet.eq(link.outstanding_none),
        ]
        self._settings(m, host, crossbar, link, core)
        self._status(m, host, firmware, queue, completion, dma, core, crossbar)
        self._trace(m, host, queue, completion, dma, core, reset)
        return m

    @staticmethod
    def _settings(
        m: Module, host: HostInterface, crossbar: Crossbar, link: HostLink, core: AiCore
    ) -> None:
        """What the host sets, one cycle later.

        The copies have a clock that runs only when one changes, so that register accesses do not
        make a simulator evaluate the logic of the units that use them.
        """
        pairs = (
            (link.quiesce, host.quiesce),
            (link.bus_master, host.bus_master),
            (crossbar.window_base, host.window_base),
            (crossbar.window_limit, host.window_limit),
            (core.product_xor, host.product_xor[0]),
        )
        wanted = Cat(source for _, source in pairs)
        held = Signal(len(wanted))
        gated_domain(m, "settings", enable=wanted != held, source="root")
        m.d.settings += held.eq(wanted)
        m.d.comb += Cat(target for target, _ in pairs).eq(held)

    @staticmethod
    def _initiators(
        host: HostInterface,
        queue: QueueUnit,
        completion: CompletionUnit,
        dma: DmaEngine,
        core: AiCore,
    ) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
        """Everything that reads or writes memory, with its priority class."""
        channels = range(len(dma.read_ports))
        reads = [
            (CONTROL, queue.read_port),
            (CONTROL, completion.read_port),
            (CONTROL, core.program_port),
            *((BULK, dma.read_ports[channel]) for channel in channels),
            (BULK, core.load_port),
        ]
        writes = [
            (CONTROL, queue.write_port),
            (CONTROL, completion.write_port),
            (CONTROL, host.interrupt_port),
            *((BULK, dma.write_ports[channel]) for channel in channels),
            (BULK, core.store_port),
        ]
        return reads, writes

    @staticmethod
    def _status(
        m: Module,
        host: HostInterface,
        firmware: FirmwareInterface,
        queue: QueueUnit,
        completion: CompletionUnit,
        dma: DmaEngine,
        core: AiCore,
        crossbar: Crossbar,
    ) -> None:
        """Events to the firmware, and what BAR0 shows."""
        m.d.comb += [
            firmware.isolate.eq(host.isolate),
            firmware.doorbell_event.eq(queue.doorbell_event),
            firmware.fetched_event.eq(queue.fetched_event),
            firmware.queue_fault_event.eq(queue.fault_event),
            firmware.dma_event.eq(dma.done),
            firmware.core_event.eq(core.done),
            firmware.completion_event.eq(completion.done),
            firmware.mailbox_event.eq(host.mailbox_event),
            firmware.interrupt_fault_event.eq(host.interrupt_fault),
            firmware.request_write.eq(host.request_write),
            firmware.response_read.eq(host.response_read),
            host.request_read.eq(firmware.request_read),
            host.response_write.eq(firmware.response_write),
            host.response_written.eq(firmware.response_written),
            host.firmware_state.eq(firmware.firmware_state),
            host.heartbeat.eq(firmware.heartbeat),
            host.doorbell_refused.eq(queue.refused),
            host.link_read_bytes.eq(crossbar.host_read_bytes),
            host.link_write_bytes.eq(crossbar.host_write_bytes),
            host.hbm_read_bytes.eq(crossbar.hbm_read_bytes),
            host.hbm_write_bytes.eq(crossbar.hbm_write_bytes),
            host.core_state[0].eq(core.state),
            host.core_fault_address[0].eq(core.fault_address),
            host.core_retired[0].commands.eq(core.retired),
        ]
        m.d.comb += [
            host.core_counters[0][name].eq(getattr(core.counters, name)) for name in CORE_COUNTERS
        ]
        for shown, values in (
            (host.queue_doorbell, queue.doorbells),
            (host.queue_fetched, queue.fetched),
            (host.queue_consumed, queue.consumed),
            (host.queue_state, queue.states),
            (host.dma_state, dma.states),
            (host.dma_bytes, dma.bytes),
            (host.dma_cycles, dma.cycles),
        ):
            m.d.comb += [
                Value.cast(target).eq(Value.cast(value))
                for target, value in zip(shown, values, strict=True)
            ]

    def _trace(
        self,
        m: Module,
        host: HostInterface,
        queue: QueueUnit,
        completion: CompletionUnit,
        dma: DmaEngine,
        core: AiCore,
        reset: Value,
    ) -> None:
        """Gathers the trace of all units."""
        sources = [
            *((queue.traces[i], queue.trace_dropped[i]) for i in range(2)),
            (completion.trace, completion.trace_dropped),
            (host.interrupt_trace, host.interrupt_trace_dropped),
            (dma.trace, dma.trace_dropped),
            (core.trace, core.trace_dropped),
        ]
        collector = TraceCollector(sources=len(sources))
        enable = ~collector.idle | collector.wake
        gated_domain(m, "trace", enable=enable, reset=reset, source="root")
        m.submodules.trace = DomainRenamer("trace")(collector)
        for i, (events, _) in enumerate(sources):
            connect(m, events, collector.events[i])
        m.d.comb += [
            collector.dropped.eq(Cat(dropped for _, dropped in sources)),
            collector.enable.eq(host.trace_enable),
            host.trace_dropped.eq(collector.drops),
            self.trace.valid.eq(collector.valid),
            self.trace.payload.eq(collector.payload),
        ]
