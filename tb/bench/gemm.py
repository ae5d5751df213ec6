"""`bench gemm`: how much of the Cube's peak int8 products reach, with operands in HBM."""

import time

import numpy as np

from runtime import Device, gemm, padded_macs
from tb.bench.figures import hosted_figures, write_figures

__all__ = ["hosted", "measure"]

PEAK_MACS_PER_CYCLE = 256


def measure(seed: int) -> dict[str, float]:
    """Figures: MACs a cycle over the peak, from submission to completion, int32 results."""
    return hosted_figures("tb.bench.gemm:hosted", seed)


def _use(device: Device, size: int) -> tuple[float, float]:
    """Share of the peak for size x size x size, and simulated MACs a second."""
    random = np.random.default_rng(size)
    a, b = (random.integers(-128, 128, (size, size), dtype=np.int8) for _ in range(2))
    left, right = device.array(a), device.array(b)
    out = device.empty((size, size), np.int32)
    stream = device.default_stream
    gemm(left, right, out=out, stream=stream)  # The program is in HBM from here on.
    stream.synchronize()
    start, end = device.event(), device.event()
    begun = time.perf_counter()
    with stream.batch():
        start.record(stream)
        gemm(left, right, out=out, stream=stream)
        end.record(stream)
    end.synchronize(timeout=1 << 32)
    seconds = time.perf_counter() - begun
    if not np.array_equal(out.numpy(), a.astype(np.int32) @ b.astype(np.int32)):
        raise AssertionError(f"the product of size {size} is wrong")
    macs = padded_macs(size, size, size)
    return macs / PEAK_MACS_PER_CYCLE / start.elapsed_cycles(end), macs / seconds


def hosted(path: str) -> None:
    """Measure inside the machine."""
    figures: dict[str, float] = {}
    with Device() as device:
        for size in (64, 128, 256, 512):
            use, speed = _use(device, size)
            figures[f"cube_use_{size}"] = use
            figures[f"macs_per_s_{size}"] = speed
    write_figures(path, figures)
