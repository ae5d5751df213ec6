"""The flags of a program order all accesses that conflict, however fast each pipe is.

The golden core's pipes are let run as far ahead as flags allow, in every order of preference; a
wait or set that is missing shows as a wrong result.
"""

from collections import deque
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from abi.core import COMMAND_BYTES, COMMANDS, FLAG_MAXIMUM, FLAGS, CommandOpcode, Pipe
from abi.status import Status
from runtime.kernels.gemm_program import GemmPlan, build_gemm
from runtime.kernels.requantise import build_requantise
from runtime.kernels.tiling import BufferLines, Tiles
from tb.models.core import PIPE_OF, CoreModel
from tb.runtime.test_gemm_program import Memory, requantised

BUFFERS = BufferLines(512, 16, 128, 32, 4)
ORDERS = list(permutations(Pipe))


def run_hostile(
    core: CoreModel, program: bytes, arguments: Sequence[int], order: Sequence[Pipe]
) -> None:
    """Run a program; of the pipes whose next command may start, the first in `order` goes on."""
    queues: dict[Pipe, deque[tuple[bytes, dict[str, int]]]] = {pipe: deque() for pipe in Pipe}
    for at in range(0, len(program) - COMMAND_BYTES, COMMAND_BYTES):
        raw = program[at : at + COMMAND_BYTES]
        opcode = CommandOpcode(raw[0])
        queues[PIPE_OF[opcode]].append((raw, COMMANDS[opcode].unpack_bytes(raw)))
    flags = [0] * FLAGS
    while any(queues.values()):
        for pipe in order:
            if not queues[pipe]:
                continue
            raw, fields = queues[pipe][0]
            waits = [f for f in range(FLAGS) if fields["wait"] >> f & 1]
            if all(flags[f] for f in waits):
                break
        else:
            raise AssertionError(f"deadlock with flags {flags}")
        queues[pipe].popleft()
        for flag in waits:
            flags[flag] -= 1
        assert core.execute(raw, arguments) == (Status.OK, 0)
        for flag in range(FLAGS):
            flags[flag] += fields["set"] >> flag & 1
            assert flags[flag] <= FLAG_MAXIMUM
    assert flags == [0] * FLAGS, "flags are left over"


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(p.name[-1] for p in order))
@pytest.mark.parametrize("k", [60, 200])
def test_a_product_with_all_rings_wrapped(order: Sequence[Pipe], k: int) -> None:
    m, n = 24, 70
    draw = np.random.default_rng(1)
    a = draw.integers(-128, 128, (m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (k, n), dtype=np.int8)
    bias = draw.integers(-(10**6), 10**6, n).astype(np.int32)
    plan = GemmPlan(m, n, k, k, n, 4 * n, True, False, None, Tiles(8, 16, 64))
    assert plan.tiles.fits(BUFFERS)
    assert plan.tiles.slots(BUFFERS) < 15
    memory = Memory(1 << 16, BUFFERS)
    c = memory.place(np.zeros((m, n), np.int32))
    arguments = [memory.place(a), memory.place(b), c, memory.place(bias)]
    run_hostile(memory.core, build_gemm(plan, BUFFERS), arguments, order)
    expected = a.astype(np.int32) @ b.astype(np.int32) + bias
    np.testing.assert_array_equal(memory.view(c, (m, n), np.int32), expected)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(p.name[-1] for p in order))
def test_a_requantisation_with_all_rings_wrapped(order: Sequence[Pipe]) -> None:
    buffers = BufferLines(64, 16, 64, 16, 4)
    x = (np.arange(2000, dtype=np.int32) - 1000) * 3
    memory = Memory(1 << 15, buffers)
    source, target = memory.place(x), memory.place(np.zeros(2000, np.int8))
    program = build_requantise(2000, (5, 7), False, buffers)
    run_hostile(memory.core, program, [source, target], order)
    expected = requantised(x.astype(np.int64), (5, 7))
    np.testing.assert_array_equal(memory.view(target, (2000,), np.int8), expected)


def test_a_missing_wait_is_found() -> None:
    """The check can fail: without a wait of the Cube on its operands, the product is wrong."""
    buffers = BUFFERS
    plan = GemmPlan(8, 16, 256, 256, 16, 64, False, False, None, Tiles(8, 16, 64))
    memory = Memory(1 << 15, buffers)
    a, b = np.ones((8, 256), np.int8), np.ones((256, 16), np.int8)
    c = memory.place(np.zeros((8, 16), np.int32))
    arguments = [memory.place(a), memory.place(b), c, 0]
    program = bytearray(build_gemm(plan, buffers))
    for at in range(0, len(program), COMMAND_BYTES):
        if program[at] == CommandOpcode.MMAD:
            program[at + 1 : at + 3] = bytes(2)
    with pytest.raises(AssertionError):
        run_hostile(memory.core, bytes(program), arguments, [Pipe.CUBE, *Pipe])
