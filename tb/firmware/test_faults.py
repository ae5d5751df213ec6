"""Faults of engines and queues: first fault kept, poison, discarded counts, reset."""

import pytest

from abi.address import HBM_BASE, HOST_BASE
from abi.core import Pipe
from abi.descriptor import DESCRIPTOR, DESCRIPTOR_MAGIC, DescriptorOpcode
from abi.mailbox import MessageKind, QueuePhase
from abi.packet import PacketOpcode
from abi.semaphore import STATUS_WORD
from abi.status import Engine, Status
from firmware.registers import EVENT
from tb.firmware import kernels
from tb.firmware.host import Host

SOURCE, TARGET = HBM_BASE + 0x1000, HBM_BASE + 0x9000
NOWHERE = 0x4000_0000_0000


def word(status: Status, engine: Engine, instance: int, queue: int, packet: int) -> int:
    return STATUS_WORD.pack(
        status=status, engine=engine, instance=instance, queue=queue, packet=packet
    )


@pytest.mark.parametrize(
    ("source", "destination", "address"),
    [
        (NOWHERE, TARGET, NOWHERE),
        (SOURCE, NOWHERE + 64, NOWHERE + 64),
        (0, TARGET, 0),
        (SOURCE, HOST_BASE, HOST_BASE),
    ],
    ids=["bad source", "bad destination", "null", "host page outside the window"],
)
def test_dma_address_fault(host: Host, source: int, destination: int, address: int) -> None:
    ring = host.create(3)
    ring.put(PacketOpcode.NOP)
    ring.copy(source, destination, 64)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    state = ring.query()
    assert state["status_word"] == word(Status.ADDRESS_FAULT, Engine.DMA, 0, 3, 1)
    assert STATUS_WORD.pack(ring.status()) == state["status_word"]
    assert (state["fault_packet"], state["fault_address"]) == (1, address)
    assert state["opcode"] == PacketOpcode.COPY
    assert (state["completed"], state["discarded"]) == (3, 0)


def test_dma_bus_error_names_the_line(host: Host) -> None:
    ring = host.create(0)
    page = host.bus.allocate_pages(2)
    host.machine.faults.host_slverr(page + 0x1040, page + 0x1080)
    ring.copy(SOURCE, HOST_BASE + page, 0x2000)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    state = ring.query()
    assert state["status_word"] == word(Status.BUS_ERROR, Engine.DMA, 0, 0, 0)
    assert state["fault_address"] == HOST_BASE + page + 0x1040


def test_chain_fault_names_the_descriptor(host: Host) -> None:
    ring = host.create(0)
    chain = host.bus.allocate_pages(1)
    good = {
        "opcode": DescriptorOpcode.FILL,
        "magic": DESCRIPTOR_MAGIC,
        "destination": TARGET,
        "row_bytes": 64,
        "rows": 1,
    }
    for i in range(2):
        host.poke(
            chain + 64 * i, DESCRIPTOR.pack_bytes(good, next=HOST_BASE + chain + 64 * (i + 1))
        )
    host.poke(chain + 128, DESCRIPTOR.pack_bytes(good | {"magic": 0xDEAD}))
    ring.put(PacketOpcode.CHAIN, descriptor=HOST_BASE + chain)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    state = ring.query()
    assert state["status_word"] == word(Status.BAD_DESCRIPTOR, Engine.DMA, 0, 0, 0)
    assert state["detail"] == 2
    assert state["fault_address"] == HOST_BASE + chain + 128


def test_core_fault_names_pipe_pc_block_and_address(host: Host) -> None:
    ring = host.create(0)
    code, pc = kernels.failing(0)
    ring.kernel(code, TARGET, NOWHERE)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    state = ring.query()
    assert state["status_word"] == word(Status.ADDRESS_FAULT, Engine.CORE, 0, 0, 0)
    assert (state["pipe"], state["detail"], state["block"]) == (Pipe.MTE2, pc, 0)
    assert state["fault_address"] == NOWHERE


def test_signal_to_nowhere_is_a_fault_of_the_completion_unit(host: Host) -> None:
    ring = host.create(0)
    ring.signal(1, semaphore=NOWHERE)
    ring.signal(2)
    ring.ring_doorbell()
    ring.reach(2)
    state = ring.query()
    assert state["status_word"] == word(Status.ADDRESS_FAULT, Engine.COMPLETION, 0, 0, 0)
    assert state["fault_address"] == NOWHERE


