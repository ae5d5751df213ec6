"""Comparisons of binary32 numbers."""

from typing import Final

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.core.fp.binary32 import CANONICAL_NAN, is_nan

__all__ = ["LATENCY", "Comparison"]

LATENCY: Final = 1
"""Cycles with `enable` from operands to results."""


class Comparison(wiring.Component):
    """Order of two binary32 numbers, and the larger or smaller one.

    `less`, `less_equal` and `equal` are those of IEEE 754: -0 equals +0, and all are 0 if an
    operand is a NaN. `extremum` is its maximumNumber and minimumNumber (2019): -0 is below +0, a
    NaN operand is ignored, and two give 0x7FC00000.

    Members:
        a, b: 32 bits; operands.
        minimum: 1 bit; `extremum` is the smaller operand, not the larger one.
        enable: 1 bit; take the operands.
        extremum: 32 bits.
        less, less_equal, equal: 1 bit each; a < b, a <= b, a == b. All results are undefined
            before the first `enable`.

    Timing: an operation a cycle, the results LATENCY cycles later; they hold while `enable` is
    low.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "a": In(32),
                "b": In(32),
                "extremum": Out(32),
                "minimum": In(1),
                "less": Out(1),
                "less_equal": Out(1),
                "equal": Out(1),
                "enable": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        keys = []
        nans = []
        for name in "ab":
            operand = getattr(self, name)
            # In the order of these unsigned numbers -0 lies just below +0.
            key, nan = Signal(32, name=f"{name}_key"), Signal(name=f"{name}_nan")
            m.d.comb += [
                key.eq(operand ^ Mux(operand[31], 0xFFFF_FFFF, 0x8000_0000)),
                nan.eq(is_nan(operand)),
            ]
            keys.append(key)
            nans.append(nan)
        below, same, ordered, take_a = (
            Signal(name=name) for name in ("below", "same", "ordered", "take_a")
        )
        m.d.comb += [
            below.eq(keys[0] < keys[1]),
            same.eq((self.a == self.b) | ((self.a | self.b)[:31] == 0)),
            ordered.eq(~(nans[0] | nans[1])),
            take_a.eq(nans[1] | (~nans[0] & (below == self.minimum))),
        ]
        extremum = Signal(32, reset_less=True)
        less, less_equal, equal = (
            Signal(name=f"{name}_result", reset_less=True)
            for name in ("less", "less_equal", "equal")
        )
        with m.If(self.enable):
            m.d.sync += [
                extremum.eq(
                    Mux(nans[0] & nans[1], CANONICAL_NAN, Mux(take_a, self.a, self.b)),
                ),
                less.eq(ordered & below & ~same),
                less_equal.eq(ordered & (below | same)),
                equal.eq(ordered & same),
            ]
        m.d.comb += [
            self.extremum.eq(extremum),
            self.less.eq(less),
            self.less_equal.eq(less_equal),
            self.equal.eq(equal),
        ]
        return m
