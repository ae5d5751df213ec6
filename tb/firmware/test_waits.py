"""WAIT across queues, poison, time-outs of waits, kernels and copies."""

from itertools import pairwise

import pytest

from abi.address import HBM_BASE, HOST_BASE
from abi.geometry import CORES
from abi.mailbox import QueuePhase
from abi.packet import PacketOpcode
from abi.semaphore import SEMAPHORE, STATUS_WORD
from abi.status import Engine, Status
from firmware.registers import EVENT
from tb.firmware import kernels
from tb.firmware.host import Host, Ring

SOURCE, TARGET = HBM_BASE + 0x1000, HBM_BASE + 0x9000
NOWHERE = 0x4000_0000_0000


def run(host: Host, ring: Ring) -> int:
    """Submit what the ring holds, and wait for it; returns the cycles that it took."""
    ring.signal(1)
    began = host.bus.now()
    ring.ring_doorbell()
    ring.reach(1)
    return host.bus.now() - began


@pytest.mark.parametrize("semaphore_value", [5, 6, (1 << 64) - 1])
def test_a_reached_value_does_not_hold_the_queue(host: Host, semaphore_value: int) -> None:
    semaphore = host.new_semaphore(value=semaphore_value)
    ring = host.create(0)
    ring.wait(HOST_BASE + semaphore, 5)
    ring.signal(1)
    ring.ring_doorbell()
    assert ring.reach(1) < 2_000
    assert not host.notes("sleep")


def test_values_compare_unsigned(host: Host) -> None:
    semaphore = host.new_semaphore(value=5)
    ring = host.create(0)
    ring.wait(HOST_BASE + semaphore, 1 << 63, timeout=2_000)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    assert ring.status()["status"] == Status.WAIT_TIMEOUT


def test_a_signal_of_another_queue_wakes_the_waiter_at_once(host: Host) -> None:
    waiter, signaller = host.create(0), host.create(1)
    waiter.wait(signaller.semaphore, 3)
    waiter.signal(1)
    waiter.ring_doorbell()
    for value in range(1, 4):
        host.machine.run(1_500)
        assert waiter.value() == 0
        assert waiter.query()["phase"] == QueuePhase.WAITING
        signaller.signal(value)
        signaller.ring_doorbell()
        signaller.reach(value)
    # Far less than the interval at which waiters look again by themselves.
    assert waiter.reach(1) < 1_500
    assert waiter.status()["status"] == 0


def test_the_host_can_signal_too_within_the_recheck_interval(host: Host) -> None:
    semaphore = host.new_semaphore()
    ring = host.create(0)
    ring.wait(HOST_BASE + semaphore, 1)
    ring.signal(1)
    ring.ring_doorbell()
    host.machine.run(3 * host.config.wait_recheck)
    assert ring.value() == 0
    host.poke(semaphore, b"\1")
    assert ring.reach(1) < host.config.wait_recheck + 2_000


def test_a_chain_of_waits_across_all_queues(host: Host) -> None:
    rings = [host.create(i) for i in range(16)]
    for before, ring in pairwise(rings):
        ring.wait(before.semaphore, 1)
        ring.signal(1)
        ring.ring_doorbell()
    host.machine.run(20_000)
    assert [ring.value() for ring in rings] == [0] * 16
    rings[0].signal(1)
    rings[0].ring_doorbell()
    rings[15].reach(1)
    assert [ring.value() for ring in rings] == [1] * 16
    host.machine.run(300)
    ends = host.notes("end", packet=1)
    assert [note.fields["queue"] for note in ends] == list(range(1, 16))


def test_a_failed_semaphore_poisons_its_waiters_transitively(host: Host) -> None:
    rings = [host.create(i) for i in range(3)]
    for before, ring in pairwise(rings):
        ring.wait(before.semaphore, 1)
        ring.put(PacketOpcode.FILL, destination=TARGET, row_bytes=64, rows=1, pattern=1)
        ring.signal(1)
        ring.ring_doorbell()
    rings[0].copy(NOWHERE, TARGET, 64)
    rings[0].signal(1)
    rings[0].ring_doorbell()
    rings[2].reach(1)
    assert rings[0].status()["status"] == Status.ADDRESS_FAULT
    for number in (1, 2):
        assert rings[number].status() == {
            "status": Status.DEPENDENCY_FAILED,
            "engine": Engine.FIRMWARE,
            "instance": number,
            "queue": number,
            "packet": 0,
        }
        assert rings[number].query()["fault_address"] == rings[number - 1].semaphore
        assert rings[number].query()["discarded"] == 1
    assert not host.hbm(TARGET, 64).any()


