"""Kernels that slide a window over images: convolution and pooling. Images are NHWC.

A convolution is a product of the windows, as rows of a matrix, and the kernel as a matrix
(kernel_height * kernel_width * channels, filters). MTE1 unfolds the windows from an image in L1
(IMG2COL), kernel row by kernel row, so that the unfolded image never exists in memory.
"""

from dataclasses import dataclass
from typing import Any

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel

__all__ = ["Convolution", "Pooling", "convolution_source", "pooling_source"]

PIXELS = 64
"""Output pixels of a tile."""

FILTERS = 64
"""Filters of a tile."""


@dataclass(frozen=True)
class Convolution:
    """What a convolution kernel is specialised to; sizes in pixels and channels.

    int8 images and kernels, int32 sums; `output` is int32 or int8 (requantised).
    """

    height: int
    width: int
    channels: int
    filters: int
    kernel_height: int
    kernel_width: int
    stride: int
    padding: int
    output: str
    relu: bool

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height + 2 * self.padding - self.kernel_height) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Pixels of a row of the result."""
        return (self.width + 2 * self.padding - self.kernel_width) // self.stride + 1


def convolution_source(c: Convolution) -> KernelSource:
    """out (images, out_height, out_width, filters) = convolution of x with w (kernel_height,
    kernel_width, channels, filters), plus bias (filters,). A block takes whole images.

    Raises:
        CompileError: the kernel is larger than the padded image.
    """
    if c.out_height < 1 or c.out_width < 1:
        raise CompileError(f"kernel must not be larger than the padded image, not {c!r}")
    pixels = c.out_height * c.out_width
    depth = c.kernel_height * c.kernel_width * c.channels

    @kernel(
        x="int8*",
        w="int8*",
        bias="int32*",
        out=f"{c.output}*",
        images="uint31",
        multiplier="uint31",
        shift="uint31",
    )
    def convolution(
        k: KernelBuilder,
        x: Any,
        w: Any,
        bias: Any,
        out: Any,
        images: Any,
        multiplier: Any,
        shift: Any,
    ) -> None:
        size = c.height * c.width * c.channels
        row = c.width * c.channels
        for image in k.range(k.block_x, images, k.grid_x):
            picture = k.load(x, image * size, (c.height, row), stride=row, memory=Memory.L1)
            for f in k.range(0, c.filters, FILTERS):
                filters = k.minimum(FILTERS, c.filters - f)
                weights = k.load(w, f, (depth, filters), stride=c.filters, memory=Memory.L1)
                biases = k.load_bias(bias, f, filters)
                right = k.move(weights, Memory.L0B, rows=k.padded(depth))
                for first in k.range(0, pixels, PIXELS):
                    count = k.minimum(PIXELS, pixels - first)
                    sums = k.accumulator(count, filters)
                    left = k.unfold(picture, c, first, count)
                    k.multiply_accumulate(sums, left, right, depth, first=1)
                    k.store_sums(
                        out,
                        (image * pixels + first) * c.filters + f,
                        sums,
                        stride=c.filters,
                        bias=biases,
                        relu=c.relu,
                        multiplier=multiplier,
                        shift=k.minimum(shift, 62),
                    )

    return convolution


@dataclass(frozen=True)
class Pooling:
    """What a pooling kernel is specialised to: no padding. `kind`: max or mean; `dtype`: float32,
    or int8 (max only)."""

    height: int
    width: int
    channels: int
    window: int
    stride: int
    kind: str
    dtype: str


def pooling_source(p: Pooling) -> KernelSource:
    """out (images, out_height, out_width, channels): the largest or the mean of each window.

    Raises:
        CompileError: the window is larger than the image, or there is no such pooling.
    """
    out_height = (p.height - p.window) // p.stride + 1
    out_width = (p.width - p.window) // p.stride + 1
    if out_height < 1 or out_width < 1 or p.window < 1 or p.stride < 1:
        raise CompileError(f"window must lie inside the image, not {p!r}")
    if p.kind not in ("max", "mean") or (p.dtype, p.kind) == ("int8", "mean"):
        raise CompileError(f"kind must be max, or mean of float32, not {p.kind!r}")
    work = "int32" if p.dtype == "int8" else "float32"
    array = f"{p.dtype}*"

    @kernel(x=array, out=array, images="uint31")
    def pooling(k: KernelBuilder, x: Any, out: Any, images: Any) -> None:
        step = p.stride * p.channels
        for row in k.range(k.block_x, images * out_height, k.grid_x):
            image, y = row // out_height, row % out_height
            origin = k.define((image * p.height + y * p.stride) * p.width * p.channels)
            result = None
            for dy in range(p.window):
                for dx in range(p.window):
                    offset = origin + (dy * p.width + dx) * p.channels
                    tile = k.load(x, offset, (out_width, p.channels), stride=step).to(work)
                    if result is None:
                        result = tile
                    elif p.kind == "max":
                        result = k.largest(result, tile)
                    else:
                        result = result + tile
            assert result is not None
            if p.kind == "mean":
                result = result * (1 / p.window**2)
            k.store(out, row * (out_width * p.channels), result.to(p.dtype), stride=p.channels)

    return pooling
