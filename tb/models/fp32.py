"""Golden model of binary32 arithmetic in numpy, for arrays of bit patterns.

It shares no algorithm with the RTL: numpy's own operations round, and the fused multiply-add works
in binary64, where the product is exact and the sum is rounded to odd before it is narrowed.

Patterns are uint32 arrays of any common shape, integers int32. Every NaN result is CANONICAL_NAN.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CANONICAL_NAN",
    "add",
    "bfloat16_to_float",
    "equal",
    "fma",
    "int_to_float",
    "less",
    "less_equal",
    "maximum",
    "minimum",
    "mul",
    "sub",
    "to_bfloat16",
    "to_int8",
    "to_int32",
]

CANONICAL_NAN: Final = np.uint32(0x7FC00000)

Patterns = NDArray[np.uint32]
Integers = NDArray[np.int32]
Truths = NDArray[np.bool_]


def _float(x: Patterns) -> NDArray[np.float32]:
    return np.ascontiguousarray(x, np.uint32).view(np.float32)


def _pattern(x: NDArray[np.float32]) -> Patterns:
    return np.where(np.isnan(x), CANONICAL_NAN, np.ascontiguousarray(x).view(np.uint32))


def add(a: Patterns, b: Patterns) -> Patterns:
    """a + b."""
    with np.errstate(all="ignore"):
        return _pattern(_float(a) + _float(b))


def sub(a: Patterns, b: Patterns) -> Patterns:
    """a - b."""
    with np.errstate(all="ignore"):
        return _pattern(_float(a) - _float(b))


def mul(a: Patterns, b: Patterns) -> Patterns:
    """a * b."""
    with np.errstate(all="ignore"):
        return _pattern(_float(a) * _float(b))


def fma(a: Patterns, b: Patterns, c: Patterns) -> Patterns:
    """a * b + c with one rounding."""
    with np.errstate(all="ignore"):
        # 24 by 24 bits, exponents within binary64: exact.
        product = _float(a).astype(np.float64) * _float(b).astype(np.float64)
        addend = _float(c).astype(np.float64)
        total = product + addend
        # What the sum lost (Knuth's two-sum), exact too.
        part = total - product
        lost = (product - (total - part)) + (addend - part)
        # Round to odd: of the two neighbours of the exact sum take the one with an odd last bit.
        # Its 53 bits, more than 24 + 1, then round once more as the exact sum would.
        bits = total.view(np.int64)
        inexact = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
        step = np.where((lost > 0) == (total > 0), 1, -1)
        odd = np.where(inexact, bits + step, bits).view(np.float64)
        return _pattern(odd.astype(np.float32))


def int_to_float(x: Integers) -> Patterns:
    """The nearest binary32 of an int32."""
    return np.ascontiguousarray(x, np.int32).astype(np.float32).view(np.uint32)


def _saturated(x: Patterns, low: int, high: int, truncate: bool) -> Integers:
    with np.errstate(invalid="ignore"):
        value = _float(x).astype(np.float64)
    whole = np.trunc(value) if truncate else np.rint(value)
    return np.clip(np.where(np.isnan(whole), 0, whole), low, high).astype(np.int32)


def to_int32(x: Patterns, *, truncate: bool = False) -> Integers:
    """The nearest int32 (ties to even), or the next one towards 0; saturated, NaN gives 0."""
    return _saturated(x, -(2**31), 2**31 - 1, truncate)


def to_int8(x: Patterns, *, truncate: bool = False) -> Integers:
    """As `to_int32`, saturated to -128 to 127."""
    return _saturated(x, -128, 127, truncate)


def to_bfloat16(x: Patterns) -> NDArray[np.uint16]:
    """The nearest bfloat16, ties to even; NaNs give 0x7FC0."""
    x = np.ascontiguousarray(x, np.uint32)
    below = x & np.uint32(0xFFFF_0000)
    # The bfloat16 above in magnitude (its pattern may be that of infinity), and the middle.
    above = below.astype(np.uint64) + 0x10000
    distance = x.astype(np.int64) - below.astype(np.int64)
    odd = (below >> np.uint32(16)) & np.uint32(1) == 1
    up = (distance > 0x8000) | ((distance == 0x8000) & odd)
    chosen = np.where(up, above, below) >> np.uint64(16)
    return np.where(np.isnan(_float(x)), 0x7FC0, chosen).astype(np.uint16)


def bfloat16_to_float(x: NDArray[np.uint16]) -> Patterns:
    """The binary32 of a bfloat16; NaNs keep their bits."""
    return x.astype(np.uint32) << np.uint32(16)


def less(a: Patterns, b: Patterns) -> Truths:
    """a < b; false if one is a NaN."""
    with np.errstate(invalid="ignore"):
        return _float(a) < _float(b)


def less_equal(a: Patterns, b: Patterns) -> Truths:
    """a <= b; false if one is a NaN."""
    with np.errstate(invalid="ignore"):
        return _float(a) <= _float(b)


def equal(a: Patterns, b: Patterns) -> Truths:
    """a == b; false if one is a NaN."""
    with np.errstate(invalid="ignore"):
        return _float(a) == _float(b)


def _extremum(a: Patterns, b: Patterns, take_first: Truths, zero: Patterns) -> Patterns:
    """One of the operands, the number if the other one is a NaN, `zero` if both are zeros."""
    x, y = _float(a), _float(b)
    # np.fmax and np.fmin would return a NaN for some signaling ones.
    chosen = np.where(np.isnan(y) | (take_first & ~np.isnan(x)), a, b)
    return _pattern(_float(np.where((x == 0) & (y == 0), zero, chosen)))


def maximum(a: Patterns, b: Patterns) -> Patterns:
    """maximumNumber of IEEE 754-2019: the larger number, +0 above -0, NaNs are ignored."""
    return _extremum(a, b, less(b, a), a & b)


def minimum(a: Patterns, b: Patterns) -> Patterns:
    """minimumNumber of IEEE 754-2019: the smaller number, -0 below +0, NaNs are ignored."""
    return _extremum(a, b, less(a, b), a | b)
