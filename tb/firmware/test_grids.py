"""Kernels as grids of blocks: who runs which block where, preemption, faults, cleaning."""

import random

import numpy as np
import pytest

from abi.address import HBM_BASE
from abi.core import Pipe
from abi.geometry import CORES
from abi.mailbox import MessageKind
from abi.packet import PacketOpcode
from abi.semaphore import STATUS_WORD
from abi.status import Engine, Status
from firmware.config import FirmwareConfig
from tb.firmware import kernels
from tb.firmware.host import Host, Ring

OUT = HBM_BASE + 0x10000
OTHER = HBM_BASE + 0x40000
NOWHERE = 0x7000_0000_0000


def numbers(host: Host, count: int, at: int = OUT) -> np.ndarray:
    return host.hbm(at, 4 * count).view(np.int32)


def expected(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32) ** 2 + 7


def blocks(host: Host, **fields: int) -> list[int]:
    """Block numbers in the order of their issue."""
    return [note.fields["block"] for note in host.notes("block", **fields)]


def run(ring: Ring, value: int = 1, limit: int = 2_000_000) -> None:
    ring.signal(value)
    ring.ring_doorbell()
    ring.reach(value, limit)


@pytest.mark.parametrize(
    "grid", [(1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 5, 1), (1, 1, 4), (3, 4, 5), (61, 1, 2)]
)
def test_each_block_runs_once(host: Host, grid: tuple[int, int, int]) -> None:
    total = grid[0] * grid[1] * grid[2]
    ring = host.create(0)
    ring.kernel(kernels.squares(), OUT, grid=grid)
    run(ring)
    assert ring.status()["status"] == 0
    assert np.array_equal(numbers(host, total), expected(total))
    assert sorted(blocks(host)) == list(range(total))
    assert sum(host.read("core_blocks", core) for core in range(CORES)) == total


def test_blocks_use_all_cores_evenly(host: Host) -> None:
    ring = host.create(0)
    ring.kernel(kernels.squares(500), OUT, grid=(40, 1, 1))
    run(ring)
    ended = [host.read("core_blocks", core) for core in range(CORES)]
    assert sum(ended) == 40
    assert max(ended) - min(ended) <= 2


def test_a_core_goes_from_block_to_block_without_the_firmware(host: Host) -> None:
    loops, count = 1000, 20
    ring = host.create(0)
    ring.kernel(kernels.squares(loops), OUT, grid=(count * CORES, 1, 1))
    run(ring)
    for core in range(CORES):
        cycles = host.read("core_cycles", core)
        assert cycles < count * (2 * loops + 250)
    began = host.notes("block")[0].time
    assert host.notes("end", packet=0)[0].time - began < count * (2 * loops + 250) + 500


def test_kernels_of_a_queue_run_one_after_the_other(host: Host) -> None:
    ring = host.create(0)
    ring.kernel(kernels.squares(300), OUT, grid=(7, 1, 1))
    ring.kernel(kernels.squares(), OUT, grid=(9, 1, 1))
    run(ring)
    first_end = host.notes("end", packet=0)[0].time
    assert all(note.time >= first_end for note in host.notes("block", packet=1))
    assert np.array_equal(numbers(host, 9), expected(9))


def test_two_queues_of_a_band_share_the_cores(host: Host) -> None:
    long, late = host.create(0), host.create(1)
    long.kernel(kernels.squares(1000), OUT, grid=(60, 1, 1))
    long.signal(1)
    long.ring_doorbell()
    host.until(lambda: len(blocks(host)) > 8, 40_000)
    late.kernel(kernels.squares(1000), OTHER, grid=(10, 1, 1))
    late.signal(1)
    began = host.bus.now()
    late.ring_doorbell()
    late.reach(1)
    # It got one of two cores after a block, and kept it.
    assert host.bus.now() - began < 13 * 2_300
    first, *_ = host.notes("block", queue=1)
    assert first.time - began < 2 * 2_300
    long.reach(1)
    assert np.array_equal(numbers(host, 60), expected(60))
    assert np.array_equal(numbers(host, 10, OTHER), expected(10))


