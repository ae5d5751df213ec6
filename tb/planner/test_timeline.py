"""The simulation of blocks on hand-made traces: exact cycles, and what must always hold."""

import random

import pytest

from abi.core import PIPES, Pipe
from abi.vector import VectorOperation
from runtime.planner.timeline import Timeline
from runtime.toolchain.events import Barrier, FlagSet, FlagWait
from tb.planner.traces import CHIP, load, mmad, nop, run, save, vector

START = 1
"""The cycle of the pulse that starts the first block."""

ISSUED = START + 11
"""The cycle in which the first command is issued: ten cycles of instructions before it."""

BEGUN = ISSUED + 3
"""Its pipe takes it: two cycles in the queue, one in the scoreboard."""

FIRST_REQUEST = 7
MEMORY = 25 + 5
"""From a LOAD's request to the write of its line: crossbar, HBM, RowReader."""

LEAVE = 4
"""From a command's last effect to the end of the block: done, drained, exit."""


def consistent(timeline: Timeline) -> None:
    """Each cycle of a core is busy, stall or idle, for each pipe."""
    for pipe in Pipe:
        times = timeline.pipes[pipe]
        assert times.total == timeline.core_cycles, pipe
        assert min(times.busy, times.stall, times.idle) >= 0, pipe
        assert times.busy <= times.in_work <= timeline.core_cycles, pipe


def test_a_block_without_commands() -> None:
    timeline = run()
    # Ten cycles, the exit, and what the core takes to become idle.
    assert (timeline.cycles, timeline.core_cycles) == (START + 13, 13)
    consistent(timeline)


def test_one_load() -> None:
    timeline = run(load(64))
    assert timeline.cycles == BEGUN + FIRST_REQUEST + MEMORY + LEAVE
    mte2 = timeline.pipes[Pipe.MTE2]
    assert (mte2.busy, mte2.commands) == (1, 1)
    # It holds the command from the issue until its end.
    assert mte2.busy + mte2.stall == timeline.cycles - ISSUED - 3
    assert timeline.traffic == {("GM", "read"): 64, ("UB", "write"): 64}
    consistent(timeline)


@pytest.mark.parametrize("lines", [2, 63, 300])
def test_loads_move_a_line_a_cycle(lines: int) -> None:
    one = run(load(64))
    assert run(load(64 * lines)).cycles == one.cycles + lines - 1
    assert run(load(64, rows=lines)).cycles == one.cycles + lines - 1
    # Rows of 64 bytes that begin within a line lie in two.
    assert run(load(64, rows=lines, offset=4)).cycles == one.cycles + 2 * lines - 1


def test_successive_loads_hide_their_latency() -> None:
    one, two = run(load(6400)), run(load(6400), load(6400))
    assert two.cycles == one.cycles + 100


def test_a_flag_orders_two_pipes() -> None:
    alone = run(load(64))
    timeline = run(load(64, give=1), vector(16, wait=1))
    # 2 cycles after the load's end the command starts, 11 later is its first write.
    assert timeline.cycles == alone.cycles - LEAVE + 3 + 11 + LEAVE
    consistent(timeline)


def test_vector_commands_follow_in_eight_cycles() -> None:
    one, two = run(vector(160), busy=2), run(vector(160), vector(160), busy=2)
    assert two.cycles == one.cycles + 7 + 10
    summed = {"operation": VectorOperation.SUM_FLOAT, "b_step": 0}
    few, more = run(vector(160, **summed)), run(vector(160, rows=5, **summed))
    assert more.cycles == few.cycles + 4 * (10 + 7)


def test_the_cube() -> None:
    one = run(mmad(32, 2, 1))
    # 18 cycles for check and tile, 64 rows, 3 to the last sum.
    assert one.cycles == BEGUN + 18 + 64 - 1 + 3 + LEAVE
    assert one.macs == 64 * 256
    assert run(mmad(32, 2, 1), mmad(32, 2, 1)).cycles == one.cycles + 64
    # Fewer rows than a tile takes to load.
    assert run(mmad(8, 4, 1)).cycles == BEGUN + 18 + 3 * 16 + 8 - 1 + 3 + LEAVE


def test_a_full_queue_stops_the_scalar_unit() -> None:
    few, many = (run(*[vector(1600)] * count, busy=1) for count in (6, 12))
    assert many.cycles == few.cycles + 6 * 107
    assert many.pipes[Pipe.SCALAR].busy == 13 * 2
    # Six commands fit: four wait, two are in flight.
    assert few.pipes[Pipe.VECTOR].commands == 6
    consistent(many)


def test_barriers_flags_of_the_scalar_unit_and_nops() -> None:
    alone = run(load(64))
    twice = run(load(64), Barrier(0), load(64))
    # The first instruction behind the barrier comes 3 cycles after the load's last effect.
    assert twice.cycles - (alone.cycles - LEAVE + 3) == alone.cycles - (START + 1)
    between = nop(Pipe.VECTOR, wait=1, give=2)
    assert run(load(64, give=1), between, FlagWait(1, 0)).cycles == alone.cycles + 12
    given = run(vector(16, wait=1), FlagSet(0, 0))
    assert given.pipes[Pipe.VECTOR].commands == 1
    for timeline in (twice, given):
        consistent(timeline)


def test_a_flag_that_nobody_sets() -> None:
    with pytest.raises(ValueError, match="not wait for a flag that nothing sets"):
        run(vector(16, wait=1))


def test_blocks_on_cores() -> None:
    one = run(load(64))
    two = run(load(64), blocks=2)
    assert two.cycles == 2 * one.cycles + 2
    assert two.core_cycles == 2 * one.core_cycles
    consistent(two)
    both = run(load(64), blocks=2, chip=CHIP.replace(cores=2))
    assert both.cycles <= one.cycles + 2
    consistent(both)


def test_cores_share_memory() -> None:
    lines = 4000
    alone = run(load(64 * lines // 4, planes=4))
    both = run(load(64 * lines // 4, planes=4), blocks=2, chip=CHIP.replace(cores=2))
    assert 2 * lines <= both.cycles < alone.cycles + lines + 10
    consistent(both)


def test_dispatch_of_short_blocks() -> None:
    slow = CHIP.replace(dispatch_cycles=500)
    assert run(blocks=5, chip=slow).cycles == run(chip=slow).cycles + 4 * 500


@pytest.mark.parametrize("seed", range(5))
def test_more_bandwidth_never_costs_time(seed: int) -> None:
    draw = random.Random(seed)
    events = []
    for number in range(30):
        columns = draw.randint(1, 2000)
        events += [
            load(4 * columns, give=1 << number % 8),
            vector(columns, wait=1 << number % 8, give=1 << 8 + number % 8),
            save(4 * columns, wait=1 << 8 + number % 8),
        ]
    cycles = []
    for bandwidth in (4, 16, 40, 64, 128):
        timeline = run(*events, chip=CHIP.replace(hbm_bytes_per_cycle=bandwidth))
        consistent(timeline)
        cycles.append(timeline.cycles)
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] > 5 * cycles[-1]
    later = run(*events, chip=CHIP.replace(hbm_latency=200))
    assert later.cycles > cycles[3]
    assert all(pipe in later.pipes for pipe in PIPES)
