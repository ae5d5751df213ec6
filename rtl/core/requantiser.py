"""The arithmetic of FIXPIPE: bias, ReLU, requantisation or rounding of 16 lanes."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import CUBE_SIDE, StoreOutput
from rtl.memory.port import LINE_BITS

__all__ = ["Requantiser"]


def _bfloat16(x: Value) -> Value:
    """An fp32 rounded to bfloat16, ties to even; NaNs become 0x7FC0."""
    is_nan = x[23:31].all() & x[:23].any()
    rounded = (x + (0x7FFF + x[16]))[16:32]
    return Mux(is_nan, Const(0x7FC0, 16), rounded)


class Requantiser(wiring.Component):
    """Lines of 16 words to lines of 16 words, 16 bfloat16 or 16 int8.

    x = sum + bias (int32, wraps); x = 0 if relu and its sign bit is set; the int8 result is
    (x * multiplier + (1 << shift >> 1)) >> shift, saturated; the bfloat16 result is x, an fp32,
    rounded to the nearest, ties to even.

    Members:
        valid: 1 bit; take a line.
        sums, bias_line: 512 bits, 16 words each.
        bias, relu: 1 bit each; output: a `StoreOutput`; multiplier: 31 bits; shift: 6 bits, at
            most 62. They may only change while nothing is on its way.
        wide_valid, wide: a line of 16 words, for output WORD.
        half_valid, half: 16 bfloat16 in 256 bits, for output BF16.
        narrow_valid, narrow: 16 int8 in 128 bits, for output INT8.

    Timing: a line a cycle; `wide` comes 1 cycle, `half` 2 and `narrow` 3 cycles after `valid`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "sums": In(LINE_BITS),
                "bias_line": In(LINE_BITS),
                "wide": Out(LINE_BITS),
                "half": Out(16 * CUBE_SIDE),
                "narrow": Out(8 * CUBE_SIDE),
                "valid": In(1),
                "stop": In(1),
                "bias": In(1),
                "relu": In(1),
                "output": In(2),
                "multiplier": In(31),
                "shift": In(6),
                "wide_valid": Out(1),
                "half_valid": Out(1),
                "narrow_valid": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        side = range(CUBE_SIDE)
        biased = [Signal(signed(32), name=f"biased{j}", reset_less=True) for j in side]
        rounded = [Signal(16, name=f"rounded{j}", reset_less=True) for j in side]
        scaled = [Signal(signed(64), name=f"scaled{j}", reset_less=True) for j in side]
        result = [Signal(signed(8), name=f"result{j}", reset_less=True) for j in side]
        rounding = Signal(63)
        to_int8 = self.output == StoreOutput.INT8
        to_bfloat16 = self.output == StoreOutput.BF16
        m.d.comb += rounding.eq((1 << self.shift) >> 1)

        biased_valid, scaled_valid, result_valid = (Signal(name=f"valid{i}") for i in range(1, 4))
        rounded_valid = Signal()
        m.d.sync += [
            biased_valid.eq(self.valid & ~self.stop),
            rounded_valid.eq(biased_valid & to_bfloat16 & ~self.stop),
            scaled_valid.eq(biased_valid & to_int8 & ~self.stop),
            result_valid.eq(scaled_valid & ~self.stop),
        ]
        for j in side:
            lane = slice(32 * j, 32 * j + 32)
            with m.If(self.valid):
                bias = Mux(self.bias, self.bias_line[lane], 0)
                x = (self.sums[lane] + bias)[:32]
                m.d.sync += biased[j].eq(Mux(self.relu & x[-1], 0, x))
            with m.If(biased_valid & to_bfloat16):
                m.d.sync += rounded[j].eq(_bfloat16(biased[j].as_unsigned()))
            with m.If(biased_valid & to_int8):
                # |x * multiplier| < 2**62, and half of 1 << shift is at most 2**61.
                product = (biased[j] * Cat(self.multiplier, 0).as_signed())[:64].as_signed()
                m.d.sync += scaled[j].eq((product + rounding)[:64])
            with m.If(scaled_valid):
                y = Signal(signed(64), name=f"shifted{j}")
                m.d.comb += y.eq(scaled[j] >> self.shift)
                m.d.sync += result[j].eq(Mux(y > 127, 127, Mux(y < -128, -128, y)))
        m.d.comb += [
            self.wide_valid.eq(biased_valid & (self.output == StoreOutput.WORD)),
            self.wide.eq(Cat(*biased)),
            self.half_valid.eq(rounded_valid),
            self.half.eq(Cat(*rounded)),
            self.narrow_valid.eq(result_valid),
            self.narrow.eq(Cat(*result)),
        ]
        return m
