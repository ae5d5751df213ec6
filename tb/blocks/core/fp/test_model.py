"""The golden model of binary32 against plain numpy and exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tb.blocks.core.fp.operands import SPECIAL, addends, combinations, near, patterns, sparse
from tb.models import fp32

SEED = 20
NAN = 0x7FC0_0000
INFINITY = 0x7F80_0000
SIGN = 1 << 31

Patterns = NDArray[np.uint32]


def fraction(pattern: int) -> Fraction:
    """The exact value of a finite number."""
    exponent, low = pattern >> 23 & 0xFF, pattern & 0x7F_FFFF
    significand = low | (exponent > 0) << 23
    value = Fraction(significand) * Fraction(2) ** (max(exponent, 1) - 150)
    return -value if pattern & SIGN else value


def nearest(value: Fraction) -> int:
    """The pattern of the nearest number, ties to even, of a value that is not 0."""
    sign = SIGN if value < 0 else 0
    value = abs(value)
    # The exponent of the leading one, at least that of the smallest normal number.
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if value < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, -126)
    significand = round(value / Fraction(2) ** (exponent - 23))  # ties to even
    if significand == 1 << 24:
        significand, exponent = 1 << 23, exponent + 1
    if exponent > 127:
        return sign | INFINITY
    if significand < 1 << 23:
        return sign | significand
    return sign | exponent + 127 << 23 | significand - (1 << 23)


def exact_fma(a: int, b: int, c: int) -> int:
    """IEEE 754 fusedMultiplyAdd of patterns, from its definition."""
    magnitudes = [x & ~SIGN for x in (a, b, c)]
    if max(magnitudes) > INFINITY:
        return NAN
    product_sign = (a ^ b) & SIGN
    if INFINITY in magnitudes[:2]:
        if 0 in magnitudes[:2] or (magnitudes[2] == INFINITY and product_sign != c & SIGN):
            return NAN
        return product_sign | INFINITY
    if magnitudes[2] == INFINITY:
        return c
    total = fraction(a) * fraction(b) + fraction(c)
    if total == 0:
        # Two zeros of one sign keep it; everything else that cancels is +0.
        return c & product_sign
    return nearest(total)


def check(a: Patterns, b: Patterns, c: Patterns) -> None:
    got = fp32.fma(a, b, c).tolist()
    for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True):
        expected = exact_fma(x, y, z)
        assert result == expected, f"{x:08x} * {y:08x} + {z:08x}: {expected:08x}, not {result:08x}"


def test_fma_of_special_values_is_exact() -> None:
    a, b, c = combinations(3)
    chosen = np.random.default_rng(SEED).permutation(len(a))[:8000]
    check(a[chosen], b[chosen], c[chosen])


@pytest.mark.parametrize("kind", ["uniform", "close", "subnormal", "cancelling", "ties"])
def test_fma_of_random_values_is_exact(kind: str) -> None:
    random = np.random.default_rng(SEED)
    count = 3000
    a, b = patterns(random, count), patterns(random, count)
    if kind == "uniform":
        c = patterns(random, count)
    elif kind == "close":
        c = addends(random, a, b)
    elif kind == "subnormal":
        a, b = sparse(random, count, 30), sparse(random, count, 30)
        small = random.integers(0, 30, count, dtype=np.uint32) << np.uint32(23)
        a = (a & np.uint32(0x807F_FFFF) | small).astype(np.uint32)
        c = patterns(random, count) & np.uint32(0x80FF_FFFF)
    elif kind == "cancelling":
        a, b = sparse(random, count), sparse(random, count)
        c = near(random, fp32.mul(a, b), 2)
    else:
        a, b, c = (sparse(random, count, 14) for _ in range(3))
    check(a, b, c)


def test_fma_rounds_once() -> None:
    """(1 + 2**-12)**2 - 1 - 2**-11 keeps the last bit of the product."""
    x = np.array([0x3F80_0800], np.uint32)
    c = np.array([0xBF80_1000], np.uint32)
    assert fp32.fma(x, x, c).tolist() == [127 - 24 << 23]


def test_fma_is_addition_and_multiplication() -> None:
    random = np.random.default_rng(SEED)
    special = combinations(2)
    a = np.concatenate([special[0], patterns(random, 200_000), sparse(random, 200_000)])
    b = np.concatenate([special[1], patterns(random, 200_000), sparse(random, 200_000)])
    one, minus_zero = np.full_like(a, 0x3F80_0000), np.full_like(a, SIGN)
    np.testing.assert_array_equal(fp32.fma(a, one, b), fp32.add(a, b))
    np.testing.assert_array_equal(fp32.fma(a, one, b ^ np.uint32(SIGN)), fp32.sub(a, b))
    np.testing.assert_array_equal(fp32.fma(a, b, minus_zero), fp32.mul(a, b))


def test_conversions_to_float_are_exact() -> None:
    random = np.random.default_rng(SEED)
    edges = [(1 << e) + i for e in range(31) for i in (-1, 0, 1)] + [2**31 - 1]
    drawn = patterns(random, 3000).view(np.int32).tolist()
    integers = [*edges, *(-x for x in edges), -(2**31), *drawn]
    got = fp32.int_to_float(np.array(integers, np.int32)).tolist()
    assert got == [nearest(Fraction(x)) if x else 0 for x in integers]


@pytest.mark.parametrize("truncate", [False, True])
def test_conversions_to_integers_are_exact(truncate: bool) -> None:
    random = np.random.default_rng(SEED)
    few = sparse(random, 4000, 34)
    values = np.concatenate([SPECIAL, patterns(random, 2000), few])
    for convert, low, high in [
        (fp32.to_int32, -(2**31), 2**31 - 1),
        (fp32.to_int8, -128, 127),
    ]:
        for x, got in zip(values.tolist(), convert(values, truncate=truncate), strict=True):
            if x & ~SIGN > INFINITY:
                expected = 0
            elif x & ~SIGN == INFINITY:
                expected = low if x & SIGN else high
            else:
                value = fraction(x)
                expected = min(max(int(value) if truncate else round(value), low), high)
            assert got == expected, f"{x:08x}"


def test_bfloat16_is_exact() -> None:
    random = np.random.default_rng(SEED)
    ties = patterns(random, 2000) & np.uint32(0xFFFF_0000) | np.uint32(0x8000)
    values = np.concatenate([SPECIAL, ties, ties + np.uint32(1), patterns(random, 2000)])
    for x, got in zip(values.tolist(), fp32.to_bfloat16(values).tolist(), strict=True):
        if x & ~SIGN > INFINITY:
            assert got == 0x7FC0
            continue
        if x & ~SIGN == INFINITY:
            assert got == x >> 16
            continue
        # 2**128 stands where infinity begins, as rounding sees it.
        low = x & 0xFFFF_0000
        bounds = [
            Fraction(2) ** 128 if y & ~SIGN == INFINITY else abs(fraction(y))
            for y in (low, low + 0x1_0000)
        ]
        value = abs(fraction(x))
        below, above = value - bounds[0], bounds[1] - value
        up = above < below or (above == below and (low >> 16) % 2 == 1)
        assert got == (low >> 16) + up, f"{x:08x}"
    back = np.arange(1 << 16, dtype=np.uint16)
    floats = fp32.bfloat16_to_float(back)
    number = floats & np.uint32(~SIGN & 0xFFFF_FFFF) <= INFINITY
    np.testing.assert_array_equal(fp32.to_bfloat16(floats)[number], back[number])


def test_extrema_order_zeros_and_ignore_nans() -> None:
    def pair(name: str, a: int, b: int) -> int:
        operands = np.array([a], np.uint32), np.array([b], np.uint32)
        return int(getattr(fp32, name)(*operands)[0])

    one, minus_one = 0x3F80_0000, 0xBF80_0000
    for quiet in (NAN, 0x7F80_0001, 0xFFFF_FFFF):
        for name in ("maximum", "minimum"):
            assert pair(name, quiet, one) == pair(name, one, quiet) == one
            assert pair(name, quiet, quiet) == NAN
    assert pair("maximum", 0, SIGN) == pair("maximum", SIGN, 0) == 0
    assert pair("minimum", 0, SIGN) == pair("minimum", SIGN, 0) == SIGN
    assert pair("maximum", SIGN, SIGN) == pair("minimum", SIGN, SIGN) == SIGN
    assert pair("maximum", one, minus_one) == one
    assert pair("minimum", one, minus_one) == minus_one


def test_comparisons_are_those_of_the_values() -> None:
    a, b = combinations(2)
    less, less_equal, equal = fp32.less(a, b), fp32.less_equal(a, b), fp32.equal(a, b)
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        got = bool(less[i]), bool(less_equal[i]), bool(equal[i])
        if max(x & ~SIGN, y & ~SIGN) > INFINITY:
            assert got == (False, False, False)
            continue
        first, second = (
            (Fraction(2) ** 128 * (-1 if z & SIGN else 1)) if z & ~SIGN == INFINITY else fraction(z)
            for z in (x, y)
        )
        assert got == (first < second, first <= second, first == second)
