"""`bench kernels`: cycles of the library's kernels, and how busy their limiting pipe is.

Of each kernel: `_cycles` from submission to completion (its code is in HBM by then), `_pipe` the
number of the busiest pipe (`abi.core.Pipe`), `_use` that pipe's busy cycles over those in which
blocks ran, both summed over the cores. Of products and convolutions also `_macs`: their MACs over
what the Cubes could do in the cycles in which blocks ran.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from abi.core import Pipe
from runtime import Device, DeviceArray, gemm
from runtime.operations import elements, matrix, movement, rows, windows
from runtime.planner.chip import Chip
from runtime.profiling import read_counters
from tb.bench.errors import BenchError
from tb.bench.figures import hosted_figures, write_figures
from tb.bench.gemm import PEAK_MACS_PER_CYCLE

__all__ = ["describe", "hosted", "measure"]

ELEMENTS = 16384
ROWS, COLUMNS = 64, 256
SIDE = 128
HEADS = 4

ONE_ARRAY = (
    *("relu", "exp", "log", "reciprocal", "reciprocal_root", "tanh", "sigmoid", "erf", "gelu"),
    "absolute",
)
TWO_ARRAYS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
REDUCTIONS = ("row_sum", "row_mean", "row_max", "row_min")

CYCLES, USE, PIPE, MACS = "_cycles", "_use", "_pipe", "_macs"


@dataclass(frozen=True)
class Case:
    """A kernel at a representative size: its launch, its MACs, and the most MACs a cycle."""

    name: str
    launch: Callable[[], object]
    macs: int = 0
    peak: int = PEAK_MACS_PER_CYCLE


def measure(seed: int) -> dict[str, float]:
    """Figures of all kernels, see above."""
    return hosted_figures("tb.bench.kernels:hosted", seed)


class _Arrays:
    """Makes arrays of random elements."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.random = np.random.default_rng(1)

    def floats(self, *shape: int) -> DeviceArray:
        """Between 0.1 and 4, so that every function is defined."""
        return self.device.array(self.random.uniform(0.1, 4, shape).astype(np.float32))

    def integers(self, dtype: type[np.generic], *shape: int) -> DeviceArray:
        """Small ones."""
        return self.device.array(self.random.integers(-100, 100, shape).astype(dtype))

    def halves(self, *shape: int) -> DeviceArray:
        """bfloat16 bits."""
        return matrix.to_bfloat16(self.floats(*shape))


def _element_cases(arrays: _Arrays) -> Iterator[Case]:
    x, y = arrays.floats(ELEMENTS), arrays.floats(ELEMENTS)
    q, wide = arrays.integers(np.int8, ELEMENTS), arrays.integers(np.int32, ELEMENTS)
    for name in ONE_ARRAY:
        yield Case(name, partial(getattr(elements, name), x))
    for name in TWO_ARRAYS:
        yield Case(name, partial(getattr(elements, name), x, y))
    yield Case("scale", partial(elements.scale, x, 0.5))
    yield Case("quantise", partial(elements.quantise, x, 20.0))
    yield Case("dequantise", partial(elements.dequantise, q, 0.05))
    yield Case("requantise", partial(elements.requantise, wide, 3, 2))
    yield Case("to_bfloat16", partial(matrix.to_bfloat16, x))
    yield Case("from_bfloat16", partial(matrix.from_bfloat16, arrays.halves(ELEMENTS)))


def _row_cases(arrays: _Arrays) -> Iterator[Case]:
    x, row = arrays.floats(ROWS, COLUMNS), arrays.floats(COLUMNS)
    for name in REDUCTIONS:
        yield Case(name, partial(getattr(rows, name), x))
    yield Case("add_row", partial(rows.add_row, x, row))
    yield Case("softmax", partial(rows.softmax, x))
    yield Case("layer_norm", partial(rows.layer_norm, x, row, row))
    yield Case("transpose", partial(movement.transpose, arrays.floats(SIDE, SIDE)))
    numbers = arrays.device.array(arrays.random.integers(0, ROWS, ROWS).astype(np.int32))
    yield Case("gather_rows", partial(movement.gather_rows, x, numbers))


def _product_cases(arrays: _Arrays) -> Iterator[Case]:
    a, b = (arrays.integers(np.int8, SIDE, SIDE) for _ in range(2))
    macs = SIDE**3
    yield Case("gemm", partial(gemm, a, b), macs)
    turned = partial(gemm, a, b, transpose_a=True, transpose_b=True)
    yield Case("gemm_transposed", turned, macs)
    bf16_peak = Chip().bf16_macs
    left, right = (arrays.halves(SIDE, SIDE) for _ in range(2))
    yield Case("gemm_bfloat16", partial(gemm, left, right), macs, bf16_peak)
    scores = partial(matrix.gemm_heads, left, right, HEADS, transpose_b=True)
    yield Case("gemm_heads", scores, macs, bf16_peak)
    images, channels, filters = 4, 16, 32
    x = arrays.integers(np.int8, images, 16, 16, channels)
    w, bias = arrays.integers(np.int8, 3, 3, channels, filters), arrays.integers(np.int32, filters)
    convolution = partial(windows.conv2d, x, w, bias, padding=1)
    yield Case("conv2d", convolution, images * 16 * 16 * filters * 9 * channels)
    picture = arrays.floats(images, 16, 16, channels)
    yield Case("max_pool2d", partial(windows.max_pool2d, picture, 2))
    yield Case("max_pool2d_int8", partial(windows.max_pool2d, x, 2))
    yield Case("mean_pool2d", partial(windows.mean_pool2d, picture, 2))


def _measure(device: Device, case: Case) -> dict[str, float]:
    stream = device.default_stream
    case.launch()
    stream.synchronize()
    start, end = device.event(), device.event()
    before = read_counters(device)
    with stream.batch():
        start.record(stream)
        case.launch()
        end.record(stream)
    end.synchronize(timeout=1 << 32)
    counted = read_counters(device) - before
    pipe = max(counted.pipes, key=lambda pipe: counted.pipes[pipe].busy)
    if not counted.core_cycles:
        raise BenchError(f"{case.name} ran on no core")
    figures: dict[str, float] = {
        case.name + CYCLES: start.elapsed_cycles(end),
        case.name + PIPE: int(pipe),
        case.name + USE: counted.pipes[pipe].busy / counted.core_cycles,
    }
    if case.macs:
        figures[case.name + MACS] = case.macs / (case.peak * counted.core_cycles)
    return figures


def hosted(path: str) -> None:
    """Measure inside the machine."""
    figures: dict[str, float] = {}
    with Device() as device:
        arrays = _Arrays(device)
        for cases in (_element_cases, _row_cases, _product_cases):
            for case in cases(arrays):
                figures |= _measure(device, case)
    write_figures(path, figures)


def describe(figures: dict[str, float]) -> str:
    """The figures as a table, with the names of the pipes."""
    names = [key.removesuffix(CYCLES) for key in figures if key.endswith(CYCLES)]
    width = max(map(len, ("kernel", *names)))
    lines = [f"{'kernel':<{width}}  {'cycles':>8}  {'busiest pipe':<12}  {'use':>6}  {'MACs':>6}"]
    for name in names:
        pipe = Pipe(int(figures[name + PIPE])).name
        macs = figures.get(name + MACS)
        line = f"{name:<{width}}  {figures[name + CYCLES]:>8,.0f}  {pipe:<12}"
        line += f"  {figures[name + USE]:>6.1%}"
        lines.append(line if macs is None else f"{line}  {macs:>6.1%}")
    return "\n".join(lines)
