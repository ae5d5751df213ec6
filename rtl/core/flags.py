"""The flags between pipes: counters that commands wait for and set."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import FLAG_MAXIMUM, FLAGS

__all__ = ["FlagFile"]


class FlagFile(wiring.Component):
    """Counters of at most `FLAG_MAXIMUM`.

    Members:
        clear: 1 bit; all counters become 0.
        take: a mask; these counters are decremented. They must not be 0.
        give: a mask; these counters are incremented.
        present: a mask; these counters are not 0.
        overflow: 1 bit, combinational; `give` would exceed the maximum. Nothing changes then.

    Timing: a counter follows in the next cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "clear": In(1),
                "take": In(FLAGS),
                "give": In(FLAGS),
                "present": Out(FLAGS),
                "overflow": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        counts = [Signal(range(FLAG_MAXIMUM + 1), name=f"count{i}") for i in range(FLAGS)]
        full = Cat(count == FLAG_MAXIMUM for count in counts)
        m.d.comb += [
            self.present.eq(Cat(count != 0 for count in counts)),
            self.overflow.eq((self.give & ~self.take & full).any()),
        ]
        with m.If(self.clear):
            m.d.sync += [count.eq(0) for count in counts]
        with m.Elif((self.take | self.give).any() & ~self.overflow):
            m.d.sync += [
                count.eq(count + self.give[i] - self.take[i]) for i, count in enumerate(counts)
            ]
        return m
