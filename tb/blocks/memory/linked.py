"""The host link with host memory behind it, as one block under test."""

from pathlib import Path

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.memory.host_link import HOST_AXI, HostLink
from rtl.memory.port import ReadPort, WritePort
from rtl.memory.sram import Sram
from tb.engine.machine_build import HOST_DRAM
from tb.machine.host_memory import HostMemory

__all__ = ["LinkedMemory", "dram_sources"]


def dram_sources(sim: str) -> list[Path]:
    """The Verilog of `host_dram` for a simulator."""
    if sim == "verilator":
        return [HOST_DRAM]
    return [Path(__file__).with_name("host_dram_plain.sv"), Sram.SOURCE]


class LinkedMemory(wiring.Component):
    """`HostLink` and `HostMemory`; `host_axi` shows the bus between them."""

    def __init__(self, *, lines: int, latency: int) -> None:
        self.link = HostLink()
        self.memory = HostMemory(lines=lines, latency=latency)
        # `signature` of an In member is flipped already.
        fault = self.memory.signature.members["fault"].signature
        shown = {name: Out(member.shape) for name, member in HOST_AXI.members.items()}
        super().__init__(
            {
                "read": In(ReadPort()),
                "write": In(WritePort()),
                "bus_master": In(1),
                "quiesce": In(1),
                "outstanding_none": Out(1),
                "idle": Out(2),
                "stall_level": In(4),
                "stall_seed": In(32),
                "fault": Out(fault),
                "msi": Out(wiring.Signature({"valid": Out(1), "vector": Out(5)})),
                "host_axi": Out(wiring.Signature(shown)),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.link, m.submodules.memory = link, memory = self.link, self.memory
        wiring.connect(m, wiring.flipped(self.read), link.read)
        wiring.connect(m, wiring.flipped(self.write), link.write)
        wiring.connect(m, link.host_axi, memory.axi)
        wiring.connect(m, wiring.flipped(self.fault), memory.fault)
        wiring.connect(m, wiring.flipped(self.msi), memory.msi)
        m.d.comb += [
            link.bus_master.eq(self.bus_master),
            link.quiesce.eq(self.quiesce),
            self.outstanding_none.eq(link.outstanding_none),
            self.idle[0].eq(link.idle),
            self.idle[1].eq(memory.idle),
            memory.stall_level.eq(self.stall_level),
            memory.stall_seed.eq(self.stall_seed),
        ]
        for name in HOST_AXI.members:
            m.d.comb += getattr(self.host_axi, name).eq(getattr(link.host_axi, name))
        return m