def test_a_failed_semaphore_fails_the_waiter_before_its_value_is_reached(host: Host) -> None:
    bad = STATUS_WORD.pack(status=Status.KERNEL_TIMEOUT, engine=Engine.CORE)
    semaphore = host.new_semaphore(value=1, status=bad)
    ring = host.create(0)
    ring.wait(HOST_BASE + semaphore, 100)
    ring.signal(1)
    ring.ring_doorbell()
    assert ring.reach(1) < 2_000
    assert ring.status()["status"] == Status.DEPENDENCY_FAILED


@pytest.mark.parametrize(
    ("packet", "queue", "expected"),
    [(3_000, 100_000, 3_000), (0, 5_000, 5_000), (90_000, 5_000, 5_000), (5_000, 5_000, 5_000)],
)
def test_a_wait_times_out(host: Host, packet: int, queue: int, expected: int) -> None:
    semaphore = host.new_semaphore()
    ring = host.create(7, task_timeout=queue)
    ring.wait(HOST_BASE + semaphore, 1, timeout=packet)
    ring.signal(1)
    began = host.bus.now()
    ring.ring_doorbell()
    ring.reach(1)
    took = host.bus.now() - began
    assert expected < took < expected + 1_500
    assert ring.status() == {
        "status": Status.WAIT_TIMEOUT,
        "engine": Engine.FIRMWARE,
        "instance": 7,
        "queue": 7,
        "packet": 0,
    }
    assert ring.query()["fault_address"] == HOST_BASE + semaphore


def test_a_wait_is_read_once_more_before_it_times_out(host: Host) -> None:
    semaphore = host.new_semaphore()
    ring = host.create(0)
    # Shorter than the re-check interval: only the look at the deadline can see the value.
    ring.wait(HOST_BASE + semaphore, 1, timeout=3_000)
    ring.signal(1)
    ring.ring_doorbell()
    host.machine.run(2_500)
    host.poke(semaphore, SEMAPHORE.pack_bytes(value=1))
    ring.reach(1)
    assert ring.status()["status"] == 0


@pytest.mark.parametrize(("packet", "queue"), [(4_000, 100_000), (0, 4_000), (90_000, 4_000)])
def test_kernel_timeout(host: Host, packet: int, queue: int) -> None:
    host.settle()
    ring = host.create(2, task_timeout=queue)
    ring.kernel(kernels.endless(), timeout=packet)
    ring.signal(1)
    began = host.bus.now()
    ring.ring_doorbell()
    ring.reach(1)
    assert 4_000 < host.bus.now() - began < 6_000
    expected = STATUS_WORD.pack(status=Status.KERNEL_TIMEOUT, engine=Engine.CORE, queue=2)
    assert STATUS_WORD.pack(ring.status()) == expected
    assert not host.machine.chip.core.cores[0].busy
    assert host.read_fields("core_state")["status"] == Status.ABORTED


def test_a_block_that_never_ends_is_named(host: Host) -> None:
    """Blocks of its own kernel go on at the other core; none of them is blamed."""
    host.settle()
    ring = host.create(2, block_timeout=6_000)
    code, pc = kernels.stuck(5, loops=200)
    ring.kernel(code, grid=(400, 1, 1))
    ring.signal(1)
    began = host.bus.now()
    ring.ring_doorbell()
    ring.reach(1)
    assert 6_000 < host.bus.now() - began < 12_000
    expected = STATUS_WORD.pack(status=Status.KERNEL_TIMEOUT, engine=Engine.CORE, queue=2)
    assert STATUS_WORD.pack(ring.status() | {"instance": 0}) == expected
    fault = ring.query()
    assert (fault["block"], fault["detail"]) == (5, pc)
    assert len(host.notes("block", queue=2)) > 5 + 5
    assert not any(core.busy for core in host.machine.chip.core.cores)