def test_three_queues_of_a_band_take_turns_by_the_quantum() -> None:
    host = Host(config=FirmwareConfig(core_quantum=5_000))
    rings = [host.create(i) for i in range(CORES + 1)]
    for i, ring in enumerate(rings):
        ring.kernel(kernels.squares(500), OUT + 0x10000 * i, grid=(30, 1, 1))
        ring.signal(1)
        ring.ring_doorbell()
    for ring in rings:
        ring.reach(1)
    firsts = [host.notes("block", queue=i)[0].time for i in range(CORES + 1)]
    assert max(firsts) - min(firsts) < 12_000
    ends = [host.notes("end", queue=i, packet=0)[0].time for i in range(CORES + 1)]
    assert max(ends) - min(ends) < 20_000
    for i in range(CORES + 1):
        assert np.array_equal(numbers(host, 30, OUT + 0x10000 * i), expected(30))


def test_a_better_band_waits_for_one_block_at_most(host: Host) -> None:
    low, high = host.create(0, priority=2), host.create(1, priority=0)
    low.kernel(kernels.squares(2000), OUT, grid=(40, 1, 1))
    low.signal(1)
    low.ring_doorbell()
    host.until(lambda: len(blocks(host)) > 2 * CORES, 100_000)
    high.kernel(kernels.squares(), OTHER, grid=(1, 1, 1))
    high.signal(1)
    began = host.bus.now()
    high.ring_doorbell()
    high.reach(1)
    assert host.notes("block", queue=1)[0].time - began < 4_200 + 600
    low.reach(1)
    assert np.array_equal(numbers(host, 40), expected(40))
    # A block that was taken back is issued again; none ran twice.
    assert len(blocks(host, queue=0)) > 40
    assert sum(host.read("core_blocks", core) for core in range(CORES)) == 41


@pytest.mark.parametrize("seed", range(6))
def test_preemption_at_random_moments_changes_no_result(seed: int) -> None:
    draw = random.Random(seed)
    host = Host(config=FirmwareConfig(core_quantum=draw.choice([1_000, 10_000])))
    rings = [host.create(i, priority=draw.randrange(4), depth_log2=8) for i in range(4)]
    counts = [draw.randrange(1, 30) for _ in rings]
    runs = [0] * len(rings)
    for _ in range(30):
        i = draw.randrange(4)
        rings[i].kernel(
            kernels.squares(draw.choice([0, 50, 400])),
            OUT + 0x10000 * i,
            grid=(counts[i], 1, 1),
        )
        runs[i] += 1
        rings[i].signal(runs[i])
        rings[i].ring_doorbell()
        host.machine.run(draw.randrange(3_000))
    for ring, count in zip(rings, runs, strict=True):
        ring.reach(count)
        assert ring.status()["status"] == 0
    for i, count in enumerate(counts):
        if runs[i]:
            assert np.array_equal(numbers(host, count, OUT + 0x10000 * i), expected(count))
    ended = sum(host.read("core_blocks", core) for core in range(CORES))
    assert ended == sum(a * b for a, b in zip(counts, runs, strict=True))
    assert host.machine.firmware_error is None


@pytest.mark.parametrize(("grid", "block"), [((9, 1, 1), 0), ((9, 1, 1), 5), ((3, 4, 2), 23)])
def test_a_fault_names_its_block_and_spares_the_neighbour(
    host: Host, grid: tuple[int, int, int], block: int
) -> None:
    bad, good = host.create(0), host.create(1)
    good.kernel(kernels.squares(800), OTHER, grid=(25, 1, 1))
    good.signal(1)
    good.ring_doorbell()
    code, pc = kernels.failing(block, 100)
    bad.kernel(code, OUT, NOWHERE, grid=grid)
    run(bad)
    state = bad.query()
    fields = STATUS_WORD.unpack(state["status_word"])
    assert (fields["status"], fields["engine"]) == (Status.ADDRESS_FAULT, Engine.CORE)
    assert (state["pipe"], state["detail"]) == (Pipe.MTE2, pc)
    assert (state["block"], state["fault_address"]) == (block, NOWHERE)
    good.reach(1)
    assert good.status()["status"] == 0
    assert np.array_equal(numbers(host, 25, OTHER), expected(25))
    assert not any(core.busy for core in host.machine.chip.core.cores)


