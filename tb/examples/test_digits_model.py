"""The integer network of the digits demo: its arithmetic, its accuracy, its determinism."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from abi.core import STORE_COMMAND

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def model() -> Iterator[ModuleType]:
    """The example's module; examples are scripts, not a package."""
    spec = importlib.util.spec_from_file_location("digits_model", EXAMPLES / "digits_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["digits_model"] = module  # Its dataclasses look it up.
    spec.loader.exec_module(module)
    yield module
    del sys.modules["digits_model"]


def exact_requantise(value: int, multiplier: int, shift: int) -> int:
    """The rule of STORE_COMMAND in Python's unbounded integers."""
    return max(-128, min(127, (value * multiplier + (1 << shift >> 1)) >> shift))


def test_requantise_equals_the_contract(model: ModuleType) -> None:
    assert "(x * multiplier + (1 << shift >> 1)) >> shift, saturated to int8" in (
        STORE_COMMAND.meaning
    )
    random = np.random.default_rng(1)
    edges = [-(2**31), -(2**31) + 1, -129, -128, -1, 0, 1, 127, 128, 2**31 - 1]
    values = np.array([*edges, *random.integers(-(2**31), 2**31, 500)], dtype=np.int32)
    largest = (1 << STORE_COMMAND.fields["multiplier"].width) - 1
    for multiplier in (0, 1, 3, 1 << 30, largest):
        for shift in (0, 1, 2, 31, 40, 61, 62):
            got = model.requantise(values, multiplier, shift)
            assert got.dtype == np.int8
            assert got.tolist() == [exact_requantise(int(v), multiplier, shift) for v in values]


def test_requantise_rounds_half_up(model: ModuleType) -> None:
    values = np.array([-3, -2, -1, 1, 2, 3], dtype=np.int32)
    assert model.requantise(values, 1, 1).tolist() == [-1, -1, 0, 1, 1, 2]


@pytest.mark.parametrize(("multiplier", "shift"), [(-1, 0), (1 << 31, 0), (1, -1), (1, 63)])
def test_requantise_refuses_what_the_hardware_cannot(
    model: ModuleType, multiplier: int, shift: int
) -> None:
    with pytest.raises(ValueError, match=r"must be between 0 and .*, not "):
        model.requantise(np.zeros(1, np.int32), multiplier, shift)


@pytest.mark.parametrize("factor", [2.0**-31, 1e-3, 0.25, 1 / 3, 0.999999])
def test_a_factor_keeps_31_bits(model: ModuleType, factor: float) -> None:
    multiplier, shift = model.scale_fraction(factor)
    assert 1 << 30 <= multiplier < 1 << 31
    assert 0 <= shift <= 62
    assert multiplier / 2**shift == pytest.approx(factor, rel=2**-30)


def test_the_split_holds_out_500_images_and_shares_none(model: ModuleType) -> None:
    digits = model.load_images()
    assert digits.test_images.shape == (540, 64)
    assert digits.train_images.shape == (1797 - 540, 64)
    assert digits.test_images.dtype == np.int8
    assert (int(digits.train_images.min()), int(digits.train_images.max())) == (0, 112)
    assert set(digits.test_labels.tolist()) == set(range(10))
    both = np.concatenate([digits.train_images, digits.test_images])
    assert len(np.unique(both, axis=0)) == 1797


def test_the_integer_network_is_accurate_and_deterministic(model: ModuleType) -> None:
    digits = model.load_images()
    mlp = model.quantise(model.train(digits), digits.train_images)
    assert (mlp.weights1.dtype, mlp.weights1.shape) == (np.int8, (64, 32))
    assert (mlp.weights2.dtype, mlp.weights2.shape) == (np.int8, (32, 10))
    assert (mlp.bias1.dtype, mlp.bias2.dtype) == (np.int32, np.int32)
    logits = model.reference_logits(mlp, digits.test_images)
    assert (logits.dtype, logits.shape) == (np.int32, (540, 10))
    assert model.accuracy(logits, digits.test_labels) >= 0.96
    assert model.accuracy(np.roll(logits, 1, axis=1), digits.test_labels) < 0.2

    hidden = model.reference_hidden(mlp, digits.test_images)
    assert hidden.min() >= 0
    assert hidden.max() > 100, "the hidden scale uses the range of int8"

    again = model.quantise(model.train(digits), digits.train_images)
    assert np.array_equal(again.weights1, mlp.weights1)
    assert np.array_equal(again.weights2, mlp.weights2)
    assert (again.multiplier, again.shift) == (mlp.multiplier, mlp.shift)


def test_the_reference_is_exact(model: ModuleType) -> None:
    digits = model.load_images(test_images=10)
    random = np.random.default_rng(3)
    mlp = model.QuantisedMlp(
        weights1=random.integers(-128, 128, (64, 5)).astype(np.int8),
        bias1=random.integers(-(2**20), 2**20, 5).astype(np.int32),
        weights2=random.integers(-128, 128, (5, 10)).astype(np.int8),
        bias2=random.integers(-(2**20), 2**20, 10).astype(np.int32),
        multiplier=0x4000_0001,
        shift=42,
    )
    logits = model.reference_logits(mlp, digits.test_images)
    for image, row in zip(digits.test_images.tolist(), logits.tolist(), strict=True):
        hidden = []
        for column, bias in zip(mlp.weights1.T.tolist(), mlp.bias1.tolist(), strict=True):
            total = sum(p * w for p, w in zip(image, column, strict=True)) + bias
            hidden.append(exact_requantise(max(total, 0), mlp.multiplier, mlp.shift))
        assert row == [
            sum(h * w for h, w in zip(hidden, column, strict=True)) + bias
            for column, bias in zip(mlp.weights2.T.tolist(), mlp.bias2.tolist(), strict=True)
        ]


@pytest.mark.parametrize("count", [0, 9, 1501])
def test_a_split_without_training_images_is_refused(model: ModuleType, count: int) -> None:
    with pytest.raises(ValueError, match=f"must be between 10 and 1500, not {count}"):
        model.load_images(test_images=count)
