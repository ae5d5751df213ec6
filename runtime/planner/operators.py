"""The library's operators as the runtime launches them: kernel, arguments, grid."""

from dataclasses import dataclass
from functools import lru_cache

from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.kernel import KernelSource
from runtime.kernels.element_source import (
    BINARY,
    TILE,
    UNARY,
    binary_source,
    dequantise_source,
    quantise_source,
    unary_source,
)
from runtime.kernels.matrix_source import MatrixProduct, matrix_source
from runtime.kernels.row_source import (
    REDUCTIONS,
    layer_norm_source,
    reduce_source,
    row_tiles,
    softmax_source,
)
from runtime.kernels.tiling import BLOCKS_PER_CORE, divide_up
from runtime.kernels.window_source import (
    Convolution,
    Pooling,
    convolution_source,
    pooling_source,
)
from runtime.planner.chip import Chip
from runtime.planner.launch import Launch
from runtime.planner.matrix import plan_matrix_product
from runtime.planner.timeline import Timeline
from runtime.toolchain.object import KernelObject

__all__ = [
    "ELEMENTWISE",
    "OperatorPlan",
    "plan_convolution",
    "plan_elementwise",
    "plan_layer_norm",
    "plan_matmul",
    "plan_pooling",
    "plan_reduction",
    "plan_softmax",
]

_LIBRARY_NAMES = {"maximum": "largest", "minimum": "smallest"}

ELEMENTWISE = (*UNARY, *BINARY, *_LIBRARY_NAMES, "quantise", "dequantise")
"""Names of operations element by element."""


@dataclass(frozen=True)
class OperatorPlan:
    """An operator, its launch, and what that takes.

    Attributes:
        name: with its shape, in words.
        unit: what its arithmetic runs on: "int8 Cube", "bf16 Cube" or "vector unit".
        operations: what was asked for: multiply-accumulates of the Cube, or the elements of all
            vector commands.
        tiling: how it is cut, in words.
    """

    name: str
    chip: Chip
    unit: str
    operations: int
    launch: Launch
    timeline: Timeline
    tiling: str = ""

    @property
    def bytes_moved(self) -> int:
        """Bytes to and from global memory."""
        traffic = self.timeline.traffic
        return traffic["GM", "read"] + traffic["GM", "write"]

    @property
    def intensity(self) -> float:
        """Operations for each byte of global memory."""
        return self.operations / max(1, self.bytes_moved)

    @property
    def peak(self) -> int:
        """Operations in a cycle that the cores can do at best."""
        each = {
            "int8 Cube": self.chip.int8_macs,
            "bf16 Cube": self.chip.bf16_macs,
            "vector unit": self.chip.vector_operations,
        }[self.unit]
        return each * self.chip.cores


@lru_cache(maxsize=128)
def _compiled(source: KernelSource, buffers: CoreBuffers) -> KernelObject:
    return source.compile(buffers)


def _library(
    name: str,
    chip: Chip,
    source: KernelSource,
    blocks: int,
    arguments: tuple[int | float | None, ...],
    unit: str = "vector unit",
    operations: int | None = None,
    tiling: str = "",
) -> OperatorPlan:
    """A launch as `runtime.operations.launch.run` makes it."""
    grid = max(1, min(blocks, BLOCKS_PER_CORE * chip.cores))
    launch = Launch(_compiled(source, chip.buffers), arguments, grid)
    timeline = launch.estimate(chip)
    done = timeline.operations if operations is None else operations
    text = f"{tiling}, {grid} blocks" if tiling else f"{grid} blocks"
    return OperatorPlan(name, chip, unit, done, launch, timeline, text)


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size!r}")


def plan_matmul(m: int, n: int, k: int, dtype: str, chip: Chip) -> OperatorPlan:
    """(m, k) by (k, n) on the Cube, int8 or bfloat16 operands.

    Raises:
        ValueError: a size is below 1, there is no such type, or no tiles fit the buffers.
    """
    plan = plan_matrix_product(m, n, k, dtype, chip)
    code = _compiled_product(plan.product, chip.buffers)
    launch = plan.launch(code)
    timeline = plan.timeline or launch.estimate(chip)
    tiles = plan.product
    text = (
        f"tiles of {tiles.m} x {tiles.n}, chunks of {tiles.k} along k, "
        f"{plan.tiles_per_block} tiles in a block, {plan.blocks} blocks"
    )
    unit = "int8 Cube" if dtype == "int8" else "bf16 Cube"
    return OperatorPlan(
        f"gemm {m} x {n} x {k} {dtype}", chip, unit, m * n * k, launch, timeline, text
    )


