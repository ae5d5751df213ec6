"""A kernel of one's own, from Python to the cores.

    glassnpu run examples/own_kernel.py

docs/kernels/writing.md explains it line by line.
"""

import numpy as np

from runtime import Device
from runtime.compiler.kernel import kernel
from runtime.kernels.buffers import core_buffers


@kernel(x="float32*", y="float32*", out="float32*", n="uint31", alpha="float32")
def axpy(k, x, y, out, n, alpha):
    for i in k.range(k.block_x * 1024, n, k.grid_x * 1024):
        count = k.minimum(1024, n - i)
        k.store(out, i, k.fma(k.load(x, i, count), alpha, k.load(y, i, count)))


if __name__ == "__main__":
    with Device() as device:
        x, y = np.arange(3000, dtype=np.float32), np.ones(3000, np.float32)
        out = device.empty(3000, np.float32)
        module = device.load(axpy.compile(core_buffers(device)))
        begun = device.bus.now()
        module.kernel()[2](device.array(x), device.array(y), out, 3000, 0.5)
        print("largest difference:", np.abs(out.numpy() - (0.5 * x + y)).max())
        print("device cycles:     ", device.bus.now() - begun)
