"""The arithmetic of FIXPIPE: bias, ReLU and requantisation of 16 lanes."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import CUBE_SIDE
from rtl.memory.port import LINE_BITS

__all__ = ["Requantiser"]


class Requantiser(wiring.Component):
    """Lines of 16 int32 to lines of 16 int32 or to 16 int8.

    x = sum + bias (wraps); x = max(x, 0) if relu; the int8 result is
    (x * multiplier + (1 << shift >> 1)) >> shift, saturated.

    Members:
        valid: 1 bit; take a line.
        sums, bias_line: 512 bits, 16 int32 each.
        bias, relu, requantise: 1 bit each; multiplier: 31 bits; shift: 6 bits, at most 62. They
            may only change while nothing is on its way.
        wide_valid, wide: a line of 16 int32, if requantise is 0.
        narrow_valid, narrow: 16 int8 in 128 bits, if requantise is 1.

    Timing: a line a cycle; `wide` comes 1 cycle, `narrow` 3 cycles after `valid`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "sums": In(LINE_BITS),
                "bias_line": In(LINE_BITS),
                "wide": Out(LINE_BITS),
                "narrow": Out(8 * CUBE_SIDE),
                "valid": In(1),
                "stop": In(1),
                "bias": In(1),
                "relu": In(1),
                "requantise": In(1),
                "multiplier": In(31),
                "shift": In(6),
                "wide_valid": Out(1),
                "narrow_valid": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        side = range(CUBE_SIDE)
        biased = [Signal(signed(32), name=f"biased{j}", reset_less=True) for j in side]
        scaled = [Signal(signed(64), name=f"scaled{j}", reset_less=True) for j in side]
        result = [Signal(signed(8), name=f"result{j}", reset_less=True) for j in side]
        rounding = Signal(63)
        m.d.comb += rounding.eq((1 << self.shift) >> 1)

        biased_valid, scaled_valid, result_valid = (Signal(name=f"valid{i}") for i in range(1, 4))
        m.d.sync += [
            biased_valid.eq(self.valid & ~self.stop),
            scaled_valid.eq(biased_valid & self.requantise & ~self.stop),
            result_valid.eq(scaled_valid & ~self.stop),
        ]
        for j in side:
            lane = slice(32 * j, 32 * j + 32)
            with m.If(self.valid):
                bias = Mux(self.bias, self.bias_line[lane], 0)
                x = (self.sums[lane] + bias)[:32]
                m.d.sync += biased[j].eq(Mux(self.relu & x[-1], 0, x))
            with m.If(biased_valid & self.requantise):
                # |x * multiplier| < 2**62, and half of 1 << shift is at most 2**61.
                product = (biased[j] * Cat(self.multiplier, 0).as_signed())[:64].as_signed()
                m.d.sync += scaled[j].eq((product + rounding)[:64])
            with m.If(scaled_valid):
                y = Signal(signed(64), name=f"shifted{j}")
                m.d.comb += y.eq(scaled[j] >> self.shift)
                m.d.sync += result[j].eq(Mux(y > 127, 127, Mux(y < -128, -128, y)))
        m.d.comb += [
            self.wide_valid.eq(biased_valid & ~self.requantise),
            self.wide.eq(Cat(*biased)),
            self.narrow_valid.eq(result_valid),
            self.narrow.eq(Cat(*result)),
        ]
        return m
