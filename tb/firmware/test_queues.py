"""The life of queues: create, destroy while anything is on its way, create again."""

import pytest

from abi.address import HBM_BASE, HOST_BASE
from abi.mailbox import MessageKind, QueuePhase
from abi.packet import PacketOpcode
from abi.status import Engine, Status
from driver.bus import BusError, Region
from tb.firmware import kernels
from tb.firmware.host import Host
from tb.models.device import ModelTiming

SOURCE, TARGET = HBM_BASE + 0x1000, HBM_BASE + 0x9000


def destroy(host: Host, number: int) -> dict[str, int]:
    return host.call(MessageKind.DESTROY_QUEUE, queue=number)


def ring_is_refused(host: Host, number: int) -> bool:
    try:
        host.bus.write(Region.BAR2, 4096 * number, 1)
    except BusError:
        return True
    return False


def test_all_sixteen_queues_exist_at_once(host: Host) -> None:
    rings = [host.create(number, priority=number % 4) for number in range(16)]
    for ring in rings:
        ring.signal(100 + ring.number)
        ring.ring_doorbell()
    for ring in rings:
        ring.reach(100 + ring.number)
    assert all(ring.query()["completed"] == 1 for ring in rings)


def test_a_doorbell_works_as_soon_as_the_response_is_there(host: Host) -> None:
    for number in range(16):
        host.create(number)
        assert not ring_is_refused(host, number)


def test_create_of_an_existing_queue_is_refused_and_harmless(host: Host) -> None:
    ring = host.create(0)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    response = host.call(MessageKind.CREATE_QUEUE, **host.create_fields(0))
    assert response["status"] == Status.NO_RESOURCE
    ring.signal(2)
    ring.ring_doorbell()
    ring.reach(2)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"queue": 16}, Status.BAD_FIELD),
        ({"queue": 255}, Status.BAD_FIELD),
        ({"depth_log2": 0}, Status.BAD_FIELD),
        ({"depth_log2": 17}, Status.BAD_FIELD),
        ({"depth_log2": 255}, Status.BAD_FIELD),
        ({"priority": 4}, Status.BAD_FIELD),
        ({"vector": 0}, Status.BAD_FIELD),
        ({"vector": 32}, Status.BAD_FIELD),
        ({"task_timeout": 0}, Status.BAD_FIELD),
        ({"block_timeout": 0}, Status.BAD_FIELD),
        ({"ring": HOST_BASE + 0x1008}, Status.MISALIGNED),
        ({"read_index": HOST_BASE + 0x1001}, Status.MISALIGNED),
        ({"ring": 0}, Status.ADDRESS_FAULT),
        ({"read_index": 1 << 48}, Status.ADDRESS_FAULT),
        ({"reserved_word": 1}, Status.BAD_MESSAGE),
        ({"reserved": 1 << 127}, Status.BAD_MESSAGE),
        ({"reserved_header": 1}, Status.BAD_MESSAGE),
    ],
)
def test_create_checks_its_fields(host: Host, change: dict[str, int], status: Status) -> None:
    fields = host.create_fields(0) | change
    assert host.call(MessageKind.CREATE_QUEUE, **fields)["status"] == status
    assert host.query(0)["phase"] == QueuePhase.ABSENT
    assert not any(queue.enabled for queue in host.machine.chip.queues.queues)


@pytest.mark.parametrize(
    ("kind", "number", "status"),
    [
        (MessageKind.DESTROY_QUEUE, 3, Status.NO_RESOURCE),
        (MessageKind.DESTROY_QUEUE, 16, Status.BAD_FIELD),
        (MessageKind.RESET_QUEUE, 3, Status.NO_RESOURCE),
        (MessageKind.RESET_QUEUE, 200, Status.BAD_FIELD),
        (MessageKind.QUERY_QUEUE, 3, Status.OK),
        (MessageKind.QUERY_QUEUE, 16, Status.BAD_FIELD),
    ],
)
def test_requests_for_absent_queues(
    host: Host, kind: MessageKind, number: int, status: Status
) -> None:
    response = host.call(kind, queue=number)
    assert response["status"] == status
    assert response["phase"] == QueuePhase.ABSENT


