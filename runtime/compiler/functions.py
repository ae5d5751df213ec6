"""Functions on fp32 tiles, built of vector operations; each states its error bound.

The method of each is the classical one: the argument is reduced to a small interval, a polynomial
approximates the function there, and the exponent is put together with integer operations. The
coefficients are minimax fits (Lawson's iteration on Chebyshev nodes) of our own. Bounds are in
units in the last place of the exact result, and hold for all arguments; the tests sweep them.
"""

from collections.abc import Sequence

import numpy as np

from abi.vector import VectorOperation
from runtime.compiler.tile import Tile
from runtime.compiler.vector import VectorOperations

__all__ = ["VectorFunctions"]

V = VectorOperation
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693359375
"""ln 2 in few bits, so that its product with an exponent is exact."""

LN2_LOW = 0.6931471805599453 - LN2_HIGH
EXPONENT_BIAS = 127
MANTISSA_BITS = 23
MANTISSA_MASK = (1 << MANTISSA_BITS) - 1
ONE_BITS = EXPONENT_BIAS << MANTISSA_BITS
SIGN_BIT = 1 << 31
SMALLEST_NORMAL = 2.0**-126

EXP = (0.5, 0.166665181517601, 0.04166620597243309, 0.008368908427655697, 0.001395052415318787)
"""(e^r - 1 - r) / r**2 for |r| <= ln 2 / 2."""

LOG = (
    0.33333316445350647, -0.25000810623168945, 0.2000228613615036, -0.16624553501605988,
    0.14181192219257355, -0.13128754496574402, 0.12881647050380707, -0.07859611511230469,
)  # fmt: skip
"""(log(1 + f) - f + f**2 / 2) / f**3 for 1 + f from 1/sqrt 2 to sqrt 2."""

TANH = (
    -0.3333328366279602, 0.13331490755081177, -0.05374349653720856, 0.020650586113333702,
    -0.005717044696211815,
)  # fmt: skip
"""(tanh(x) / x - 1) / x**2 as a function of x**2, for |x| <= TANH_SMALL."""

TANH_SMALL = 0.625

ERF = (
    0.12837916612625122, -0.37612631916999817, 0.11283672600984573, -0.026858104392886162,
    0.0051977974362671375, -0.000810596568044275, 8.215426350943744e-05,
)  # fmt: skip
"""erf(x) / x - 1 as a function of x**2, for |x| <= ERF_SMALL."""

ERF_SMALL = 0.95
LOG_ERFC = (
    0.00015338843513745815, -1.1293971538543701, -0.6336272358894348, -0.10790582746267319,
    0.02481289952993393, -0.0040134526789188385, 0.0003848039195872843, -1.233337570738513e-05,
    -6.625456308029243e-07,
)  # fmt: skip
"""log(1 - erf(x)) for x from 0.9 to ERFC_LARGE."""

ERFC_LARGE = 4.0