def test_wait_on_nowhere_is_a_fault_of_the_completion_unit(host: Host) -> None:
    ring = host.create(0)
    ring.wait(NOWHERE, 1)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    expected = word(Status.ADDRESS_FAULT, Engine.COMPLETION, 0, 0, 0)
    assert STATUS_WORD.pack(ring.status()) == expected


def test_the_first_fault_is_kept_and_the_rest_discarded_but_signals(host: Host) -> None:
    ring = host.create(6)
    ring.copy(NOWHERE, TARGET, 64)
    for _ in range(3):
        ring.put(PacketOpcode.FILL, destination=TARGET, row_bytes=64, rows=1, pattern=1)
    ring.signal(1)
    ring.put_raw(0xFF | 5 << 32)
    ring.wait(SOURCE, 1 << 60)
    ring.put(PacketOpcode.KERNEL, code=SOURCE + 1, code_bytes=0)
    ring.copy(SOURCE, NOWHERE, 64)
    ring.signal(2)
    ring.ring_doorbell()
    ring.reach(2, limit=20_000)
    state = ring.query()
    assert state["status_word"] == word(Status.ADDRESS_FAULT, Engine.DMA, 0, 6, 0)
    assert STATUS_WORD.pack(ring.status()) == state["status_word"]
    assert (state["completed"], state["discarded"]) == (3, 7)
    assert not host.hbm(TARGET, 64).any()
    assert sum(n.fields["count"] for n in host.notes("discard", queue=6)) == 7


def test_later_faults_do_not_replace_the_first(host: Host) -> None:
    ring = host.create(0, depth_log2=3)
    ring.copy(NOWHERE, TARGET, 64)
    ring.signal(1, semaphore=NOWHERE)
    ring.signal(2)
    ring.ring_doorbell()
    ring.reach(2)
    ring.ring_doorbell(1_000)
    state = ring.query()
    assert [n.fields["first"] for n in host.notes("fault", queue=0)] == [1, 0, 0]
    assert state["status_word"] == word(Status.ADDRESS_FAULT, Engine.DMA, 0, 0, 0)
    assert (state["fault_packet"], state["fault_address"]) == (0, NOWHERE)
    assert host.call(MessageKind.RESET_QUEUE, queue=0)["status"] == Status.NO_RESOURCE


def test_a_malformed_signal_of_a_poisoned_queue_is_discarded(host: Host) -> None:
    ring = host.create(0)
    ring.put_raw(0xFF)
    ring.signal(1, semaphore=ring.semaphore + 8)
    ring.signal(2)
    ring.ring_doorbell()
    ring.reach(2)
    state = ring.query()
    assert state["status_word"] & 0xFF == Status.BAD_OPCODE
    assert (state["completed"], state["discarded"]) == (2, 1)


def test_neighbours_do_not_notice(host: Host) -> None:
    good, bad = host.create(0), host.create(1)
    host.hbm(SOURCE, 64)[:] = 9
    for i in range(10):
        bad.copy(NOWHERE, TARGET, 64)
        bad.ring_doorbell()
        good.copy(SOURCE, TARGET + 64 * i, 64)
        good.signal(i + 1)
        good.ring_doorbell()
    good.reach(10)
    assert (host.hbm(TARGET, 640) == 9).all()
    assert good.query()["status_word"] == 0
    assert bad.query()["discarded"] == 9


def test_reset_queue_clears_the_fault_and_counts_stay(host: Host) -> None:
    ring = host.create(0)
    ring.put_raw(0xFF)
    ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: ring.query()["discarded"] == 1, 5_000)
    response = host.call(MessageKind.RESET_QUEUE, queue=0)
    assert response["status"] == Status.OK
    assert response["phase"] == QueuePhase.IDLE
    assert response["status_word"] == 0
    assert (response["completed"], response["discarded"]) == (1, 1)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    assert ring.status()["status"] == 0
    assert ring.query()["completed"] == 2


def test_reset_queue_is_refused_while_packets_are_open(host: Host) -> None:
    semaphore = host.new_semaphore()
    ring = host.create(0)
    ring.wait(HOST_BASE + semaphore, 1)
    ring.ring_doorbell()
    host.until(lambda: ring.query()["phase"] == QueuePhase.WAITING, 5_000)
    response = host.call(MessageKind.RESET_QUEUE, queue=0)
    assert response["status"] == Status.NO_RESOURCE
    assert ring.query()["phase"] == QueuePhase.WAITING


