"""Which flags a kernel gets, and where."""

from typing import Any

import numpy as np
import pytest

from abi.address import HBM_BASE
from abi.core import CommandOpcode
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Memory
from runtime.compiler.kernel import KernelSource, kernel
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.toolchain.block_trace import trace_block
from runtime.toolchain.object import KernelObject
from tb.compiler.scheduled_core import BUFFERS, ScheduledCore


def sum_of_products(steps: int | None) -> KernelSource:
    """out = sum of a[i] @ b[i], 16 x 16 each; `steps` known when it is compiled, or an argument."""

    @kernel(a="int8*", b="int8*", out="int32*", n="uint31")
    def summed(k: KernelBuilder, a: Any, b: Any, out: Any, n: Any) -> None:
        for j in k.range(2):
            sums = k.accumulator(16, 16)
            for i in k.range(n if steps is None else steps):
                place = (j * 4 + i) * 256
                left, right = (
                    k.load(x, place, (16, 16), stride=16, memory=Memory.L1) for x in (a, b)
                )
                k.dot(sums, left, right, first=i.is_zero())
            k.store_sums(out, j * 256, sums, stride=16)

    return summed


def nops(code: KernelObject, count: int) -> int:
    """NOPs that a block issues; it must not fail."""
    places = {"a": HBM_BASE, "b": HBM_BASE + 4096, "out": HBM_BASE + 8192}
    trace = trace_block(code.code, arguments=code.pack_arguments({**places, "n": count}))
    issued = [command for commands in trace.commands.values() for command in commands]
    return sum(command.issue.command[0] == CommandOpcode.NOP for command in issued)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("steps", [4, None])
def test_sums_over_a_loop(seed: int, steps: int | None) -> None:
    core = ScheduledCore(seed=seed, memory_bytes=1 << 16)
    a, b = np.random.default_rng(seed).integers(-128, 128, (2, 8, 16, 16)).astype(np.int8)
    out = np.zeros((2, 16, 16), np.int32)
    places = core.place(a), core.place(b), core.place(out)
    core.run(sum_of_products(steps).compile(BUFFERS), [*places, 4])
    products = a.astype(np.int32) @ b.astype(np.int32)
    expected = products.reshape(2, 4, 16, 16).sum(axis=1)
    assert np.array_equal(core.read(places[2], (2, 16, 16), np.int32), expected)


def test_a_loop_that_surely_runs_needs_no_nops() -> None:
    """Else each tile would empty the Cube's pipe twice."""
    assert nops(sum_of_products(4).compile(BUFFERS), 4) == 0
    # One in front of the loop and one behind it, for both of the outer loop's runs.
    assert nops(sum_of_products(None).compile(BUFFERS), 4) == 4


def test_a_loop_that_does_not_run_keeps_the_flags_in_order() -> None:
    core = ScheduledCore(seed=1, memory_bytes=1 << 16)
    places = [core.place(np.zeros(2048, np.int8)) for _ in range(3)]
    core.run(sum_of_products(None).compile(BUFFERS), [*places, 0])
    assert core.commands == 2 + 4


def test_a_size_is_no_promise_for_a_loop() -> None:
    """A tile of a size says that it is not 0 there, not that a loop over it runs."""

    @kernel(a="int8*", number="int32*", out="int32*")
    def summed(k: KernelBuilder, a: Any, number: Any, out: Any) -> None:
        steps = k.fetch(number, 0, highest=16)
        with k.when(steps):
            k.load(a, 0, steps, memory=Memory.L1)
        sums = k.accumulator(16, 16)
        for i in k.range(steps):
            left, right = (k.load(a, 0, (16, 16), stride=16, memory=Memory.L1) for _ in range(2))
            k.dot(sums, left, right, first=i.is_zero())
        k.store_sums(out, 0, sums, stride=16)

    core = ScheduledCore(seed=1, memory_bytes=1 << 16)
    places = [core.place(np.zeros(1024, np.int32)) for _ in range(3)]
    core.run(summed.compile(BUFFERS), places)
    # The store, and a NOP of the Cube.
    assert core.commands == 2


def test_flags_that_others_imply_are_left_out() -> None:
    product = MatrixProduct(32, 32, 256, "int8", "int32")
    code = matrix_source(product, Tiling(16, 32, 64, 32, 32)).compile(BUFFERS)
    # A and B from L1 to L0 and back, two each; one from MTE1 to the Cube, one back; the sums' two.
    assert code.flags.bit_count() == 8


def test_too_many_flags_are_refused() -> None:
    @kernel(x="float32*", out="float32*")
    def many(k: KernelBuilder, x: Any, out: Any) -> None:
        tiles = [k.load(x, 16 * i, 16) * 2.0 for i in range(34)]
        for i, tile in enumerate(tiles):
            k.store(out, 16 * i, tile)

    with pytest.raises(CompileError, match="must need at most 32 flags"):
        many.compile(BUFFERS)