def test_a_fault_ends_the_blocks_on_the_other_core(host: Host) -> None:
    ring = host.create(0)
    code, _ = kernels.failing(0, 50)
    # Of block 1 the work is 2 * 50 instructions too; the others never start.
    ring.kernel(code, OUT, NOWHERE, grid=(1000, 1, 1))
    run(ring)
    assert ring.status()["status"] == Status.ADDRESS_FAULT
    assert len(blocks(host)) < 12
    assert host.call(MessageKind.RESET_QUEUE, queue=0)["status"] == Status.OK
    ring.kernel(kernels.squares(), OUT, grid=(8, 1, 1))
    run(ring, 2)
    assert ring.status()["status"] == 0
    assert np.array_equal(numbers(host, 8), expected(8))


@pytest.mark.parametrize("seed", range(4))
def test_blocks_that_fail_while_more_are_issued(seed: int) -> None:
    """A START may meet a core that has just failed: it is refused, and nothing crashes."""
    draw = random.Random(seed)
    host = Host()
    ring = host.create(0, depth_log2=8)
    for attempt in range(20):
        block = draw.randrange(12)
        code, pc = kernels.failing(block, draw.randrange(40))
        ring.kernel(code, OUT, NOWHERE, grid=(12, 1, 1))
        run(ring, attempt + 1)
        state = ring.query()
        assert (state["detail"], state["block"]) == (pc, block)
        assert host.call(MessageKind.RESET_QUEUE, queue=0)["status"] == Status.OK
    assert host.machine.firmware_error is None


def test_a_timeout_aborts_all_cores(host: Host) -> None:
    ring = host.create(0)
    ring.kernel(kernels.endless(), grid=(50, 1, 1), timeout=5_000)
    run(ring)
    state = ring.query()
    fields = STATUS_WORD.unpack(state["status_word"])
    assert (fields["status"], fields["engine"]) == (Status.KERNEL_TIMEOUT, Engine.CORE)
    assert state["pipe"] == Pipe.SCALAR
    assert state["block"] < CORES
    assert not any(core.busy for core in host.machine.chip.core.cores)
    assert [host.read("core_blocks", core) for core in range(CORES)] == [1] * CORES


def test_time_without_a_core_does_not_count(host: Host) -> None:
    low, high = host.create(0, priority=3), host.create(1, priority=0)
    low.kernel(kernels.squares(1000), OUT, grid=(12, 1, 1), timeout=20_000)
    low.signal(1)
    low.ring_doorbell()
    host.until(lambda: len(blocks(host)) > 1, 20_000)
    high.kernel(kernels.squares(1000), OTHER, grid=(60, 1, 1))
    run(high)
    low.reach(1)
    assert low.status()["status"] == 0
    assert np.array_equal(numbers(host, 12), expected(12))


def test_destroy_of_a_preempted_kernel(host: Host) -> None:
    low, high = host.create(0, priority=3), host.create(1, priority=0)
    low.kernel(kernels.squares(1000), OUT, grid=(40, 1, 1))
    low.ring_doorbell()
    host.until(lambda: len(blocks(host)) > 1, 20_000)
    high.kernel(kernels.squares(5000), OTHER, grid=(4, 1, 1))
    high.signal(1)
    high.ring_doorbell()
    host.until(lambda: len(host.notes("block", queue=1)) >= CORES, 20_000)
    response = host.call(MessageKind.DESTROY_QUEUE, queue=0)
    assert response["status_word"] & 0xFFFF == Status.ABORTED | Engine.FIRMWARE << 8
    assert (response["completed"], response["discarded"]) == (1, 0)
    high.reach(1)
    assert np.array_equal(numbers(host, 4, OTHER), expected(4))


@pytest.mark.parametrize("same", [True, False])
def test_buffers_are_cleaned_between_users(host: Host, same: bool) -> None:
    first, second = host.create(0, pasid=5), host.create(1, pasid=5 if same else 6)
    secret = np.arange(1, 65, dtype=np.uint8)
    host.hbm(OUT, 64)[:] = secret
    # One block after the other; both cores get the secret in turn.
    first.kernel(kernels.leak(True), OUT, grid=(20, 1, 1))
    run(first)
    second.kernel(kernels.leak(False), OTHER)
    run(second)
    line, word = host.hbm(OTHER, 64), host.hbm(OTHER + 64, 4)
    assert np.array_equal(line, secret if same else np.zeros(64, np.uint8))
    assert np.array_equal(word, secret[:4] if same else np.zeros(4, np.uint8))
    assert len(host.notes("scrub")) == (0 if same else 1)


