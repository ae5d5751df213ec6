"""Row reductions, softmax and layer norm against numpy."""

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.kernels.row_source import (
    CHUNK,
    REDUCTIONS,
    ROWS,
    add_row_source,
    layer_norm_source,
    reduce_source,
    softmax_source,
)
from tb.kernels.library import run_kernel

SHAPES = [(0, 5), (1, 1), (ROWS + 1, 17), (3, CHUNK), (ROWS, CHUNK + 1), (7, 2 * CHUNK - 1)]


def matrix(shape: tuple[int, int]) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * 3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, shape: tuple[int, int]) -> None:
    x = matrix(shape)
    out = np.zeros(shape[0], np.float32)
    got = run_kernel(reduce_source(name), [x], out, [*shape, 1 / shape[1]])
    expected = getattr(np, name)(x.astype(np.float64), axis=1)
    exact = name in ("max", "min")
    tolerance = 0.0 if exact else 1e-6 * np.abs(x).sum(axis=1).max(initial=1)
    assert np.allclose(got, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
def test_add_row(shape: tuple[int, int]) -> None:
    x, row = matrix(shape), matrix((1, shape[1]))[0]
    got = run_kernel(add_row_source(), [x, row], np.zeros_like(x), shape)
    assert np.array_equal(got, x + row)


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(shape: tuple[int, int]) -> None:
    x = matrix(shape)
    got = run_kernel(softmax_source(), [x], np.zeros_like(x), shape)
    power = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True, initial=-1e9))
    assert np.allclose(got, power / power.sum(axis=1, keepdims=True), rtol=3e-6, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(shape: tuple[int, int]) -> None:
    x = matrix(shape)
    gain, bias = matrix((2, shape[1]))
    got = run_kernel(
        layer_norm_source(), [x, gain, bias], np.zeros_like(x), [*shape, 1 / shape[1], 1e-5]
    )
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    assert np.allclose(got, centred * scale * gain + bias, rtol=1e-5, atol=1e-5)
