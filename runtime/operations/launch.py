"""How an operation comes to run: its kernel compiled once, checks of operands, launch."""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from driver import tracing
from runtime.arguments import check_integer, refuse
from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.kernel import KernelSource
from runtime.kernels.buffers import core_buffers
from runtime.kernels.tiling import Work
from runtime.memory import DeviceArray
from runtime.module import Module
from runtime.stream import Stream
from runtime.toolchain.object import KernelObject

__all__ = ["Operands", "check_flag", "check_requantise", "launch", "run"]

Factory = Callable[..., KernelSource]

LARGEST_ARRAY = (1 << 31) - 1
"""Bytes of an operand: commands have signed offsets of 32 bits."""

LARGEST_MULTIPLIER = (1 << 31) - 1
LARGEST_SHIFT = 62


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
        found = self._check(name, array, dtypes)
        if ndim is not None and found.ndim != ndim:
            raise refuse(name, f"have {ndim} dimensions", found.shape)
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
        if out is None:
            made = self.device.empty(shape, dtype)
        else:
            made = self._check("out", out, [dtype])
            if made.shape != shape:
                raise refuse("out", f"have shape {shape}", made.shape)
            for used in self.inputs:
                if _overlap(made, used):
                    raise refuse("out", "not overlap an input", made)
        self.stream.check()
        return made

    def _check(self, name: str, array: object, dtypes: Sequence[str]) -> DeviceArray:
        if not isinstance(array, DeviceArray):
            raise refuse(name, "be a DeviceArray", array)
        if array.device is not self.device:
            raise refuse(name, "belong to the same device as the other operands", array)
        array.buffer.check(name)
        if array.dtype.name not in dtypes:
            raise refuse(name, f"have dtype {' or '.join(dtypes)}", array.dtype)
        if array.nbytes > LARGEST_ARRAY:
            raise refuse(name, f"have at most {LARGEST_ARRAY} bytes", array.nbytes)
        return array


def _overlap(one: DeviceArray, other: DeviceArray) -> bool:
    return one.address < other.address + other.nbytes and other.address < one.address + one.nbytes


def check_flag(name: str, value: object) -> bool:
    """Check a condition.

    Raises:
        InvalidArgumentError: it is neither True nor False.
    """
    if not isinstance(value, bool | np.bool_):
        raise refuse(name, "be True or False", value)
    return bool(value)


def check_requantise(name: str, value: Any) -> tuple[int, int] | None:
    """Check a (multiplier, shift) pair or None.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise refuse(name, "be (multiplier, shift) or None", value)
    return (
        check_integer(f"{name} multiplier", value[0], 0, LARGEST_MULTIPLIER),
        check_integer(f"{name} shift", value[1], 0, LARGEST_SHIFT),
    )


def launch(
    operands: Operands,
    factory: Factory,
    key: tuple[Hashable, ...],
    grid: int,
    *arguments: Any,
    timeout: int | None = None,
) -> None:
    """Launch the kernel of `factory(*key)`.

    Args:
        grid: blocks.
        arguments: those of the kernel.
        timeout: cycles after which it is aborted; None: the stream's.

    Raises:
        InvalidArgumentError: it does not fit the device's cores.
        OutOfMemoryError: no memory for code or arguments.
        NpuError: the stream takes no work.
    """
    device = operands.device
    with tracing.span("api", factory.__name__.removesuffix("_source")):
        code = _compiled(factory, key, core_buffers(device))
        kernel = Module(device, code).kernel()
        kernel.launch(grid, *arguments, stream=operands.stream, timeout=timeout)


def run(
    operands: Operands,
    factory: Factory,
    key: tuple[Hashable, ...],
    work: Work,
    *arguments: Any,
) -> None:
    """Launch a kernel whose blocks share any amount of work, as `launch`.

    Args:
        work: what they share; it gives the grid.
    """
    launch(operands, factory, key, work.blocks(operands.device.info.cores), *arguments)