def test_what_an_earlier_program_left_is_cleaned_at_boot() -> None:
    host = Host(boot=False)
    for core in host.machine.chip.core.cores:
        core.model.pipes.ub[5] = 7
        core.model.ram[:] = bytes([7]) * len(core.model.ram)
    host.power_up()
    host.machine.run(10_000)
    for core in host.machine.chip.core.cores:
        assert not core.model.pipes.ub.any()
        assert not any(core.model.ram)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"grid_x": 1 << 16, "grid_y": 1 << 15, "grid_z": 2}, Status.BAD_FIELD),
        ({"code_bytes": 6}, Status.BAD_FIELD),
        ({"code_bytes": 2}, Status.BAD_FIELD),
        ({"entry": 64}, Status.BAD_FIELD),
        ({"entry": 2}, Status.MISALIGNED),
        ({"code": (1 << 48) - 64, "code_bytes": 128}, Status.ADDRESS_FAULT),
        ({"arguments": (1 << 48) - 64, "argument_bytes": 65}, Status.ADDRESS_FAULT),
        ({"arguments": OUT + 8, "argument_bytes": 8}, Status.MISALIGNED),
        ({"arguments": OUT + 8, "argument_bytes": 0}, Status.OK),
        ({"entry": 4}, Status.OK),
    ],
)
def test_fields_that_a_user_may_forge(host: Host, changes: dict[str, int], status: Status) -> None:
    ring = host.create(0)
    code = kernels.idle() * 16
    good = {
        "code": host.place(code),
        "code_bytes": len(code),
        "arguments": OUT,
        "argument_bytes": 64,
        "grid_x": 1,
        "grid_y": 1,
        "grid_z": 1,
    }
    ring.put(PacketOpcode.KERNEL, **(good | changes))
    run(ring)
    assert ring.status()["status"] == status
    assert bool(blocks(host)) == (status is Status.OK)


@pytest.mark.parametrize("loops", [100, 6_000])
def test_a_block_that_keeps_a_better_band_waiting_is_noted(loops: int) -> None:
    """Once, with its place, and as soon as the limit is over."""
    limit = 5_000
    host = Host(config=FirmwareConfig(block_limit=limit))
    low, high = host.create(0, priority=2), host.create(1, priority=0)
    low.kernel(kernels.squares(loops), OUT, grid=(8, 1, 1))
    low.signal(1)
    low.ring_doorbell()
    host.until(lambda: len(blocks(host)) > CORES, 100_000)
    high.kernel(kernels.squares(), OTHER, grid=(1, 1, 1))
    high.signal(1)
    high.ring_doorbell()
    low.reach(1)
    high.reach(1)
    assert np.array_equal(numbers(host, 8), expected(8))
    found = host.notes("overdue")
    if loops == 100:
        assert found == []
        return
    begun = host.notes("begin", queue=1, packet=0)[0].time
    assert sorted(note.fields["core"] for note in found) == list(range(CORES))
    for note in found:
        assert (note.fields["queue"], note.fields["packet"]) == (0, 0)
        assert note.fields["block"] in range(CORES)
        assert limit <= note.time - begun < limit + 500
        assert limit <= note.fields["waited"] < limit + 500
    assert host.notes("block", queue=1)[0].time > found[0].time


def test_who_has_a_core_waits_for_nobody() -> None:
    """A better band that has a core already may wait for more of them; that is not noted."""
    host = Host(config=FirmwareConfig(block_limit=2_000))
    low, high = host.create(0, priority=2), host.create(1, priority=0)
    low.kernel(kernels.squares(6_000), OUT, grid=(1, 1, 1))
    low.signal(1)
    low.ring_doorbell()
    host.until(lambda: len(blocks(host)) == 1, 100_000)
    high.kernel(kernels.squares(2_000), OTHER, grid=(6, 1, 1))
    high.signal(1)
    high.ring_doorbell()
    high.reach(1)
    low.reach(1)
    assert host.notes("overdue") == []
