"""Operations of the library through the runtime API, against numpy."""

from typing import Any

import numpy as np
import pytest

from runtime import Device, InvalidArgumentError
from runtime.operations import elements, matrix, movement, rows, windows


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("n", [1, 1025, 5003])
def test_elements(device: Device, n: int) -> None:
    x, y = floats(2, n)
    a, b = device.array(x), device.array(y)
    assert np.array_equal(elements.add(a, b).numpy(), x + y)
    assert np.array_equal(elements.multiply(a, b).numpy(), x * y)
    assert np.array_equal(elements.maximum(a, b).numpy(), np.maximum(x, y))
    assert np.array_equal(elements.relu(a).numpy(), np.maximum(x, 0))
    assert np.allclose(elements.exp(a).numpy(), np.exp(x), rtol=3e-7, atol=0)
    assert np.allclose(elements.tanh(b).numpy(), np.tanh(y), rtol=4e-7, atol=0)
    assert np.array_equal(elements.scale(b, 0.3).numpy(), y * np.float32(0.3))
    q = elements.quantise(a, 50.0)
    expected = np.clip(np.rint(x * np.float32(50)), -128, 127)
    assert np.array_equal(q.numpy(), expected)
    back = elements.dequantise(q, 0.02).numpy()
    assert np.array_equal(back, expected.astype(np.float32) * np.float32(0.02))


@pytest.mark.parametrize("shape", [(1, 1), (9, 65), (33, 300)])
def test_rows(device: Device, shape: tuple[int, int]) -> None:
    x = floats(*shape)
    a = device.array(x)
    power = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact = power / power.sum(axis=1, keepdims=True)
    assert np.allclose(rows.softmax(a).numpy(), exact, rtol=3e-6, atol=0)
    assert np.array_equal(rows.add_row(a, device.array(x[0])).numpy(), x + x[0])
    assert np.array_equal(rows.row_max(a).numpy(), x.max(axis=1))
    assert np.allclose(rows.row_sum(a).numpy(), x.sum(axis=1), rtol=0, atol=1e-4)
    gain, bias = floats(2, shape[1])
    got = rows.layer_norm(a, device.array(gain), device.array(bias)).numpy()
    centred = x - x.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    assert np.allclose(got, centred * scale * gain + bias, rtol=1e-4, atol=1e-4)


def test_movement(device: Device) -> None:
    x = floats(70, 45)
    a = device.array(x)
    assert np.array_equal(movement.transpose(a).numpy(), x.T)
    numbers = np.array([3, 69, 0, 3], np.int32)
    got = movement.gather_rows(a, device.array(numbers)).numpy()
    assert np.array_equal(got, x[numbers])


def test_windows(device: Device) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-128, 128, (2, 6, 6, 3)).astype(np.int8)
    w = rng.integers(-128, 128, (3, 3, 3, 5)).astype(np.int8)
    bias = rng.integers(-100, 100, 5).astype(np.int32)
    a = device.array(x)
    got = windows.conv2d(a, device.array(w), device.array(bias)).numpy()
    patches = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (3, 3), (1, 2))
    expected = np.einsum("nhwcij,ijcf->nhwf", patches, w.astype(np.int64)) + bias
    assert np.array_equal(got, expected)
    pooled = windows.max_pool2d(a, 2).numpy()
    assert np.array_equal(pooled, x.reshape(2, 3, 2, 3, 2, 3).max(axis=(2, 4)))


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_int8_products(device: Device, transposed: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(3)
    m, n, depth = 45, 70, 130
    a = rng.integers(-128, 128, (m, depth)).astype(np.int8)
    b = rng.integers(-128, 128, (depth, n)).astype(np.int8)
    bias = rng.integers(-1000, 1000, n).astype(np.int32)
    left = np.ascontiguousarray(a.T if transposed[0] else a)
    right = np.ascontiguousarray(b.T if transposed[1] else b)
    got = matrix.gemm(
        device.array(left),
        device.array(right),
        transpose_a=transposed[0],
        transpose_b=transposed[1],
        bias=device.array(bias),
    )
    assert np.array_equal(got.numpy(), a.astype(np.int32) @ b + bias)


@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 33, 65)])
def test_bfloat16_products(device: Device, shape: tuple[int, int, int]) -> None:
    m, n, depth = shape
    a, b = matrix.to_bfloat16(device.array(floats(m, depth))), floats(depth, n)
    right = matrix.to_bfloat16(device.array(b))
    got = matrix.gemm(a, right).numpy()
    wide = [matrix.from_bfloat16(x).numpy().astype(np.float64) for x in (a, right)]
    bound = np.abs(wide[0]) @ np.abs(wide[1]) * depth * 2.0**-24
    assert (np.abs(got - wide[0] @ wide[1]) <= bound).all()
    assert np.abs(wide[1] - b).max() <= np.abs(b).max() / 256


def bits(x: Any) -> Any:
    """bfloat16 bits of small integers, which it holds exactly."""
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_product_for_each_head(device: Device, side_by_side: bool) -> None:
    rng = np.random.default_rng(8)
    heads, m, n, depth = 3, 19, 21, 40
    a = rng.integers(-9, 10, (heads, m, depth))
    b = rng.integers(-9, 10, (heads, depth, n))
    expected = a @ b

    def wide(x: Any) -> Any:
        """The heads side by side."""
        return np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(x.shape[1], -1)

    if side_by_side:
        left, right, expected = wide(a), wide(b), wide(expected)
    else:
        left, right = a, np.ascontiguousarray(b.transpose(0, 2, 1))
    got = matrix.gemm_heads(
        device.array(bits(left)),
        device.array(bits(right)),
        heads,
        transpose_b=not side_by_side,
        side_by_side=side_by_side,
    )
    assert np.array_equal(got.numpy(), expected)


def test_bad_heads_are_refused(device: Device) -> None:
    a, b = device.zeros((4, 6), np.uint16), device.zeros((2, 5, 3), np.uint16)
    with pytest.raises(InvalidArgumentError, match=r"a must have shape \(4, rows, columns\) or"):
        matrix.gemm_heads(a, b, 4)
    with pytest.raises(InvalidArgumentError, match="b must have 3 rows a head"):
        matrix.gemm_heads(a, b, 2)
    with pytest.raises(InvalidArgumentError, match="output must be float32 or uint16, not 'int8'"):
        matrix.gemm_heads(a, b, 2, transpose_b=True, output="int8")


def test_bad_input_is_refused(device: Device) -> None:
    nothing: Any = None
    a, b = device.array(floats(4, 4)), device.array(floats(4, 5))
    with pytest.raises(InvalidArgumentError, match=r"y must have shape \(4, 4\), not \(4, 5\)"):
        elements.add(a, b)
    with pytest.raises(InvalidArgumentError, match="x must be a DeviceArray"):
        elements.exp(nothing)
    with pytest.raises(InvalidArgumentError, match="x must have dtype float32"):
        elements.exp(device.array(np.zeros(3, np.int32)))
    with pytest.raises(InvalidArgumentError, match="out must not overlap an input"):
        elements.exp(a, out=a)
    with pytest.raises(InvalidArgumentError, match="window must be an integer from 1 to 4, not 5"):
        windows.max_pool2d(device.array(floats(1, 4, 4, 1)), 5)
    with pytest.raises(InvalidArgumentError, match="scale must be a number, not None"):
        elements.quantise(a, nothing)
