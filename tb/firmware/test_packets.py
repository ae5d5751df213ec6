"""Every kind of packet, from the ring to its result."""

import numpy as np
import pytest

from abi.address import HBM_BASE, HOST_BASE
from abi.descriptor import DESCRIPTOR, DESCRIPTOR_MAGIC, DescriptorOpcode
from abi.geometry import CORES
from abi.mailbox import QueuePhase
from abi.packet import PacketOpcode
from abi.registers_dma import DMA_STATE
from abi.status import Engine
from tb.firmware import kernels
from tb.firmware.host import Host

SOURCE, TARGET = HBM_BASE + 0x1000, HBM_BASE + 0x9000


def test_nop_is_done_in_order(host: Host) -> None:
    ring = host.create(0)
    for _ in range(5):
        ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: len(host.notes("end", queue=0, status=0)) == 5, 5_000)
    assert [note.fields["packet"] for note in host.notes("end")] == [0, 1, 2, 3, 4]
    state = ring.query()
    assert (state["completed"], state["discarded"], state["running"]) == (5, 0, 5)
    assert state["phase"] == QueuePhase.IDLE
    assert state["status_word"] == 0
    assert ring.read_index == 5
    assert host.read("queue_consumed", 0) == 5


def test_copy_1d_touches_its_bytes_only(host: Host) -> None:
    ring = host.create(0)
    data = np.arange(1000, dtype=np.uint32).view(np.uint8)[:3001]
    host.hbm(SOURCE + 3, 3001)[:] = data
    host.hbm(TARGET - 64, 4096)[:] = 0xEE
    ring.copy(SOURCE + 3, TARGET + 5, 3001)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    result = host.hbm(TARGET - 64, 4096)
    assert np.array_equal(result[69 : 69 + 3001], data)
    assert (result[:69] == 0xEE).all()
    assert (result[69 + 3001 :] == 0xEE).all()


@pytest.mark.parametrize("rows", [2, 7])
def test_copy_2d_with_strides_in_both_directions(host: Host, rows: int) -> None:
    ring = host.create(0)
    width = 33
    source = np.random.default_rng(1).integers(0, 256, (rows, 100), dtype=np.uint8)
    host.hbm(SOURCE, rows * 100)[:] = source.reshape(-1)
    bus = host.bus.allocate_pages(1)
    last = HOST_BASE + bus + (rows - 1) * 64
    ring.copy(SOURCE, last, width, rows, source_stride=100, destination_stride=-64)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    result = host.bus.host_view(bus, rows * 64).reshape(rows, 64)
    assert np.array_equal(result[::-1, :width], source[:, :width])
    assert not result[:, width:].any()


def test_fill_repeats_its_pattern_in_each_row(host: Host) -> None:
    ring = host.create(0)
    pattern = 0x8877665544332211
    # A source left over from another queue's copy must not matter to a FILL.
    ring.copy(SOURCE, TARGET, 8, 2, source_stride=64, destination_stride=64)
    ring.put(
        PacketOpcode.FILL,
        destination=TARGET,
        row_bytes=11,
        rows=3,
        destination_stride=16,
        pattern=pattern,
    )
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    row = (pattern.to_bytes(8, "little") * 2)[:11]
    result = host.hbm(TARGET, 48).reshape(3, 16)
    for i in range(3):
        assert result[i, :11].tobytes() == row
        assert not result[i, 11:].any()


def test_a_one_row_copy_ignores_the_stride_of_the_run_before(host: Host) -> None:
    ring = host.create(0)
    host.hbm(SOURCE, 64)[:] = np.arange(64, dtype=np.uint8)
    ring.copy(SOURCE, TARGET, 8, 4, source_stride=8, destination_stride=1 << 20)
    ring.copy(SOURCE, TARGET + 256, 64)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    assert np.array_equal(host.hbm(TARGET + 256, 64), np.arange(64, dtype=np.uint8))


def test_chain_follows_its_descriptors(host: Host) -> None:
    ring = host.create(0)
    chain = host.bus.allocate_pages(1)
    host.hbm(SOURCE, 256)[:] = np.arange(256).astype(np.uint8)
    for i in range(3):
        fields = {
            "opcode": DescriptorOpcode.COPY,
            "magic": DESCRIPTOR_MAGIC,
            "source": SOURCE + 64 * i,
            "destination": TARGET + 64 * (2 - i),
            "row_bytes": 64,
            "rows": 1,
            "next": HOST_BASE + chain + 64 * (i + 1) if i < 2 else 0,
        }
        host.poke(chain + 64 * i, DESCRIPTOR.pack_bytes(fields))
    ring.put(PacketOpcode.CHAIN, descriptor=HOST_BASE + chain)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    expected = np.arange(192).reshape(3, 64)[::-1].reshape(-1).astype(np.uint8)
    assert np.array_equal(host.hbm(TARGET, 192), expected)
    assert DMA_STATE.unpack(host.read("dma_state", 0))["descriptor"] == 3


