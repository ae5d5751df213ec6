"""Convolution and pooling against numpy, bit for bit where they are exact."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.compiler.errors import CompileError
from runtime.kernels.window_source import (
    Convolution,
    Pooling,
    convolution_source,
    convolution_work,
    pooling_source,
)
from tb.compiler.scheduled_core import BUFFERS
from tb.kernels.library import run_kernel

CONVOLUTIONS = [
    Convolution(1, 1, 1, 1, 1, 1, 1, 0, "int32", relu=False),
    Convolution(8, 8, 1, 6, 5, 5, 1, 2, "int8", relu=True),
    Convolution(9, 11, 3, 65, 3, 3, 2, 1, "int32", relu=False),
    Convolution(6, 6, 17, 7, 3, 1, 1, 0, "int8", relu=False),
    Convolution(13, 5, 64, 16, 1, 1, 1, 0, "int32", relu=True),
]

DEEP = [
    # Depths of 576, 1152, 1600, 512 and 400; then rows that are unfolded for few pixels at a time.
    Convolution(7, 9, 64, 70, 3, 3, 1, 1, "int8", relu=True),
    Convolution(9, 5, 128, 17, 3, 3, 2, 1, "int32", relu=False),
    Convolution(8, 6, 64, 33, 5, 5, 1, 0, "int32", relu=False),
    Convolution(5, 14, 512, 65, 1, 1, 1, 0, "int8", relu=False),
    Convolution(11, 10, 16, 6, 5, 5, 1, 2, "int32", relu=False),
    Convolution(3, 4, 520, 5, 3, 3, 1, 1, "int32", relu=True),
    Convolution(2, 5, 129, 3, 2, 2, 1, 0, "int32", relu=False),
    # Whole rows of windows lie above or below the image.
    Convolution(1, 3, 90, 4, 5, 3, 1, 3, "int32", relu=False),
    # An image that fits L1 once only.
    Convolution(56, 56, 64, 3, 3, 3, 7, 1, "int32", relu=False),
]


def convolve(x: NDArray[np.int8], w: NDArray[np.int8], c: Convolution) -> NDArray[np.int64]:
    padding = (0, 0), (c.padding,) * 2, (c.padding,) * 2, (0, 0)
    wide = np.pad(x.astype(np.int64), padding)
    out = np.zeros((len(x), c.out_height, c.out_width, c.filters), np.int64)
    for i in range(c.kernel_height):
        for j in range(c.kernel_width):
            rows = slice(i, i + c.stride * c.out_height, c.stride)
            columns = slice(j, j + c.stride * c.out_width, c.stride)
            part = wide[:, rows, columns][:, : c.out_height, : c.out_width]
            out += part @ w[i, j].astype(np.int64)
    return out


@pytest.mark.parametrize("images", [0, 1, 3])
@pytest.mark.parametrize("c", CONVOLUTIONS + DEEP)
def test_convolution(c: Convolution, images: int) -> None:
    rng = np.random.default_rng(images)
    x = rng.integers(-128, 128, (images, c.height, c.width, c.channels)).astype(np.int8)
    shape = c.kernel_height, c.kernel_width, c.channels, c.filters
    w = rng.integers(-128, 128, shape).astype(np.int8)
    bias = rng.integers(-5000, 5000, c.filters).astype(np.int32)
    expected = convolve(x, w, c) + bias
    if c.relu:
        expected = np.maximum(expected, 0)
    if c.output == "int8":
        expected = np.clip((expected * 99 + (1 << 14)) >> 15, -128, 127)
    out = np.zeros(expected.shape, np.dtype(c.output).type)
    got = run_kernel(convolution_source(c), [x, w, bias], out, [images, 99, 15])
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("limit", [3_000, 9_000, 20_000])
def test_pieces_of_images_make_the_whole(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that would take longer than the limit are cut along pixels, or along filters."""
    monkeypatch.setattr("runtime.kernels.window_source.LONGEST_BLOCK", limit)
    c = Convolution(13, 11, 16, 150, 3, 3, 1, 1, "int32", relu=False)
    assert c.tiles == (3, 3)
    assert c.parts == {3_000: (3, 3), 9_000: (1, 3), 20_000: (1, 2)}[limit]
    assert convolution_work(2, c).pieces == 2 * c.parts[0] * c.parts[1]
    rng = np.random.default_rng(limit)
    x = rng.integers(-128, 128, (2, 13, 11, 16)).astype(np.int8)
    w = rng.integers(-128, 128, (3, 3, 16, 150)).astype(np.int8)
    bias = rng.integers(-5000, 5000, 150).astype(np.int32)
    expected = convolve(x, w, c) + bias
    out = np.zeros(expected.shape, np.int32)
    assert np.array_equal(run_kernel(convolution_source(c), [x, w, bias], out, [2, 1, 0]), expected)