def test_destroy_of_an_idle_queue(host: Host) -> None:
    ring = host.create(0)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    response = destroy(host, 0)
    assert response["status"] == Status.OK
    assert response["phase"] == QueuePhase.ABSENT
    assert (response["completed"], response["discarded"]) == (1, 0)
    assert response["status_word"] == 0
    assert ring_is_refused(host, 0)
    assert host.read("doorbell_refused") == 1
    assert destroy(host, 0)["status"] == Status.NO_RESOURCE


def test_destroy_aborts_a_running_copy_and_accounts_for_every_packet(host: Host) -> None:
    ring = host.create(0, depth_log2=6)
    host.machine.faults.hang_dma(0b1111)
    ring.put(PacketOpcode.NOP)
    for _ in range(30):
        ring.copy(SOURCE, TARGET, 64)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    assert host.read("queue_fetched", 0) < 31
    response = destroy(host, 0)
    assert response["status"] == Status.OK
    # One NOP, one aborted copy; 8 at most were prefetched, the others lie in the ring.
    assert (response["completed"], response["discarded"]) == (2, 29)
    assert response["status_word"] & 0xFFFF == Status.ABORTED | Engine.DMA << 8
    assert response["fault_packet"] == 1
    assert not host.machine.chip.dma.channels[0].busy
    assert not host.read_fields("queue_state", 0)["busy"]


def test_destroy_aborts_a_running_kernel(host: Host) -> None:
    ring = host.create(0)
    ring.kernel(kernels.endless(), grid=(9, 1, 1))
    ring.signal(1)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    response = destroy(host, 0)
    assert response["status_word"] & 0xFFFF == Status.ABORTED | Engine.CORE << 8
    assert (response["completed"], response["discarded"]) == (1, 1)
    assert not any(core.busy for core in host.machine.chip.core.cores)
    assert ring.value() == 0


def test_destroy_of_a_waiting_queue(host: Host) -> None:
    semaphore = host.new_semaphore()
    ring = host.create(0)
    ring.wait(HOST_BASE + semaphore, 1)
    ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("sleep", queue=0)), 5_000)
    response = destroy(host, 0)
    assert (response["completed"], response["discarded"]) == (0, 2)
    assert response["status_word"] == 0


def test_destroy_of_a_queue_that_waits_for_a_channel(host: Host) -> None:
    host.machine.faults.hang_dma(0b1111)
    rings = [host.create(i) for i in range(5)]
    for ring in rings:
        ring.copy(SOURCE, TARGET, 64)
        ring.ring_doorbell()
    host.until(lambda: len(host.notes("begin")) == 5, 10_000)
    waiting = ({0, 1, 2, 3, 4} - {n.fields["queue"] for n in host.notes("dispatch")}).pop()
    response = destroy(host, waiting)
    assert (response["completed"], response["discarded"]) == (0, 1)
    assert sum(channel.busy for channel in host.machine.chip.dma.channels) == 4


def test_destroy_lets_a_signal_on_its_way_end(host: Host) -> None:
    ring = host.create(0)
    host.machine.faults.hang_completion()
    ring.signal(1)
    ring.signal(2)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    host.send(MessageKind.DESTROY_QUEUE, queue=0)
    # Others are served while the queue drains.
    assert host.call(MessageKind.PING)["status"] == Status.OK
    host.machine.faults.hang_completion(False)
    response = host.receive()
    assert response["kind"] == MessageKind.DESTROY_QUEUE
    assert (response["completed"], response["discarded"]) == (1, 1)
    assert ring.value() == 1


def test_a_closing_queue_is_neither_destroyed_nor_reset_nor_created_again(host: Host) -> None:
    ring = host.create(0)
    host.machine.faults.hang_completion()
    ring.signal(1)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    host.send(MessageKind.DESTROY_QUEUE, queue=0)
    for kind, fields in (
        (MessageKind.DESTROY_QUEUE, {"queue": 0}),
        (MessageKind.RESET_QUEUE, {"queue": 0}),
        (MessageKind.CREATE_QUEUE, host.create_fields(0)),
    ):
        assert host.call(kind, **fields)["status"] == Status.NO_RESOURCE
    host.machine.faults.hang_completion(False)
    assert host.receive()["status"] == Status.OK


