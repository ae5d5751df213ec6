"""The divider of the scalar unit."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Divider"]

STEPS = 32


class Divider(wiring.Component):
    """Divides two words by restoring division of their magnitudes, one bit a cycle.

    Division by zero gives all ones and the dividend; the one overflow gives the dividend and 0
    (RISC-V, M extension, section "Division Operations"): the steps do so by themselves, if the
    quotient by zero is not negated.

    Members:
        start: 1 bit; begin with a and b. One that is running is given up.
        a, b: 32 bits.
        is_signed: 1 bit; they are two's complement numbers.
        done: 1 bit; quotient and remainder are there, until the next `start`.
        quotient, remainder: 32 bits.

    Timing: `done` 33 cycles after `start`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "a": In(32),
                "b": In(32),
                "is_signed": In(1),
                "done": Out(1),
                "quotient": Out(32),
                "remainder": Out(32),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        left = Signal(range(STEPS + 1))
        quotient = Signal(32, reset_less=True)
        remainder = Signal(32, reset_less=True)
        divisor = Signal(32, reset_less=True)
        negate_quotient = Signal(reset_less=True)
        negate_remainder = Signal(reset_less=True)
        a_negative = self.is_signed & self.a[31]
        b_negative = self.is_signed & self.b[31]
        with m.If(self.start):
            m.d.sync += [
                left.eq(STEPS),
                quotient.eq(Mux(a_negative, -self.a, self.a)),
                divisor.eq(Mux(b_negative, -self.b, self.b)),
                remainder.eq(0),
                negate_quotient.eq((a_negative ^ b_negative) & self.b.any()),
                negate_remainder.eq(a_negative),
            ]
        with m.Elif(left != 0):
            shifted = Cat(quotient[31], remainder)
            difference = Signal(34)
            m.d.comb += difference.eq(shifted - divisor)
            fits = ~difference[33]
            m.d.sync += [
                left.eq(left - 1),
                quotient.eq(Cat(fits, quotient)),
                remainder.eq(Mux(fits, difference, shifted)),
            ]
        m.d.comb += [
            self.done.eq(left == 0),
            self.quotient.eq(Mux(negate_quotient, -quotient, quotient)),
            self.remainder.eq(Mux(negate_remainder, -remainder, remainder)),
        ]
        return m
