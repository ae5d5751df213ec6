"""Both interfaces with their clock gates and resets, as the chip has them, for their tests."""

from typing import Any

from amaranth import DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect

from rtl.clocking import gated_domain
from rtl.host.firmware_interface import FirmwareInterface
from rtl.host.host_interface import HostInterface
from tb.blocks.host.gated import join

__all__ = ["CORE_SIZES", "DRAIN_CYCLES", "HBM_BYTES", "InterfaceBench"]

HBM_BYTES = 64 << 20
CORE_SIZES = {
    "l1_lines": 4096,
    "l0a_lines": 512,
    "l0b_lines": 511,
    "l0c_lines": 1024,
    "bias_lines": 64,
    "ub_lines": 2048,
    "bf16_depth": 4,
}
DRAIN_CYCLES = 100

MAILBOX = ("request_write", "request_read", "response_write", "response_read")
JOINED = {
    "mailbox_bus",
    "mailbox_event",
    "response_written",
    "firmware_state",
    "heartbeat",
    *MAILBOX,
}
CLOCKS = {"host_idle", "idle", "interrupt_idle", "host_wake", "wake", "interrupt_wake", "time"}
FROM_HOST = {"isolate", "mailbox_event", "interrupt_fault_event"}


class InterfaceBench(wiring.Component):
    """A HostInterface and a FirmwareInterface; all other members of both are ports.

    Five gated domains; `cycles` is the time that both see; `sleeping` is 1 while all clocks stand;
    `fw_event` is the firmware's event line (`event` is a Verilog keyword).
    """

    def __init__(self) -> None:
        self._host = HostInterface(
            hbm_bytes=HBM_BYTES, core_sizes=CORE_SIZES, drain_cycles=DRAIN_CYCLES
        )
        self._firmware = FirmwareInterface()
        members: dict[str, Any] = {"cycles": Out(64), "sleeping": Out(1), "fw_event": Out(1)}
        for part, inner in (
            (self._host, JOINED | CLOCKS),
            (self._firmware, JOINED | CLOCKS | FROM_HOST),
        ):
            members |= {
                name: member for name, member in part.signature.members.items() if name not in inner
            }
        super().__init__(members)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        host, firmware = self._host, self._firmware
        time = Signal(64)
        m.d.sync += time.eq(time + 1)
        gates = [
            gated_domain(m, "front", enable=host.host_wake | ~host.host_idle),
            gated_domain(m, "bar0", enable=host.wake | ~host.idle, reset=host.chip_reset),
            gated_domain(
                m,
                "interrupt",
                enable=host.interrupt_wake | ~host.interrupt_idle,
                reset=host.chip_reset,
            ),
            gated_domain(m, "fw_front", enable=firmware.host_wake | ~firmware.host_idle),
            gated_domain(
                m, "fw_bank", enable=firmware.wake | ~firmware.idle, reset=host.chip_reset
            ),
        ]
        m.submodules.host = DomainRenamer({"host": "front", "sync": "bar0"})(host)
        m.submodules.firmware = DomainRenamer({"host": "fw_front", "sync": "fw_bank"})(firmware)
        connect(m, firmware.mailbox_bus, host.mailbox_bus)
        m.d.comb += [
            self.cycles.eq(time),
            self.fw_event.eq(firmware.event),
            host.time.eq(time),
            firmware.time.eq(time),
            firmware.isolate.eq(host.isolate),
            firmware.mailbox_event.eq(host.mailbox_event),
            firmware.interrupt_fault_event.eq(host.interrupt_fault),
            host.response_written.eq(firmware.response_written),
            host.firmware_state.eq(firmware.firmware_state),
            host.heartbeat.eq(firmware.heartbeat),
            firmware.request_write.eq(host.request_write),
            firmware.response_read.eq(host.response_read),
            host.request_read.eq(firmware.request_read),
            host.response_write.eq(firmware.response_write),
            self.sleeping.eq(~sum(gate.running for gate in gates).any()),
        ]
        for part, inner in (
            (host, JOINED | CLOCKS),
            (firmware, JOINED | CLOCKS | FROM_HOST),
        ):
            members = part.signature.members.items()
            join(m, self, part, {name: member for name, member in members if name not in inner})
        return m