def test_a_queue_that_drains_takes_no_more_packets(host: Host) -> None:
    semaphore = host.new_semaphore()
    ring = host.create(0)
    ring.wait(HOST_BASE + semaphore, 1)
    for _ in range(5):
        ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("sleep", queue=0)), 5_000)
    # Back door: the write of the read index gets no response for a while.
    hardware = host.machine.chip.queues.queues[0]
    hardware.publishing = True
    host.send(MessageKind.DESTROY_QUEUE, queue=0)
    host.machine.run(5_000)
    assert host.read("response_write") == host.responses
    assert len(host.notes("begin", queue=0)) == 1
    hardware.publishing = False
    response = host.receive(limit=2_000)
    assert (response["completed"], response["discarded"]) == (0, 6)


def test_the_answer_to_a_destroy_has_its_slot_reserved(host: Host) -> None:
    ring = host.create(0)
    host.machine.faults.hang_completion()
    ring.signal(1)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    destroyed = host.send(MessageKind.DESTROY_QUEUE, queue=0)
    pings = [host.send(MessageKind.PING) for _ in range(7)]
    host.machine.run(5_000)
    pings.append(host.send(MessageKind.PING))
    host.machine.run(5_000)
    host.machine.faults.hang_completion(False)
    host.machine.run(5_000)
    ids = [host.receive()["request_id"] for _ in range(9)]
    assert ids == [*pings[:7], destroyed, pings[7]]


def test_a_queue_number_lives_again_with_fresh_indices(host: Host) -> None:
    ring = host.create(0)
    host.machine.faults.hang_dma(0b1111)
    for _ in range(20):
        ring.copy(SOURCE, TARGET, 64)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    destroy(host, 0)
    host.machine.faults.hang_dma(0)
    before = len(host.notes("begin", queue=0))
    again = host.create(0)
    host.machine.run(2_000)
    # Nothing of the former life is taken for a packet of the new one.
    assert len(host.notes("begin", queue=0)) == before
    again.signal(1)
    again.ring_doorbell()
    again.reach(1)
    state = again.query()
    assert (state["completed"], state["discarded"], state["running"]) == (1, 0, 1)
    assert state["status_word"] == 0


def test_a_slow_start_of_the_hardware_shows_nothing_of_the_former_life() -> None:
    host = Host(timing=ModelTiming(start_queue=500))
    ring, other = host.create(0), host.create(1, depth_log2=8)
    host.machine.faults.hang_dma(0b1111)
    for _ in range(8):
        ring.copy(SOURCE, TARGET, 64)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    host.machine.run(1_000)
    destroy(host, 0)
    before = len(host.notes("begin", queue=0))
    # Packets of a neighbour arrive all the time, so that the firmware keeps looking.
    for _ in range(200):
        other.put(PacketOpcode.NOP)
    other.ring_doorbell()
    host.create(0)
    # The answer comes when the hardware has started the queue anew, not before.
    hardware = host.machine.chip.queues.queues[0]
    assert (hardware.enabled, hardware.fetched) == (True, 0)
    host.until(lambda: other.query()["completed"] == 200, 100_000)
    assert len(host.notes("begin", queue=0)) == before


def test_destroy_after_a_hardware_fault_counts_what_was_never_fetched(host: Host) -> None:
    ring = host.create(0, depth_log2=6)
    ring.put(PacketOpcode.NOP)
    host.machine.faults.host_slverr(ring.ring + 64, ring.ring + 128)
    for _ in range(9):
        ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: ring.query()["phase"] == QueuePhase.FAULTED, 5_000)
    response = destroy(host, 0)
    assert response["completed"] + response["discarded"] == 10
    assert response["status_word"] & 0xFFFF == Status.BUS_ERROR | Engine.FETCHER << 8


def test_neighbours_keep_going_while_a_queue_is_destroyed(host: Host) -> None:
    doomed, other = host.create(0), host.create(1)
    host.machine.faults.hang_dma(0b0001)
    doomed.copy(SOURCE, TARGET, 64)
    doomed.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    for value in range(1, 9):
        other.copy(SOURCE, TARGET + 4096, 64)
        other.signal(value)
    other.ring_doorbell()
    destroy(host, 0)
    host.machine.faults.hang_dma(0)
    other.reach(8)
    assert other.query()["status_word"] == 0
