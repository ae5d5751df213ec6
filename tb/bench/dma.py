"""`bench dma`: how much of the host link's bandwidth large copies reach."""

import numpy as np

from runtime import Device
from tb.bench.figures import hosted_figures, write_figures

__all__ = ["hosted", "measure"]

LINK_BYTES_PER_CYCLE = 32
NBYTES = 1 << 20


def measure(seed: int) -> dict[str, float]:
    """Figures: share of 32 bytes a cycle, for 1 MiB from host memory to HBM and back."""
    return hosted_figures("tb.bench.dma:hosted", seed)


def _use(device: Device, source_offset: int, target_offset: int, *, to_device: bool) -> float:
    """Share of the link that a copy of NBYTES uses, from submission to completion."""
    host = device.pinned(NBYTES + 64, np.uint8)
    memory = device.empty(NBYTES + 64, np.uint8)
    host[:] = np.random.default_rng(1).integers(0, 256, host.size, dtype=np.uint8)
    stream = device.default_stream
    start, end = device.event(), device.event()
    near = host[source_offset : source_offset + NBYTES]
    far = memory[target_offset : target_offset + NBYTES]
    with stream.batch():
        start.record(stream)
        if to_device:
            device.memcpy_async(far, near, stream)
        else:
            device.memcpy_async(near, far, stream)
        end.record(stream)
    end.synchronize()
    if not np.array_equal(far.numpy(), near):
        raise AssertionError("the copy is wrong")
    return NBYTES / LINK_BYTES_PER_CYCLE / start.elapsed_cycles(end)


def hosted(path: str) -> None:
    """Measure inside the machine."""
    with Device() as device:
        write_figures(
            path,
            {
                "aligned_link_use": _use(device, 0, 0, to_device=True),
                "unaligned_link_use": _use(device, 1, 3, to_device=True),
                "aligned_link_use_from_device": _use(device, 0, 0, to_device=False),
                "unaligned_link_use_from_device": _use(device, 5, 2, to_device=False),
                "link_bytes_per_cycle": LINK_BYTES_PER_CYCLE,
            },
        )
