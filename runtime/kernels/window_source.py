"""Kernels that slide a window over images: convolution and pooling. Images are NHWC.

A convolution is a product of the windows, as rows of a matrix, and the kernel as a matrix
(kernel_height * kernel_width * channels, filters). MTE1 unfolds the windows from an image in L1
(IMG2COL), kernel row by kernel row, so that the unfolded image never exists in memory.
"""

from dataclasses import dataclass
from typing import Any

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, VECTOR_LANES
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel
from runtime.compiler.scalar import Scalar, scalar
from runtime.kernels.tiling import LONGEST_BLOCK, Work, divide_up

__all__ = [
    "Convolution",
    "Pooling",
    "convolution_source",
    "convolution_work",
    "pooling_source",
    "pooling_work",
]

PIXELS = 64
"""Output pixels of a tile."""

FILTERS = 64
"""Filters of a tile."""

OVERHEAD_CYCLES = 300
"""What a tile takes besides the Cube's work."""

TAP_CYCLES = 120
"""What a pooling takes for each pixel of the window, besides two cycles for a line of UB."""


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

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of an image: along its pixels, along the filters."""
        pixels = self.out_height * self.out_width
        return divide_up(pixels, PIXELS), divide_up(self.filters, FILTERS)

    @property
    def tile_cycles(self) -> int:
        """What a tile takes, about."""
        depth = divide_up(self.kernel_height * self.kernel_width * self.channels, CUBE_SIDE)
        columns = divide_up(min(self.filters, FILTERS), CUBE_SIDE)
        return PIXELS * columns * depth + OVERHEAD_CYCLES

    @property
    def piece(self) -> tuple[int, int]:
        """Tiles of a piece of an image, which a block takes at least: all of them, unless that
        would take long; else all pixels for some of the filters, or some for a tile's."""
        pixels, filters = self.tiles
        column = pixels * self.tile_cycles
        if column > LONGEST_BLOCK:
            return max(1, LONGEST_BLOCK // self.tile_cycles), 1
        return pixels, min(filters, LONGEST_BLOCK // column)

    @property
    def parts(self) -> tuple[int, int]:
        """Pieces of an image: along its pixels, along the filters."""
        (pixels, filters), (some, few) = self.tiles, self.piece
        return divide_up(pixels, some), divide_up(filters, few)


def convolution_work(images: int, c: Convolution) -> Work:
    """The work of a convolution of so many images."""
    across, down = c.parts
    tiles, columns = c.piece
    lines = c.height * divide_up(c.width * c.channels, LINE_BYTES)
    return Work(images * across * down, lines + tiles * columns * c.tile_cycles)


def convolution_source(c: Convolution) -> KernelSource:
    """out (images, out_height, out_width, filters) = convolution of x with w (kernel_height,
    kernel_width, channels, filters), plus bias (filters,). A block takes pieces of images.

    Raises:
        CompileError: the kernel is larger than the padded image.
    """
    if c.out_height < 1 or c.out_width < 1:
        raise CompileError(f"kernel must not be larger than the padded image, not {c!r}")
    pixels = c.out_height * c.out_width
    depth = c.kernel_height * c.kernel_width * c.channels
    (across, down), (tiles, columns) = c.parts, c.piece

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
        for piece in k.range(k.block_x, images * (across * down), k.grid_x):
            image, part = _divided(k, piece, across * down)
            column, place = _divided(k, part, across)
            picture = k.load(x, image * size, (c.height, row), stride=row, memory=Memory.L1)
            left_most = k.define(column * (columns * FILTERS))
            last = k.minimum(c.filters, left_most + columns * FILTERS)
            for f in k.range(left_most, last, FILTERS):
                filters = k.minimum(FILTERS, c.filters - f)
                weights = k.load(w, f, (depth, filters), stride=c.filters, memory=Memory.L1)
                biases = k.load_bias(bias, f, filters)
                right = k.move(weights, Memory.L0B, rows=k.padded(depth))
                start = k.define(place * (tiles * PIXELS))
                stop = k.minimum(pixels, start + tiles * PIXELS)
                for first in k.range(start, stop, PIXELS):
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


def _divided(k: KernelBuilder, value: Scalar, by: int) -> tuple[Scalar, Scalar]:
    """Quotient and rest; no division where there is nothing to divide."""
    return (value, scalar(0)) if by == 1 else (k.define(value // by), k.define(value % by))


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

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height - self.window) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Pixels of a row of the result."""
        return (self.width - self.window) // self.stride + 1


def pooling_work(images: int, p: Pooling) -> Work:
    """The work of a pooling of so many images. A block takes rows of the result."""
    lines = p.out_width * divide_up(p.channels, VECTOR_LANES)
    return Work(images * p.out_height, p.window**2 * (TAP_CYCLES + 2 * lines))


def pooling_source(p: Pooling) -> KernelSource:
    """out (images, out_height, out_width, channels): the largest or the mean of each window.

    Raises:
        CompileError: the window is larger than the image, or there is no such pooling.
    """
    if p.window < 1 or p.stride < 1 or p.out_height < 1 or p.out_width < 1:
        raise CompileError(f"window must lie inside the image, not {p!r}")
    out_height, out_width = p.out_height, p.out_width
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
