"""The transformer demo's reference: fp32 arithmetic stays within its bounds."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHAPE = (16, 48)


@pytest.fixture(scope="module")
def model() -> Iterator[ModuleType]:
    """The example's module; examples are scripts, not a package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("transformer_model")
        sys.modules.pop("transformer_model", None)


def pair(model: ModuleType, seed: int) -> tuple[Any, np.ndarray]:
    """Values with bounds, and fp32 numbers somewhere within them."""
    random = np.random.default_rng(seed)
    value, error = random.normal(size=SHAPE), random.uniform(0, 1e-5, SHAPE)
    return model.Bounded(value, error + 1e-7 * np.abs(value)), (
        value + error * random.uniform(-1, 1, SHAPE)
    ).astype(np.float32)


def check(bounded: Any, found: np.ndarray, most: float) -> None:
    """`found` is within the bounds, and these are no larger than useful."""
    assert found.dtype == np.float32
    assert (np.abs(found - bounded.value) <= bounded.error).all()
    assert bounded.error.max() < most


@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold(model: ModuleType, seed: int) -> None:
    (a, x), (b, y) = pair(model, seed), pair(model, seed + 100)
    check(a + b, x + y, 1e-4)
    check(a.scaled(0.3), x * np.float32(0.3), 1e-4)
    sums = np.zeros((SHAPE[0], SHAPE[0]), np.float32)
    for column in range(SHAPE[1]):
        sums += x[:, column, None] * y[None, :, column]
    check(a @ b.transposed, sums, 3e-3)
    power = np.exp(x - x.max(axis=1, keepdims=True))
    check(a.softmax(), power * (1 / power.sum(axis=1, keepdims=True)), 1e-4)
    gain, shift = pair(model, seed + 200)[1][:2]
    centred = x - x.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.float32(model.EPSILON))
    check(a.layer_norm(gain, shift), centred * scale * gain + shift, 1e-3)
    check(a.gelu(), (x / 2 * (1 + erf(x / np.float32(2) ** 0.5))).astype(np.float32), 1e-4)


def test_rounding_to_bfloat16(model: ModuleType) -> None:
    # 8 bits of precision: 1 + 2**-8 lies in the middle of two neighbours, the even one is 1.
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1.5])
    expected = [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -1.5]
    assert model.to_bfloat16(values).tolist() == expected
    bound = model.Bounded(values, np.full(5, 1e-6)).bfloat16()
    assert bound.error.tolist() == [0.0, 2**-7, 2**-7, 2**-7, 0.0]


def test_what_the_device_found_is_checked(model: ModuleType) -> None:
    block = model.draw_block(16, 32, 3)
    x = np.random.default_rng(3).normal(size=(6, 16)).astype(np.float32)
    whole, nothing = model.reference(block, x, 2)
    assert nothing == 0
    assert whole.error.max() < 1e-3
    assert whole.error.max() * 10 < model.tolerance(whole.value) < 0.1 * np.abs(whole.value).max()
    found = {name: np.zeros((6, 32), np.uint16) for name in model.ROUNDED}
    found["shares"] = np.zeros((2, 6, 6), np.uint16)
    for name in model.ROUNDED[:4] + model.ROUNDED[5:7]:
        found[name] = found[name][:, :16]
    _, outside = model.reference(block, x, 2, found)
    # Zeros are right where all before was zero: queries, keys, values, contexts.
    assert outside > 6 * 16 + 2 * 6 * 6
