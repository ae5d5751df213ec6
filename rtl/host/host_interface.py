"""The host interface: the PCIe-shaped function that the driver sees."""

from collections.abc import Mapping
from typing import Any

from amaranth import DomainRenamer, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.address import BAR0_BASE, BAR2_BASE, CONFIG_BASE, HOST_PORT_ADDRESS_BITS
from abi.config_space import CONFIG_SPACE
from abi.doorbell import DOORBELL_PAGE
from abi.geometry import CORES, DMA_CHANNELS, QUEUES, VECTORS
from abi.registers_core import (
    CORE_BLOCKS,
    CORE_COUNTERS,
    CORE_FAULT_ADDRESS,
    CORE_FAULT_BLOCK,
    CORE_RETIRED,
    CORE_STATE,
)
from abi.registers_dma import DMA_BYTES, DMA_CYCLES, DMA_STATE
from abi.registers_firmware import FIRMWARE_STATE, HEARTBEAT, MAILBOX_INDEX
from abi.registers_host import BAR0, BAR0_BYTES, DEVICE_MAGIC
from abi.registers_queue import QUEUE_CONSUMED, QUEUE_DOORBELL, QUEUE_FETCHED, QUEUE_STATE
from abi.trace import TRACE_EVENT
from abi.version import ABI_MAJOR, ABI_MINOR
from rtl.host.axi_lite import AxiLitePort, AxiLiteSlave
from rtl.host.config_space import ConfigSpace
from rtl.host.decoder import RegisterDecoder, Window
from rtl.host.interrupts import InterruptController
from rtl.host.mailbox import WINDOW_BYTES, Mailbox
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort
from rtl.host.reset import ResetController
from rtl.memory.port import WritePort

__all__ = ["CORE_COUNTER_VALUES", "HostInterface"]

CORE_COUNTER_VALUES = data.StructLayout(dict.fromkeys(CORE_COUNTERS, 64))
"""All counters of one core, by their names in `CORE_COUNTERS`."""

COUNTERS = (
    "link_read_bytes",
    "link_write_bytes",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "trace_dropped",
)

# Values of units that change while those units work; see RegisterBank.
SAMPLED = (
    "time",
    *COUNTERS,
    "dma_state",
    "dma_bytes",
    "dma_cycles",
    "core_state",
    "core_retired",
    "core_blocks",
    *CORE_COUNTERS,
)