@lru_cache(maxsize=64)
def _compiled_product(product: MatrixProduct, buffers: CoreBuffers) -> KernelObject:
    return matrix_source(product).compile(buffers)


def plan_elementwise(name: str, n: int, chip: Chip) -> OperatorPlan:
    """An operation of `ELEMENTWISE` on n elements, fp32 (dequantise: of int8).

    Raises:
        ValueError: there is none of that name, or n is below 1.
    """
    _check(n=n)
    name = _LIBRARY_NAMES.get(name, name)
    arguments: tuple[int | float | None, ...] = (None, None, n)
    if name in UNARY:
        source = unary_source(name)
    elif name in BINARY:
        source, arguments = binary_source(name, "float32"), (None, None, None, n)
    elif name in ("quantise", "dequantise"):
        source = quantise_source() if name == "quantise" else dequantise_source("int8")
        arguments = (None, None, n, 1.0)
    else:
        raise ValueError(f"name must be one of {', '.join(ELEMENTWISE)}, not {name!r}")
    tiling = f"tiles of {TILE} elements"
    return _library(f"{name} of {n}", chip, source, divide_up(n, TILE), arguments, tiling=tiling)


def plan_softmax(m: int, n: int, chip: Chip) -> OperatorPlan:
    """Softmax of m rows of n, fp32.

    Raises:
        ValueError: a size is below 1.
    """
    _check(m=m, n=n)
    tiles = row_tiles(n)
    name, blocks = f"softmax of {m} x {n}", divide_up(m, tiles.rows)
    tiling = f"{tiles.rows} rows at a time"
    return _library(name, chip, softmax_source(tiles), blocks, (None, None, m, n), tiling=tiling)


def plan_layer_norm(m: int, n: int, chip: Chip) -> OperatorPlan:
    """Layer norm of m rows of n, fp32.

    Raises:
        ValueError: a size is below 1.
    """
    _check(m=m, n=n)
    tiles = row_tiles(n)
    name, blocks = f"layer norm of {m} x {n}", divide_up(m, tiles.rows)
    arguments = (None, None, None, None, m, n, 1 / n, 1e-5)
    tiling = f"{tiles.rows} rows at a time"
    return _library(name, chip, layer_norm_source(tiles), blocks, arguments, tiling=tiling)


def plan_reduction(name: str, m: int, n: int, chip: Chip) -> OperatorPlan:
    """A reduction (sum, max, min, mean) of m rows of n, fp32.

    Raises:
        ValueError: a size is below 1, or there is no such reduction.
    """
    _check(m=m, n=n)
    if name not in REDUCTIONS:
        raise ValueError(f"name must be one of {', '.join(REDUCTIONS)}, not {name!r}")
    tiles = row_tiles(n)
    title, blocks = f"row {name} of {m} x {n}", divide_up(m, tiles.rows)
    arguments = (None, None, m, n, 1 / n)
    tiling = f"{tiles.rows} rows at a time"
    return _library(title, chip, reduce_source(name, tiles), blocks, arguments, tiling=tiling)


def plan_convolution(images: int, shape: Convolution, chip: Chip) -> OperatorPlan:
    """An int8 convolution of NHWC images.

    Raises:
        ValueError: there are no images.
        CompileError: the kernel is larger than the padded image, or too large for a core.
    """
    _check(images=images)
    name = (
        f"conv of {images} x {shape.height} x {shape.width} x {shape.channels}, "
        f"{shape.filters} filters of {shape.kernel_height} x {shape.kernel_width}"
    )
    pixels = shape.out_height * shape.out_width
    macs = (
        images
        * pixels
        * shape.filters
        * (shape.kernel_height * shape.kernel_width * shape.channels)
    )
    arguments = (None, None, None, None, images, 1, 0)
    source = convolution_source(shape)
    return _library(name, chip, source, images, arguments, "int8 Cube", macs, "whole images")


def plan_pooling(images: int, shape: Pooling, chip: Chip) -> OperatorPlan:
    """A pooling of NHWC images.

    Raises:
        ValueError: there are no images.
        CompileError: the window does not lie in the image, or there is no such pooling.
    """
    _check(images=images)
    size = f"{images} x {shape.height} x {shape.width} x {shape.channels}"
    name = f"{shape.kind} pool of {size}, windows of {shape.window} x {shape.window}"
    source, pieces = pooling_source(shape), images * shape.pieces
    tiling = f"{shape.rows_at_a_time} rows at a time"
    return _library(name, chip, source, pieces, (None, None, images), tiling=tiling)
