"""The flags of a kernel order all accesses that conflict, however fast each pipe is.

The golden core's pipes are let run as far ahead as flags allow, in every order of preference; a
wait or set that is missing shows as a wrong result.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from abi.core import COMMANDS, FLAG_MAXIMUM, FLAGS, CommandOpcode, Pipe
from abi.status import Status
from runtime.compiler.allocate import CoreBuffers
from runtime.kernels.gemm_kernel import GemmPlan, build_gemm
from runtime.kernels.requantise import build_requantise, plan_requantise
from runtime.kernels.tiling import Tiles
from runtime.toolchain.events import Event, Exit, FlagSet, Issue
from runtime.toolchain.interpreter import ScalarInterpreter
from tb.models.core import CoreModel
from tb.runtime.test_gemm_kernel import Memory, requantised

BUFFERS = CoreBuffers(512, 16, 128, 32, 4, 16)
USED = (Pipe.MTE2, Pipe.MTE1, Pipe.CUBE, Pipe.FIXPIPE)
ORDERS = list(permutations(USED))


def events_of(core: CoreModel, code: bytes, arguments: Sequence[int]) -> list[Event]:
    """What the only block of a kernel does, in program order."""
    scalar = ScalarInterpreter(code, read=core._read, write=core._write)
    scalar.start(arguments=b"".join(word.to_bytes(8, "little") for word in arguments))
    events: list[Event] = []
    while not events or not isinstance(events[-1], Exit):
        events.append(scalar.run(1_000_000))
        assert isinstance(events[-1], Issue | FlagSet | Exit), events[-1]
    return events


def run_hostile(core: CoreModel, events: Sequence[Event], order: Sequence[Pipe]) -> list[int]:
    """Run commands; of the pipes whose next one may start, the first in `order` goes on. The
    scalar unit is infinitely fast. Returns what is left of the flags."""
    queues: dict[Pipe, deque[Issue]] = {pipe: deque() for pipe in order}
    flags = [0] * FLAGS
    for event in events:
        if isinstance(event, FlagSet):
            flags[event.flag] += 1
        elif isinstance(event, Issue):
            queues[event.pipe].append(event)
    while any(queues.values()):
        for pipe in order:
            if not queues[pipe]:
                continue
            issue = queues[pipe][0]
            waits = [flag for flag in range(FLAGS) if issue.wait >> flag & 1]
            if all(flags[flag] for flag in waits):
                break
        else:
            raise AssertionError(f"deadlock with flags {flags}")
        queues[pipe].popleft()
        for flag in waits:
            flags[flag] -= 1
        opcode = CommandOpcode(issue.command[0])
        fields = COMMANDS[opcode].unpack_bytes(issue.command)
        assert core.pipes.execute(opcode, fields, issue.base) == (Status.OK, 0)
        for flag in range(FLAGS):
            flags[flag] += issue.set >> flag & 1
            assert flags[flag] <= FLAG_MAXIMUM
    return flags


def product(
    k: int, order: Sequence[Pipe], change: Callable[[list[Event]], list[Event]] = list
) -> None:
    """Run a product whose rings all wrap, and compare."""
    m, n = 24, 70
    draw = np.random.default_rng(1)
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (k, n), dtype=np.int8)
    bias = draw.integers(-(10**6), 10**6, n).astype(np.int32)
    plan = GemmPlan(m, n, k, k, n, 4 * n, True, False, None, Tiles(8, 16, 64), m, n)
    assert plan.tiles.fits(BUFFERS)
    slots = plan.tiles.slots(BUFFERS)
    assert slots < 15
    memory = Memory(1 << 16, BUFFERS)
    c = memory.place(np.zeros((m, n), np.int32))
    arguments = [memory.place(a), memory.place(b), c, memory.place(bias)]
    events = events_of(memory.core, build_gemm(plan, BUFFERS), arguments)
    flags = run_hostile(memory.core, change(events), order)
    expected = a.astype(np.int32) @ b.astype(np.int32) + bias
    np.testing.assert_array_equal(memory.view(c, (m, n), np.int32), expected)
    assert flags == [0, slots, 0, 2, 0, 2, 0, 2] + [0] * 24, "FULL is used up, FREE is whole"


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(p.name[-1] for p in order))
@pytest.mark.parametrize("k", [60, 200])
def test_a_product_with_all_rings_wrapped(order: Sequence[Pipe], k: int) -> None:
    product(k, order)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(p.name[-1] for p in order))
def test_a_requantisation_with_all_rings_wrapped(order: Sequence[Pipe]) -> None:
    buffers = CoreBuffers(64, 16, 64, 16, 4, 16)
    x = (np.arange(2000, dtype=np.int32) - 1000) * 3
    memory = Memory(1 << 15, buffers)
    source, target = memory.place(x), memory.place(np.zeros(2000, np.int8))
    plan = replace(plan_requantise(2000, (5, 7), False, buffers, 1), pieces=99)
    events = events_of(memory.core, build_requantise(plan, buffers), [source, target])
    run_hostile(memory.core, events, order)
    expected = requantised(x.astype(np.int64), (5, 7))
    np.testing.assert_array_equal(memory.view(target, (2000,), np.int8), expected)


@pytest.mark.parametrize("flag", range(8))
def test_a_missing_wait_is_found(flag: int) -> None:
    """The check can fail: without any one of the waits, some order makes a wrong product."""

    def forget(events: list[Event]) -> list[Event]:
        return [
            replace(event, wait=event.wait & ~(1 << flag)) if isinstance(event, Issue) else event
            for event in events
        ]

    def found(order: Sequence[Pipe]) -> bool:
        try:
            product(200, order, forget)
        except AssertionError:
            return True
        return False

    assert any(found(order) for order in ORDERS)
