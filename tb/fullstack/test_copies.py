"""Copies and fills, compared byte by byte."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from runtime import Device, InvalidArgumentError, PinnedArray
from runtime.staging import CHUNK_BYTES


def data(nbytes: int, seed: int = 1) -> npt.NDArray[np.uint8]:
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


@pytest.mark.parametrize("nbytes", [1, 2, 63, 64, 65, 255, 4095, 4096, 4097, 10_001])
def test_a_copy_comes_back(device: Device, nbytes: int) -> None:
    x = data(nbytes)
    buffer = device.malloc(nbytes)
    device.memcpy(buffer, x)
    back = np.zeros_like(x)
    device.memcpy(back, buffer)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("start", [0, 1, 31, 63])
@pytest.mark.parametrize("length", [1, 33, 64, 200])
def test_bytes_outside_of_the_range_stay(device: Device, start: int, length: int) -> None:
    around = data(512)
    array = device.array(around)
    patch = data(length, 2)
    device.memcpy(array[100 + start : 100 + start + length], patch)
    around[100 + start : 100 + start + length] = patch
    np.testing.assert_array_equal(array.numpy(), around)


def test_a_copy_larger_than_the_staging_memory(device: Device) -> None:
    x = data(2 * CHUNK_BYTES + 4097)
    array = device.array(x)
    np.testing.assert_array_equal(array.numpy(), x)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32, np.float64, np.uint16, np.bool_])
def test_arrays_keep_dtype_and_shape(device: Device, dtype: type) -> None:
    x: npt.NDArray[Any] = np.arange(2 * 3 * 5).reshape(2, 3, 5).astype(dtype)
    array = device.array(x)
    assert (array.shape, array.dtype, array.nbytes) == (x.shape, x.dtype, x.nbytes)
    back = array.numpy()
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(array.reshape(6, 5).numpy(), x.reshape(6, 5))
    np.testing.assert_array_equal(array[1].numpy(), x[1])
    np.testing.assert_array_equal(array[0:1].numpy(), x[0:1])


def test_a_source_that_is_not_contiguous_is_gathered_by_array(device: Device) -> None:
    x = np.arange(30, dtype=np.int16).reshape(5, 6)
    np.testing.assert_array_equal(device.array(x[:, ::2]).numpy(), x[:, ::2])
    np.testing.assert_array_equal(device.array(x.T).numpy(), x.T)


def test_pinned_memory_is_reached_without_a_copy(device: Device) -> None:
    source, target = device.pinned((4, 100), np.int32), device.pinned(400, np.int32)
    assert source.pinned
    assert not source.any()
    source[:] = np.arange(400).reshape(4, 100)
    array = device.empty((4, 100), np.int32)
    stream = device.stream()
    with stream.batch():
        device.memcpy_async(array, source, stream)
        device.memcpy_async(target[100:300], array[1:3], stream)
    stream.synchronize()
    expected = np.zeros(400, np.int32)
    expected[100:300] = np.arange(100, 300)
    np.testing.assert_array_equal(target, expected)
    assert not (source + 1).view(PinnedArray).pinned


def test_a_pageable_source_may_change_after_the_call(device: Device) -> None:
    x = data(5000)
    kept = x.copy()
    array = device.empty(5000, np.uint8)
    device.memcpy_async(array, x)
    x[:] = 0
    np.testing.assert_array_equal(array.numpy(), kept)


def test_copies_within_the_device(device: Device) -> None:
    a = device.array(data(3000))
    b = device.zeros(3000, np.uint8)
    device.memcpy(b, a)
    np.testing.assert_array_equal(b.numpy(), data(3000))
    device.memcpy(b[0:1000], b[1500:2500])
    np.testing.assert_array_equal(b.numpy()[:1000], data(3000)[1500:2500])


@pytest.mark.parametrize(
    ("row", "rows", "dst_pitch", "src_pitch"),
    [(10, 7, 16, 13), (64, 3, 64, 100), (1, 40, 3, 2), (100, 1, 100, 100), (33, 5, 33, 33)],
)
@pytest.mark.parametrize("path", ["upload", "download", "device", "pinned"])
def test_2d_copies(
    device: Device, row: int, rows: int, dst_pitch: int, src_pitch: int, path: str
) -> None:
    source = data(src_pitch * rows)
    target = data(dst_pitch * rows, 2)
    expected = target.copy()
    for i in range(rows):
        at = i * dst_pitch
        expected[at : at + row] = source[i * src_pitch : i * src_pitch + row]
    if path == "pinned":
        src, dst = device.pinned(source.shape, np.uint8), device.pinned(target.shape, np.uint8)
        src[:], dst[:] = source, target
        device.memcpy_2d(dst, dst_pitch, src, src_pitch, row, rows)
        np.testing.assert_array_equal(dst, expected)
        return
    if path == "download":
        result = target.copy()
        device.memcpy_2d(result, dst_pitch, device.array(source), src_pitch, row, rows)
        np.testing.assert_array_equal(result, expected)
        return
    array = device.array(target)
    origin = source if path == "upload" else device.array(source)
    device.memcpy_2d(array, dst_pitch, origin, src_pitch, row, rows)
    np.testing.assert_array_equal(array.numpy(), expected)


def test_a_2d_copy_with_rows_longer_than_a_chunk(device: Device) -> None:
    row = CHUNK_BYTES + 100
    x = data(2 * row + 50)
    array = device.zeros(2 * row, np.uint8)
    device.memcpy_2d(array, row, x, row + 50, row, 2)
    expected = np.concatenate([x[:row], x[row + 50 :]])
    np.testing.assert_array_equal(array.numpy(), expected)


@pytest.mark.parametrize("nbytes", [1, 7, 64, 1001])
def test_memset(device: Device, nbytes: int) -> None:
    array = device.array(data(1200))
    device.memset(array[50 : 50 + nbytes], 0xA5)
    expected = data(1200)
    expected[50 : 50 + nbytes] = 0xA5
    np.testing.assert_array_equal(array.numpy(), expected)


@pytest.mark.parametrize(
    ("dtype", "value"), [(np.int8, -3), (np.int32, -123456), (np.float32, 1.5), (np.float64, 1e300)]
)
def test_fill(device: Device, dtype: type, value: float) -> None:
    array = device.empty((3, 7), dtype)
    device.fill(array, value)
    np.testing.assert_array_equal(array.numpy(), np.full((3, 7), value, dtype))


def test_a_value_that_does_not_fit_is_refused(device: Device) -> None:
    array = device.empty(4, np.int8)
    values: list[Any] = [128, 1.5, "x", None]
    for value in values:
        with pytest.raises(InvalidArgumentError, match="value must fit int8"):
            device.fill(array, value)