class VectorFunctions(VectorOperations):
    """Functions of fp32 tiles. NaN gives NaN."""

    def absolute(self, x: Tile) -> Tile:
        """|x|."""
        bits = self.bitwise(V.AND, x, SIGN_BIT - 1)
        return self.reinterpret(bits, "float32")

    def copy_sign(self, magnitude: Tile, sign: Tile) -> Tile:
        """`magnitude` (not negative) with the sign of `sign`."""
        bits = self.bitwise(V.AND, sign, SIGN_BIT)
        return self.reinterpret(self.bitwise(V.OR, magnitude, self._ints(bits)), "float32")

    def exp(self, x: Tile) -> Tile:
        """e**x; 2 ulp. Overflow gives inf, results below 2**-149 give 0."""
        clamped = self.largest(self.smallest(x, 90.0), -105.0)
        n = self.convert(self.multiply(clamped, LOG2_E), "int32")
        whole = self.convert(n, "float32")
        r = self.fnma(whole, LN2_HIGH, clamped)
        r = self.fnma(whole, LN2_LOW, r)
        value = self.add(self.fma(self._polynomial(r, EXP), self.multiply(r, r), r), 1.0)
        # Two factors: 2**n alone may be out of range when the result is not.
        half = self.bitwise(V.SAR, n, 1)
        rest = self.subtract(n, half)
        scaled = self.multiply(self.multiply(value, self._power(half)), self._power(rest))
        return self._or_nan(scaled, x)

    def log(self, x: Tile) -> Tile:
        """Natural logarithm; 2 ulp. 0 gives -inf, negative numbers NaN."""
        small = self.less(x, SMALLEST_NORMAL)
        y = self.where(small, self.multiply(x, 2.0**23), x)
        bits = self._ints(y)
        # Exponent and mantissa, the mantissa from 1/sqrt 2 to sqrt 2.
        shifted = self.subtract(bits, _bits(2.0**-0.5))
        exponent = self.bitwise(V.SAR, shifted, MANTISSA_BITS)
        scale = self.bitwise(V.SHL, exponent, MANTISSA_BITS)
        f = self.subtract(self.reinterpret(self.subtract(bits, scale), "float32"), 1.0)
        e = self.convert(self.add(exponent, self.bitwise(V.AND, small, -23)), "float32")
        square = self.multiply(f, f)
        cube = self.multiply(square, f)
        tail = self.multiply(self._polynomial(f, LOG), cube)
        tail = self.fma(e, LN2_LOW, tail)
        tail = self.fma(square, -0.5, tail)
        result = self.fma(e, LN2_HIGH, self.add(f, tail))
        infinite = self.equal(x, np.inf)
        result = self.where(infinite, x, result)
        result = self.where(self.equal(x, 0.0), self.full(x, -np.inf), result)
        result = self.where(self.less(x, 0.0), self.full(x, np.nan), result)
        return self._or_nan(result, x)

    def reciprocal(self, x: Tile) -> Tile:
        """1 / x; 1 ulp. 0 gives inf of its sign, inf gives 0."""
        # Subnormal and huge arguments are brought into the range where all steps are normal.
        magnitude = self.absolute(x)
        small = self.less(magnitude, 2.0**-100)
        large = self.less(2.0**100, magnitude)
        factor = self.where(small, self.full(x, 2.0**60), 1.0)
        factor = self.where(large, self.full(x, 2.0**-60), factor)
        y = self.multiply(magnitude, factor)
        guess = self.reinterpret(
            self.subtract(self.full(x, 0x7EF311C7, "int32"), self._ints(y)), "float32"
        )
        for _ in range(3):
            error = self.fnma(y, guess, 1.0)
            guess = self.fma(guess, error, guess)
        result = self.multiply(guess, factor)
        result = self.where(self.equal(magnitude, np.inf), self.full(x, 0.0), result)
        result = self.where(self.equal(magnitude, 0.0), self.full(x, np.inf), result)
        return self._or_nan(self.copy_sign(result, x), x)

    def divide(self, a: Tile, b: Tile) -> Tile:
        """a / b as a * reciprocal(b); 2 ulp, as long as 1 / b is a normal number."""
        return self.multiply(a, self.reciprocal(b))

    def reciprocal_root(self, x: Tile) -> Tile:
        """1 / sqrt(x); 2 ulp. 0 gives inf of its sign, inf gives 0, negative numbers NaN."""
        small = self.less(x, SMALLEST_NORMAL)
        y = self.where(small, self.multiply(x, 2.0**24), x)
        half = self.multiply(y, 0.5)
        shifted = self.bitwise(V.SHR, y, 1)
        guess = self.reinterpret(
            self.subtract(self.full(x, 0x5F375A86, "int32"), shifted), "float32"
        )
        for _ in range(4):
            error = self.fnma(self.multiply(half, guess), guess, 0.5)
            guess = self.fma(guess, error, guess)
        result = self.where(small, self.multiply(guess, 2.0**12), guess)
        result = self.where(self.equal(x, np.inf), self.full(x, 0.0), result)
        infinite = self.copy_sign(self.full(x, np.inf), x)
        result = self.where(self.equal(x, 0.0), infinite, result)
        result = self.where(self.less(x, 0.0), self.full(x, np.nan), result)
        return self._or_nan(result, x)

    def tanh(self, x: Tile) -> Tile:
        """Hyperbolic tangent; 3 ulp."""
        t = self.smallest(self.absolute(x), 10.0)
        square = self.multiply(t, t)
        near = self.fma(self.multiply(self._polynomial(square, TANH), square), t, t)
        power = self.add(self.exp(self.multiply(t, 2.0)), 1.0)
        far = self.subtract(1.0, self.multiply(self.reciprocal(power), 2.0))
        result = self.where(self.less(t, TANH_SMALL), near, far)
        return self._or_nan(self.copy_sign(result, x), x)

    def sigmoid(self, x: Tile) -> Tile:
        """1 / (1 + e**-x); 4 ulp."""
        power = self.exp(self.multiply(self.absolute(x), -1.0))
        above = self.reciprocal(self.add(power, 1.0))
        return self.where(self.less(x, 0.0), self.multiply(power, above), above)

    def erf(self, x: Tile) -> Tile:
        """Error function; 3 ulp."""
        t = self.smallest(self.absolute(x), ERFC_LARGE)
        near = self.fma(self._polynomial(self.multiply(t, t), ERF), t, t)
        far = self.subtract(1.0, self.exp(self._polynomial(t, LOG_ERFC)))
        result = self.where(self.less(t, ERF_SMALL), near, far)
        return self._or_nan(self.copy_sign(result, x), x)

    def gelu(self, x: Tile) -> Tile:
        """x / 2 * (1 + erf(x / sqrt 2)); absolute error at most 2e-7 * max(1, |x|)."""
        return self.multiply(
            self.multiply(x, 0.5), self.add(self.erf(self.multiply(x, 0.5**0.5)), 1.0)
        )

    # Parts.

    def _polynomial(self, x: Tile, coefficients: Sequence[float]) -> Tile:
        """Horner's scheme, the constant term first."""
        *lower, last = coefficients
        value = self.add(self.multiply(x, last), lower.pop())
        for coefficient in reversed(lower):
            value = self.fma(value, x, coefficient)
        return value

    def _power(self, n: Tile) -> Tile:
        """2**n for int32 n from -126 to 127."""
        biased = self.add(n, EXPONENT_BIAS)
        return self.reinterpret(self.bitwise(V.SHL, biased, MANTISSA_BITS), "float32")

    def _ints(self, tile: Tile) -> Tile:
        return self.reinterpret(tile, "int32")

    def _or_nan(self, result: Tile, x: Tile) -> Tile:
        """`result` where x is a number, else x."""
        return self.where(self.equal(x, x), result, x)


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))
