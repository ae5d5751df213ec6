"""Runs kernels of the library on a core of golden models, with canaries around every array."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from abi.address import HBM_BASE
from runtime.compiler.kernel import KernelSource
from tb.compiler.scheduled_core import BUFFERS, ScheduledCore

__all__ = ["run_kernel"]


def run_kernel(
    source: KernelSource,
    arrays: Sequence[NDArray[np.generic]],
    out: NDArray[np.generic],
    values: Sequence[int | float],
    *,
    blocks: int = 2,
    seed: int = 1,
) -> NDArray[np.generic]:
    """The result of a kernel that takes `arrays`, `out` and `values`; nothing else may change."""
    total = out.nbytes + sum(array.nbytes for array in arrays)
    core = ScheduledCore(seed=seed, memory_bytes=-(-(total + 4096) // 64) * 64 + 512)
    places = [core.place(array) for array in (*arrays, out)]
    before = core.memory.copy()
    core.run(source.compile(BUFFERS), [*places, *values], grid=(blocks, 1, 1))
    start = places[-1] - HBM_BASE
    inside = slice(start, start + out.nbytes)
    result = core.read(places[-1], out.shape, out.dtype.type)
    core.memory[inside] = before[inside]
    assert np.array_equal(core.memory, before), "the kernel wrote outside of its result"
    return result
