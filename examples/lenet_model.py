"""The LeNet demo's network: trained in floating point, quantised to int8, computed in integers.

8x8 pixels; convolution 3x3 (8 filters), ReLU, largest of 2x2; convolution 3x3 (16), ReLU, largest
of 2x2; dense (32), ReLU; dense (10). `reference_logits` computes it in plain numpy: what the NPU
must give, bit by bit. Images are NHWC.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from digits_model import PIXEL_MAXIMUM, PIXEL_SCALE, Digits, pixels_of, requantise, scale_fraction
from threadpoolctl import threadpool_limits

__all__ = ["QuantisedLenet", "quantise", "reference_logits", "train"]

SIDE = 8
FILTERS = (8, 16)
HIDDEN = 32
CLASSES = 10
EPOCHS = 20
BATCH = 32
RATE = 4e-3

Float = npt.NDArray[np.float64]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Cache = tuple[Float, ...]


@dataclass(frozen=True)
class QuantisedLenet:
    """The network in integers, in the layout that the runtime's operations take.

    `weights`: int8 (3, 3, 1, 8), (3, 3, 8, 16), (64, 32) and (32, 10); `biases`: int32, one for
    each column of them; `scales`: (multiplier, shift) of the requantisation after each layer but
    the last.
    """

    weights: tuple[Int8, Int8, Int8, Int8]
    biases: tuple[Int32, Int32, Int32, Int32]
    scales: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


def _windows(x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """(n, h, w, c) with a border of one zero, as (n, h, w, 9 * c): kernel row, column, channel."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = x.shape[1:3]
    parts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.concatenate(parts, axis=-1)


