"""The flags of a kernel order all accesses that conflict, however fast each pipe is.

The golden core's pipes are let run as far ahead as flags allow, in every order of preference; a
wait or set that is missing shows as a wrong result.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from abi.core import COMMANDS, FLAG_MAXIMUM, FLAGS, CommandOpcode, Pipe
from abi.status import Status
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.kernels.requantise_source import PIECE, requantise_source
from runtime.planner.chip import REFERENCE_BUFFERS
from runtime.toolchain.events import Barrier, Event, Exit, FlagSet, FlagWait, Issue
from runtime.toolchain.interpreter import ScalarInterpreter
from runtime.toolchain.object import KernelObject
from tb.models.core import CoreModel
from tb.runtime.test_gemm_kernel import Memory, requantised

USED = (Pipe.MTE2, Pipe.MTE1, Pipe.CUBE, Pipe.FIXPIPE)
ORDERS = list(permutations(USED))


def events_of(core: CoreModel, code: bytes, arguments: bytes) -> list[Event]:
    """What the only block of a kernel does, in program order."""
    scalar = ScalarInterpreter(code, read=core._read, write=core._write)
    scalar.start(arguments=arguments)
    events: list[Event] = []
    while not events or not isinstance(events[-1], Exit):
        events.append(scalar.run(1_000_000))
        known = Issue | FlagSet | FlagWait | Barrier | Exit
        assert isinstance(events[-1], known), events[-1]
    return events


def run_hostile(core: CoreModel, events: Sequence[Event], order: Sequence[Pipe]) -> list[int]:
    """Run commands; of the pipes whose next one may start, the first in `order` goes on. The
    scalar unit is infinitely fast. Returns what is left of the flags."""
    queues: dict[Pipe, deque[Issue]] = {pipe: deque() for pipe in order}
    flags = [0] * FLAGS
    for event in events:
        match event:
            case FlagSet():
                flags[event.flag] += 1
            case Issue():
                queues[event.pipe].append(event)
            case Barrier() | Exit():
                drain(core, queues, flags, order)
            case FlagWait():
                assert flags[event.flag], f"the scalar unit waits for flag {event.flag}"
                flags[event.flag] -= 1
    return flags


def drain(
    core: CoreModel, queues: dict[Pipe, deque[Issue]], flags: list[int], order: Sequence[Pipe]
) -> None:
    """Run all commands in the queues."""
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
        if opcode is not CommandOpcode.NOP:
            fields = COMMANDS[opcode].unpack_bytes(issue.command)
            assert core.pipes.execute(opcode, fields, issue.base) == (Status.OK, 0)
        for flag in range(FLAGS):
            flags[flag] += issue.set >> flag & 1
            assert flags[flag] <= FLAG_MAXIMUM


def pointers(*places: int) -> bytes:
    """An argument block of addresses."""
    return b"".join(place.to_bytes(8, "little") for place in places)


def product(
    k: int,
    with_bias: bool,
    order: Sequence[Pipe],
    change: Callable[[list[Event]], list[Event]] = list,
) -> list[int]:
    """Run a product of many tiles, all of whose slots are used again and again, and compare;
    returns what is left of the flags."""
    m, n = 24, 70
    draw = np.random.default_rng(1)
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (k, n), dtype=np.int8)
    bias = draw.integers(-(10**6), 10**6, n).astype(np.int32)
    memory = Memory(1 << 16, REFERENCE_BUFFERS)
    c = memory.place(np.zeros((m, n), np.int32))
    places = [memory.place(a), memory.place(b), c, *([memory.place(bias)] if with_bias else [])]
    events = events_of(memory.core, compiled(k, with_bias).code, pointers(*places))
    flags = run_hostile(memory.core, change(events), order)
    expected = a.astype(np.int32) @ b.astype(np.int32) + (bias if with_bias else 0)
    np.testing.assert_array_equal(memory.view(c, (m, n), np.int32), expected)
    return flags


@cache
def compiled(k: int, with_bias: bool) -> KernelObject:
    """The kernel of `product`."""
    wanted = MatrixProduct(24, 70, k, "int8", "int32", bias=with_bias)
    return matrix_source(wanted, Tiling(8, 16, 64, 24, 80)).compile(REFERENCE_BUFFERS)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(p.name[-1] for p in order))
@pytest.mark.parametrize("k", [60, 200])
def test_a_product_with_all_slots_used_again(order: Sequence[Pipe], k: int) -> None:
    assert product(k, True, order) == [0] * FLAGS


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(p.name[-1] for p in order))
def test_a_requantisation_with_all_slots_used_again(order: Sequence[Pipe]) -> None:
    count = 5 * PIECE + 100
    x = (np.arange(count, dtype=np.int32) - 1000) * 3
    memory = Memory(1 << 18, REFERENCE_BUFFERS)
    source, target = memory.place(x), memory.place(np.zeros(count, np.int8))
    kernel = requantise_source(relu=False).compile(REFERENCE_BUFFERS)
    numbers = {"x": source, "out": target, "n": count, "multiplier": 5, "shift": 7}
    events = events_of(memory.core, kernel.code, kernel.pack_arguments(numbers))
    run_hostile(memory.core, events, order)
    expected = requantised(x.astype(np.int64), (5, 7))
    np.testing.assert_array_equal(memory.view(target, (count,), np.int8), expected)


def uses() -> list[tuple[int, bool, int]]:
    """Each flag of a product of one chunk with bias, and of one of several chunks without. With
    several chunks, the flags of the chunks order what those of the bias would."""
    return [
        (k, with_bias, flag)
        for k, with_bias in ((60, True), (200, False))
        for flag in range(FLAGS)
        if compiled(k, with_bias).flags >> flag & 1
    ]


@pytest.mark.parametrize(("k", "with_bias", "flag"), uses())
def test_a_missing_flag_is_found(k: int, with_bias: bool, flag: int) -> None:
    """Each flag is needed: without any one of them, some order makes a wrong product."""
    rest = ~(1 << flag)

    def forget(events: list[Event]) -> list[Event]:
        return [
            replace(event, wait=event.wait & rest, set=event.set & rest)
            if isinstance(event, Issue)
            else event
            for event in events
            if not (isinstance(event, FlagWait | FlagSet) and event.flag == flag)
        ]

    def found(order: Sequence[Pipe]) -> bool:
        try:
            product(k, with_bias, order, forget)
        except AssertionError:
            return True
        return False

    assert any(found(order) for order in ORDERS)
