"""`bench gemm`: how much of the Cube's peak int8 products reach, with operands in HBM.

`cube_use_*` is that of one core: the product is one block. `cube_use_*_two_cores` is that of both:
one stream, a grid over the cores.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from abi.core import CUBE_SIDE
from abi.geometry import CORES
from runtime import Device, DeviceArray, Stream, gemm, padded_macs
from runtime.kernels.buffers import core_buffers
from runtime.kernels.gemm_kernel import GemmPlan, build_gemm
from runtime.kernels.tiling import ceil_to, choose_tiles, estimate_cycles
from tb.bench.figures import hosted_figures, write_figures

__all__ = ["PEAK_MACS_PER_CYCLE", "gemm_on_one_core", "hosted", "measure"]

PEAK_MACS_PER_CYCLE = CUBE_SIDE * CUBE_SIDE
"""int8 MACs that a core's Cube does at most."""

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
    tiles = choose_tiles(m, n, k, buffers, int8_output=False)
    plan = GemmPlan(
        m=m,
        n=n,
        k=k,
        lda=k,
        ldb=n,
        ldc=n * out.dtype.itemsize,
        bias=False,
        relu=False,
        requantise=None,
        tiles=tiles,
        group_m=ceil_to(m, tiles.m),
        group_n=ceil_to(n, tiles.n),
    )
    queue = stream or device.default_stream
    cycles = estimate_cycles(m, n, k, tiles, int8_output=False)
    kernel = device.programs.get(plan, partial(build_gemm, plan, buffers), cycles, queue)
    arrays = (a, b, out)
    device.programs.launch(
        kernel,
        plan.grid,
        [array.address for array in arrays],
        [array.buffer.block for array in arrays],
        queue,
    )


def _use(device: Device, size: int, multiply: Product, cores: int) -> tuple[float, float]:
    """Share of the peak of `cores` for size x size x size, and simulated MACs a second."""
    random = np.random.default_rng(size)
    a, b = (random.integers(-128, 128, (size, size), dtype=np.int8) for _ in range(2))
    left, right = device.array(a), device.array(b)
    out = device.empty((size, size), np.int32)
    stream = device.default_stream
    multiply(left, right, out)  # The program is in HBM from here on.
    stream.synchronize()
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
    return macs / peak / start.elapsed_cycles(end), macs / seconds


def hosted(path: str) -> None:
    """Measure inside the machine."""
    figures: dict[str, float] = {}
    with Device() as device:
        for size in (64, 128, 256, 512):
            use, speed = _use(device, size, gemm_on_one_core, 1)
            figures[f"cube_use_{size}"] = use
            figures[f"macs_per_s_{size}"] = speed
        for size in (256, 512):
            use, speed = _use(device, size, gemm, CORES)
            figures[f"cube_use_{size}_two_cores"] = use
            figures[f"macs_per_s_{size}_two_cores"] = speed
    write_figures(path, figures)