def test_a_kernel_that_is_too_large_is_refused() -> None:
    with pytest.raises(CompileError, match="must not be larger than the padded image"):
        convolution_source(replace(CONVOLUTIONS[0], kernel_height=2))


def test_a_convolution_that_does_not_fit_is_refused() -> None:
    deep = Convolution(3, 3, 16385, 1, 1, 1, 1, 0, "int32", relu=False)
    with pytest.raises(CompileError, match="channels must be at most 16384, not 16385"):
        convolution_source(deep)
    large = Convolution(70, 64, 64, 1, 3, 3, 1, 1, "int32", relu=False)
    with pytest.raises(CompileError, match=r"fit its 4096 lines, not 4866 \(load1 1 x 4480"):
        convolution_source(large).compile(BUFFERS)


@pytest.mark.parametrize("images", [0, 1, 3])
@pytest.mark.parametrize(
    "p",
    [
        Pooling(2, 2, 1, 2, 2, "max", "int8"),
        Pooling(9, 7, 6, 2, 2, "max", "int8"),
        Pooling(8, 8, 17, 3, 1, "max", "float32"),
        Pooling(5, 6, 3, 2, 2, "mean", "float32"),
        # Several rows at a time, the last time fewer.
        Pooling(30, 20, 16, 2, 2, "max", "float32"),
        Pooling(27, 12, 40, 3, 2, "max", "int8"),
        # Windows whose pixels come in loops.
        Pooling(9, 13, 17, 4, 3, "max", "int8"),
        Pooling(11, 5, 6, 5, 2, "max", "float32"),
        Pooling(8, 8, 64, 8, 8, "mean", "float32"),
        Pooling(21, 16, 5, 4, 4, "mean", "float32"),
        # Rows that are too long for UB, cut along pixels and channels.
        Pooling(3, 700, 16, 2, 1, "max", "float32"),
        Pooling(4, 305, 3, 1, 1, "mean", "float32"),
        Pooling(6, 6, 6000, 2, 4, "max", "float32"),
        Pooling(3, 4, 1500, 3, 1, "max", "int8"),
        Pooling(5, 130, 90, 4, 1, "max", "int8"),
        Pooling(4, 5, 3700, 4, 1, "mean", "float32"),
        # Steps beyond what a command can say, of which none is made.
        Pooling(2, 2, 20_000, 2, 1 << 15, "max", "int8"),
    ],
)
def test_pooling(p: Pooling, images: int) -> None:
    rng = np.random.default_rng(images)
    shape = images, p.height, p.width, p.channels
    x = rng.integers(-128, 128, shape).astype(np.dtype(p.dtype).type)
    windows = np.lib.stride_tricks.sliding_window_view(x, (p.window, p.window), (1, 2))
    windows = windows[:, :: p.stride, :: p.stride]
    expected = windows.max(axis=(-1, -2)) if p.kind == "max" else windows.mean(axis=(-1, -2))
    out = np.zeros(expected.shape, x.dtype)
    assert np.array_equal(run_kernel(pooling_source(p), [x], out, [images]), expected)
