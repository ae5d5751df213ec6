"""The transformer demo's block in numpy: values, and how far the device may be from them.

fp32 arithmetic of the device differs from exact arithmetic by some 1e-6 of the values. Where that
makes a value round to the other neighbour in bfloat16, it grows to 2**-8 of the value, and goes on
through the rest of the block. So there are two comparisons. Step by step: `reference` takes over
the bfloat16 numbers that the device found, after checking that each is one to which its own value
rounds, give or take the bound of the fp32 arithmetic since the last ones; what is left of the
result's bound is that arithmetic alone. From end to end: it takes over nothing; see `tolerance`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import EllipsisType

import numpy as np
import numpy.typing as npt
from scipy.special import erf

__all__ = ["ROUNDED", "Block", "Bounded", "draw_block", "reference", "tolerance"]

Wide = npt.NDArray[np.float64]
Float = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint16]
Part = int | tuple[slice, slice] | EllipsisType

UNIT = 2.0**-24
"""Half an ulp of fp32 at 1: the largest relative error of one rounding."""

EPSILON = 1e-5

ROUNDED = ("normed1", "query", "key", "value", "shares", "context", "normed2", "hidden")
"""What the block rounds to bfloat16; `shares`, the attention's, have shape (heads, s, s)."""


@dataclass(frozen=True)
class Block:
    """Parameters: fp32, of width w and hidden width h.

    Gains and biases of the two norms (w,); `query`, `key`, `value`, `output` (w, w); `up` (w, h)
    and `down` (h, w), with biases (h,) and (w,). Matrices are values that bfloat16 holds.
    """

    gain1: Float
    shift1: Float
    query: Float
    key: Float
    value: Float
    output: Float
    gain2: Float
    shift2: Float
    up: Float
    up_bias: Float
    down: Float
    down_bias: Float


def draw_block(width: int, hidden: int, seed: int) -> Block:
    """A block with random parameters of the usual sizes."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Float:
        drawn = random.normal(size=(rows, columns)) * rows**-0.5
        return to_bfloat16(drawn).astype(np.float32)

    def vector(size: int, centre: float) -> Float:
        return (centre + 0.1 * random.normal(size=size)).astype(np.float32)

    shapes = {"up": (width, hidden), "down": (hidden, width)}
    sizes = {"up_bias": hidden}
    made = {}
    for name in (field.name for field in fields(Block)):
        if name in ("query", "key", "value", "output", "up", "down"):
            made[name] = matrix(*shapes.get(name, (width, width)))
        else:
            made[name] = vector(sizes.get(name, width), 1.0 if name.startswith("gain") else 0.0)
    return Block(**made)


def to_bfloat16(x: npt.NDArray[np.floating]) -> Wide:
    """fp32 of x, then the nearest bfloat16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Bounded:
    """Values in exact arithmetic, and for each a bound of the device's difference; same shape."""

    value: Wide
    error: Wide

    @classmethod
    def exact(cls, value: npt.NDArray[np.floating]) -> "Bounded":
        """What the device holds without error."""
        wide = value.astype(np.float64)
        return cls(wide, np.zeros_like(wide))

    def rounded(self, units: float = 1.0) -> "Bounded":
        """After fp32 arithmetic with `units` roundings."""
        return Bounded(self.value, self.error + units * UNIT * (np.abs(self.value) + self.error))

    def bfloat16(self) -> "Bounded":
        """Rounded to bfloat16: the bound is 0 where all that the device may hold rounds alike."""
        value = to_bfloat16(self.value)
        # The fp32 neighbours too, since the reference itself is rounded to fp32 first.
        reach = self.error + UNIT * np.abs(self.value)
        up, down = to_bfloat16(self.value + reach), to_bfloat16(self.value - reach)
        return Bounded(value, np.maximum(np.abs(up - value), np.abs(down - value)))

    def __add__(self, other: "Bounded") -> "Bounded":
        return Bounded(self.value + other.value, self.error + other.error).rounded()

    def scaled(self, factor: float) -> "Bounded":
        """Times a number."""
        return Bounded(self.value * factor, self.error * abs(factor)).rounded()

    def __matmul__(self, other: "Bounded") -> "Bounded":
        """Products are exact; sums of k of them have k roundings, in any order (Higham)."""
        left, right = np.abs(self.value), np.abs(other.value)
        error = left @ other.error + self.error @ (right + other.error)
        most = (left + self.error) @ (right + other.error)
        return Bounded(self.value @ other.value, error + 1.01 * left.shape[-1] * UNIT * most)

    @property
    def transposed(self) -> "Bounded":
        """Rows as columns."""
        return Bounded(self.value.T, self.error.T)

    def columns(self, part: slice) -> "Bounded":
        """Some columns."""
        return Bounded(self.value[:, part], self.error[:, part])

    def softmax(self) -> "Bounded":
        """Of each row. Differences of e in a row's elements change shares by at most e**(2 * e)."""
        power = np.exp(self.value - self.value.max(axis=1, keepdims=True))
        share = power / power.sum(axis=1, keepdims=True)
        # 2 ulp of exp (at an argument that is rounded itself), a sum of n, a reciprocal.
        reach = np.abs(self.value).max(axis=1, keepdims=True)
        units = 16 + self.value.shape[1] + 2 * reach
        worst = self.error.max(axis=1, keepdims=True)
        return Bounded(share, share * (np.expm1(2 * worst) + 1.01 * units * UNIT))

    def layer_norm(self, gain: Float, shift: Float) -> "Bounded":
        """Of each row."""
        n = self.value.shape[1]
        size = np.abs(self.value) + self.error
        mean = self.value.mean(axis=1, keepdims=True)
        mean_error = (self.error + (n + 2) * UNIT * size).mean(axis=1, keepdims=True)
        centred = self.value - mean
        centred_error = self.error + mean_error + UNIT * (size + np.abs(mean))
        variance = (centred**2).mean(axis=1, keepdims=True)
        change = 2 * np.abs(centred) * centred_error + centred_error**2
        change += (n + 4) * UNIT * (np.abs(centred) + centred_error) ** 2
        spread = change.mean(axis=1, keepdims=True)
        scale = (variance + EPSILON) ** -0.5
        highest = (np.maximum(variance - spread, 0) + EPSILON) ** -0.5
        scale_error = highest - scale + 6 * UNIT * highest
        value = centred * scale * gain + shift
        error = centred_error * (scale + scale_error) + np.abs(centred) * scale_error
        return Bounded(value, error * np.abs(gain)).rounded(4)

    def gelu(self) -> "Bounded":
        """Its slope is below 1.13."""
        value = self.value / 2 * (1 + erf(self.value / np.sqrt(2)))
        return Bounded(value, 1.13 * self.error + 2e-7 * np.maximum(1, np.abs(self.value)))


