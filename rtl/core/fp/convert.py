"""Conversions between binary32, int32, int8 and bfloat16."""

from typing import Final

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.core.fp.binary32 import CANONICAL_NAN, is_nan, normalised

__all__ = ["LATENCY", "FloatToBfloat16", "FloatToInt", "IntToFloat", "bfloat16_to_float"]

LATENCY: Final = 1
"""Cycles with `enable` from value to result, of every conversion."""

# Biased exponent of 2**31, the first magnitude that no int32 has (but -2**31, where it saturates).
_TOO_LARGE: Final = 127 + 31


def bfloat16_to_float(value: Value) -> Value:
    """The binary32 of the same value as the 16 bits `value`: wires only, NaNs keep their bits."""
    return Cat(Const(0, 16), value[:16])


class IntToFloat(wiring.Component):
    """The binary32 nearest to an int32, ties to even.

    Members:
        value: 32 bits; int32.
        enable: 1 bit; take the value.
        result: 32 bits; undefined before the first `enable`.

    Timing: a value a cycle, the result LATENCY cycles later; it holds while `enable` is low.
    """

    def __init__(self) -> None:
        super().__init__({"value": In(32), "result": Out(32), "enable": In(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        sign = self.value[31]
        magnitude = Signal(32)
        m.d.comb += magnitude.eq((self.value ^ Mux(sign, 0xFFFF_FFFF, 0)) + sign)
        normal, shift = normalised(m, magnitude, name="value")
        # The hidden bit adds 1 to the exponent field, and so may the carry of the rounding.
        exponent = (Const(127 + 30) - shift)[:8]
        rounded = normal + (Const(1 << 7) - ~normal[8])[:8]
        packed = Cat(Const(0, 23), exponent) + rounded[8:33]
        result = Signal(32, reset_less=True)
        with m.If(self.enable):
            m.d.sync += result.eq(Cat(Mux(magnitude == 0, 0, packed[:31]), sign))
        m.d.comb += self.result.eq(result)
        return m


class FloatToInt(wiring.Component):
    """The int32 or int8 nearest to a binary32, or the next one towards 0; saturated.

    Members:
        value: 32 bits; binary32. A NaN gives 0, infinities saturate.
        truncate: 1 bit; round towards 0, not to nearest with ties to even.
        narrow: 1 bit; saturate to -128 to 127, not to the range of int32.
        enable: 1 bit; take the value.
        result: 32 bits; the integer with its sign extended, undefined before the first `enable`.

    Timing: a value a cycle, the result LATENCY cycles later; it holds while `enable` is low.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "value": In(32),
                "result": Out(32),
                "truncate": In(1),
                "narrow": In(1),
                "enable": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        sign = self.value[31]
        exponent = self.value[23:31]
        too_large, saturated = Signal(), Signal()
        # Fixed point with 32 fractional bits. Bits move out only of values below 2**-8, which
        # round to 0 either way; so do subnormals, here with a hidden bit like any other number.
        right = Signal(8)
        fixed = Signal(63)
        rounded = Signal(64)
        whole = rounded[32:]
        m.d.comb += [
            right.eq(_TOO_LARGE - 1 - exponent),
            fixed.eq(Cat(Const(0, 39), self.value[:23], Const(1, 1)) >> right),
            rounded.eq(fixed + Mux(self.truncate, 0, (Const(1 << 31) - ~fixed[32])[:32])),
            too_large.eq(exponent >= _TOO_LARGE),
            # The limit of -128 or -2**31 is the result of those two values as well.
            saturated.eq(too_large | (self.narrow & (whole > 127))),
        ]
        limit = Mux(self.narrow, 127, 0x7FFF_FFFF)
        magnitude = Signal(32)
        m.d.comb += magnitude.eq(Mux(saturated, limit + sign, whole))
        result = Signal(32, reset_less=True)
        with m.If(self.enable):
            m.d.sync += result.eq(
                Mux(
                    is_nan(self.value),
                    0,
                    (magnitude ^ Mux(sign, 0xFFFF_FFFF, 0)) + sign,
                )
            )
        m.d.comb += self.result.eq(result)
        return m


class FloatToBfloat16(wiring.Component):
    """The bfloat16 nearest to a binary32, ties to even; a NaN gives 0x7FC0.

    Members:
        value: 32 bits; binary32.
        enable: 1 bit; take the value.
        result: 16 bits; undefined before the first `enable`.

    Timing: a value a cycle, the result LATENCY cycles later; it holds while `enable` is low.
    """

    def __init__(self) -> None:
        super().__init__({"value": In(32), "result": Out(16), "enable": In(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        rounded = self.value + (Const(1 << 15) - ~self.value[16])[:16]
        result = Signal(16, reset_less=True)
        with m.If(self.enable):
            m.d.sync += result.eq(Mux(is_nan(self.value), CANONICAL_NAN >> 16, rounded[16:32]))
        m.d.comb += self.result.eq(result)
        return m
