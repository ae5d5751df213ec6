"""The firmware port: what the device's CPU reaches."""

from typing import Any

from amaranth import DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.address import PACKET_BYTES, SRAM_SLOTS_PER_QUEUE
from abi.geometry import CORES, QUEUES
from abi.registers_firmware import (
    COMPLETION_BASE,
    COMPLETION_BLOCK,
    CORE_BASE,
    CORE_BLOCK,
    DMA_BASE,
    DMA_BLOCK,
    FIRMWARE_BASE,
    FIRMWARE_BLOCK,
    FIRMWARE_PORT_ADDRESS_BITS,
    FIRMWARE_STATE,
    HEARTBEAT,
    MAILBOX_INDEX,
    PACKET_SRAM_BASE,
    QUEUE_BASE,
    QUEUE_BLOCK,
)
from rtl.host.axi_lite import AxiLitePort, AxiLiteSlave
from rtl.host.decoder import RegisterDecoder, Window
from rtl.host.mailbox import WINDOW_BYTES
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort

__all__ = ["FirmwareInterface"]

EVENTS = {
    "doorbell_event": "doorbell",
    "fetched_event": "fetched",
    "dma_event": "dma",
    "core_event": "core",
    "completion_event": "completion",
    "mailbox_event": "mailbox",
    "queue_fault_event": "queue_fault",
    "interrupt_fault_event": "interrupt_fault",
}

WINDOWS = {
    "mailbox": Window(
        base=FIRMWARE_BASE + FIRMWARE_BLOCK["request_word"].offset, nbytes=WINDOW_BYTES
    ),
    "firmware": Window(base=FIRMWARE_BASE, nbytes=FIRMWARE_BLOCK.nbytes),
    "queue": Window(base=QUEUE_BASE, nbytes=QUEUE_BLOCK.nbytes),
    "dma": Window(base=DMA_BASE, nbytes=DMA_BLOCK.nbytes),
    "completion": Window(base=COMPLETION_BASE, nbytes=COMPLETION_BLOCK.nbytes),
    **{
        f"core{core}": Window(
            base=CORE_BASE + CORE_BLOCK.address("code", core), nbytes=CORE_BLOCK["code"].stride
        )
        for core in range(CORES)
    },
    "packet": Window(base=PACKET_SRAM_BASE, nbytes=QUEUES * SRAM_SLOTS_PER_QUEUE * PACKET_BYTES),
}


class FirmwareInterface(wiring.Component):
    """FIRMWARE_BLOCK and the ways to all other blocks, behind one AXI4-Lite port.

    Accesses outside the blocks are answered with SLVERR, and so is every access while `isolate`
    is 1, also one that is on its way.

    Clock domains, both of one clock: "host" (front end and decoder) must NOT be reset by
    `chip_reset`; "sync" (FIRMWARE_BLOCK) must.

    Members:
        fw: AxiLitePort, slave.
        mailbox_bus, queue_bus, dma_bus, completion_bus, packet_bus: RegisterPort, initiator;
            offsets in the mailbox's window, the blocks, and packet SRAM.
        core0_bus, core1_bus, ...: RegisterPort, initiator; offsets in the part of the core.
        isolate: in; from HostInterface.
        time: 64 bits in.
        doorbell_event, fetched_event, dma_event, core_event, completion_event, mailbox_event,
        queue_fault_event, interrupt_fault_event: in, 1 cycle each; set bits of EVENTS.
        event: out; (EVENTS & EVENT_ENABLE) != 0.
        firmware_state: FIRMWARE_STATE, out. heartbeat: HEARTBEAT, out.
        request_write, response_read: MAILBOX_INDEX, in; the host's indices.
        request_read, response_write: MAILBOX_INDEX, out; the firmware's.
        response_written: out, 1 cycle; firmware wrote response_write.
        host_idle, idle; host_wake, wake: out; per domain, see RegisterBank.

    Timing: arvalid to rvalid 4 cycles for registers, 3 for mailbox words and packet SRAM; `event`
    2 cycles after the pulse.
    """

    def __init__(self) -> None:
        members: dict[str, Any] = {
            "fw": In(AxiLitePort(address_bits=FIRMWARE_PORT_ADDRESS_BITS)),
            "isolate": In(1),
            "time": In(64),
            "event": Out(1),
            "firmware_state": Out(FIRMWARE_STATE),
            "heartbeat": Out(HEARTBEAT),
            "request_write": In(MAILBOX_INDEX),
            "response_read": In(MAILBOX_INDEX),
            "request_read": Out(MAILBOX_INDEX),
            "response_write": Out(MAILBOX_INDEX),
            "response_written": Out(1),
            "host_idle": Out(1),
            "idle": Out(1),
            "host_wake": Out(1),
            "wake": Out(1),
        }
        members |= {f"{name}_bus": Out(RegisterPort) for name in WINDOWS if name != "firmware"}
        members |= {name: In(1) for name in EVENTS}
        super().__init__(members)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        slave = AxiLiteSlave(address_bits=FIRMWARE_PORT_ADDRESS_BITS)
        decoder = RegisterDecoder(windows=WINDOWS)
        m.submodules.slave = DomainRenamer("host")(slave)
        m.submodules.decoder = DomainRenamer("host")(decoder)
        bank = RegisterBank(
            FIRMWARE_BLOCK, exclude=["request_word", "response_word"], sampled=["time"]
        )
        m.submodules.bank = bank
        connect(m, flipped(self.fw), slave.axi)
        connect(m, slave.bus, decoder.bus)
        for name in WINDOWS:
            target = bank.bus if name == "firmware" else flipped(getattr(self, f"{name}_bus"))
            connect(m, getattr(decoder, name), target)
            m.d.comb += getattr(decoder, f"{name}_closed").eq(self.isolate)

        events, happened = bank.member("events"), bank.member("events", 0, "set")
        m.d.comb += [
            *(happened[bit].eq(getattr(self, name)) for name, bit in EVENTS.items()),
            self.event.eq((events.as_value() & bank.member("event_enable").mask).any()),
            bank.member("time").cycles.eq(self.time),
            self.firmware_state.eq(bank.member("firmware_state")),
            self.heartbeat.eq(bank.member("heartbeat")),
            bank.member("request_write").eq(self.request_write),
            bank.member("response_read").eq(self.response_read),
            self.request_read.eq(bank.member("request_read")),
            self.response_write.eq(bank.member("response_write")),
            self.response_written.eq(bank.member("response_write", 0, "written")),
            self.host_idle.eq(slave.idle & decoder.idle),
            self.host_wake.eq(slave.wake),
            self.idle.eq(bank.idle),
            self.wake.eq(bank.wake),
        ]
        return m