class _Roundings:
    """Values rounded to bfloat16, or what the device found in their place."""

    def __init__(self, found: Mapping[str, Bits] | None) -> None:
        self.found = found
        self.outside = 0

    def __call__(self, x: Bounded, name: str, part: Part = ...) -> Bounded:
        rounded = x.bfloat16()
        if self.found is None:
            return Bounded.exact(rounded.value)
        device = (self.found[name][part].astype(np.uint32) << 16).view(np.float32)
        self.outside += int(np.count_nonzero(~(np.abs(device - rounded.value) <= rounded.error)))
        return Bounded.exact(device)


def reference(
    block: Block, x: Float, heads: int, found: Mapping[str, Bits] | None = None
) -> tuple[Bounded, int]:
    """The block's output for x (sequence, width).

    Args:
        found: bfloat16 bits that the device has, by the names of `ROUNDED`, to go on with; None:
            what this function rounds itself.

    Returns:
        The output with its bounds, and how many elements of `found` are outside of theirs.
    """
    given = Bounded.exact(x)
    weights = {f.name: Bounded.exact(getattr(block, f.name)) for f in fields(block)}
    rounded = _Roundings(found)
    normed = rounded(given.layer_norm(block.gain1, block.shift1), "normed1")
    query, key, value = (
        rounded(normed @ weights[name], name) for name in ("query", "key", "value")
    )
    width = x.shape[1] // heads
    parts = []
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        scores = (query.columns(own) @ key.columns(own).transposed).scaled(width**-0.5)
        shares = rounded(scores.softmax(), "shares", head)
        parts.append(rounded(shares @ value.columns(own), "context", (slice(None), own)).value)
    context = Bounded.exact(np.concatenate(parts, axis=1))
    middle = given + context @ weights["output"]
    again = rounded(middle.layer_norm(block.gain2, block.shift2), "normed2")
    hidden = rounded((again @ weights["up"] + weights["up_bias"]).gelu(), "hidden")
    return middle + (hidden @ weights["down"] + weights["down_bias"]), rounded.outside


def tolerance(output: npt.NDArray[np.floating]) -> float:
    """From end to end: that of any element of an output.

    A value that rounds the other way moves by at most 2**-7 of itself. The block's matrices keep
    the size of what passes them (their elements have variance 1 / rows), and the errors of many
    elements add up as their squares do: each of the roundings counts with 2**-7 of the largest
    value at most.
    """
    return float(2.0**-7 * len(ROUNDED) ** 0.5 * np.abs(output).max())
