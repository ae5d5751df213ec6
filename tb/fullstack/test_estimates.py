"""Estimates against the machine: core cycles and what limits, of launches on two cores."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from abi.core import Pipe
from runtime import Device
from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.kernel import KernelSource
from runtime.kernels.buffers import core_buffers
from runtime.kernels.matrix_source import matrix_source
from runtime.kernels.window_source import Convolution, Pooling
from runtime.module import Module
from runtime.operations import elements, rows, windows
from runtime.planner import operators
from runtime.planner.chip import Chip
from runtime.planner.launch import Launch
from runtime.planner.matrix import plan_matrix_product
from runtime.planner.timeline import Timeline
from runtime.profiling import Counters, read_counters
from tb.fullstack import limiters

TOLERANCE = 0.1
"""Of the core cycles. Estimates were within 0.05 when they were made."""

pytestmark = pytest.mark.usefixtures("engine")

Work = Callable[[], object]


def chip_of(device: Device) -> Chip:
    buffers: CoreBuffers = core_buffers(device)
    return Chip(cores=device.info.cores, buffers=buffers)


def measure(device: Device, work: Work) -> Counters:
    """What the counters gain in the second run: the kernel is in HBM then."""
    work()
    device.default_stream.synchronize()
    before = read_counters(device)
    work()
    device.default_stream.synchronize()
    return read_counters(device) - before


def check(name: str, expected: Timeline, measured: Counters, limiter: Pipe | None = None) -> None:
    """Compare; `limiter`: the pipe that is to limit, None: whichever the machine says."""
    error = expected.core_cycles / measured.core_cycles - 1
    print(f"{name}: {measured.core_cycles} core cycles, estimate {100 * error:+.1f} %")
    assert abs(error) <= TOLERANCE, name
    busiest = max(Pipe, key=lambda pipe: measured.pipes[pipe].busy)
    assert expected.limiter is busiest, name
    assert limiter in (None, busiest), name
    assert expected.macs == measured.macs, name
    for pipe in Pipe:
        estimate, real = expected.pipes[pipe].busy, measured.pipes[pipe].busy
        assert abs(estimate - real) <= 0.02 * real + 8, (name, pipe)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((16, 16, 64), "int8"),
        ((128, 128, 128), "int8"),
        ((256, 128, 192), "int8"),
        ((33, 47, 129), "int8"),
        ((64, 64, 64), "bfloat16"),
        ((40, 33, 100), "bfloat16"),
    ],
)
def test_products(device: Device, shape: tuple[int, int, int], dtype: str) -> None:
    compare_product(device, shape, dtype)


def compare_product(
    device: Device, shape: tuple[int, int, int], dtype: str, limiter: Pipe | None = None
) -> None:
    m, n, k = shape
    plan = plan_matrix_product(m, n, k, dtype, chip_of(device))
    assert plan.timeline is not None
    code = matrix_source(plan.product, plan.tiling).compile(core_buffers(device))
    module = Module(device, code)
    element: Any = np.int8 if dtype == "int8" else np.uint16
    a, b = device.zeros((m, k), element), device.zeros((k, n), element)
    out = device.zeros((m, n), np.int32 if dtype == "int8" else np.float32)

    def work() -> None:
        module.kernel().launch(plan.blocks, a, b, out)

    check(f"{shape} {dtype}", plan.timeline, measure(device, work), limiter)


def test_vector_operators(device: Device) -> None:
    chip = chip_of(device)
    draw = np.random.default_rng(1)
    x, y = (device.array(draw.normal(size=6000).astype(np.float32)) for _ in range(2))
    matrix = device.array(draw.normal(size=(24, 200)).astype(np.float32))
    gain = device.array(np.ones(200, np.float32))
    for name, plan, work in (
        ("add", operators.plan_elementwise("add", 6000, chip), lambda: elements.add(x, y)),
        ("gelu", operators.plan_elementwise("gelu", 6000, chip), lambda: elements.gelu(x)),
        ("softmax", operators.plan_softmax(24, 200, chip), lambda: rows.softmax(matrix)),
        (
            "layer norm",
            operators.plan_layer_norm(24, 200, chip),
            lambda: rows.layer_norm(matrix, gain, gain),
        ),
        ("row sum", operators.plan_reduction("sum", 24, 200, chip), lambda: rows.row_sum(matrix)),
    ):
        check(name, plan.timeline, measure(device, work))


def test_windows(device: Device) -> None:
    chip = chip_of(device)
    images = device.zeros((2, 12, 12, 16), np.int8)
    kernel = device.zeros((3, 3, 16, 24), np.int8)
    bias = device.zeros(24, np.int32)
    conv = Convolution(12, 12, 16, 24, 3, 3, 1, 1, "int32", False)
    measured = measure(device, lambda: windows.conv2d(images, kernel, bias, padding=1))
    check("conv", operators.plan_convolution(2, conv, chip).timeline, measured)
    picture = device.zeros((2, 8, 8, 32), np.float32)
    pool = Pooling(8, 8, 32, 2, 2, "max", "float32")
    measured = measure(device, lambda: windows.max_pool2d(picture, 2))
    check("pool", operators.plan_pooling(2, pool, chip).timeline, measured)


@pytest.mark.parametrize(
    ("source", "dtype", "limiter"),
    [
        (limiters.many_loads, np.float32, Pipe.MTE2),
        (limiters.many_saves, np.float32, Pipe.MTE3),
        (limiters.many_stores, np.int32, Pipe.FIXPIPE),
    ],
)
def test_kernels_that_a_pipe_to_memory_limits(
    device: Device, source: Callable[[], KernelSource], dtype: Any, limiter: Pipe
) -> None:
    count, blocks = 15 * limiters.TILE - 77, 4
    arrays = [device.zeros(count, dtype) for _ in range(3)]
    code = source().compile(core_buffers(device))
    kernel = Module(device, code).kernel()
    plan = Launch(code, (None, None, None, count), blocks).estimate(chip_of(device))
    measured = measure(device, lambda: kernel.launch(blocks, *arrays, count))
    check(source.__name__, plan, measured, limiter)


@pytest.mark.parametrize(
    ("shape", "dtype", "limiter"),
    [
        ((256, 256, 256), "int8", Pipe.CUBE),
        ((128, 96, 256), "bfloat16", Pipe.CUBE),
        ((5, 20, 30), "int8", Pipe.SCALAR),
    ],
)
def test_products_that_the_cube_or_the_scalar_unit_limits(
    device: Device, shape: tuple[int, int, int], dtype: str, limiter: Pipe
) -> None:
    compare_product(device, shape, dtype, limiter)


def test_functions_that_the_vector_unit_limits(device: Device) -> None:
    x = device.array(np.random.default_rng(2).normal(size=9000).astype(np.float32))
    plan = operators.plan_elementwise("tanh", x.size, chip_of(device))
    check("tanh", plan.timeline, measure(device, lambda: elements.tanh(x)), Pipe.VECTOR)
