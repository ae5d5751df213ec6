"""One lane of fused multiply-add in binary32."""

from dataclasses import dataclass
from typing import Final

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.core.fp.binary32 import CANONICAL_NAN, INFINITY, is_nan, normalised

__all__ = ["LATENCY", "FusedMultiplyAdd"]

LATENCY: Final = 3
"""Cycles with `enable` from operands to result."""

# The addend and the product meet in a fixed-point window of 63 bits. The operand with the larger
# exponent stays in place, the other one moves right; what it loses is or-ed into bit 0.
# A leading one at _POINT has the biased exponent of the sum; results round at bit _DROP of a
# sum that is normalised to 63 bits.
_WINDOW: Final = 63
_POINT: Final = _WINDOW - 2
_DROP: Final = _WINDOW - 24
_ADDEND_SHIFT: Final = _POINT - 23
_PRODUCT_SHIFT: Final = 12

# All exponents are biased exponents less 1, 0 for subnormals. Bit _ADDEND_SHIFT of the window is
# worth 2**(c - 149), bit _PRODUCT_SHIFT 2**(a + b - 298): the sum's exponent is the larger one of
# c and a + b - _PRODUCT_BIAS.
_PRODUCT_BIAS: Final = 149 - (_ADDEND_SHIFT - _PRODUCT_SHIFT)

# Exponents of infinities have bit 9 set, beyond any finite sum; sums of two need 11 bits.
_EXPONENT_BITS: Final = 11


@dataclass(frozen=True)
class _Operand:
    """An unpacked number; `infinite` holds for NaNs too."""

    significand: Value
    exponent: Value
    infinite: Value


