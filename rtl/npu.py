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
from abi.registers_core import CORE_COUNTERS
from abi.registers_firmware import FIRMWARE_PORT_ADDRESS_BITS
from abi.trace import TRACE_EVENT
from rtl.clocking import gated_domain, work_of
from rtl.completion.completion_unit import CompletionUnit
from rtl.config import NpuConfig
from rtl.core.core import UNITS, AiCore
from rtl.dma.engine import DmaEngine
from rtl.host.axi_lite import AxiLitePort
from rtl.host.firmware_interface import FirmwareInterface
from rtl.host.host_interface import HostInterface
from rtl.memory.crossbar import Crossbar
from rtl.memory.hbm import Hbm
from rtl.memory.host_link import HOST_AXI, HostLink
from rtl.queue.queue_unit import QueueUnit
from rtl.trace.collector import TraceCollector

__all__ = ["NPU", "Npu"]

CORE_BUFFERS = ("l1_lines", "l0a_lines", "l0b_lines", "l0c_lines", "bias_lines", "ub_lines")
CONTROL, BULK = 0, 1
"""Priority classes of the crossbar's ports."""

NPU = wiring.Signature(
    {
        "host": In(AxiLitePort(address_bits=HOST_PORT_ADDRESS_BITS)),
        "fw": In(AxiLitePort(address_bits=FIRMWARE_PORT_ADDRESS_BITS)),
        "host_axi": Out(HOST_AXI),
        "fw_event": Out(1),
        "fw_run": Out(1),
        "trace": Out(wiring.Signature({"valid": Out(1), "payload": Out(TRACE_EVENT)})),
    }
)
"""The ports of the chip, see `Npu`."""


class Npu(wiring.Component):
    """GlassNPU, the reference chip.

    ::

        host ─► HostInterface ─► BAR2 ─► QueueUnit ─┐ fetch
          ▲         │ mailbox        ▲              │
          │         ▼                │ registers    ▼
        fw ──► FirmwareInterface ────┴► DMA ─────► Crossbar ─► HBM
                                     ├► cores ───►    └──────► HostLink ─► host_axi
                                     └► completion, interrupts ─► ┘

    Every unit has a clock of its own that stops while it sleeps (`rtl.clocking`). Those of a
    core's parts hang off the core's, so that a sleeping core has a single gate.

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
        super().__init__(NPU)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        config = self.config
        host = HostInterface(
            hbm_bytes=config.hbm_bytes,
            core_sizes={name: getattr(config, name) for name in (*CORE_BUFFERS, "bf16_depth")},
        )
        firmware = FirmwareInterface()
        queue, completion = QueueUnit(), CompletionUnit()
        channels = [f"dma{channel}" for channel in range(config.dma_channels)]
        dma = DmaEngine(channels=len(channels), channel_domains=channels)
        cores = [
            AiCore(
                core=number,
                **{name: getattr(config, name) for name in CORE_BUFFERS},
                bf16_depth=config.bf16_depth,
                cache_lines=config.icache_lines,
                depth=config.reads_in_flight,
                domains={unit: f"core{number}_{unit}" for unit in UNITS},
            )
            for number in range(config.cores)
        ]
        reads, writes = self._initiators(host, queue, completion, dma, cores)
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
            *((f"core{number}", work_of(core)) for number, core in enumerate(cores)),
            ("crossbar", work_of(crossbar)),
            ("hbm", work_of(hbm)),
            ("link", work_of(link)),
            *((name, dma.channel_active[channel]) for channel, name in enumerate(channels)),
        ):
            gated_domain(m, name, enable=enable, reset=reset, source="root")
        for number, core in enumerate(cores):
            for part in UNITS:
                gated_domain(
                    m,
                    f"core{number}_{part}",
                    enable=getattr(core.active, part),
                    source=f"core{number}",
                )
        for name, unit, domain in (
            ("host_interface", host, "registers"),
            ("firmware_interface", firmware, "firmware"),
            ("queue", queue, "queue"),
            ("completion", completion, "completion"),
            ("dma", dma, "dma"),
            *((f"core{number}", core, f"core{number}") for number, core in enumerate(cores)),
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
        for number, core in enumerate(cores):
            connect(m, getattr(firmware, f"core{number}_bus"), core.bus)
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
        self._settings(m, host, crossbar, link, cores)
        self._status(m, host, firmware, queue, completion, dma, cores, crossbar)
        self._trace(m, host, queue, completion, dma, cores, reset)
        return m

    @staticmethod
    def _settings(
        m: Module,
        host: HostInterface,
        crossbar: Crossbar,
        link: HostLink,
        cores: list[AiCore],
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
            *((core.product_xor, host.product_xor[i]) for i, core in enumerate(cores)),
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
        cores: list[AiCore],
    ) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
        """Everything that reads or writes memory, with its priority class."""
        channels = range(len(dma.read_ports))
        reads = [
            (CONTROL, queue.read_port),
            (CONTROL, completion.read_port),
            *((CONTROL, core.read_port) for core in cores),
            *((BULK, dma.read_ports[channel]) for channel in channels),
            *((BULK, core.load_port) for core in cores),
        ]
        writes = [
            (CONTROL, queue.write_port),
            (CONTROL, completion.write_port),
            (CONTROL, host.interrupt_port),
            *((BULK, dma.write_ports[channel]) for channel in channels),
            *((BULK, core.store_port) for core in cores),
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
        cores: list[AiCore],
        crossbar: Crossbar,
    ) -> None:
        """Events to the firmware, and what BAR0 shows."""
        m.d.comb += [
            firmware.isolate.eq(host.isolate),
            firmware.doorbell_event.eq(queue.doorbell_event),
            firmware.fetched_event.eq(queue.fetched_event),
            firmware.queue_fault_event.eq(queue.fault_event),
            firmware.dma_event.eq(dma.done),
            firmware.core_event.eq(Cat(core.done for core in cores).any()),
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
        ]
        for i, core in enumerate(cores):
            m.d.comb += [
                host.core_state[i].eq(core.state),
                host.core_fault_address[i].eq(core.fault_address),
                host.core_fault_block[i].eq(core.fault_block),
                host.core_blocks[i].eq(core.blocks),
                host.core_retired[i].commands.eq(core.retired),
                *(
                    host.core_counters[i][name].eq(getattr(core.counters, name))
                    for name in CORE_COUNTERS
                ),
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
        cores: list[AiCore],
        reset: Value,
    ) -> None:
        """Gathers the trace of all units."""
        sources = [
            *((queue.traces[i], queue.trace_dropped[i]) for i in range(2)),
            (completion.trace, completion.trace_dropped),
            (host.interrupt_trace, host.interrupt_trace_dropped),
            (dma.trace, dma.trace_dropped),
            *((core.trace, core.trace_dropped) for core in cores),
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
