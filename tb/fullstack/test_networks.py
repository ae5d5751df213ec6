"""Networks of the examples, in small: a LeNet with drawn weights, a transformer's block."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from runtime import Device

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Example = Callable[[str], ModuleType]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Example:
    """Imports an example; they are scripts, not a package."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def test_a_convolutional_network_is_exact(device: Device, example: Example) -> None:
    model, demo = example("lenet_model"), example("lenet")
    random = np.random.default_rng(4)
    shapes = (3, 3, 1, 8), (3, 3, 8, 16), (64, 32), (32, 10)
    lenet = model.QuantisedLenet(
        weights=tuple(random.integers(-128, 128, shape, dtype=np.int8) for shape in shapes),
        biases=tuple(random.integers(-5000, 5000, shape[-1]).astype(np.int32) for shape in shapes),
        scales=((0x4000_0001, 38), (0x5000_0001, 40), (0x6000_0001, 40)),
    )
    images = random.integers(0, 113, (3, 64)).astype(np.int8)
    expected = model.reference_logits(lenet, images)
    assert len(np.unique(expected)) > 20, "the layers saturate"
    logits = demo.DeviceLenet(device, lenet).logits(images)
    assert logits.dtype == np.int32
    assert np.array_equal(logits, expected)


@pytest.mark.parametrize(("sequence", "width", "heads"), [(8, 16, 2), (9, 24, 3)])
def test_a_transformer_block_is_within_its_bounds(
    device: Device, example: Example, sequence: int, width: int, heads: int
) -> None:
    model, demo = example("transformer_model"), example("transformer")
    block = model.draw_block(width, 2 * width, seed=sequence)
    x = np.random.default_rng(sequence).normal(size=(sequence, width)).astype(np.float32)
    network = demo.DeviceBlock(device, block, heads)
    output = network.output(x)
    found = {name: array.numpy() for name, array in network.rounded.items()}
    seen = demo.compare(block, x, heads, output, found)
    assert seen.is_right, seen
    assert seen.step_bound < 1e-3
    assert set(found) == set(model.ROUNDED)
    # Nor could it be otherwise: one number of the attention that is an ulp off is seen.
    found["context"] = found["context"].copy()
    found["context"][0, 0] ^= 1
    assert demo.compare(block, x, heads, output, found).outside >= 1
    assert demo.compare(block, x, heads, output + np.float32(0.2), found).outside > 9
