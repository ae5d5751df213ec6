"""The functions keep the error bounds that their docstrings state."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from runtime.compiler.builder import KernelBuilder
from runtime.compiler.functions import VectorFunctions
from runtime.compiler.kernel import kernel
from tb.compiler.scheduled_core import BUFFERS, ScheduledCore

TILE = 1024
SPECIALS = np.array(
    [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000],
    np.uint32,
)
EXACT: dict[str, Any] = {
    "exp": np.exp,
    "log": np.log,
    "reciprocal": np.reciprocal,
    "reciprocal_root": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": special.erf,
    "sigmoid": special.expit,
}


def arguments() -> NDArray[np.float32]:
    """All exponents, both signs, the special values, and the ranges where most happens."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32)
    both = np.concatenate([SPECIALS, SPECIALS | np.uint32(1 << 31)])
    ranges = [rng.uniform(-limit, limit, 6000) for limit in (0.01, 1.0, 5.0, 110.0)]
    spread = np.concatenate(ranges).astype(np.float32)
    return np.concatenate([bits.view(np.float32), both.view(np.float32), spread])


def compute(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The function of a kernel, for each element."""

    def program(k: KernelBuilder, source: Any, out: Any, n: Any) -> None:
        for i in k.range(0, n, TILE):
            count = k.minimum(TILE, n - i)
            k.store(out, i, getattr(k, name)(k.load(source, i, count)))

    source = kernel(source="float32*", out="float32*", n="uint31")(program)
    core = ScheduledCore(seed=1, memory_bytes=1 << 20)
    places = core.place(x), core.place(np.zeros_like(x))
    core.run(source.compile(BUFFERS), [*places, x.size])
    return core.read(places[1], x.shape, np.float32).astype(np.float32)


@pytest.mark.parametrize("name", EXACT)
def test_error_bound(name: str) -> None:
    bound = re.search(r"(\d+) ulp", getattr(VectorFunctions, name).__doc__ or "")
    assert bound is not None
    x = arguments()
    got = compute(name, x)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded) & np.isfinite(got)
        errors = np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(rounded))
    special_values = ~finite
    assert np.array_equal(got[special_values], rounded[special_values], equal_nan=True)
    worst = np.where(finite, errors, 0).argmax()
    assert errors[worst] <= int(bound[1]), f"{name}({x[worst]!r}) gave {got[worst]!r}"
    assert finite.sum() > x.size // 4


def test_gelu_error_bound() -> None:
    x = arguments()
    x = x[np.abs(x) < 1e6]
    got = compute("gelu", x).astype(np.float64)
    wide = x.astype(np.float64)
    exact = wide / 2 * special.erfc(-wide / np.sqrt(2))
    assert (np.abs(got - exact) <= 2e-7 * np.maximum(1, np.abs(wide))).all()
