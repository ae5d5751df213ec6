"""The digits demo's network: trained in floating point, quantised to int8, computed in integers.

Layer 1: int8 x int8 + bias, ReLU, requantised to int8. Layer 2: int8 x int8 + bias, int32 logits.
`reference_logits` computes both in plain numpy: what the NPU must give, bit by bit.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

__all__ = [
    "Digits",
    "FloatMlp",
    "QuantisedMlp",
    "accuracy",
    "load_images",
    "pixels_of",
    "quantise",
    "reference_hidden",
    "reference_logits",
    "requantise",
    "scale_fraction",
    "train",
]

PIXEL_MAXIMUM = 16
PIXEL_SCALE = 7
"""A pixel of 0 to 16 becomes an int8 of 0 to 112, without rounding."""

HIDDEN = 32
TEST_IMAGES = 540
MULTIPLIER_BITS = 31
"""The multiplier of a requantisation is unsigned and below 2**31."""

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Digits:
    """Images, shape (n, 64) int8, and labels, shape (n,) int64, for training and for testing."""

    train_images: Int8
    train_labels: npt.NDArray[np.int64]
    test_images: Int8
    test_labels: npt.NDArray[np.int64]


@dataclass(frozen=True)
class FloatMlp:
    """Weights, shapes (64, hidden) and (hidden, 10), and biases; inputs are pixels / 16."""

    weights1: Float
    bias1: Float
    weights2: Float
    bias2: Float


@dataclass(frozen=True)
class QuantisedMlp:
    """The network in integers, in the layout that the runtime's kernels take.

    `weights1` (64, hidden) int8, `bias1` (hidden,) int32, `weights2` (hidden, 10) int8, `bias2`
    (10,) int32; the hidden layer is requantised with `multiplier` (< 2**31) and `shift` (<= 62).
    """

    weights1: Int8
    bias1: Int32
    weights2: Int8
    bias2: Int32
    multiplier: int
    shift: int


def load_images(*, test_images: int = TEST_IMAGES, seed: int = 0) -> Digits:
    """Scikit-learn's handwritten digits, 8x8 pixels, with `test_images` of 1797 held out.

    Raises:
        ValueError: `test_images` leaves nothing to train on.
    """
    if not 10 <= test_images <= 1500:
        raise ValueError(f"test_images must be between 10 and 1500, not {test_images!r}")
    digits = load_digits()
    images = (digits.data.astype(np.int64) * PIXEL_SCALE).astype(np.int8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target, test_size=test_images, random_state=seed, stratify=digits.target
    )
    return Digits(train_x, train_y, test_x, test_y)


def train(digits: Digits, *, hidden: int = HIDDEN, seed: int = 0) -> FloatMlp:
    """Train the network in floating point; the same seed gives the same network."""
    classifier = MLPClassifier((hidden,), alpha=1e-3, max_iter=150, random_state=seed)
    # One thread: faster on matrices this small, and the sums have one order on every machine.
    with threadpool_limits(1), warnings.catch_warnings():
        # It is stopped after a fixed number of rounds, on purpose.
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(pixels_of(digits.train_images), digits.train_labels)
    (weights1, weights2), (bias1, bias2) = classifier.coefs_, classifier.intercepts_
    return FloatMlp(weights1, bias1, weights2, bias2)


def pixels_of(images: Int8) -> Float:
    """Pixels between 0 and 1, as the floating-point network sees them."""
    return images.astype(np.float64) / (PIXEL_SCALE * PIXEL_MAXIMUM)


def quantise(mlp: FloatMlp, calibration: Int8) -> QuantisedMlp:
    """Quantise symmetrically, one scale a tensor; `calibration` images set the hidden scale."""
    input_scale = 1 / (PIXEL_SCALE * PIXEL_MAXIMUM)
    weights1, scale1 = _symmetric(mlp.weights1)
    weights2, scale2 = _symmetric(mlp.weights2)
    hidden = np.maximum(pixels_of(calibration) @ mlp.weights1 + mlp.bias1, 0)
    hidden_scale = float(hidden.max()) / 127
    multiplier, shift = scale_fraction(input_scale * scale1 / hidden_scale)
    return QuantisedMlp(
        weights1=weights1,
        bias1=np.rint(mlp.bias1 / (input_scale * scale1)).astype(np.int32),
        weights2=weights2,
        bias2=np.rint(mlp.bias2 / (hidden_scale * scale2)).astype(np.int32),
        multiplier=multiplier,
        shift=shift,
    )


def _symmetric(weights: Float) -> tuple[Int8, float]:
    scale = float(np.abs(weights).max()) / 127
    return np.rint(weights / scale).astype(np.int8), scale


def scale_fraction(factor: float) -> tuple[int, int]:
    """`factor`, between 2**-31 and 1, as multiplier / 2**shift with a full 31-bit multiplier."""
    if not 2.0**-31 <= factor < 1:
        raise ValueError(f"factor must be between 2**-31 and 1, not {factor!r}")
    mantissa, exponent = np.frexp(factor)
    multiplier = min(round(float(mantissa) * (1 << MULTIPLIER_BITS)), (1 << MULTIPLIER_BITS) - 1)
    return multiplier, MULTIPLIER_BITS - int(exponent)


def requantise(values: Int32, multiplier: int, shift: int) -> Int8:
    """`(x * multiplier + (1 << shift >> 1)) >> shift`, saturated to int8, of any shape.

    Raises:
        ValueError: `multiplier` is not in 0 to 2**31 - 1, or `shift` not in 0 to 62.
    """
    if not 0 <= multiplier < 1 << MULTIPLIER_BITS:
        raise ValueError(f"multiplier must be between 0 and 2**31 - 1, not {multiplier!r}")
    if not 0 <= shift <= 62:
        raise ValueError(f"shift must be between 0 and 62, not {shift!r}")
    # 32 + 31 bits and the rounding: the sum stays below 2**63.
    scaled = values.astype(np.int64) * multiplier + (1 << shift >> 1)
    return np.clip(scaled >> shift, -128, 127).astype(np.int8)


def reference_hidden(mlp: QuantisedMlp, images: Int8) -> Int8:
    """The hidden layer of `images`, shape (n, 64) int8: shape (n, hidden) int8."""
    sums = images.astype(np.int32) @ mlp.weights1.astype(np.int32) + mlp.bias1
    return requantise(np.maximum(sums, 0), mlp.multiplier, mlp.shift)


def reference_logits(mlp: QuantisedMlp, images: Int8) -> Int32:
    """The int32 logits of `images`, shape (n, 64) int8: shape (n, 10)."""
    hidden = reference_hidden(mlp, images)
    return hidden.astype(np.int32) @ mlp.weights2.astype(np.int32) + mlp.bias2


def accuracy(logits: Int32, labels: npt.NDArray[np.int64]) -> float:
    """Share of images whose largest logit, shape (n, 10), is at their label, shape (n,)."""
    return float(np.mean(logits.argmax(axis=1) == labels))