def test_only_the_time_of_a_block_counts_not_that_of_all(host: Host) -> None:
    host.settle()
    ring = host.create(2, block_timeout=2_500)
    ring.kernel(kernels.idle(loops=500), grid=(12, 1, 1))
    took = run(host, ring)
    assert ring.status()["status"] == 0
    assert took > 2 * 2_500


def test_a_long_block_whose_commands_go_on_is_not_stuck(host: Host) -> None:
    host.settle()
    ring = host.create(2, block_timeout=2_500)
    ring.kernel(kernels.busy(rounds=12, loops=300))
    took = run(host, ring)
    assert ring.status()["status"] == 0
    assert took > 3 * 2_500


def test_a_block_that_gets_stuck_late_is_aborted(host: Host) -> None:
    host.settle()
    ring = host.create(2, block_timeout=2_500)
    ring.kernel(kernels.busy(rounds=8, loops=300, ends=False))
    took = run(host, ring)
    assert ring.status()["status"] == Status.KERNEL_TIMEOUT
    assert 2_500 * 2 < took < 2_500 * 6


def test_a_block_that_ends_at_its_cap_is_not_aborted(host: Host) -> None:
    """The event of the end is lost; the look at the cap sees that all is well."""
    host.settle()
    ring = host.create(0, block_timeout=4_000)
    ring.kernel(kernels.idle(loops=500))
    ring.signal(1)
    ring.ring_doorbell()
    host.machine.run(500)
    words = host.machine.chip.firmware.words
    words["event_enable"][0] &= ~EVENT["core"]
    host.machine.run(2_500)
    words["events"][0] &= ~EVENT["core"]
    assert ring.reach(1, limit=60_000) < 4_000
    assert ring.status()["status"] == 0


def test_the_core_serves_others_after_a_timeout(host: Host) -> None:
    host.settle()
    ring, other = host.create(0), host.create(1)
    ring.kernel(kernels.endless(), grid=(CORES, 1, 1), timeout=3_000)
    ring.ring_doorbell()
    host.machine.run(1_000)
    other.kernel(kernels.endless(), timeout=3_000)
    other.signal(1)
    other.ring_doorbell()
    other.reach(1)
    # Its time runs from its own dispatch, not from when it began to wait for the core.
    first, *_, second = host.notes("dispatch", engine=Engine.CORE)
    assert second.time - first.time > 3_000
    ended = host.notes("end", queue=1, packet=0)[0]
    assert ended.time - second.time > 3_000


def test_a_copy_has_the_same_cap(host: Host) -> None:
    ring = host.create(0, task_timeout=4_000)
    host.machine.faults.hang_dma(0b0001)
    ring.copy(SOURCE, TARGET, 64)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    expected = STATUS_WORD.pack(status=Status.KERNEL_TIMEOUT, engine=Engine.DMA)
    assert STATUS_WORD.pack(ring.status()) == expected
    assert not host.machine.chip.dma.channels[0].busy


def test_work_that_ends_at_its_deadline_is_not_aborted(host: Host) -> None:
    """The event of the end is lost; the look at the deadline sees that all is well."""
    ring = host.create(0, task_timeout=4_000)
    host.machine.faults.hang_dma(0b0001)
    ring.copy(SOURCE, TARGET, 64)
    ring.signal(1)
    ring.ring_doorbell()
    host.machine.run(2_000)
    words = host.machine.chip.firmware.words
    words["event_enable"][0] &= ~EVENT["dma"]
    host.machine.faults.hang_dma(0)
    host.machine.run(500)
    words["events"][0] &= ~EVENT["dma"]
    assert ring.reach(1, limit=60_000) < 4_000
    assert ring.status()["status"] == 0


def test_a_lost_event_is_found_by_the_heartbeats_look(host: Host) -> None:
    ring = host.create(0)
    host.machine.run(500)
    words = host.machine.chip.firmware.words
    ring.signal(1)
    words["event_enable"][0] = 0
    ring.ring_doorbell()
    host.machine.run(1_000)
    words["events"][0] = 0
    assert ring.reach(1, limit=3 * host.config.heartbeat_interval) > 1_000