def _pooled(x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The largest of each 2x2 pixels."""
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def _pool_gradient(x: Float, pooled: Float, gradient: Float) -> Float:
    """The gradient goes to the largest pixel of each window."""
    wide = pooled.repeat(2, axis=1).repeat(2, axis=2)
    return np.where(x == wide, gradient.repeat(2, axis=1).repeat(2, axis=2), 0.0)


def _windows_gradient(gradient: Float, channels: int) -> Float:
    """What `_windows` spread out, summed up again."""
    n, height, width, _ = gradient.shape
    total = np.zeros((n, height + 2, width + 2, channels))
    for place in range(9):
        i, j = divmod(place, 3)
        part = gradient[..., place * channels : (place + 1) * channels]
        total[:, i : i + height, j : j + width] += part
    return total[:, 1:-1, 1:-1]


def _forward(parameters: list[Float], images: Float) -> tuple[Float, list[Float]]:
    """Logits, and each layer's input and (for all but the last) its output after ReLU."""
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    in1 = _windows(images)
    out1 = np.maximum(in1 @ w1 + b1, 0)
    pool1 = _pooled(out1)
    in2 = _windows(pool1)
    out2 = np.maximum(in2 @ w2 + b2, 0)
    pool2 = _pooled(out2)
    in3 = pool2.reshape(len(images), -1)
    out3 = np.maximum(in3 @ w3 + b3, 0)
    return out3 @ w4 + b4, [in1, out1, pool1, in2, out2, pool2, in3, out3]


def _gradients(parameters: list[Float], images: Float, labels: Int32) -> list[Float]:
    """Gradients of the mean cross-entropy."""
    w2, w3, w4 = parameters[2], parameters[4], parameters[6]
    logits, (in1, out1, pool1, in2, out2, pool2, in3, out3) = _forward(parameters, images)
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    d4 = power / power.sum(axis=1, keepdims=True)
    d4[np.arange(len(labels)), labels] -= 1
    d4 /= len(labels)
    d3 = d4 @ w4.T * (out3 > 0)
    to_pool2 = (d3 @ w3.T).reshape(pool2.shape)
    d2 = _pool_gradient(out2, pool2, to_pool2) * (out2 > 0)
    to_pool1 = _windows_gradient(d2 @ w2.T, pool1.shape[-1])
    d1 = _pool_gradient(out1, pool1, to_pool1) * (out1 > 0)
    found: list[Float] = []
    for given, back in ((in1, d1), (in2, d2), (in3, d3), (out3, d4)):
        flat = back.reshape(-1, back.shape[-1])
        found += [given.reshape(-1, given.shape[-1]).T @ flat, flat.sum(axis=0)]
    return found


def train(digits: Digits, *, epochs: int = EPOCHS, seed: int = 0) -> list[Float]:
    """Train with Adam (Kingma and Ba); the same seed gives the same network.

    Returns:
        Weights, (inputs, outputs), and bias of each layer in turn.
    """
    random = np.random.default_rng(seed)
    inputs = 9, 9 * FILTERS[0], (SIDE // 4) ** 2 * FILTERS[1], HIDDEN
    outputs = *FILTERS, HIDDEN, CLASSES
    parameters: list[Float] = []
    for rows, columns in zip(inputs, outputs, strict=True):
        parameters += [random.normal(size=(rows, columns)) * (2 / rows) ** 0.5, np.zeros(columns)]
    moments = [(np.zeros_like(p), np.zeros_like(p)) for p in parameters]
    images = pixels_of(digits.train_images).reshape(-1, SIDE, SIDE, 1)
    step = 0
    # One thread: the sums have one order on every machine.
    with threadpool_limits(1):
        for _ in range(epochs):
            order = random.permutation(len(images))
            for first in range(0, len(order), BATCH):
                step += 1
                pick = order[first : first + BATCH]
                gradients = _gradients(parameters, images[pick], digits.train_labels[pick])
                for p, g, (mean, square) in zip(parameters, gradients, moments, strict=True):
                    mean += 0.1 * (g - mean)
                    square += 0.001 * (g * g - square)
                    p -= (
                        RATE
                        * (mean / (1 - 0.9**step))
                        / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
                    )
    return parameters


def quantise(parameters: list[Float], calibration: Int8) -> QuantisedLenet:
    """Quantise symmetrically, one scale a tensor; `calibration` images (n, 64) set the scales of
    what passes from layer to layer."""
    _, (_, out1, _, _, out2, _, _, out3) = _forward(
        parameters, pixels_of(calibration).reshape(-1, SIDE, SIDE, 1)
    )
    # The value that 1 stands for: of pixels, then after each layer.
    units = [1 / (PIXEL_SCALE * PIXEL_MAXIMUM), *(float(x.max()) / 127 for x in (out1, out2, out3))]
    weights, biases, scales = [], [], []
    for layer in range(4):
        matrix, bias = parameters[2 * layer : 2 * layer + 2]
        unit = float(np.abs(matrix).max()) / 127
        weights.append(np.rint(matrix / unit).astype(np.int8))
        biases.append(np.rint(bias / (units[layer] * unit)).astype(np.int32))
        if layer < 3:
            scales.append(scale_fraction(units[layer] * unit / units[layer + 1]))
    for layer, channels in ((0, 1), (1, FILTERS[0])):
        weights[layer] = weights[layer].reshape(3, 3, channels, -1)
    return QuantisedLenet(tuple(weights), tuple(biases), tuple(scales))


def reference_logits(lenet: QuantisedLenet, images: Int8) -> Int32:
    """The int32 logits of `images`, shape (n, 64) int8: shape (n, 10)."""
    x = images.reshape(-1, SIDE, SIDE, 1)
    for layer in range(4):
        given = _windows(x) if layer < 2 else x.reshape(len(images), -1)
        matrix = lenet.weights[layer].reshape(given.shape[-1], -1)
        sums = given.astype(np.int32) @ matrix.astype(np.int32) + lenet.biases[layer]
        if layer == 3:
            return sums
        x = requantise(np.maximum(sums, 0), *lenet.scales[layer])
        if layer < 2:
            x = _pooled(x)
    raise AssertionError
