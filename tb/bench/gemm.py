"""`bench gemm`: how much of the Cube's peak int8 products reach, with operands in HBM.

`cube_use_*` is that of one core: the product is one block. `cube_use_*_two_cores` is that of both:
one stream, a grid over the cores. `hidden_transfers_512`, and `_two_cores`: of the cycles in which
MTE2, FIXPIPE or MTE3 have a command in work, how many lie within commands of the same core's Cube,
by the trace of the chip.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from abi.core import CUBE_SIDE
from abi.geometry import CORES
from runtime import Device, DeviceArray, Stream, gemm, padded_macs
from runtime.kernels.buffers import core_buffers
from runtime.kernels.matrix_source import MatrixProduct, matrix_source
from runtime.kernels.tiling import ceil_to
from runtime.planner.chip import Chip
from runtime.planner.matrix import plan_product
from tb.bench.figures import hosted_figures, write_figures
from tb.engine.host import current_machine
from tb.tracing.events import hardware_events
from tb.tracing.spans import hidden_share

__all__ = ["PEAK_MACS_PER_CYCLE", "gemm_on_one_core", "hosted", "measure"]

PEAK_MACS_PER_CYCLE = CUBE_SIDE * CUBE_SIDE
"""int8 MACs that a core's Cube does at most."""

LARGEST = 512
"""Size of the product whose transfers are looked at."""

Product = Callable[[DeviceArray, DeviceArray, DeviceArray], object]


def measure(seed: int) -> dict[str, float]:
    """Figures: MACs a cycle over the peak, from submission to completion, int32 results."""
    return hosted_figures("tb.bench.gemm:hosted", seed)


def gemm_on_one_core(
    a: DeviceArray, b: DeviceArray, out: DeviceArray, stream: Stream | None = None
) -> None:
    """Submit out = a @ b as one block."""
    device = a.device
    (m, k), n = a.shape, b.shape[1]
    buffers = core_buffers(device)
    product = MatrixProduct(m, n, k, "int8", "int32")
    tiling = plan_product(product, Chip(cores=1, buffers=buffers)).tiling
    whole = replace(tiling, rows=ceil_to(m, tiling.m), columns=ceil_to(n, tiling.n))
    code = matrix_source(product, whole).compile(buffers)
    device.load(code).kernel().launch(1, a, b, out, stream=stream)


def _use(device: Device, size: int, multiply: Product, cores: int) -> dict[str, float]:
    """Figures of size x size x size: share of the peak of `cores`, simulated MACs a second."""
    random = np.random.default_rng(size)
    a, b = (random.integers(-128, 128, (size, size), dtype=np.int8) for _ in range(2))
    left, right = device.array(a), device.array(b)
    out = device.empty((size, size), np.int32)
    stream = device.default_stream
    multiply(left, right, out)  # The program is in HBM from here on.
    stream.synchronize()
    clockwork = current_machine().clockwork
    clockwork.traces()
    start, end = device.event(), device.event()
    begun = time.perf_counter()
    with stream.batch():
        start.record(stream)
        multiply(left, right, out)
        end.record(stream)
    end.synchronize(timeout=1 << 32)
    seconds = time.perf_counter() - begun
    if not np.array_equal(out.numpy(), a.astype(np.int32) @ b.astype(np.int32)):
        raise AssertionError(f"the product of size {size} is wrong")
    macs = padded_macs(size, size, size)
    peak = PEAK_MACS_PER_CYCLE * cores
    name = f"{size}" if cores == 1 else f"{size}_two_cores"
    figures = {
        f"cube_use_{name}": macs / peak / start.elapsed_cycles(end),
        f"macs_per_s_{name}": macs / seconds,
    }
    if size == LARGEST:
        figures[f"hidden_transfers_{name}"] = hidden_share(hardware_events(clockwork.traces()))
    return figures


def hosted(path: str) -> None:
    """Measure inside the machine."""
    figures: dict[str, float] = {}
    with Device() as device:
        for size in (64, 128, 256, LARGEST):
            figures |= _use(device, size, gemm_on_one_core, 1)
        for size in (256, LARGEST):
            figures |= _use(device, size, gemm, CORES)
    write_figures(path, figures)
