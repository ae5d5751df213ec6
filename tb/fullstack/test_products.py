"""Matrix products of awkward and random shapes: bit-exact, and counted to the last MAC."""

import numpy as np
import numpy.typing as npt
import pytest

from runtime import Device, gemm, padded_macs
from runtime.profiling import read_counters

Matrix = npt.NDArray[np.int8]

EDGES = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129)
"""Sizes at which tiles, lines and commands begin anew."""


def operands(random: np.random.Generator, m: int, n: int, k: int) -> tuple[Matrix, Matrix]:
    """Random matrices, a tenth of them the extremes."""

    def matrix(rows: int, columns: int) -> Matrix:
        drawn = random.integers(-128, 128, (rows, columns), dtype=np.int8)
        extremes = random.choice(np.array([-128, 127], np.int8), (rows, columns))
        return np.where(random.random((rows, columns)) < 0.1, extremes, drawn)

    return matrix(m, k), matrix(k, n)


def rescaled(x: npt.NDArray[np.int32], multiplier: int, shift: int) -> npt.NDArray[np.int64]:
    """The contract's requantisation before it saturates."""
    return (x.astype(np.int64) * multiplier + (1 << shift >> 1)) >> shift


def check(device: Device, random: np.random.Generator, m: int, n: int, k: int) -> None:
    """One product as int32 and one as int8, compared with numpy and counted."""
    a, b = operands(random, m, n, k)
    exact = a.astype(np.int32) @ b.astype(np.int32)
    before = read_counters(device)
    arrays = device.array(a), device.array(b)
    np.testing.assert_array_equal(gemm(*arrays).numpy(), exact)
    bias = random.integers(-1000, 1000, n).astype(np.int32)
    # A scale at which the larger half of the sums saturates.
    shift = max(0, int(np.median(np.abs(exact))).bit_length() - 7) + 8
    wide = rescaled(np.maximum(exact + bias, 0), 256, shift)
    result = gemm(*arrays, bias=device.array(bias), relu=True, requantise=(256, shift))
    np.testing.assert_array_equal(result.numpy(), np.clip(wide, -128, 127).astype(np.int8))
    assert (read_counters(device) - before).macs == 2 * padded_macs(m, n, k)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 1), (17, 33, 65), (128, 1, 7), (511, 130, 96), (1, 129, 1), (1, 1, 1000), (16, 16, 16)],
)
def test_a_product_with_tails_is_exact(device: Device, seed: int, m: int, n: int, k: int) -> None:
    check(device, np.random.default_rng((seed, m, n, k)), m, n, k)


@pytest.mark.parametrize("draw", range(12))
def test_a_product_of_random_shape_is_exact(device: Device, seed: int, draw: int) -> None:
    random = np.random.default_rng((seed, draw))
    m, n, k = (
        int(random.choice(EDGES)) if random.random() < 0.4 else int(random.integers(1, 200))
        for _ in range(3)
    )
    print(f"m {m}, n {n}, k {k}")
    check(device, random, m, n, k)


@pytest.mark.parametrize("value", [-128, 127])
def test_a_product_of_extremes_saturates(device: Device, value: int) -> None:
    a, b = np.full((33, 300), -128, np.int8), np.full((300, 20), value, np.int8)
    arrays = device.array(a), device.array(b)
    np.testing.assert_array_equal(
        gemm(*arrays).numpy(), np.full((33, 20), -128 * value * 300, np.int32)
    )
    saturated = gemm(*arrays, requantise=(1, 0)).numpy()
    np.testing.assert_array_equal(saturated, np.full((33, 20), 127 if value < 0 else -128, np.int8))


def test_the_count_of_macs_is_that_of_padded_tiles() -> None:
    assert padded_macs(1, 1, 1) == 256
    assert padded_macs(17, 33, 65) == 17 * 48 * 80
    assert padded_macs(511, 130, 96) == 511 * 144 * 96
