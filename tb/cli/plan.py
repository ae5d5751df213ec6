"""`glassnpu plan`: what an operator costs on the chip, before it runs."""

import json
from collections.abc import Callable

import click

from rtl.config import NpuConfig
from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.errors import CompileError
from runtime.kernels.row_source import REDUCTIONS
from runtime.kernels.window_source import Convolution, Pooling
from runtime.planner import operators
from runtime.planner.chip import Chip
from runtime.planner.operators import ELEMENTWISE, OperatorPlan
from runtime.planner.report import plan_record, report
from tb.cli.options import nearest

__all__ = ["chip_of", "plan"]

SIZE = click.IntRange(1, (1 << 31) - 1)


def chip_of(config: NpuConfig, cores: int) -> Chip:
    """The estimator's view of a chip."""
    buffers = CoreBuffers(
        l1=config.l1_lines,
        l0a=config.l0a_lines,
        l0b=config.l0b_lines,
        l0c=config.l0c_lines,
        bias=config.bias_lines,
        ub=config.ub_lines,
    )
    return Chip(
        cores=cores,
        buffers=buffers,
        hbm_latency=config.hbm_latency,
        bf16_depth=config.bf16_depth,
        icache_lines=config.icache_lines,
        reads_in_flight=config.reads_in_flight,
    )


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--cores` and `--json`."""
    config = NpuConfig()
    cores = click.option(
        "--cores",
        type=click.IntRange(1, config.cores),
        default=config.cores,
        show_default=True,
        help="Cores that share the work.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
    return cores(as_json(command))


def _show(make: Callable[[Chip], OperatorPlan], cores: int, as_json: bool) -> None:
    """Plan, and print it; what cannot be is a usage error."""
    try:
        made = make(chip_of(NpuConfig(), cores))
    except (ValueError, CompileError) as error:
        raise click.UsageError(str(error)) from error
    click.echo(json.dumps(plan_record(made)) if as_json else report(made))


@click.group(short_help="Estimate an operator: cycles, bytes, and what limits it.")
def plan() -> None:
    """Estimate cycles and bytes of an operator of the library, and say what limits it.

    Nothing is simulated but the flow of commands, so it takes a second or two and needs no build.
    """


@plan.command()
@click.argument("m", type=SIZE)
@click.argument("n", type=SIZE)
@click.argument("k", type=SIZE)
@click.option(
    "--dtype",
    type=click.Choice(["int8", "bfloat16"]),
    default="int8",
    show_default=True,
    help="Element type of the operands.",
)
@_options
def gemm(m: int, n: int, k: int, dtype: str, cores: int, as_json: bool) -> None:
    """A product of (M, K) by (K, N), with the best tiling."""
    _show(lambda chip: operators.plan_gemm(m, n, k, dtype, chip), cores, as_json)


@plan.command()
@click.argument("height", type=SIZE)
@click.argument("width", type=SIZE)
@click.argument("channels", type=SIZE)
@click.argument("filters", type=SIZE)
@click.argument("kernel", type=SIZE)
@click.option("--images", type=SIZE, default=1, show_default=True, help="Images in the batch.")
@click.option("--stride", type=click.IntRange(1, 15), default=1, show_default=True)
@click.option("--padding", type=click.IntRange(0, 255), default=0, show_default=True)
@_options
def conv(
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: int,
    images: int,
    stride: int,
    padding: int,
    cores: int,
    as_json: bool,
) -> None:
    """An int8 convolution: KERNEL x KERNEL windows of HEIGHT x WIDTH x CHANNELS images."""
    shape = Convolution(
        height, width, channels, filters, kernel, kernel, stride, padding, "int32", False
    )
    _show(lambda chip: operators.plan_convolution(images, shape, chip), cores, as_json)


@plan.command()
@click.argument("kind", type=click.Choice(["max", "mean"]))
@click.argument("height", type=SIZE)
@click.argument("width", type=SIZE)
@click.argument("channels", type=SIZE)
@click.argument("window", type=SIZE)
@click.option("--images", type=SIZE, default=1, show_default=True, help="Images in the batch.")
@_options
def pool(
    kind: str,
    height: int,
    width: int,
    channels: int,
    window: int,
    images: int,
    cores: int,
    as_json: bool,
) -> None:
    """A KIND pooling of fp32 images, WINDOW x WINDOW pixels each."""
    shape = Pooling(height, width, channels, window, window, kind, "float32")
    _show(lambda chip: operators.plan_pooling(images, shape, chip), cores, as_json)


@plan.command()
@click.argument("name")
@click.argument("n", type=SIZE)
@_options
def elementwise(name: str, n: int, cores: int, as_json: bool) -> None:
    """Operation NAME on N elements of fp32."""
    if name not in ELEMENTWISE:
        hint = nearest(name, list(ELEMENTWISE)) or f"; there are {', '.join(ELEMENTWISE)}"
        raise click.BadParameter(f"NAME must be an operation, not {name!r}{hint}")
    _show(lambda chip: operators.plan_elementwise(name, n, chip), cores, as_json)


@plan.command()
@click.argument("m", type=SIZE)
@click.argument("n", type=SIZE)
@_options
def softmax(m: int, n: int, cores: int, as_json: bool) -> None:
    """Softmax of M rows of N, fp32."""
    _show(lambda chip: operators.plan_softmax(m, n, chip), cores, as_json)


@plan.command()
@click.argument("m", type=SIZE)
@click.argument("n", type=SIZE)
@_options
def layernorm(m: int, n: int, cores: int, as_json: bool) -> None:
    """Layer norm of M rows of N, fp32."""
    _show(lambda chip: operators.plan_layer_norm(m, n, chip), cores, as_json)


@plan.command()
@click.argument("heads", type=SIZE)
@click.argument("m", type=SIZE)
@click.argument("n", type=SIZE)
@click.argument("k", type=SIZE)
@_options
def heads(heads: int, m: int, n: int, k: int, cores: int, as_json: bool) -> None:
    """HEADS products of (M, K) by (K, N), bfloat16, in one launch."""
    _show(lambda chip: operators.plan_gemm_heads(heads, m, n, k, chip), cores, as_json)


@plan.command()
@click.argument("kind", type=click.Choice(REDUCTIONS))
@click.argument("m", type=SIZE)
@click.argument("n", type=SIZE)
@_options
def reduce(kind: str, m: int, n: int, cores: int, as_json: bool) -> None:
    """The KIND of each of M rows of N, fp32."""
    _show(lambda chip: operators.plan_reduction(kind, m, n, chip), cores, as_json)


@plan.command()
@click.argument("m", type=SIZE)
@click.argument("n", type=SIZE)
@_options
def addrow(m: int, n: int, cores: int, as_json: bool) -> None:
    """A row of N added to each of M rows, fp32."""
    _show(lambda chip: operators.plan_add_row(m, n, chip), cores, as_json)


@plan.command()
@click.argument("m", type=SIZE)
@click.argument("n", type=SIZE)
@_options
def transpose(m: int, n: int, cores: int, as_json: bool) -> None:
    """An (M, N) matrix of fp32, transposed."""
    _show(lambda chip: operators.plan_transpose(m, n, chip), cores, as_json)


@plan.command()
@click.argument("count", type=SIZE)
@click.argument("n", type=SIZE)
@_options
def gather(count: int, n: int, cores: int, as_json: bool) -> None:
    """COUNT rows of N elements of fp32, picked by number."""
    _show(lambda chip: operators.plan_gather_rows(count, n, chip), cores, as_json)
