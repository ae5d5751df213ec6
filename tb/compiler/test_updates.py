"""Updates: the vector commands that they take, and what tiles hold behind them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from abi.address import HBM_BASE
from abi.core import CommandOpcode, Pipe
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.kernel import KernelSource, kernel
from runtime.toolchain.block_trace import trace_block
from tb.compiler.scheduled_core import BUFFERS, ScheduledCore

ROWS, COLUMNS, CHUNKS = 3, 40, 4
Matrix = NDArray[np.float32]
Step = Callable[[KernelBuilder, Any, Any], None]


def program(step: Step) -> KernelSource:
    """out = what `step` makes of a total, 1 at first, for each chunk of x."""

    @kernel(x="float32*", out="float32*", n="uint31")
    def update(k: KernelBuilder, x: Any, out: Any, n: Any) -> None:
        total = k.full(k.tile(ROWS, COLUMNS), 1.0)
        for i in k.range(n):
            step(k, total, k.load(x, i * ROWS * COLUMNS, (ROWS, COLUMNS), stride=COLUMNS))
        k.store(out, 0, total, stride=COLUMNS)

    return update


def chunks() -> Matrix:
    shape = CHUNKS, ROWS, COLUMNS
    return np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32)


def vector_commands(source: KernelSource) -> int:
    """In one block, without the FILL before the loop."""
    compiled = source.compile(BUFFERS)
    raw = compiled.pack_arguments({"x": HBM_BASE, "out": HBM_BASE + (1 << 20), "n": CHUNKS})
    issued = trace_block(compiled.code, arguments=raw).commands[Pipe.VECTOR]
    return sum(c.issue.command[0] == CommandOpcode.VECTOR for c in issued) - 1


def run(source: KernelSource, x: Matrix) -> Matrix:
    results = []
    for seed in range(3):
        core = ScheduledCore(seed=seed, memory_bytes=1 << 16)
        places = core.place(x), core.place(np.zeros(x.shape[1:], np.float32))
        core.run(source.compile(BUFFERS), [*places, CHUNKS])
        results.append(core.read(places[1], x.shape[1:], np.float32))
    assert all(np.array_equal(results[0], other) for other in results)
    return results[0].astype(np.float32)


def add(k: KernelBuilder, total: Any, tile: Any) -> None:
    k.update(total, total + tile)


def add_from_the_right(k: KernelBuilder, total: Any, tile: Any) -> None:
    k.update(total, tile - total)


def fused(k: KernelBuilder, total: Any, tile: Any) -> None:
    k.update(total, k.fma(tile, 2.0, total))


def replaced(k: KernelBuilder, total: Any, tile: Any) -> None:
    k.update(total, tile * 3.0)


def with_work_between(k: KernelBuilder, total: Any, tile: Any) -> None:
    value = total + tile
    other = tile * 2.0
    k.update(total, value)
    k.update(total, total + other)


def used_again(k: KernelBuilder, total: Any, tile: Any) -> None:
    value = total + tile
    k.update(total, value)
    k.update(total, total * value)


def read_between(k: KernelBuilder, total: Any, tile: Any) -> None:
    value = total + tile
    old = total - tile
    k.update(total, value)
    k.update(total, k.largest(total, old))


def of_another_tile(k: KernelBuilder, total: Any, tile: Any) -> None:
    k.update(total, tile)


def column(k: KernelBuilder, total: Any, tile: Any) -> None:
    largest = k.row_max(tile)
    k.update(largest, k.add(largest, k.row_sum(tile)))
    k.update(total, total - largest)


def in_a_condition(k: KernelBuilder, total: Any, tile: Any) -> None:
    value = total + tile
    with k.when(k.grid_x):
        k.update(total, value)


CASES: dict[str, tuple[Step, int, Callable[[Matrix, Matrix], Matrix]]] = {
    "add": (add, 1, lambda total, x: total + x),
    "add from the right": (add_from_the_right, 1, lambda total, x: x - total),
    "fused": (fused, 1, lambda total, x: x * 2 + total),
    "replaced": (replaced, 1, lambda _total, x: x * 3),
    "with work between": (with_work_between, 3, lambda total, x: total + x + x * 2),
    "used again": (used_again, 3, lambda total, x: (total + x) * (total + x)),
    "read between": (read_between, 4, lambda total, x: np.maximum(total + x, total - x)),
    "of another tile": (of_another_tile, 1, lambda _total, x: x),
    "column": (
        column, 4, lambda total, x: total - x.max(1, keepdims=True) - x.sum(1, keepdims=True),
    ),
    "in a condition": (in_a_condition, 2, lambda total, x: total + x),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_update(name: str) -> None:
    step, commands, expected = CASES[name]
    source, x = program(step), chunks()
    total = np.ones((ROWS, COLUMNS), np.float32)
    for chunk in x:
        total = expected(total, chunk).astype(np.float32)
    assert np.array_equal(run(source, x), total)
    assert vector_commands(source) == CHUNKS * commands


def test_a_reduction_writes_the_target() -> None:
    @kernel(x="float32*", out="float32*", n="uint31")
    def spread(k: KernelBuilder, x: Any, out: Any, n: Any) -> None:
        total = k.full(k.tile(ROWS, 1, column=True), 0.0)
        for i in k.range(n):
            tile = k.load(x, i * ROWS * COLUMNS, (ROWS, COLUMNS), stride=COLUMNS)
            k.update(total, k.row_sum(tile))
        k.store_column(out, 0, total)

    x = chunks()
    assert np.array_equal(run(spread, x)[0, :ROWS], x[-1].sum(axis=1))
    assert vector_commands(spread) == CHUNKS
