"""Kernels that slide a window over images: convolution and pooling. Images are NHWC.

A convolution is a product of the windows, as rows of a matrix, and the kernel as a matrix
(kernel_height * kernel_width * channels, filters). MTE1 unfolds the windows from an image in L1
(IMG2COL), kernel row by kernel row, so that the unfolded image never exists in memory. A product
that is deeper than a tile is cut: IMG2COL unfolds some rows of the windows at a time, the matrix of
the kernel comes in parts of rows, and the sums stay in L0C.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, VECTOR_LANES
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel
from runtime.compiler.scalar import Scalar, ScalarLike, scalar
from runtime.compiler.tile import Tile, lines_of
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
"""What a part of a tile's depth takes besides the Cube's work."""

TAP_CYCLES = 120
"""What a pooling takes for each pixel of the window, besides two cycles for a line of UB."""

DEPTH = 256
"""Rows of the kernel's matrix in a tile of L0B, and lines of a tile of L0A; two of each fit."""

POOLED_LINES = 48
"""Lines of UB for a tile of pooled pixels, at most, if it has more than one row of the image."""

UB_LINES = 2048
"""Lines of UB that a pooling may count on."""

UNROLLED = 9
"""Pixels of a window up to which each is loaded into a tile of its own."""

IMAGE_LINES = 1536
"""Lines of L1 up to which an image is loaded while the one before is worked at."""


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
    def row_depth(self) -> int:
        """Depth of the product for one row of the kernel."""
        return self.kernel_width * self.channels

    @property
    def depth(self) -> int:
        """Depth of the product, the kernel's matrix has a row for each."""
        return self.kernel_height * self.row_depth

    @property
    def rows_at_a_time(self) -> int:
        """Kernel rows that are unfolded at a time."""
        return min(self.kernel_height, max(1, DEPTH // self.row_depth))

    @property
    def pixels_of_a_tile(self) -> int:
        """Output pixels of a tile: less than usual if their windows' rows are long."""
        lines = divide_up(self.rows_at_a_time * self.row_depth, LINE_BYTES)
        return max(1, min(PIXELS, DEPTH // lines))

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of an image: along its pixels, along the filters."""
        pixels = self.out_height * self.out_width
        return divide_up(pixels, self.pixels_of_a_tile), divide_up(self.filters, FILTERS)

    @property
    def tile_cycles(self) -> int:
        """What a tile takes, about."""
        columns = divide_up(min(self.filters, FILTERS), CUBE_SIDE)
        work = self.pixels_of_a_tile * columns * divide_up(self.depth, CUBE_SIDE)
        if self.depth <= DEPTH:
            return work + OVERHEAD_CYCLES
        # The kernel comes anew for each tile, a line for each row.
        rows = divide_up(self.kernel_height, self.rows_at_a_time)
        parts = rows * divide_up(self.rows_at_a_time * self.row_depth, DEPTH)
        return work + self.depth + parts * OVERHEAD_CYCLES

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

    @property
    def image_lines(self) -> int:
        """Lines of an image in L1."""
        return self.height * divide_up(self.width * self.channels, LINE_BYTES)


def convolution_work(images: int, c: Convolution) -> Work:
    """The work of a convolution of so many images."""
    across, down = c.parts
    tiles, columns = c.piece
    return Work(images * across * down, c.image_lines + tiles * columns * c.tile_cycles)


def convolution_source(c: Convolution) -> KernelSource:
    """out (images, out_height, out_width, filters) = convolution of x with w (kernel_height,
    kernel_width, channels, filters), plus bias (filters,). A block takes pieces of images.

    Raises:
        CompileError: the kernel is larger than the padded image, or its rows are too deep.
    """
    if c.out_height < 1 or c.out_width < 1:
        raise CompileError(f"kernel must not be larger than the padded image, not {c!r}")
    if c.row_depth > DEPTH * LINE_BYTES:
        raise CompileError(
            f"kernel_width * channels must be at most {DEPTH * LINE_BYTES}, not {c.row_depth!r}"
        )
    pixels = c.out_height * c.out_width
    depth, tile = c.depth, c.pixels_of_a_tile
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
        slots = 1 if c.image_lines > IMAGE_LINES else 0
        for piece in k.range(k.block_x, images * (across * down), k.grid_x):
            image, part = _divided(k, piece, across * down)
            column, place = _divided(k, part, across)
            picture = k.load(
                x, image * size, (c.height, row), stride=row, memory=Memory.L1, slots=slots
            )
            left_most = k.define(column * (columns * FILTERS))
            last = k.minimum(c.filters, left_most + columns * FILTERS)
            for f in k.range(left_most, last, FILTERS):
                filters = k.minimum(FILTERS, c.filters - f)
                biases = k.load_bias(bias, f, filters)
                # A kernel that fits L0B stays there for all pixels.
                whole = _weights(k, c, w, f, 0, depth, filters) if depth <= DEPTH else None
                start = k.define(place * (tiles * tile))
                stop = k.minimum(pixels, start + tiles * tile)
                for first in k.range(start, stop, tile):
                    count = k.minimum(tile, pixels - first)
                    sums = k.accumulator(count, filters)
                    if whole is not None:
                        left = k.unfold(picture, c, first, count)
                        k.multiply_accumulate(sums, left, whole, depth, first=1)
                    else:
                        _deep_sums(k, c, picture, w, f, first, sums)
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


def _weights(
    k: KernelBuilder,
    c: Convolution,
    w: Any,
    f: Scalar,
    first: ScalarLike,
    count: ScalarLike,
    filters: Scalar,
) -> Tile:
    """Rows of the kernel's matrix in L0B, `count` from row `first` on."""
    offset = k.define(first * c.filters + f)
    tile = k.load(w, offset, (count, filters), stride=c.filters, memory=Memory.L1)
    return k.move(tile, Memory.L0B, rows=k.padded(count))


def _deep_sums(
    k: KernelBuilder, c: Convolution, picture: Tile, w: Any, f: Scalar, first: Scalar, sums: Tile
) -> None:
    """The sums of a tile of pixels from number `first` on, for a kernel that is deeper than L0B:
    for some rows of the windows after the others, and for parts of the depth of those rows."""
    count, filters = sums.shape
    for top in _steps(k, c.kernel_height, c.rows_at_a_time):
        rows = k.minimum(c.rows_at_a_time, c.kernel_height - top)
        left = k.unfold(picture, c, first, count, top=top, rows=rows)
        depth = k.define(rows * c.row_depth)
        origin = k.define(top * c.row_depth)
        for part in _steps(k, depth, DEPTH):
            length = k.minimum(DEPTH, depth - part)
            right = _weights(k, c, w, f, origin + part, length, filters)
            start = (top + part).is_zero()
            line = part // LINE_BYTES
            k.multiply_accumulate(sums, left, right, length, first=start, line=line)


def _steps(k: KernelBuilder, stop: ScalarLike, step: int) -> Iterable[Scalar]:
    """0, step, 2 * step and so on, below `stop`; no loop if there is only the 0."""
    end = scalar(stop)
    return [scalar(0)] if end.highest <= step else k.range(0, end, step)


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

    @property
    def tile_lines(self) -> int:
        """Lines of UB that a tile of pooled pixels may have: what is loaded has two slots each,
        and results on their way need some more."""
        loads = self.window**2 if self.window**2 <= UNROLLED else 2
        return UB_LINES // (2 * loads + 5)

    @property
    def channels_at_a_time(self) -> int:
        """Channels of the result that are worked at in one go: all, if a pixel fits a tile."""
        if lines_of(self.channels, "float32") <= self.tile_lines:
            return self.channels
        return self.tile_lines * VECTOR_LANES

    @property
    def columns_at_a_time(self) -> int:
        """Pixels of a row of the result that are worked at in one go: all, if they fit a tile."""
        most = self.tile_lines // lines_of(self.channels_at_a_time, "float32")
        # Pieces of about the same size.
        return divide_up(self.out_width, divide_up(self.out_width, most))

    @property
    def rows_at_a_time(self) -> int:
        """Rows of the result that are worked at in one go: one, if a row does not fit a tile."""
        if (self.channel_parts, self.column_parts) != (1, 1):
            return 1
        most = max(1, POOLED_LINES // self.row_lines)
        return divide_up(self.out_height, divide_up(self.out_height, most))

    @property
    def row_lines(self) -> int:
        """Lines of UB for a row of a tile."""
        return self.columns_at_a_time * lines_of(self.channels_at_a_time, "float32")

    @property
    def channel_parts(self) -> int:
        """Parts of the channels. The last ones overlap, if they are not multiples of a tile."""
        return divide_up(self.channels, self.channels_at_a_time)

    @property
    def column_parts(self) -> int:
        """Parts of a row, likewise."""
        return divide_up(self.out_width, self.columns_at_a_time)

    @property
    def pieces(self) -> int:
        """Pieces of work in an image."""
        rows = divide_up(self.out_height, self.rows_at_a_time)
        return rows * self.column_parts * self.channel_parts


def pooling_work(images: int, p: Pooling) -> Work:
    """The work of a pooling of so many images. A block takes some rows of the result, or parts of
    one."""
    lines = p.rows_at_a_time * p.row_lines
    return Work(images * p.pieces, p.window**2 * (TAP_CYCLES + 2 * lines))


def pooling_source(p: Pooling) -> KernelSource:
    """out (images, out_height, out_width, channels): the largest or the mean of each window.

    Raises:
        CompileError: the window is larger than the image, or there is no such pooling.
    """
    if min(p.window, p.stride) < 1 or p.out_height < 1 or p.out_width < 1:
        raise CompileError(f"window must lie inside the image, not {p!r}")
    if p.kind not in ("max", "mean") or (p.dtype, p.kind) == ("int8", "mean"):
        raise CompileError(f"kind must be max, or mean of float32, not {p.kind!r}")
    array = f"{p.dtype}*"

    @kernel(x=array, out=array, images="uint31")
    def pooling(k: KernelBuilder, x: Any, out: Any, images: Any) -> None:
        for piece in k.range(k.block_x, images * p.pieces, k.grid_x):
            image = piece // p.pieces
            band = piece % p.pieces
            band, channel = _part(k, band, p.channel_parts, p.channels_at_a_time, p.channels)
            band, column = _part(k, band, p.column_parts, p.columns_at_a_time, p.out_width)
            y = k.define(band * p.rows_at_a_time)
            rows = k.minimum(p.rows_at_a_time, p.out_height - y)
            origin = (image * p.height + y * p.stride) * (p.width * p.channels)
            if p.column_parts > 1:
                origin = origin + column * (p.stride * p.channels)
            if p.channel_parts > 1:
                origin = origin + channel
            result = _pooled(k, p, x, k.define(origin), rows)
            if p.kind == "mean":
                result = result * (1 / p.window**2)
            place = (image * p.out_height + y) * (p.out_width * p.channels)
            if p.column_parts > 1:
                place = place + column * p.channels
            if p.channel_parts > 1:
                place = place + channel
            k.store(out, place, result.to(p.dtype), stride=p.channels)

    return pooling


def _part(
    k: KernelBuilder, number: Scalar, parts: int, size: int, whole: int
) -> tuple[Scalar, ScalarLike]:
    """What is left of a piece's number, and where its part of `size` begins: the last one ends
    with the whole."""
    if parts == 1:
        return number, 0
    return number // parts, k.define(k.minimum(number % parts * size, whole - size))


def _pooled(k: KernelBuilder, p: Pooling, x: Any, origin: Scalar, rows: Scalar) -> Tile:
    """The largest, or the sum, of the windows of some rows of the result, a row for each."""
    row = p.width * p.channels

    def pixels(offset: ScalarLike) -> Tile:
        """The pixel of each window that is so many elements behind its first."""
        tile = k.load(
            x,
            origin + offset,
            (p.columns_at_a_time, p.channels_at_a_time),
            # Nobody steps from a single one, and a huge step has no place in a command.
            stride=p.stride * p.channels if p.columns_at_a_time > 1 else 0,
            planes=rows,
            plane_stride=p.stride * row if p.rows_at_a_time > 1 else 0,
        )
        return tile.to("int32" if p.dtype == "int8" else "float32")

    def joined(result: Tile, tile: Tile) -> Tile:
        return k.largest(result, tile) if p.kind == "max" else result + tile

    if p.window**2 <= UNROLLED:
        first, *others = (y * row + x * p.channels for y, x in np.ndindex(p.window, p.window))
        result = pixels(first)
        for offset in others:
            result = joined(result, pixels(offset))
        return result
    if p.kind == "max":
        # The first pixel counts twice.
        result = k.copy(pixels(0))
    else:
        # This changes no sum.
        size = rows * p.columns_at_a_time, p.channels_at_a_time
        result = k.full(k.tile(*size), -0.0)
    for line in k.range(p.window):
        for column in k.range(p.window):
            k.update(result, joined(result, pixels(line * row + column * p.channels)))
    return result
