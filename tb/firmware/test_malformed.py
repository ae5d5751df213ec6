"""Packets that a hostile or broken user forged: field by field, and at random."""

import os
import random

import pytest

from abi.address import HBM_BASE
from abi.mailbox import MessageKind, QueuePhase
from abi.packet import PACKETS, PacketOpcode
from abi.status import Engine, Side, Status, side_of
from tb.firmware.host import Host

SOURCE, TARGET = HBM_BASE + 0x1000, HBM_BASE + 0x9000

GOOD: dict[PacketOpcode, dict[str, int]] = {
    PacketOpcode.NOP: {},
    PacketOpcode.COPY: {"source": SOURCE, "destination": TARGET, "row_bytes": 64, "rows": 1},
    PacketOpcode.FILL: {"destination": TARGET, "row_bytes": 64, "rows": 1},
    PacketOpcode.CHAIN: {"descriptor": SOURCE},
    PacketOpcode.WAIT: {"semaphore": SOURCE, "value": 0},
    PacketOpcode.SIGNAL: {"semaphore": SOURCE, "value": 1},
    PacketOpcode.KERNEL: {
        "code": SOURCE,
        "code_bytes": 64,
        "arguments": SOURCE,
        "argument_bytes": 8,
        "grid_x": 1,
        "grid_y": 1,
        "grid_z": 1,
    },
}