class HostInterface(wiring.Component):
    """Config space, BAR0, the way to BAR2, mailbox, interrupts and reset behind one AXI4-Lite port.

    ::

        host ─► AxiLiteSlave ─► RegisterDecoder ┬► ConfigSpace ─► memory_enable, bus_master
                                                ├► BAR0 RegisterBank ─► window, CONTROL, MSI-X table
                                                ├► Mailbox ◄── mailbox_bus (firmware's side)
                                                └► doorbell_bus (BAR2)
        interrupt, response_written ─► InterruptController ─► interrupt_port

    Accesses outside config space and the BARs, and to a BAR while memory_enable is 0, are answered
    with SLVERR. During a reset: doorbells are refused from its start, all of the BARs while the
    blocks are being reset; no access stays unanswered. A reset clears BAR0, not config space.

    Clock domains, all of one clock: "host" (front end, decoder, config space, reset controller)
    must NOT be reset by `chip_reset`; "sync" (BAR0 bank, mailbox) and "interrupt" must.

    Args:
        hbm_bytes: for MEMORY.
        core_sizes: fields of CORE_BUFFERS and CORE_BUFFERS_2, by name.
        drain_cycles: bound of the drain before a reset.

    Members, for the chip:
        host: AxiLitePort, slave.
        doorbell_bus: RegisterPort, initiator; offsets in BAR2.
        mailbox_bus: RegisterPort, target; firmware's side of the mailbox words.
        interrupt: stream of 5 bits, in; vectors to send. Always ready.
        interrupt_port: WritePort; messages (host addresses outside the host window).
        interrupt_fault: out, 1 cycle; for EVENTS.
        interrupt_trace: stream of TRACE_EVENT, out; `interrupt_trace_dropped`: out, 1 cycle.
        link_quiet: in; the host link has nothing outstanding.
        quiesce: out; the host link takes no new requests (a reset is on its way).
        isolate: out; register accesses are cut off (to FirmwareInterface).
        chip_reset: out; resets everything outside the "host" domains.
        memory_enable, bus_master, trace_enable: out.
        fw_run: out; CONTROL.firmware_run, 0 during a reset.
        window_base, window_limit: 32 bits out; pages of the host window.
        product_xor: CORES x 16 bits, out.
        mailbox_event: out, 1 cycle; the host wrote request_write.
        request_write, response_read: MAILBOX_INDEX, out.
        request_read, response_write: MAILBOX_INDEX, in.
        response_written: in, 1 cycle; firmware wrote response_write: vector 0.
        host_idle, idle, interrupt_idle; host_wake, wake, interrupt_wake: out; per domain, see
            RegisterBank.

    Members, values shown in BAR0 (all in):
        time; link_read_bytes, link_write_bytes, hbm_read_bytes, hbm_write_bytes, trace_dropped,
        doorbell_refused: 64 bits each.
        firmware_state: FIRMWARE_STATE. heartbeat: HEARTBEAT.
        queue_doorbell, queue_fetched, queue_consumed, queue_state: QUEUES registers each.
        dma_state, dma_bytes, dma_cycles: DMA_CHANNELS registers each.
        core_state, core_fault_address, core_fault_block, core_retired, core_blocks: CORES
            registers each.
        core_counters: CORES x CORE_COUNTER_VALUES.

    Timing: arvalid to rvalid 4 cycles, awvalid and wvalid to bvalid 4 cycles.
    """

    def __init__(
        self, *, hbm_bytes: int, core_sizes: Mapping[str, int], drain_cycles: int = 4096
    ) -> None:
        self.hbm_bytes = hbm_bytes
        self.core_sizes = dict(core_sizes)
        self.drain_cycles = drain_cycles
        members: dict[str, Any] = {
            "host": In(AxiLitePort(address_bits=HOST_PORT_ADDRESS_BITS)),
            "doorbell_bus": Out(RegisterPort),
            "mailbox_bus": In(RegisterPort),
            "interrupt": In(stream.Signature(5)),
            "interrupt_port": Out(WritePort()),
            "interrupt_trace": Out(stream.Signature(TRACE_EVENT)),
            "product_xor": Out(16).array(CORES),
            "firmware_state": In(FIRMWARE_STATE),
            "heartbeat": In(HEARTBEAT),
            "queue_doorbell": In(QUEUE_DOORBELL).array(QUEUES),
            "queue_fetched": In(QUEUE_FETCHED).array(QUEUES),
            "queue_consumed": In(QUEUE_CONSUMED).array(QUEUES),
            "queue_state": In(QUEUE_STATE).array(QUEUES),
            "dma_state": In(DMA_STATE).array(DMA_CHANNELS),
            "dma_bytes": In(DMA_BYTES).array(DMA_CHANNELS),
            "dma_cycles": In(DMA_CYCLES).array(DMA_CHANNELS),
            "core_state": In(CORE_STATE).array(CORES),
            "core_fault_address": In(CORE_FAULT_ADDRESS).array(CORES),
            "core_fault_block": In(CORE_FAULT_BLOCK).array(CORES),
            "core_retired": In(CORE_RETIRED).array(CORES),
            "core_blocks": In(CORE_BLOCKS).array(CORES),
            "core_counters": In(CORE_COUNTER_VALUES).array(CORES),
        }
        members |= {name: In(64) for name in ("time", "doorbell_refused", *COUNTERS)}
        members |= {name: In(1) for name in ("link_quiet", "response_written")}
        members |= {name: In(MAILBOX_INDEX) for name in ("request_read", "response_write")}
        members |= {name: Out(MAILBOX_INDEX) for name in ("request_write", "response_read")}
        members |= {name: Out(32) for name in ("window_base", "window_limit")}
        members |= {
            name: Out(1)
            for name in (
                "interrupt_fault",
                "interrupt_trace_dropped",
                "quiesce",
                "isolate",
                "chip_reset",
                "memory_enable",
                "bus_master",
                "trace_enable",
                "fw_run",
                "mailbox_event",
                "host_idle",
                "idle",
                "interrupt_idle",
                "host_wake",
                "wake",
                "interrupt_wake",
            )
        }
        super().__init__(members)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        slave = AxiLiteSlave(address_bits=HOST_PORT_ADDRESS_BITS)
        decoder = RegisterDecoder(
            windows={
                "config": Window(base=CONFIG_BASE, nbytes=CONFIG_SPACE.nbytes),
                "mailbox": Window(
                    base=BAR0_BASE + BAR0["request_word"].offset, nbytes=WINDOW_BYTES
                ),
                "bar0": Window(base=BAR0_BASE, nbytes=BAR0_BYTES),
                "bar2": Window(base=BAR2_BASE, nbytes=QUEUES * DOORBELL_PAGE.nbytes),
            }
        )
        config, reset = ConfigSpace(), ResetController(drain_cycles=self.drain_cycles)
        for name, part in (
            ("slave", slave),
            ("decoder", decoder),
            ("config", config),
            ("reset", reset),
        ):
            m.submodules[name] = DomainRenamer("host")(part)
        bank = RegisterBank(BAR0, exclude=["request_word", "response_word"], sampled=SAMPLED)
        m.submodules.bar0 = bank
        m.submodules.mailbox = mailbox = Mailbox()
        interrupts = InterruptController()
        m.submodules.interrupts = DomainRenamer("interrupt")(interrupts)

        connect(m, flipped(self.host), slave.axi)
        connect(m, slave.bus, decoder.bus)
        connect(m, decoder.config, config.bus)
        connect(m, decoder.mailbox, mailbox.host)
        connect(m, decoder.bar0, bank.bus)
        connect(m, decoder.bar2, flipped(self.doorbell_bus))
        connect(m, flipped(self.mailbox_bus), mailbox.firmware)
        connect(m, flipped(self.interrupt), interrupts.send)
        connect(m, interrupts.memory, flipped(self.interrupt_port))
        connect(m, interrupts.trace, flipped(self.interrupt_trace))

        cut = ~config.memory_enable | reset.isolate
        control, window = bank.member("control"), bank.member("host_window")
        m.d.comb += [
            decoder.mailbox_closed.eq(cut),
            decoder.bar0_closed.eq(cut),
            decoder.bar2_closed.eq(cut | reset.busy),
            reset.start.eq(bank.member("reset", 0, "written") & bank.member("reset").reset),
            reset.link_quiet.eq(self.link_quiet),
            bank.member("reset", 0, "refuse").eq(reset.busy),
            self.quiesce.eq(reset.quiesce),
            self.isolate.eq(reset.isolate),
            self.chip_reset.eq(reset.chip_reset),
            self.memory_enable.eq(config.memory_enable),
            self.bus_master.eq(config.bus_master),
            self.trace_enable.eq(control.trace_enable),
            self.fw_run.eq(control.firmware_run & ~reset.busy),
            self.window_base.eq(window.base),
            self.window_limit.eq(window.limit),
            self.mailbox_event.eq(bank.member("request_write", 0, "written")),
            self.request_write.eq(bank.member("request_write")),
            self.response_read.eq(bank.member("response_read")),
            interrupts.mailbox.eq(self.response_written),
            interrupts.bus_master.eq(config.bus_master & ~reset.busy),
            self.interrupt_fault.eq(interrupts.fault),
            self.interrupt_trace_dropped.eq(interrupts.trace_dropped),
            self.host_idle.eq(slave.idle & decoder.idle & config.idle & reset.idle),
            self.host_wake.eq(slave.wake | reset.start),
            self.idle.eq(bank.idle & mailbox.idle),
            self.wake.eq(bank.wake | mailbox.wake),
            self.interrupt_idle.eq(interrupts.idle),
            self.interrupt_wake.eq(interrupts.wake),
        ]
        for vector in range(VECTORS):
            m.d.comb += [
                interrupts.address[vector].eq(bank.member("vector_address", vector)),
                interrupts.data[vector].eq(bank.member("vector_data", vector)),
                bank.member("vector_sent", vector).eq(interrupts.sent[vector]),
            ]
        m.d.comb += bank.member("vector_pending").eq(interrupts.pending)
        m.d.comb += [
            bank.member("reset_state").busy.eq(reset.busy),
            bank.member("reset_state").drained.eq(reset.drained),
            bank.member("reset_state").generation.eq(reset.generation),
        ]
        self._identity(m, bank)
        self._values(m, bank)
        return m

    def _identity(self, m: Module, bank: RegisterBank) -> None:
        constants = {
            "identity": {
                "magic": DEVICE_MAGIC,
                "abi_major": ABI_MAJOR,
                "abi_minor": ABI_MINOR,
            },
            "capabilities": {
                "queues": QUEUES,
                "dma_channels": DMA_CHANNELS,
                "cores": CORES,
                "vectors": VECTORS,
            },
            "memory": {"hbm_bytes": self.hbm_bytes},
            **{
                place: {
                    name: self.core_sizes[name]
                    for name in BAR0[place].register.fields
                    if name != "unused"
                }
                for place in ("core_buffers", "core_buffers_2")
            },
        }
        for name, values in constants.items():
            m.d.comb += bank.member(name).eq(BAR0[name].register.const(values))

    def _values(self, m: Module, bank: RegisterBank) -> None:
        for name in ("time", "doorbell_refused", *COUNTERS):
            m.d.comb += bank.member(name).as_value().eq(getattr(self, name))
        for name in ("firmware_state", "heartbeat", "request_read", "response_write"):
            m.d.comb += bank.member(name).as_value().eq(getattr(self, name).as_value())
        for name in (
            *("queue_doorbell", "queue_fetched", "queue_consumed", "queue_state"),
            *("dma_state", "dma_bytes", "dma_cycles"),
            *("core_state", "core_fault_address", "core_fault_block"),
            *("core_retired", "core_blocks"),
        ):
            for index, value in enumerate(getattr(self, name)):
                m.d.comb += bank.member(name, index).as_value().eq(value.as_value())
        for core in range(CORES):
            injection = bank.member("core_fault_injection", core)
            m.d.comb += self.product_xor[core].eq(injection.product_xor)
            for name in CORE_COUNTERS:
                m.d.comb += bank.member(name, core).count.eq(self.core_counters[core][name])
