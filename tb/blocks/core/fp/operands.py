"""Operands of the fp32 tests: special values, and random ones that meet in the hard cases."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb.models import fp32

__all__ = ["SPECIAL", "addends", "combinations", "near", "patterns", "sparse"]

_MAGNITUDES: Final = (
    0x0000_0000,  # 0
    0x0000_0001,  # smallest subnormal
    0x0000_0002,
    0x0040_0000,  # half the smallest normal
    0x007F_FFFF,  # largest subnormal
    0x0080_0000,  # smallest normal
    0x0080_0001,
    0x00FF_FFFF,
    0x3380_0000,  # 2**-24: half a unit in the last place of 1
    0x3380_0001,
    0x3F7F_FFFF,  # 1 and its neighbours
    0x3F80_0000,
    0x3F80_0001,
    0x3FC0_0000,  # 1.5
    0x4B7F_FFFF,  # 2**24 - 1
    0x7F7F_FFFF,  # largest finite
    0x7F80_0000,  # infinity
    0x7F80_0001,  # signaling NaN
    0x7FC0_0000,  # quiet NaN
    0x7FFF_FFFF,
)

SPECIAL: Final = np.array([m | s << 31 for m in _MAGNITUDES for s in (0, 1)], np.uint32)
"""Values at the edges of the format, with both signs."""


def combinations(count: int) -> list[NDArray[np.uint32]]:
    """All tuples of `count` special values: one array for each place."""
    grid = np.meshgrid(*[SPECIAL] * count, indexing="ij")
    return [np.ascontiguousarray(axis.reshape(-1)) for axis in grid]


def patterns(random: np.random.Generator, count: int) -> NDArray[np.uint32]:
    """Uniform bit patterns."""
    return random.integers(0, 2**32, count, dtype=np.uint32)


def sparse(random: np.random.Generator, count: int, exponents: int = 4) -> NDArray[np.uint32]:
    """Normal numbers near 1 whose significands have few ones, in few places: sums and products
    meet in ties and in zeros."""
    sign = random.integers(0, 2, count, dtype=np.uint32) << np.uint32(31)
    exponent = random.integers(127 - exponents, 128 + exponents, count, dtype=np.uint32)
    # The upper or the lower end of a mask of random length, with one bit inverted.
    ones = np.uint32(0x7F_FFFF) >> random.integers(0, 24, count, dtype=np.uint32)
    mask = np.where(random.integers(0, 2, count) == 1, ones, ones ^ np.uint32(0x7F_FFFF))
    bit = np.uint32(1) << random.integers(0, 23, count, dtype=np.uint32)
    return sign | exponent << np.uint32(23) | (mask ^ bit).astype(np.uint32)


def near(
    random: np.random.Generator, reference: NDArray[np.uint32], steps: int
) -> NDArray[np.uint32]:
    """The negated `reference`, up to `steps` patterns away: sums with it cancel."""
    moved = reference.astype(np.int64) + random.integers(-steps, steps + 1, len(reference))
    return (moved.astype(np.uint32) ^ np.uint32(0x8000_0000)).astype(np.uint32)


def addends(
    random: np.random.Generator, a: NDArray[np.uint32], b: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Addends that matter beside a * b: up to 40 binary places above or below it, or near -a*b."""
    count = len(a)
    product = fp32.mul(a, b)
    exponent = (product >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64)
    exponent = np.clip(exponent + random.integers(-40, 41, count), 0, 254).astype(np.uint32)
    close = patterns(random, count) & np.uint32(0x807F_FFFF) | exponent << np.uint32(23)
    choice = random.integers(0, 4, count)
    cancelling = near(random, product, 3)
    return np.where(choice == 0, cancelling, close).astype(np.uint32)