class FusedMultiplyAdd(wiring.Component):
    """a * b + c with one rounding, to nearest even: fusedMultiplyAdd of IEEE 754 binary32.

    Subnormals are operands and results like any others. Every NaN result is 0x7FC00000. An exact
    zero from operands of different signs is +0. There are no exception flags.

    a + c is a * ONE + c; a - c is that with the sign of c inverted; a * b is a * b + MINUS_ZERO
    (constants in `rtl.core.fp.binary32`). These equal the IEEE operations in every bit.

    Members:
        a, b, c: 32 bits; operands.
        enable: 1 bit; move every stage by one and take the operands. The user lets the pipeline
            run on until the last result is out.
        result: 32 bits.

    Timing: an operation a cycle, the result LATENCY cycles with `enable` after the operands. It
    holds while `enable` is low. The registers have no reset: results before the first operands
    arrive are undefined.

    In simulation a lane costs a third less if Verilator does not inline it into its parent; see
    `rtl.core.fp.lane`.

    Algorithm: the product is not normalised first. A window of 63 bits suffices: if the product
    has fewer than 24 bits both factors are subnormal, and its magnitude only shows in the sticky
    bit; otherwise a sum that cancels far has lost no bit, and one that has lost bits keeps its
    leading one at bit 34 or above. The limit of the normalising shift by the exponent makes
    subnormal results, and the carry of the rounding moves into the exponent field by itself.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "a": In(32),
                "b": In(32),
                "c": In(32),
                "result": Out(32),
                "enable": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()

        # Stage 1: multiply, and compare the exponents.
        operands = {name: self._unpack(m, name) for name in "abc"}
        a, b, c = operands["a"], operands["b"], operands["c"]
        zero_product, opposite, any_infinite = (
            Signal(name=name) for name in ("zero_product", "opposite", "any_infinite")
        )
        # Masks, not Muxes, wherever the choice depends on the data: a Mux may become a branch in
        # the simulator, and the host's branch prediction fails there.
        product_exponent, difference = (
            Signal(_EXPONENT_BITS + 1, name=name) for name in ("product_exponent", "difference")
        )
        apart = Signal(_EXPONENT_BITS)
        leads = difference[-1]
        low = difference[:_EXPONENT_BITS]
        m.d.comb += [
            zero_product.eq((a.significand == 0) | (b.significand == 0)),
            opposite.eq(self.a[31] ^ self.b[31] ^ self.c[31]),
            any_infinite.eq(a.infinite | b.infinite | c.infinite),
            # Modulo 2**12, may be negative. A product of 0 must not push the addend out, whatever
            # the exponent of the other factor: it is taken as much smaller.
            product_exponent.eq(
                a.exponent + b.exponent - Cat(Const(_PRODUCT_BIAS, 9), zero_product)
            ),
            # c - product, and 2**11 - 1 more: the top bit tells whether it is positive.
            difference.eq(c.exponent + ((1 << _EXPONENT_BITS) - 1) - product_exponent),
            apart.eq((low ^ Mux(leads, 0, (1 << _EXPONENT_BITS) - 1)) + leads),
        ]
        product = Signal(48, reset_less=True)
        addend = Signal(24, reset_less=True)
        distance = Signal(6, reset_less=True)
        exponent = Signal(_EXPONENT_BITS, reset_less=True)
        addend_leads, sign, subtract, nan = (
            Signal(name=name, reset_less=True)
            for name in ("addend_leads", "sign", "subtract", "nan")
        )
        with m.If(self.enable):
            m.d.sync += [
                product.eq(a.significand * b.significand),
                addend.eq(c.significand),
                distance.eq(Mux(apart > 63, 63, apart)),
                exponent.eq(product_exponent + Mux(leads, low, 0) + leads),
                addend_leads.eq(leads),
                sign.eq(self.a[31] ^ self.b[31] ^ (leads & opposite)),
                subtract.eq(opposite),
                nan.eq(0),
            ]
            with m.If(any_infinite):
                m.d.sync += nan.eq(
                    is_nan(self.a)
                    | is_nan(self.b)
                    | is_nan(self.c)
                    | ((a.infinite | b.infinite) & (zero_product | (c.infinite & opposite)))
                )

        # Stage 2: align and add.
        fixed_product = Cat(Const(0, _PRODUCT_SHIFT), product)
        fixed_addend = Cat(Const(0, _ADDEND_SHIFT), addend)
        smaller, larger, aligned = (
            Signal(_WINDOW, name=name) for name in ("smaller", "larger", "aligned")
        )
        # Ones up to the lowest one of `smaller`, so 0 after the shift if that is lost.
        lowest = Signal(64)
        total = Signal(64)
        zero = Signal()
        m.d.comb += [
            smaller.eq(Mux(addend_leads, fixed_product, fixed_addend)),
            larger.eq(fixed_product + fixed_addend - smaller),
            lowest.eq(smaller ^ (smaller - 1)[:64]),
            aligned.eq((smaller >> distance) | ((lowest >> distance) == 0)),
            total.eq(Mux(subtract, (larger - aligned)[:64], larger + aligned)),
            zero.eq(total == 0),
        ]
        negative = total[63]
        magnitude = Signal(_WINDOW, reset_less=True)
        sum_exponent = Signal(_EXPONENT_BITS, reset_less=True)
        sum_sign, sum_nan = (Signal(name=name, reset_less=True) for name in ("sum_sign", "sum_nan"))
        with m.If(self.enable):
            m.d.sync += [
                magnitude.eq((total[:_WINDOW] ^ Mux(negative, (1 << _WINDOW) - 1, 0)) + negative),
                sum_exponent.eq(Mux(zero, 0, exponent)),
                sum_sign.eq((sign ^ negative) & ~(subtract & zero)),
                sum_nan.eq(nan),
            ]

        # Stage 3: normalise, round, pack. The shift ends where the exponent would fall below that
        # of subnormals: at `stop`, a bit above all of the sum, which leaves as the hidden bit.
        stop = Signal(_WINDOW)
        subnormal = Signal()
        packed = Signal(_EXPONENT_BITS + 23)
        m.d.comb += [
            stop.eq(Const(1 << _POINT, _WINDOW) >> sum_exponent),
            subnormal.eq(stop > magnitude),
        ]
        stopped = magnitude | Mux(subnormal, stop, 0)
        normal, shift = normalised(m, Cat(Const(0, 1), stopped), name="sum")
        normal = normal[1:]
        half = (Const(1 << _DROP - 1) - (~normal[_DROP]))[:_DROP]
        exponent_field = (sum_exponent + ~subnormal - shift)[:_EXPONENT_BITS]
        m.d.comb += packed.eq(Cat(Const(0, 23), exponent_field) + (normal + half)[_DROP:])
        result = Signal(32, reset_less=True)
        with m.If(self.enable):
            m.d.sync += result.eq(
                Mux(
                    sum_nan,
                    CANONICAL_NAN,
                    Cat(Mux(packed > INFINITY, INFINITY, packed[:31]), sum_sign),
                )
            )
        m.d.comb += self.result.eq(result)
        return m

    def _unpack(self, m: Module, name: str) -> _Operand:
        operand = getattr(self, name)
        field = operand[23:31]
        infinite = Signal(name=f"{name}_infinite")
        exponent = Signal(8, name=f"{name}_exponent")
        significand = Signal(24, name=f"{name}_significand")
        m.d.comb += [
            infinite.eq(field == 0xFF),
            exponent.eq(field - (field != 0)),
            # What is left of the exponent field is the hidden bit.
            significand.eq(operand[:31] - Cat(Const(0, 23), exponent)),
        ]
        return _Operand(significand, Cat(exponent, Const(0, 1), infinite), infinite)