def test_kernel_gets_its_code_and_arguments(host: Host) -> None:
    ring = host.create(0)
    random = np.random.default_rng(2)
    a = random.integers(-128, 128, (8, 16), dtype=np.int8)
    b = random.integers(-128, 128, (16, 16), dtype=np.int8)
    host.hbm(SOURCE, 128)[:] = a.reshape(-1).view(np.uint8)
    host.hbm(SOURCE + 256, 256)[:] = b.reshape(-1).view(np.uint8)
    ring.kernel(kernels.matmul(8), SOURCE, SOURCE + 256, TARGET)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    result = host.hbm(TARGET, 512).view(np.int32).reshape(8, 16)
    assert np.array_equal(result, a.astype(np.int32) @ b.astype(np.int32))
    assert sum(host.read("core_retired", core) for core in range(CORES)) == 6
    assert sum(host.read("core_blocks", core) for core in range(CORES)) == 1


def test_signal_writes_status_timestamp_value_and_interrupts(host: Host) -> None:
    ring = host.create(4)
    began = host.bus.now()
    ring.signal(0x1234_5678_9ABC_DEF0)
    ring.ring_doorbell()
    assert host.bus.wait_interrupt(1 << 5, began + 5_000) == 1 << 5
    assert ring.value() == 0x1234_5678_9ABC_DEF0
    assert ring.status()["status"] == 0
    assert began < host.word(ring.index_page + 128 + 8) < host.bus.now()
    host.machine.run(100)
    assert host.read("vector_sent", 5) == 1


def test_signal_without_interrupt_sends_none(host: Host) -> None:
    ring = host.create(0)
    ring.signal(1, interrupt=0)
    ring.ring_doorbell()
    assert host.bus.wait_interrupt(2, host.bus.now() + 5_000) == 0
    assert ring.value() == 1
    assert host.read("vector_sent", 1) == 0


def test_signal_in_hbm(host: Host) -> None:
    ring = host.create(0)
    ring.signal(7, semaphore=TARGET)
    ring.ring_doorbell()
    assert host.bus.wait_interrupt(2, host.bus.now() + 5_000) == 2
    assert int(host.hbm(TARGET, 8).view(np.uint64)[0]) == 7


def test_the_ring_wraps_and_sram_slots_are_reused(host: Host) -> None:
    ring = host.create(0, depth_log2=2)
    for value in range(1, 41):
        ring.signal(value)
        ring.ring_doorbell()
        ring.reach(value)
    assert ring.query()["completed"] == 40
    assert ring.read_index == 40


def test_a_full_ring_of_packets_in_one_doorbell(host: Host) -> None:
    ring = host.create(0, depth_log2=6)
    for value in range(1, 65):
        ring.signal(value, interrupt=int(value == 64))
    ring.ring_doorbell()
    ring.reach(64)
    assert ring.query()["completed"] == 64
    assert host.read("vector_sent", 1) <= 1


def test_slots_are_released_before_sram_runs_dry(host: Host) -> None:
    ring = host.create(0, depth_log2=5)
    for _ in range(4):
        ring.put(PacketOpcode.NOP)
    ring.wait(HOST_BASE + host.new_semaphore(), 1)
    for _ in range(12):
        ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("sleep", queue=0)), 5_000)
    host.machine.run(500)
    assert host.read("queue_consumed", 0) == 4
    assert host.read("queue_fetched", 0) == 12


def test_sequence_numbers_are_the_low_32_bits(host: Host) -> None:
    ring = host.create(0)
    start = (1 << 32) - 2
    # Back door: a queue that has already carried 4 billion packets.
    hardware = host.machine.chip.queues.queues[0]
    hardware.doorbell = hardware.requested = hardware.fetched = hardware.published = start
    hardware.consumed = start
    state = host.sram.queues[0]
    assert state is not None
    state.head = state.fetched = state.released = start
    ring.written = start
    for value in range(1, 6):
        ring.signal(value)
    ring.ring_doorbell()
    ring.reach(5)
    assert ring.query()["running"] == start + 5
    assert ring.query()["status_word"] == 0


def test_queues_work_in_parallel_on_all_channels(host: Host) -> None:
    host.machine.faults.hang_dma(0b1111)
    rings = [host.create(i) for i in range(6)]
    for ring in rings:
        ring.copy(SOURCE, TARGET + 4096 * ring.number, 64)
        ring.signal(1)
        ring.ring_doorbell()
    host.until(lambda: len(host.notes("dispatch", engine=Engine.DMA)) == 4, 5_000)
    host.machine.run(3_000)
    instances = sorted(n.fields["instance"] for n in host.notes("dispatch", engine=Engine.DMA))
    assert instances == [0, 1, 2, 3]
    host.machine.faults.hang_dma(0)
    for ring in rings:
        ring.reach(1, limit=20_000)
    assert len(host.notes("dispatch", engine=Engine.DMA)) == 6


def test_a_packet_can_be_followed_through_the_notes(host: Host) -> None:
    ring = host.create(2)
    ring.copy(SOURCE, TARGET, 64)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("end", queue=2)), 5_000)
    events = [n.event for n in host.machine.notes if n.fields.get("queue") == 2]
    assert events == ["begin", "dispatch", "end"]
    times = [n.time for n in host.machine.notes if n.fields.get("queue") == 2]
    assert times == sorted(times)
    assert host.notes("begin", packet=0, opcode=PacketOpcode.COPY)


def test_a_copy_and_its_signal_cost_few_register_accesses(host: Host) -> None:
    ring = host.create(0)
    host.machine.run(1_000)
    before = host.machine.port.accesses
    ring.copy(SOURCE, TARGET, 64)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    host.machine.run(300)
    # 16 packet words, 7 for the engines' set-up and 2 for their outcome; the rest is events.
    assert host.machine.port.accesses - before <= 42
