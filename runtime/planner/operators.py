"""The library's operators as the runtime launches them: kernel, arguments, grid."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.kernel import KernelSource
from runtime.kernels.element_source import (
    BINARY,
    TILE,
    UNARY,
    binary_source,
    convert_source,
    dequantise_source,
    element_work,
    quantise_source,
    scale_source,
    unary_source,
)
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.kernels.movement_source import (
    gather_rows_source,
    gather_work,
    transpose_source,
    transpose_work,
)
from runtime.kernels.requantise_source import PIECE, requantise_source, requantise_work
from runtime.kernels.row_source import (
    REDUCTIONS,
    add_row_source,
    layer_norm_source,
    reduce_source,
    row_tiles,
    row_work,
    softmax_source,
)
from runtime.kernels.tiling import Work
from runtime.kernels.window_source import (
    Convolution,
    Pooling,
    convolution_source,
    convolution_work,
    pooling_source,
    pooling_work,
)
from runtime.planner.chip import Chip
from runtime.planner.extrapolate import ROUNDS, estimate_grid, lengthened
from runtime.planner.launch import Launch
from runtime.planner.matrix import MatrixPlan, plan_product
from runtime.planner.timeline import Timeline
from runtime.toolchain.object import KernelObject

__all__ = [
    "ELEMENTWISE",
    "OPERATIONS",
    "OperatorPlan",
    "plan_add_row",
    "plan_convolution",
    "plan_elementwise",
    "plan_gather_rows",
    "plan_gemm",
    "plan_gemm_heads",
    "plan_layer_norm",
    "plan_pooling",
    "plan_reduction",
    "plan_softmax",
    "plan_transpose",
]

_LIBRARY_NAMES = {"maximum": "largest", "minimum": "smallest"}

_SCALED = {
    "scale": scale_source,
    "quantise": quantise_source,
    "dequantise": lambda: dequantise_source("int8"),
}

_CONVERSIONS = {
    "to_bfloat16": ("float32", "bfloat16"),
    "from_bfloat16": ("bfloat16", "float32"),
}

ELEMENTWISE = (*UNARY, *BINARY, *_LIBRARY_NAMES, *_SCALED, *_CONVERSIONS, "requantise")
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
    work: Work,
    arguments: tuple[int | float | None, ...],
    unit: str = "vector unit",
    operations: int | None = None,
    tiling: str = "",
) -> OperatorPlan:
    """A launch as `runtime.operations.launch.run` makes it."""
    grid = work.blocks(chip.cores)
    launch = Launch(_compiled(source, chip.buffers), arguments, grid)
    timeline = estimate_grid(launch, chip)
    done = timeline.operations if operations is None else operations
    text = f"{tiling}, {grid} blocks" if tiling else f"{grid} blocks"
    return OperatorPlan(name, chip, unit, done, launch, timeline, text)


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size!r}")


def plan_gemm(m: int, n: int, k: int, dtype: str, chip: Chip) -> OperatorPlan:
    """(m, k) by (k, n) on the Cube, int8 or bfloat16 operands.

    Raises:
        ValueError: a size is below 1, there is no such type, or no tiles fit the buffers.
    """
    sums = "int32" if dtype == "int8" else "float32"
    product = MatrixProduct(m, n, k, dtype, sums)
    return _product(f"gemm {m} x {n} x {k} {dtype}", product, chip)


def plan_gemm_heads(heads: int, m: int, n: int, k: int, chip: Chip) -> OperatorPlan:
    """`heads` products of (m, k) by (k, n), bfloat16, in one launch.

    Raises:
        ValueError: a size is below 1, or no tiles fit the buffers.
    """
    _check(heads=heads)
    steps = m * k, k * n, m * n
    product = MatrixProduct(m, n, k, "bfloat16", "float32", heads=heads, steps=steps)
    return _product(f"{heads} gemms {m} x {n} x {k} bfloat16", product, chip)


def _product(name: str, product: MatrixProduct, chip: Chip) -> OperatorPlan:
    plan = plan_product(product, chip, simulate=True)
    tiles = plan.tiling
    text = (
        f"tiles of {tiles.m} x {tiles.n}, chunks of {tiles.k} along k, "
        f"{min(tiles.rows, product.m)} x {min(tiles.columns, product.n)} in a block, "
        f"{plan.blocks} blocks"
    )
    launch = plan.launch(_compiled_product(product, tiles, chip.buffers))
    timeline = plan.timeline or _long_product(plan, chip)
    unit = "int8 Cube" if product.operands == "int8" else "bf16 Cube"
    operations = product.heads * product.m * product.n * product.k
    return OperatorPlan(name, chip, unit, operations, launch, timeline, text)


def _long_product(plan: MatrixPlan, chip: Chip) -> Timeline:
    """The timeline of a product with many chunks: of some of its blocks, and a part of its k."""
    product, tiles = plan.product, plan.tiling
    along_m, along_n, along_heads = tiles.parts(product)
    chunks, rest = divmod(product.k, tiles.k)

    def kind(number: int) -> tuple[bool, bool, bool]:
        rest, row = divmod(number, along_m)
        head, column = divmod(rest, along_n)
        return row == along_m - 1, column == along_n - 1, head == along_heads - 1

    def estimate(rounds: int) -> Timeline:
        # Rows begin at the same places of lines. Where the stride is k it remains so, or the code
        # would differ: it holds a number once.
        part = replace(product, k=rounds * tiles.k + rest)
        code = _compiled_product(part, tiles, chip.buffers)
        return estimate_grid(replace(plan, product=part).launch(code), chip, kind)

    return lengthened(estimate, chunks) if chunks > ROUNDS else estimate(chunks)


@lru_cache(maxsize=64)
def _compiled_product(product: MatrixProduct, tiling: Tiling, buffers: CoreBuffers) -> KernelObject:
    return matrix_source(product, tiling).compile(buffers)


def plan_elementwise(name: str, n: int, chip: Chip) -> OperatorPlan:
    """An operation of `ELEMENTWISE` on n elements, fp32 (dequantise: of int8).

    Raises:
        ValueError: there is none of that name, or n is below 1.
    """
    _check(n=n)
    name = _LIBRARY_NAMES.get(name, name)
    arguments: tuple[int | float | None, ...] = (None, None, n)
    work, tiling = element_work(n, name), f"tiles of {TILE} elements"
    if name in UNARY:
        source = unary_source(name)
    elif name in BINARY:
        source, arguments = binary_source(name, "float32"), (None, None, None, n)
    elif name in _SCALED:
        source, arguments = _SCALED[name](), (None, None, n, 1.0)
    elif name in _CONVERSIONS:
        source = convert_source(*_CONVERSIONS[name])
    elif name == "requantise":
        source, arguments = requantise_source(False), (None, None, n, 1, 0)
        work, tiling = requantise_work(n), f"pieces of {PIECE} elements"
    else:
        raise ValueError(f"name must be one of {', '.join(ELEMENTWISE)}, not {name!r}")
    return _library(f"{name} of {n}", chip, source, work, arguments, tiling=tiling)


def _by_rows(
    title: str,
    kernel: str,
    source: KernelSource,
    m: int,
    n: int,
    arguments: Callable[[int], tuple[int | float | None, ...]],
    chip: Chip,
) -> OperatorPlan:
    """A kernel of `row_work`; `arguments`: those for rows of a length. Of rows in chunks, two
    shorter ones are simulated that lie in memory as they do."""
    tiles, grid = row_tiles(n), row_work(kernel, m, n).blocks(chip.cores)
    launch = Launch(_compiled(source, chip.buffers), arguments(n), grid)
    chunks, rest = divmod(n, tiles.columns)

    def estimate(rounds: int) -> Timeline:
        size = rounds * tiles.columns + rest
        return estimate_grid(replace(launch, arguments=arguments(size)), chip)

    timeline = estimate_grid(launch, chip) if tiles.whole else lengthened(estimate, chunks)
    text = f"{tiles.rows} rows at a time, {grid} blocks"
    return OperatorPlan(title, chip, "vector unit", timeline.operations, launch, timeline, text)


def plan_softmax(m: int, n: int, chip: Chip) -> OperatorPlan:
    """Softmax of m rows of n, fp32.

    Raises:
        ValueError: a size is below 1.
    """
    _check(m=m, n=n)
    return _by_rows(
        f"softmax of {m} x {n}",
        "softmax",
        softmax_source(row_tiles(n)),
        m,
        n,
        lambda size: (None, None, m, size),
        chip,
    )


def plan_layer_norm(m: int, n: int, chip: Chip) -> OperatorPlan:
    """Layer norm of m rows of n, fp32.

    Raises:
        ValueError: a size is below 1.
    """
    _check(m=m, n=n)

    def arguments(size: int) -> tuple[int | float | None, ...]:
        return None, None, None, None, m, size, 1 / size, 1e-5

    title, source = f"layer norm of {m} x {n}", layer_norm_source(row_tiles(n))
    return _by_rows(title, "layer_norm", source, m, n, arguments, chip)


def plan_reduction(name: str, m: int, n: int, chip: Chip) -> OperatorPlan:
    """A reduction (sum, max, min, mean) of m rows of n, fp32.

    Raises:
        ValueError: a size is below 1, or there is no such reduction.
    """
    _check(m=m, n=n)
    if name not in REDUCTIONS:
        raise ValueError(f"name must be one of {', '.join(REDUCTIONS)}, not {name!r}")
    return _by_rows(
        f"row {name} of {m} x {n}",
        "reduce",
        reduce_source(name, row_tiles(n)),
        m,
        n,
        lambda size: (None, None, m, size, 1 / size),
        chip,
    )


def plan_add_row(m: int, n: int, chip: Chip) -> OperatorPlan:
    """A row of n added to each of m rows, fp32.

    Raises:
        ValueError: a size is below 1.
    """
    _check(m=m, n=n)
    return _by_rows(
        f"row added to {m} x {n}",
        "add_row",
        add_row_source(row_tiles(n)),
        m,
        n,
        lambda size: (None, None, None, m, size),
        chip,
    )


def plan_transpose(m: int, n: int, chip: Chip) -> OperatorPlan:
    """An (m, n) matrix of fp32, transposed.

    Raises:
        ValueError: a size is below 1.
    """
    _check(m=m, n=n)
    name, work = f"transpose of {m} x {n}", transpose_work(m, n)
    return _library(name, chip, transpose_source("float32"), work, (None, None, m, n))


def plan_gather_rows(count: int, n: int, chip: Chip) -> OperatorPlan:
    """`count` rows of n elements of fp32, picked by number.

    Raises:
        ValueError: a size is below 1.
    """
    _check(count=count, n=n)
    name, work = f"gather of {count} rows of {n}", gather_work(count, n)
    arguments = (None, None, None, count, n)
    return _library(name, chip, gather_rows_source("float32"), work, arguments, tiling="rows")


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
    work = convolution_work(images, shape)
    tiling = "whole images" if work.pieces == images else f"{work.pieces} pieces of images"
    return _library(name, chip, source, work, arguments, "int8 Cube", macs, tiling)


def plan_pooling(images: int, shape: Pooling, chip: Chip) -> OperatorPlan:
    """A pooling of NHWC images.

    Raises:
        ValueError: there are no images.
        CompileError: the window does not lie in the image, or there is no such pooling.
    """
    _check(images=images)
    size = f"{images} x {shape.height} x {shape.width} x {shape.channels}"
    name = f"{shape.kind} pool of {size}, windows of {shape.window} x {shape.window}"
    source, work = pooling_source(shape), pooling_work(images, shape)
    tiling = f"{shape.rows_at_a_time} rows at a time"
    return _library(name, chip, source, work, (None, None, images), tiling=tiling)


OPERATIONS: dict[str, Callable[..., OperatorPlan]] = {
    **dict.fromkeys(
        [name for name in ELEMENTWISE if name not in _LIBRARY_NAMES.values()], plan_elementwise
    ),
    **{f"row_{name}": plan_reduction for name in REDUCTIONS},
    "add_row": plan_add_row,
    "conv2d": plan_convolution,
    "gather_rows": plan_gather_rows,
    "gemm": plan_gemm,
    "gemm_heads": plan_gemm_heads,
    "layer_norm": plan_layer_norm,
    "max_pool2d": plan_pooling,
    "mean_pool2d": plan_pooling,
    "softmax": plan_softmax,
    "transpose": plan_transpose,
}
"""What plans each of the runtime's operations, by its name."""
