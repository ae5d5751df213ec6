"""The chip as an instance, so that its Verilog is made once for the machine and for bare use."""

from amaranth import ClockSignal, Instance, Module, ResetSignal
from amaranth.hdl import Value
from amaranth.lib import wiring

__all__ = ["CHIP_MODULE", "Chip"]

CHIP_MODULE = "npu"
"""Name of the chip's module in the machine's Verilog."""


class Chip(wiring.Component):
    """The reference chip, members as of `Npu`, whose Verilog a build adds as `CHIP_MODULE`."""

    def __init__(self) -> None:
        # Imported here, since a start from the cache needs no RTL.
        from rtl.npu import NPU

        super().__init__(NPU)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        ports = {}
        for path, member, value in self.signature.flatten(self):
            direction = "i" if member.flow is wiring.In else "o"
            name = "__".join(str(part) for part in path)
            ports[f"{direction}_{name}"] = Value.cast(value)
        m.submodules.instance = Instance(
            CHIP_MODULE, i_clk=ClockSignal(), i_rst=ResetSignal(), **ports
        )
        return m
