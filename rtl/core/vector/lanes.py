"""The lanes of the vector unit: element-wise operations on 16 words."""

from amaranth import Cat, DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.clocking import gated_domain
from rtl.core.vector.lane_groups import (
    STAGES,
    Comparisons,
    Conversions,
    Group,
    Integers,
    Sums,
)
from rtl.memory.port import LINE_BITS

__all__ = ["CYCLES", "Lanes"]

CYCLES = 1 + STAGES
"""Cycles from operands to result, the operand registers included."""


class Lanes(wiring.Component):
    """Computes `function` of x, y and z in each of 16 lanes.

    Each group of functions has its own operand registers and its own clock, which runs only while
    an operation of the group is under way.

    Members:
        x, y, z: 512 bits; operands. enable: 1 bit; they enter.
        function: 8 bits; an element-wise `VectorOperation`, stable while anything is under way.
        result: 512 bits.

    Timing: an operation a cycle, its result in the cycle `CYCLES` after `enable` (only).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "x": In(LINE_BITS),
                "y": In(LINE_BITS),
                "z": In(LINE_BITS),
                "result": Out(LINE_BITS),
                "function": In(8),
                "enable": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        busy = Signal(STAGES)
        m.d.sync += busy.eq(Cat(self.enable, busy)[:STAGES])
        groups: dict[str, Group] = {
            "sums": Sums(),
            "integers": Integers(),
            "comparisons": Comparisons(),
            "conversions": Conversions(),
        }
        for name, group in groups.items():
            mine, active = Signal(name=f"{name}_chosen"), Signal(name=f"{name}_active")
            m.d.comb += [
                mine.eq(self.function.matches(*group.FUNCTIONS)),
                active.eq(mine & (self.enable | busy.any())),
                group.function.eq(self.function),
                group.x.eq(self.x),
                group.y.eq(self.y),
                group.z.eq(self.z),
                group.enter.eq(self.enable & mine),
                group.move.eq(mine & busy.any()),
            ]
            with m.If(mine):
                m.d.comb += self.result.eq(group.result)
            domain = f"vector_{name}"
            gated_domain(m, domain, enable=active, local=True)
            m.submodules[name] = DomainRenamer(domain)(group)
        return m
