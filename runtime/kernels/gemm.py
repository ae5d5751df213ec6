"""Matrix products on the Cube: int8 x int8, summed up in int32."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from driver import tracing
from runtime.arguments import check_integer, refuse
from runtime.kernels.buffers import core_buffers
from runtime.kernels.gemm_kernel import GemmPlan, build_gemm
from runtime.kernels.tiling import estimate_cycles, share_out
from runtime.memory import DeviceArray
from runtime.stream import Stream

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["check_operand", "check_output", "check_requantise", "gemm"]

LARGEST_ARRAY = (1 << 31) - 1
"""Bytes of an operand: commands have signed offsets of 32 bits."""

LARGEST_MULTIPLIER = (1 << 31) - 1
LARGEST_SHIFT = 62


def gemm(
    a: DeviceArray,
    b: DeviceArray,
    out: DeviceArray | None = None,
    bias: DeviceArray | None = None,
    relu: bool = False,
    requantise: tuple[int, int] | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """Submit `out = a @ b + bias`; returns `out` at once.

    a: int8 (M, K), b: int8 (K, N), bias: int32 (N,), all sizes at least 1. Sums wrap at 32 bits.
    `relu`: negative sums become 0. `requantise`: (multiplier, shift) gives int8 output,
    `clip((x * multiplier + (1 << shift >> 1)) >> shift, -128, 127)`, with multiplier from 0 to
    2**31 - 1 and shift from 0 to 62; None gives int32. out: (M, N); None: a new array.

    Raises:
        InvalidArgumentError: an argument breaks its rule; nothing was submitted.
        OutOfMemoryError: no memory for the output or the kernel.
        NpuError: the stream takes no work.
    """
    with tracing.span("api", "gemm"):
        if not isinstance(a, DeviceArray):
            raise refuse("a", "be a DeviceArray", a)
        device = a.device
        target = device.check_stream("stream", stream)
        check_operand("a", a, device, np.int8, 2)
        check_operand("b", b, device, np.int8, 2)
        (m, k), n = a.shape, b.shape[1]
        if b.shape[0] != k:
            raise refuse("b", f"have {k} rows, the columns of a", b.shape)
        if bias is not None:
            check_operand("bias", bias, device, np.int32, 1)
            if bias.shape != (n,):
                raise refuse("bias", f"have shape {(n,)}", bias.shape)
        if not isinstance(relu, bool | np.bool_):
            raise refuse("relu", "be True or False", relu)
        scale = check_requantise("requantise", requantise)
        dtype = np.int32 if scale is None else np.int8
        inputs = [x for x in (a, b, bias) if x is not None]
        result = check_output(out, device, (m, n), dtype, inputs)
        target.check()
        _run(device, a, b, result, bias, bool(relu), scale, target)
        return result


def check_operand(
    name: str, array: object, device: "Device", dtype: type[np.generic], ndim: int | None
) -> DeviceArray:
    """Check an input array.

    Raises:
        InvalidArgumentError: not a DeviceArray of that device, dtype and number of dimensions.
        StaleHandleError: it was freed.
    """
    if not isinstance(array, DeviceArray):
        raise refuse(name, "be a DeviceArray", array)
    if array.device is not device:
        raise refuse(name, "belong to the same device as the other operands", array)
    array.buffer.check(name)
    if array.dtype != dtype:
        raise refuse(name, f"have dtype {np.dtype(dtype)}", array.dtype)
    if array.nbytes > LARGEST_ARRAY:
        raise refuse(name, f"have at most {LARGEST_ARRAY} bytes", array.nbytes)
    if ndim is not None and array.ndim != ndim:
        raise refuse(name, f"have {ndim} dimensions", array.shape)
    return array


def check_output(
    out: object,
    device: "Device",
    shape: tuple[int, ...],
    dtype: type[np.generic],
    inputs: list[DeviceArray],
) -> DeviceArray:
    """Check an output array, or make it if it is None.

    Raises:
        InvalidArgumentError: wrong device, dtype or shape, or it overlaps an input.
    """
    if out is None:
        return device.empty(shape, dtype)
    array = check_operand("out", out, device, dtype, None)
    if array.shape != shape:
        raise refuse("out", f"have shape {shape}", array.shape)
    for used in inputs:
        if array.address < used.address + used.nbytes and used.address < (
            array.address + array.nbytes
        ):
            raise refuse("out", "not overlap an input", array)
    return array


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


def _run(
    device: "Device",
    a: DeviceArray,
    b: DeviceArray,
    out: DeviceArray,
    bias: DeviceArray | None,
    relu: bool,
    requantise: tuple[int, int] | None,
    stream: Stream,
) -> None:
    (m, k), n = a.shape, b.shape[1]
    buffers, cores = core_buffers(device), device.info.cores
    int8_output = requantise is not None
    tiles, group_m, group_n = share_out(m, n, k, buffers, cores, int8_output=int8_output)
    plan = GemmPlan(
        m=m,
        n=n,
        k=k,
        lda=k,
        ldb=n,
        ldc=n * out.dtype.itemsize,
        bias=bias is not None,
        relu=relu,
        requantise=requantise,
        tiles=tiles,
        group_m=group_m,
        group_n=group_n,
    )
    cycles = estimate_cycles(m, n, k, tiles, int8_output=int8_output)
    kernel = device.programs.get(plan, partial(build_gemm, plan, buffers), cycles, stream)
    operands = [x for x in (a, b, out, bias) if x is not None]
    device.programs.launch(
        kernel,
        plan.grid,
        [x.address for x in operands],
        [x.buffer.block for x in operands],
        stream,
    )
