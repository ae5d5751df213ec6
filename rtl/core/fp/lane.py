"""A lane of fused multiply-add as an instance of a module that the chip has once.

Amaranth writes out a submodule for each place that uses it. The chip has more than a hundred
lanes: `FmaLane` refers to one module by name instead, whose Verilog is that of
`FusedMultiplyAdd`; a build adds it (`SHARED_MODULES`).
"""

from collections.abc import Callable

from amaranth import ClockSignal, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.core.fp.fma import FusedMultiplyAdd

__all__ = ["SHARED_MODULES", "FmaLane"]

FMA_MODULE = "glass_fma"

SHARED_MODULES: dict[str, Callable[[], wiring.Component]] = {FMA_MODULE: FusedMultiplyAdd}
"""What each module is, of which there are many instances by name."""


class FmaLane(wiring.Component):
    """`FusedMultiplyAdd` on the clock of the component's `sync` domain; members and timing are
    the same."""

    def __init__(self) -> None:
        word = 32
        super().__init__(
            {
                "a": In(word),
                "b": In(word),
                "c": In(word),
                "result": Out(word),
                "enable": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.instance = Instance(
            FMA_MODULE,
            i_clk=ClockSignal(),
            i_a=self.a,
            i_b=self.b,
            i_c=self.c,
            i_enable=self.enable,
            o_result=self.result,
        )
        return m
