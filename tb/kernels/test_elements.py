"""Element-wise kernels, conversions and movements against numpy."""

from typing import Any

import numpy as np
import pytest
from scipy import special

from runtime.kernels.element_source import (
    BINARY,
    TILE,
    UNARY,
    binary_source,
    dequantise_source,
    quantise_source,
    scale_source,
    unary_source,
)
from runtime.kernels.movement_source import SIDE, gather_rows_source, transpose_source
from tb.kernels.library import run_kernel

SIZES = [0, 1, 17, TILE - 1, TILE, TILE + 1, 2503]
FUNCTIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "log": np.log,
    "reciprocal": np.reciprocal,
    "reciprocal_root": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "erf": special.erf,
    "gelu": lambda x: x / 2 * (1 + special.erf(x / np.sqrt(2))),
    "absolute": np.abs,
}
OPERATIONS: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "largest": np.maximum,
    "smallest": np.minimum,
}


def test_all_are_tested() -> None:
    assert set(FUNCTIONS) == set(UNARY)
    assert set(OPERATIONS) == set(BINARY)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, n: int) -> None:
    x = np.random.default_rng(n).uniform(0.01, 4, n).astype(np.float32)
    got = run_kernel(unary_source(name), [x], np.zeros_like(x), [n])
    assert np.allclose(got, FUNCTIONS[name](x.astype(np.float64)), rtol=5e-7, atol=5e-7)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_float(name: str, n: int) -> None:
    x, y = np.random.default_rng(n).normal(size=(2, n)).astype(np.float32)
    got = run_kernel(binary_source(name, "float32"), [x, y], np.zeros_like(x), [n])
    expected = OPERATIONS[name](x, y)
    if name == "divide":
        assert np.allclose(got, expected, rtol=3e-7, atol=0)
    else:
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", [name for name in BINARY if name != "divide"])
def test_binary_integer(name: str, n: int) -> None:
    bits = np.random.default_rng(n).integers(0, 1 << 32, (2, n), np.uint32)
    x, y = bits.view(np.int32)
    got = run_kernel(binary_source(name, "int32"), [x, y], np.zeros_like(x), [n])
    with np.errstate(over="ignore"):
        assert np.array_equal(got, OPERATIONS[name](x, y))


@pytest.mark.parametrize("n", SIZES)
def test_scale(n: int) -> None:
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    got = run_kernel(scale_source(), [x], np.zeros_like(x), [n, 0.3])
    assert np.array_equal(got, x * np.float32(0.3))


@pytest.mark.parametrize("n", SIZES)
def test_quantise(n: int) -> None:
    x = np.random.default_rng(n).normal(size=n).astype(np.float32) * 100
    got = run_kernel(quantise_source(), [x], np.zeros(n, np.int8), [n, 1.5])
    assert np.array_equal(got, np.clip(np.rint(x * np.float32(1.5)), -128, 127))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_dequantise(dtype: str, n: int) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(n).integers(limits.min, limits.max, n, np.dtype(dtype).type)
    got = run_kernel(dequantise_source(dtype), [x], np.zeros(n, np.float32), [n, 0.125])
    assert np.array_equal(got, x.astype(np.float32) * np.float32(0.125))


@pytest.mark.parametrize("shape", [(1, 1), (3, SIDE + 1), (SIDE, SIDE - 1), (131, 7), (0, 4)])
def test_transpose(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).integers(-1000, 1000, shape).astype(np.int32)
    out = np.zeros(shape[::-1], np.int32)
    assert np.array_equal(run_kernel(transpose_source("int32"), [x], out, shape), x.T)


@pytest.mark.parametrize(("count", "n"), [(0, 5), (1, 1), (37, 65), (5, 4097)])
def test_gather_rows(count: int, n: int) -> None:
    rng = np.random.default_rng(count)
    table = rng.normal(size=(11, n)).astype(np.float32)
    numbers = rng.integers(0, 11, count).astype(np.int32)
    out = np.zeros((count, n), np.float32)
    got = run_kernel(gather_rows_source("float32"), [table, numbers], out, [count, n])
    assert np.array_equal(got, table[numbers])
