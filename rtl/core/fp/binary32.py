"""The binary32 format: patterns with a meaning, fields, the normalising shift."""

from typing import Final

from amaranth import Cat, Const, Module, Mux, Signal, Value

__all__ = ["CANONICAL_NAN", "INFINITY", "MINUS_ZERO", "ONE", "is_nan", "normalised"]

INFINITY: Final = 0x7F80_0000
"""Positive infinity; all larger patterns below the sign are NaNs."""

CANONICAL_NAN: Final = 0x7FC0_0000
"""The only NaN that any block returns."""

ONE: Final = 0x3F80_0000
"""The multiplier that makes a*b + c an addition."""

MINUS_ZERO: Final = 0x8000_0000
"""The addend that makes a*b + c a multiplication: it leaves the sign of a zero product alone."""


def is_nan(x: Value) -> Value:
    """Whether the 32 bits `x` are a NaN, quiet or signaling: 1 bit."""
    return x[:31] > INFINITY


def normalised(m: Module, value: Value, *, name: str) -> tuple[Value, Value]:
    """`value`, 2**n bits wide, shifted left until its top bit is 1, and by how much: n bits.

    If `value` is 0, so is the result, and the shift is 2**n - 1. Shifts by constants under Muxes:
    the cheapest form in simulation.

    Raises:
        ValueError: the width is no power of two above 1.
    """
    width = len(value)
    if width < 2 or width & (width - 1):
        raise ValueError(f"value must be a power of two of at least 2 bits wide, not {width!r}")
    steps: list[Value] = []
    step = width
    while step > 1:
        step //= 2
        empty = Signal(name=f"{name}_skip{step}")
        moved = Signal(width, name=f"{name}_after{step}")
        m.d.comb += [
            empty.eq(value[-step:] == 0),
            moved.eq(Mux(empty, Cat(Const(0, step), value[:-step]), value)),
        ]
        steps.append(empty)
        value = moved
    return value, Cat(*reversed(steps))