RESERVED = [
    (opcode, name, bit)
    for opcode, record in PACKETS.items()
    for name, field in record.fields.items()
    if name.startswith("reserved")
    for bit in sorted({0, field.width // 2, field.width - 1})
]
ZERO_SIZES = [
    (opcode, name)
    for opcode, record in PACKETS.items()
    for name in ("row_bytes", "rows", "code_bytes", "grid_x", "grid_y", "grid_z")
    if name in record.fields
]
ALIGNED = [
    (opcode, name)
    for opcode, record in PACKETS.items()
    for name in ("descriptor", "semaphore", "code", "arguments")
    if name in record.fields
]


def pack(opcode: PacketOpcode, index: int = 0, **changes: int) -> int:
    fields = {"opcode": opcode, "sequence": index} | GOOD[opcode] | changes
    return PACKETS[opcode].pack(fields)


def refused(host: Host, packet: int, status: Status, opcode: int) -> None:
    """The first packet of a queue is refused by the firmware and touches nothing."""
    ring = host.create(0)
    ring.put_raw(packet)
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    assert ring.status() == {
        "status": status,
        "engine": Engine.FIRMWARE,
        "instance": 0,
        "queue": 0,
        "packet": 0,
    }
    assert side_of(status) is Side.HOST
    state = ring.query()
    assert state["phase"] == QueuePhase.FAULTED
    assert (state["completed"], state["discarded"]) == (2, 0)
    assert (state["fault_packet"], state["opcode"]) == (0, opcode)
    assert not [n for n in host.notes("dispatch") if n.fields["engine"] != Engine.COMPLETION]
    assert not host.hbm(TARGET, 64).any()


@pytest.mark.parametrize("opcode", [0, 8, 9, 0x7F, 0x80, 0xFF])
def test_unknown_opcode(host: Host, opcode: int) -> None:
    refused(host, opcode, Status.BAD_OPCODE, opcode)


@pytest.mark.parametrize(("opcode", "name", "bit"), RESERVED)
def test_reserved_bits(host: Host, opcode: PacketOpcode, name: str, bit: int) -> None:
    refused(host, pack(opcode, **{name: 1 << bit}), Status.BAD_FIELD, opcode)


@pytest.mark.parametrize(("opcode", "name"), ZERO_SIZES)
def test_size_zero(host: Host, opcode: PacketOpcode, name: str) -> None:
    refused(host, pack(opcode, **{name: 0}), Status.BAD_FIELD, opcode)


@pytest.mark.parametrize(("opcode", "name"), ALIGNED)
@pytest.mark.parametrize("offset", [1, 8, 32, 63])
def test_misaligned(host: Host, opcode: PacketOpcode, name: str, offset: int) -> None:
    refused(host, pack(opcode, **{name: SOURCE + offset}), Status.MISALIGNED, opcode)


@pytest.mark.parametrize("sequence", [1, 64, 0xFFFF_FFFF, 1 << 31])
def test_stale_sequence(host: Host, sequence: int) -> None:
    packet = pack(PacketOpcode.NOP, sequence)
    refused(host, packet, Status.BAD_SEQUENCE, PacketOpcode.NOP)


def test_a_slot_of_the_lap_before_is_stale(host: Host) -> None:
    ring = host.create(0, depth_log2=1)
    ring.put(PacketOpcode.NOP)
    ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: ring.query()["completed"] == 2, 5_000)
    # The doorbell goes ahead of the store of packet 2.
    ring.ring_doorbell(3)
    host.until(lambda: ring.query()["phase"] == QueuePhase.FAULTED, 5_000)
    state = ring.query()
    assert state["status_word"] & 0xFF == Status.BAD_SEQUENCE
    assert state["fault_packet"] == 2


def test_a_store_without_barrier_is_found_out(host: Host) -> None:
    ring = host.create(0, depth_log2=6)
    for index in range(8):
        packet = pack(PacketOpcode.NOP, index).to_bytes(64, "little")
        host.bus.store(ring.ring + 64 * index, packet)
    ring.ring_doorbell(8)
    host.until(lambda: ring.query()["phase"] == QueuePhase.FAULTED, 20_000)
    status = Status(ring.query()["status_word"] & 0xFF)
    assert status in (Status.BAD_SEQUENCE, Status.BAD_OPCODE)


def test_a_barrier_makes_the_same_stores_right(host: Host) -> None:
    ring = host.create(0, depth_log2=6)
    for index in range(8):
        packet = pack(PacketOpcode.NOP, index).to_bytes(64, "little")
        host.bus.store(ring.ring + 64 * index, packet)
    host.bus.barrier()
    ring.ring_doorbell(8)
    host.until(lambda: ring.query()["completed"] == 8, 20_000)
    assert ring.query()["status_word"] == 0


def test_the_packet_in_sram_counts_not_the_ring(host: Host) -> None:
    """The user changes the slot after the fetch: firmware checks and uses the copy only."""
    blocker = host.new_semaphore()
    ring = host.create(0)
    ring.wait(0x8000_0000_0000 + blocker, 1)
    ring.put(
        PacketOpcode.FILL, destination=TARGET, row_bytes=64, rows=1, pattern=0x1111111111111111
    )
    ring.signal(1)
    ring.ring_doorbell()
    host.until(lambda: host.read("queue_fetched", 0) == 3, 5_000)
    host.bus.host_view(ring.ring, 4096)[:] = 0xFF
    host.bus.host_view(blocker, 1)[:] = 1
    ring.reach(1)
    assert (host.hbm(TARGET, 64) == 0x11).all()
    assert ring.status()["status"] == 0


def test_each_word_of_a_packet_is_read_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = host.create(0)
    seen: list[int] = []
    sram = host.machine.chip.queues.read_sram

    def spy(offset: int) -> int:
        seen.append(offset)
        return sram(offset)

    monkeypatch.setattr(host.machine.chip.queues, "read_sram", spy)
    ring.put_raw(pack(PacketOpcode.KERNEL, code_bytes=0))
    ring.put_raw(pack(PacketOpcode.COPY, 1))
    ring.ring_doorbell()
    host.until(lambda: ring.query()["discarded"] == 1, 5_000)
    assert seen == [8 * word for word in range(8)] + [64]


def seeds() -> list[int]:
    given = os.environ.get("GLASSNPU_SEED")
    return [int(given)] if given else list(range(8))


def judge(raw: int, index: int) -> Status:
    """What the contract says about a packet, written down a second time."""
    if raw >> 32 & 0xFFFF_FFFF != index & 0xFFFF_FFFF:
        return Status.BAD_SEQUENCE
    if raw & 0xFF not in PACKETS:
        return Status.BAD_OPCODE
    opcode = PacketOpcode(raw & 0xFF)
    fields = PACKETS[opcode].unpack(raw)
    if any(fields[name] for name in fields if name.startswith("reserved")):
        return Status.BAD_FIELD
    if any(not fields[name] for code, name in ZERO_SIZES if code is opcode):
        return Status.BAD_FIELD
    if any(fields[name] & 63 for code, name in ALIGNED if code is opcode):
        return Status.MISALIGNED
    return Status.OK


@pytest.mark.parametrize("seed", seeds())
def test_fuzz(host: Host, seed: int) -> None:
    """Whatever lies in the ring, the firmware lives, every packet is accounted for, neighbours
    are not disturbed, and only packets that obey all the rules are dispatched."""
    print(f"GLASSNPU_SEED={seed}")
    rng = random.Random(seed)
    good, bad = host.create(0), host.create(1, depth_log2=6, task_timeout=5_000)
    packets: list[int] = []
    for round_number in range(8):
        for _ in range(rng.randrange(1, 12)):
            packet = pack(rng.choice(list(PacketOpcode)), bad.written)
            for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
                packet ^= 1 << rng.randrange(512)
            packets.append(packet)
            bad.put_raw(packet)
        bad.ring_doorbell()
        good.copy(SOURCE, TARGET + 0x1000 + 64 * round_number, 64)
        good.signal(round_number + 1)
        good.ring_doorbell()
        good.reach(round_number + 1)
        assert good.status()["status"] == 0

        def settled() -> bool:
            state = bad.query()
            return bool(state["completed"] + state["discarded"] == bad.written)

        host.until(settled, 1_000_000)
        state = bad.query()
        if state["phase"] == QueuePhase.FAULTED:
            status = Status(state["status_word"] & 0xFF)
            judged = judge(packets[state["fault_packet"]], state["fault_packet"])
            assert judged in (status, Status.OK)
            assert host.call(MessageKind.RESET_QUEUE, queue=1)["status"] == Status.OK
    for note in host.notes("dispatch", queue=1):
        assert judge(packets[note.fields["packet"]], note.fields["packet"]) is Status.OK
    for note in host.notes("fault", queue=1, engine=Engine.FIRMWARE):
        judged = judge(packets[note.fields["packet"]], note.fields["packet"])
        assert note.fields["status"] in (judged, Status.WAIT_TIMEOUT, Status.DEPENDENCY_FAILED)
    accepted = sum(judge(packet, index) is Status.OK for index, packet in enumerate(packets))
    assert 0 < accepted < len(packets)
