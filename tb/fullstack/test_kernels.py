"""Matrix products and requantisations, bit-exact against numpy."""

import numpy as np
import pytest

from abi.core import Pipe
from driver import tracing
from runtime import Device, gemm, padded_macs, requantise
from tb.fullstack.test_streams import Counter


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Random int8 matrices."""
    draw = np.random.default_rng((m, n, k))
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    return a, draw.integers(-128, 128, (k, n), dtype=np.int8)


def scaled(x: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    """The contract's requantisation."""
    wide = x.astype(np.int64) * multiplier + (1 << shift >> 1)
    return np.clip(wide >> shift, -128, 127).astype(np.int8)


def core_macs(device: Device) -> int:
    """MACs of all cores since their reset."""
    return sum(core.read() for core in device.driver.registers.bar0.core_macs)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1),
        (16, 16, 16),
        (17, 33, 65),
        (1, 100, 70),
        (100, 1, 70),
        (64, 10, 128),
        (65, 47, 129),
    ],
)
def test_a_product_is_exact_and_counted(device: Device, shape: tuple[int, int, int]) -> None:
    a, b = operands(*shape)
    before = core_macs(device)
    c = gemm(device.array(a), device.array(b))
    assert (c.shape, c.dtype) == ((shape[0], shape[1]), np.int32)
    np.testing.assert_array_equal(c.numpy(), a.astype(np.int32) @ b.astype(np.int32))
    assert core_macs(device) - before == padded_macs(*shape)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("scale", [None, (1, 0), (77, 12)])
def test_bias_relu_and_requantisation(
    device: Device, relu: bool, scale: tuple[int, int] | None
) -> None:
    a, b = operands(33, 40, 50)
    bias = np.random.default_rng(3).integers(-50_000, 50_000, 40).astype(np.int32)
    out = device.empty((33, 40), np.int32 if scale is None else np.int8)
    given = [device.array(x) for x in (a, b, bias)]
    result = gemm(given[0], given[1], out, bias=given[2], relu=relu, requantise=scale)
    assert result is out
    expected = a.astype(np.int32) @ b.astype(np.int32) + bias
    if relu:
        expected = np.maximum(expected, 0)
    np.testing.assert_array_equal(out.numpy(), scaled(expected, *scale) if scale else expected)


def test_a_network_of_two_layers_in_one_batch(device: Device) -> None:
    x, w1 = operands(20, 30, 64)
    _, w2 = operands(20, 10, 30)
    arrays = [device.array(v) for v in (x, w1, w2)]
    stream = device.stream()
    hidden, logits = device.empty((20, 30), np.int8), device.empty((20, 10), np.int32)
    sink = Counter()
    for warm in (False, True):
        if warm:
            tracing.attach(sink, device.bus.now)
        with stream.batch():
            gemm(arrays[0], arrays[1], hidden, relu=True, requantise=(5, 9), stream=stream)
            gemm(hidden, arrays[2], logits, stream=stream)
        tracing.detach()
        stream.synchronize()
    assert sink.names.count(("doorbell", "ring")) == 1
    expected = scaled(np.maximum(x.astype(np.int32) @ w1.astype(np.int32), 0), 5, 9)
    np.testing.assert_array_equal(hidden.numpy(), expected)
    np.testing.assert_array_equal(logits.numpy(), expected.astype(np.int32) @ w2.astype(np.int32))


def test_views_are_operands(device: Device) -> None:
    a, b = operands(40, 20, 30)
    array = device.array(a)
    c = gemm(array[7:20], device.array(b))
    np.testing.assert_array_equal(c.numpy(), a[7:20].astype(np.int32) @ b.astype(np.int32))


def test_sums_wrap_at_32_bits(device: Device) -> None:
    k = 200
    a, b = np.full((2, k), -128, np.int8), np.full((k, 3), -128, np.int8)
    bias = np.array([2**31 - 1, -(2**31), 0], np.int32)
    c = gemm(device.array(a), device.array(b), bias=device.array(bias))
    exact = np.int64(k * 16384) + bias.astype(np.int64)
    np.testing.assert_array_equal(c.numpy(), np.tile(exact.astype(np.int32), (2, 1)))


def test_a_program_is_uploaded_once_and_shared_by_streams(device: Device) -> None:
    a, b = operands(16, 16, 32)
    x, y = device.array(a), device.array(b)
    first, second = device.stream(), device.stream()
    results = [gemm(x, y, stream=s) for s in (first, second, first)]
    assert len(device.programs) == 1
    device.synchronize()
    for result in results:
        np.testing.assert_array_equal(result.numpy(), a.astype(np.int32) @ b.astype(np.int32))


def test_another_stream_waits_for_the_upload_of_a_program(device: Device) -> None:
    a, b = operands(8, 8, 8)
    x, y = device.array(a), device.array(b)
    busy = device.empty(1 << 20, np.uint8)
    first, second = device.stream(), device.stream()
    out = device.empty((8, 8), np.int32)
    device.memset(busy, 1, first)
    gemm(x, y, stream=first)
    gemm(x, y, out, stream=second)
    second.synchronize()
    np.testing.assert_array_equal(out.numpy(), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(1,), (7, 5), (3, 16, 11), (9000,)])
def test_requantise(device: Device, shape: tuple[int, ...], relu: bool) -> None:
    x = np.random.default_rng(shape).integers(-(2**31), 2**31, shape).astype(np.int32)
    y = requantise(device.array(x), 1 << 30, 54, relu)
    assert (y.shape, y.dtype) == (shape, np.int8)
    expected = scaled(np.maximum(x, 0) if relu else x, 1 << 30, 54)
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize("scale", [(0, 0), (2**31 - 1, 0), (2**31 - 1, 62), (1, 1), (3, 62)])
def test_requantise_at_the_limits(device: Device, scale: tuple[int, int]) -> None:
    x = np.array([-(2**31), -129, -128, -1, 0, 1, 2, 127, 128, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(requantise(device.array(x), *scale).numpy(), scaled(x, *scale))


def test_work_is_attributed_to_the_core(device: Device) -> None:
    """For each pipe busy, stall and idle cycles add up to the cycles of its core."""
    a, b = operands(64, 64, 64)
    gemm(device.array(a), device.array(b)).numpy()
    bar0 = device.driver.registers.bar0
    worked = 0
    for core in range(device.info.cores):
        cycles = bar0.core_cycles[core].read()
        for pipe in (pipe.name.lower() for pipe in Pipe):
            kinds = ("busy", "stall", "idle")
            parts = [getattr(bar0, f"{pipe}_{kind}")[core].read() for kind in kinds]
            assert sum(parts) == cycles, pipe
        worked += bar0.cube_busy[core].read()
    assert worked >= padded_macs(64, 64, 64) / 256
