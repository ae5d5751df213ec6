"""How many scalar instructions a turn of a loop takes."""

from collections.abc import Callable
from typing import Any

import pytest

from abi.address import HBM_BASE
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.kernel import kernel
from runtime.planner.chip import Chip
from runtime.planner.scalar import InstructionCache, block_steps
from tb.compiler.scheduled_core import BUFFERS

Body = Callable[[KernelBuilder, Any, Any, Any], None]

LOOP = 2
"""The index grows, the branch goes back."""

HEAD = 2
"""The first word of a command, which has more than 12 bits."""

ISSUE = 1


def one_command(k: KernelBuilder, tile: Any, _i: Any, _n: Any) -> None:
    """Nothing but the head of the command is to be set."""
    k.update(tile, tile * 3.0)


def two_commands(k: KernelBuilder, tile: Any, _i: Any, _n: Any) -> None:
    """The immediate differs; the second head is near the first."""
    k.update(tile, tile * 3.0)
    k.update(tile, tile + 1.0)


def an_invariant_size(k: KernelBuilder, _tile: Any, _i: Any, n: Any) -> None:
    """A size that the loop does not change is computed, and set, in front of it."""
    part = k.tile(1, k.minimum(32, n * 4 + 4))
    k.update(part, k.full(part, 2.0))


def the_same_twice(k: KernelBuilder, _tile: Any, i: Any, _n: Any) -> None:
    """A size that was computed is not computed again, and its word stays."""
    for _ in range(2):
        part = k.tile(1, (i & 7) + 1)
        k.update(part, k.full(part, 2.0))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (one_command, LOOP + HEAD + ISSUE),
        # Each immediate is a `lui` and an `npu.word`.
        (two_commands, LOOP + 2 * (2 + ISSUE) + HEAD + 1),
        (an_invariant_size, LOOP + HEAD + ISSUE),
        # The size takes 2, its word 2 and an `npu.word`; the second command is issued as it is.
        (the_same_twice, LOOP + 5 + HEAD + 2 * ISSUE),
    ],
)
def test_instructions_of_a_turn(body: Body, expected: int) -> None:
    @kernel(out="float32*", n="uint31")
    def looping(k: KernelBuilder, out: Any, n: Any) -> None:
        tile = k.full(k.tile(1, 64), 1.0)
        for i in k.range(n):
            body(k, tile, i, n)
        k.store(out, 0, tile)

    compiled = looping.compile(BUFFERS)

    def instructions(turns: int) -> int:
        raw = compiled.pack_arguments({"out": HBM_BASE, "n": turns})
        chip = Chip()
        return block_steps(chip, compiled.code, InstructionCache(chip), arguments=raw).instructions

    assert instructions(11) - instructions(10) == expected
