"""The LeNet demo's network: its gradients, its integer arithmetic, its accuracy."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def model() -> Iterator[ModuleType]:
    """The example's module; examples are scripts, not a package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("lenet_model")
        for name in ("lenet_model", "digits_model"):
            sys.modules.pop(name, None)


def test_gradients_are_those_of_the_loss(model: ModuleType) -> None:
    random = np.random.default_rng(2)
    shapes = (9, 8), (8,), (72, 16), (16,), (64, 32), (32,), (32, 10), (10,)
    parameters = [random.normal(size=shape) * 0.3 for shape in shapes]
    images, labels = random.uniform(size=(3, 8, 8, 1)), np.array([0, 4, 9])

    def loss() -> float:
        logits, _ = model._forward(parameters, images)
        logits = logits - logits.max(axis=1, keepdims=True)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return float(-np.log(shares[np.arange(3), labels]).mean())

    for parameter, gradient in zip(
        parameters, model._gradients(parameters, images, labels), strict=True
    ):
        assert gradient.shape == parameter.shape
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        before = parameter[place]
        parameter[place] = before + 1e-5
        above = loss()
        parameter[place] = before - 1e-5
        slope = (above - loss()) / 2e-5
        parameter[place] = before
        assert slope == pytest.approx(gradient[place], rel=1e-4)


def test_the_integer_network_is_accurate_and_deterministic(model: ModuleType) -> None:
    digits = importlib.import_module("digits_model").load_images()
    parameters = model.train(digits)
    lenet = model.quantise(parameters, digits.train_images)
    shapes = [weights.shape for weights in lenet.weights]
    assert shapes == [(3, 3, 1, 8), (3, 3, 8, 16), (64, 32), (32, 10)]
    assert all(weights.dtype == np.int8 for weights in lenet.weights)
    logits = model.reference_logits(lenet, digits.test_images)
    assert (logits.dtype, logits.shape) == (np.int32, (540, 10))
    assert np.mean(logits.argmax(axis=1) == digits.test_labels) >= 0.96
    short = [model.train(digits, epochs=1) for _ in range(2)]
    assert all(np.array_equal(a, b) for a, b in zip(*short, strict=True))


def test_the_reference_is_exact(model: ModuleType) -> None:
    random = np.random.default_rng(5)
    shapes = (3, 3, 1, 2), (3, 3, 2, 6), (24, 4), (4, 10)
    weights = tuple(random.integers(-128, 128, shape, dtype=np.int8) for shape in shapes)
    biases = tuple(random.integers(-3000, 3000, shape[-1]).astype(np.int32) for shape in shapes)
    scales = (3, 8), (5, 9), (7, 10)
    image = random.integers(0, 113, (1, 64)).astype(np.int8)
    x = image.reshape(8, 8, 1).tolist()

    def scaled(value: int, layer: int) -> int:
        multiplier, shift = scales[layer]
        return max(-128, min(127, (max(value, 0) * multiplier + (1 << shift >> 1)) >> shift))

    for layer in (0, 1):
        side, w, b = len(x), weights[layer].tolist(), biases[layer].tolist()
        found = [[list(b) for _ in range(side)] for _ in range(side)]
        for place in np.ndindex(side, side, 3, 3, *shapes[layer][2:]):
            row, column, i, j, channel, out = place
            y, z = row + i - 1, column + j - 1
            if 0 <= y < side and 0 <= z < side:
                found[row][column][out] += x[y][z][channel] * w[i][j][channel][out]
        x = [
            [
                [
                    max(scaled(found[y + i][z + j][c], layer) for i in (0, 1) for j in (0, 1))
                    for c in range(shapes[layer][-1])
                ]
                for z in range(0, side, 2)
            ]
            for y in range(0, side, 2)
        ]
    flat = [value for row in x for pixel in row for value in pixel]
    hidden = [
        scaled(sum(v * w for v, w in zip(flat, column, strict=True)) + bias, 2)
        for column, bias in zip(weights[2].T.tolist(), biases[2].tolist(), strict=True)
    ]
    expected = [
        sum(v * w for v, w in zip(hidden, column, strict=True)) + bias
        for column, bias in zip(weights[3].T.tolist(), biases[3].tolist(), strict=True)
    ]
    lenet = model.QuantisedLenet(weights, biases, scales)
    assert model.reference_logits(lenet, image).tolist() == [expected]
    assert len(set(flat)) > 3
