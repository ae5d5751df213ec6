"""The simulated machine: the chip, and the host memory that it is plugged into."""

from amaranth import Cat, DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.address import ADDRESS_BITS, HOST_PORT_ADDRESS_BITS, LINE_BYTES
from abi.registers_firmware import FIRMWARE_PORT_ADDRESS_BITS
from abi.trace import TRACE_EVENT
from rtl.clocking import gated_domain
from rtl.host.axi_lite import AxiLitePort
from tb.machine.chip import Chip
from tb.machine.host_memory import HostMemory

__all__ = ["MachineTop"]


FAULT = {
    "slverr_base": Out(ADDRESS_BITS),
    "slverr_limit": Out(ADDRESS_BITS),
    "slverr_enable": Out(1),
}


class MachineTop(wiring.Component):
    """What the engine simulates.

    Args:
        host_bytes: size of host memory, from bus address 0.
        host_latency: cycles from a read address to its first beat.

    Members:
        host, fw: AxiLitePort, slaves of the chip.
        fw_event, fw_run: out.
        msi: out; `valid` for a cycle with each message's `vector`.
        trace: out; `valid` for a cycle with each `payload`.
        stall_level, stall_seed, fault: in; see `HostMemory`. They act a cycle
            later. A new `stall_seed` is set at least two cycles before `stall_level` leaves 0.
    """

    def __init__(
        self,
        *,
        host_bytes: int = 64 << 20,
        host_latency: int = 64,
    ) -> None:
        self.host_bytes = host_bytes
        self.host_latency = host_latency
        super().__init__(
            {
                "host": In(AxiLitePort(address_bits=HOST_PORT_ADDRESS_BITS)),
                "fw": In(AxiLitePort(address_bits=FIRMWARE_PORT_ADDRESS_BITS)),
                "fw_event": Out(1),
                "fw_run": Out(1),
                "msi": Out(wiring.Signature({"valid": Out(1), "vector": Out(5)})),
                "trace": Out(wiring.Signature({"valid": Out(1), "payload": Out(TRACE_EVENT)})),
                "stall_level": In(4),
                "stall_seed": In(32),
                "fault": In(wiring.Signature(FAULT)),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.npu = npu = Chip()
        memory = HostMemory(lines=self.host_bytes // LINE_BYTES, latency=self.host_latency)
        # Registered, since what hangs off a port is evaluated twice a cycle, and by a clock that
        # runs only when something changes.
        seed, level = Signal(32), Signal(4)
        fault = {name: Signal.like(getattr(self.fault, name)) for name in FAULT}
        inputs = Cat(self.stall_seed, self.stall_level, *(getattr(self.fault, n) for n in FAULT))
        held = Cat(seed, level, *fault.values())
        gated_domain(m, "stimulus", enable=inputs != held)
        m.d.stimulus += held.eq(inputs)
        # A new seed has to reach the sleeping memory before stalls begin.
        taken = Signal(32)
        m.d.host_memory += taken.eq(seed)
        axi = memory.axi
        work = ~memory.idle | axi.arvalid | axi.awvalid | axi.wvalid
        gated_domain(m, "host_memory", enable=work | (taken != seed))
        m.submodules.host_memory = DomainRenamer("host_memory")(memory)
        connect(m, flipped(self.host), npu.host)
        connect(m, flipped(self.fw), npu.fw)
        connect(m, npu.trace, flipped(self.trace))
        connect(m, npu.host_axi, memory.axi)
        connect(m, memory.msi, flipped(self.msi))
        m.d.comb += [getattr(memory.fault, name).eq(value) for name, value in fault.items()]
        m.d.comb += [
            self.fw_event.eq(npu.fw_event),
            self.fw_run.eq(npu.fw_run),
            memory.stall_level.eq(level),
            memory.stall_seed.eq(seed),
        ]
        return m
