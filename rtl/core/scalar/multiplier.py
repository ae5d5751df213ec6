"""The multiplier of the scalar unit."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Multiplier"]


class Multiplier(wiring.Component):
    """Multiplies two words.

    The high word of a product of signed numbers is that of the unsigned ones, less b if a is
    negative, less a if b is.

    Members:
        start: 1 bit; multiply a and b, which stay until the result is used.
        a, b: 32 bits.
        a_signed, b_signed: 1 bit; they are two's complement numbers.
        low, high: 32 bits; the product's words, from the cycle after `start`.

    Timing: latency 1 cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "a": In(32),
                "b": In(32),
                "a_signed": In(1),
                "b_signed": In(1),
                "low": Out(32),
                "high": Out(32),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        product = Signal(64, reset_less=True)
        with m.If(self.start):
            m.d.sync += product.eq(self.a * self.b)
        less_b = Mux(self.a_signed & self.a[31], self.b, 0)
        less_a = Mux(self.b_signed & self.b[31], self.a, 0)
        m.d.comb += [
            self.low.eq(product[:32]),
            self.high.eq(product[32:] - less_b - less_a),
        ]
        return m
