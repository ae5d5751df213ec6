"""How an operation comes to run: its kernel compiled once, checks of operands, launch."""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from driver import tracing
from runtime.arguments import refuse
from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.kernel import KernelSource
from runtime.kernels.buffers import core_buffers
from runtime.kernels.gemm import check_operand, check_output
from runtime.kernels.tiling import BLOCKS_PER_CORE
from runtime.memory import DeviceArray
from runtime.module import Module
from runtime.stream import Stream
from runtime.toolchain.object import KernelObject

__all__ = ["Operands", "run"]

Factory = Callable[..., KernelSource]


@lru_cache(maxsize=256)
def _compiled(factory: Factory, key: tuple[Hashable, ...], buffers: CoreBuffers) -> KernelObject:
    return factory(*key).compile(buffers)


class Operands:
    """The arrays of one operation: all of one device, none freed."""

    def __init__(self, name: str, first: object, stream: Stream | None) -> None:
        if not isinstance(first, DeviceArray):
            raise refuse(name, "be a DeviceArray", first)
        self.device = first.device
        self.stream = self.device.check_stream("stream", stream)
        self.inputs: list[DeviceArray] = []

    def add(
        self,
        name: str,
        array: object,
        dtypes: Sequence[str],
        *,
        shape: tuple[int, ...] | None = None,
        ndim: int | None = None,
    ) -> DeviceArray:
        """Check an input.

        Raises:
            InvalidArgumentError: it has another device, dtype or shape.
            StaleHandleError: it was freed.
        """
        given = getattr(array, "dtype", None)
        dtype = given if given is not None and np.dtype(given).name in dtypes else dtypes[0]
        found = check_operand(name, array, self.device, np.dtype(dtype).type, ndim)
        if shape is not None and found.shape != shape:
            raise refuse(name, f"have shape {shape}", found.shape)
        self.inputs.append(found)
        return found

    def result(self, out: object, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Check the output, or make it.

        Raises:
            InvalidArgumentError: it has another device, dtype or shape, or overlaps an input.
            OutOfMemoryError: there is no room for it.
        """
        made = check_output(out, self.device, shape, np.dtype(dtype).type, self.inputs)
        self.stream.check()
        return made


def run(
    operands: Operands,
    factory: Factory,
    key: tuple[Hashable, ...],
    blocks: int,
    *arguments: Any,
) -> None:
    """Launch the kernel of `factory(*key)` on as many blocks as there is work for.

    Args:
        blocks: pieces of work; the grid is this, or less.
        arguments: those of the kernel.

    Raises:
        InvalidArgumentError: it does not fit the device's cores.
        OutOfMemoryError: no memory for code or arguments.
        NpuError: the stream takes no work.
    """
    device = operands.device
    with tracing.span("api", factory.__name__.removesuffix("_source")):
        code = _compiled(factory, key, core_buffers(device))
        grid = max(1, min(blocks, BLOCKS_PER_CORE * device.info.cores))
        Module(device, code).kernel().launch(grid, *arguments, stream=operands.stream)