def test_doorbell_violation_faults_that_queue_alone(host: Host) -> None:
    bad, good = host.create(0, depth_log2=3), host.create(1)
    bad.put(PacketOpcode.NOP)
    bad.ring_doorbell()
    host.until(lambda: bad.query()["completed"] == 1, 5_000)
    bad.ring_doorbell(1 + 9)
    state = bad.query()
    assert state["phase"] == QueuePhase.FAULTED
    assert state["status_word"] == word(Status.DOORBELL_VIOLATION, Engine.DOORBELL, 0, 0, 1)
    assert state["fault_address"] == 10
    assert state["fault_packet"] == 1
    assert host.call(MessageKind.RESET_QUEUE, queue=0)["status"] == Status.NO_RESOURCE
    good.signal(1)
    good.ring_doorbell()
    good.reach(1)
    assert good.status()["status"] == 0


def test_query_sees_a_fault_whose_event_was_lost(host: Host) -> None:
    ring = host.create(0)
    words = host.machine.chip.firmware.words
    words["event_enable"][0] &= ~EVENT["queue_fault"]
    ring.ring_doorbell(1_000)
    words["events"][0] &= ~EVENT["queue_fault"]
    assert ring.query()["status_word"] & 0xFF == Status.DOORBELL_VIOLATION


def test_reset_queue_is_refused_while_packets_are_not_even_taken(host: Host) -> None:
    ring = host.create(0)
    ring.put_raw(0xFF)
    ring.ring_doorbell()
    host.until(lambda: ring.query()["phase"] == QueuePhase.FAULTED, 5_000)
    host.machine.faults.stall_firmware()
    for _ in range(3):
        ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.send(MessageKind.RESET_QUEUE, queue=0)
    host.machine.faults.release_firmware()
    assert host.receive()["status"] == Status.NO_RESOURCE
    host.until(lambda: ring.query()["discarded"] == 3, 5_000)
    assert host.call(MessageKind.RESET_QUEUE, queue=0)["status"] == Status.OK


def test_doorbell_backwards_is_a_violation(host: Host) -> None:
    ring = host.create(2)
    ring.put(PacketOpcode.NOP)
    ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    ring.ring_doorbell(1)
    assert ring.query()["status_word"] & 0xFFFF == Status.DOORBELL_VIOLATION | (
        Engine.DOORBELL << 8
    )


def test_signals_already_fetched_carry_the_violation(host: Host) -> None:
    """Waiters of a queue that broke its doorbell wake at once, if its signal was fetched."""
    gate = host.new_semaphore()
    ring, other = host.create(0, depth_log2=3), host.create(1)
    ring.wait(HOST_BASE + gate, 1)
    ring.put(PacketOpcode.NOP)
    ring.signal(1)
    ring.ring_doorbell()
    other.wait(ring.semaphore, 1)
    other.signal(1)
    other.ring_doorbell()
    host.until(lambda: host.read("queue_fetched", 0) == 3, 5_000)
    ring.ring_doorbell(100)
    host.poke(gate, b"\1")
    other.reach(1, limit=20_000)
    assert ring.status()["status"] == Status.DOORBELL_VIOLATION
    assert other.status()["status"] == Status.DEPENDENCY_FAILED
    assert ring.query()["discarded"] == 1


def test_fetch_error_is_the_fetchers(host: Host) -> None:
    ring = host.create(0, depth_log2=6)
    ring.put(PacketOpcode.NOP)
    host.machine.faults.host_slverr(ring.ring + 64, ring.ring + 128)
    ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: ring.query()["phase"] == QueuePhase.FAULTED, 5_000)
    state = ring.query()
    assert state["status_word"] == word(Status.BUS_ERROR, Engine.FETCHER, 0, 0, 1)
    assert state["fault_address"] == HOST_BASE + ring.ring + 64


def test_a_ring_outside_the_window_is_an_address_fault(host: Host) -> None:
    ring = host.create(0, ring=HOST_BASE + 0x7000_0000_0000)
    ring.ring_doorbell(1)
    host.until(lambda: ring.query()["phase"] == QueuePhase.FAULTED, 5_000)
    state = ring.query()
    assert state["status_word"] == word(Status.ADDRESS_FAULT, Engine.FETCHER, 0, 0, 0)


def test_a_lost_interrupt_message_is_noted_and_the_work_stands(host: Host) -> None:
    ring = host.create(0)
    host.write("vector_address", 1, address=0x7000_0000_0000)
    ring.signal(1)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("interrupt_fault")), 5_000)
    assert ring.value() == 1
    assert ring.query()["status_word"] == 0
    assert host.read("vector_sent", 1) == 0
