"""Packets and rings, against a machine of stand-ins that notes each step."""

import random
from typing import Any

import pytest

from abi.packet import PACKETS, PacketOpcode
from abi.record import Record
from driver.bus import Bus
from driver.errors import (
    DeviceHangError,
    InvalidArgumentError,
    RingFullError,
    StaleHandleError,
)
from driver.registers import RegisterAccess
from driver.umd.doorbell import Doorbell
from driver.umd.packets import encoder
from driver.umd.ring import Ring

RING, WRITE, READ = 0x1000, 0x2000, 0x2040


class Memory:
    """A bus of memory only; `steps` lists what happened."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []
        self.cells: dict[int, bytes] = {READ: bytes(8)}

    def store(self, address: int, data: bytes) -> None:
        """Note a store."""
        self.steps.append(("store", address))
        self.cells[address] = bytes(data)

    def load(self, address: int, nbytes: int) -> bytes:
        """What was stored."""
        return self.cells[address][:nbytes]

    def barrier(self) -> None:
        """Note a barrier."""
        self.steps.append(("barrier", 0))

    def consume(self, read_index: int) -> None:
        """The device publishes its read index."""
        self.cells[READ] = read_index.to_bytes(8, "little")


class Register:
    """A doorbell register."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def write(self, value: int) -> None:
        """Note a ring."""
        self.memory.steps.append(("doorbell", value))


def make(depth: int = 4, wait: Any = None) -> tuple[Memory, Ring]:
    """A ring over stand-ins."""
    memory = Memory()
    bus: Any = memory
    register: Any = Register(memory)
    typed_bus: Bus = bus
    typed_register: RegisterAccess = register
    ring = Ring(
        typed_bus,
        ring=RING,
        write_index=WRITE,
        read_index=READ,
        depth=depth,
        doorbell=Doorbell(0, typed_register),
        wait_space=wait or (lambda *_: None),
    )
    return memory, ring


def random_fields(record: Record, draw: random.Random) -> dict[str, int]:
    """Values for all fields that a user fills."""
    return {
        name: draw.randrange(-(1 << (f.width - 1)), 1 << (f.width - 1))
        if f.is_signed
        else draw.randrange(1 << f.width)
        for name, f in record.fields.items()
        if not name.startswith("reserved") and name not in ("opcode", "sequence")
    }


@pytest.mark.parametrize("opcode", list(PacketOpcode))
def test_packets_are_those_of_the_contract(opcode: PacketOpcode) -> None:
    draw = random.Random(opcode)
    record = PACKETS[opcode]
    for _ in range(50):
        fields = random_fields(record, draw)
        index = draw.randrange(1 << 40)
        expected = record.pack(fields, opcode=opcode, sequence=index & 0xFFFFFFFF)
        assert encoder(opcode)(index, **fields) == expected.to_bytes(64, "little")


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="COPY packet"):
        encoder(PacketOpcode.COPY)(0, rows=1 << 32)
    with pytest.raises(ValueError, match="interrupt must have 1 bits, not 2"):
        encoder(PacketOpcode.SIGNAL)(0, interrupt=2)
    with pytest.raises(KeyError, match="no field 'colour'"):
        encoder(PacketOpcode.NOP)(0, colour=1)


def test_a_batch_is_published_in_order_with_one_doorbell() -> None:
    memory, ring = make()
    assert [ring.push(PacketOpcode.NOP) for _ in range(3)] == [0, 1, 2]
    ring.publish()
    assert memory.steps == [
        ("store", RING),
        ("store", RING + 64),
        ("store", RING + 128),
        ("barrier", 0),
        ("store", WRITE),
        ("barrier", 0),
        ("doorbell", 3),
    ]
    assert memory.cells[WRITE] == (3).to_bytes(8, "little")
    ring.publish()
    assert len(memory.steps) == 7, "nothing new to publish, no doorbell"


def test_indices_grow_and_slots_wrap() -> None:
    memory, ring = make(depth=4)
    for i in range(11):
        assert ring.has_room(1)
        ring.push(PacketOpcode.NOP)
        ring.publish()
        memory.consume(i + 1)
    assert [s for s in memory.steps if s[0] == "doorbell"][-1] == ("doorbell", 11)
    assert int.from_bytes(memory.cells[RING + 2 * 64][4:8], "little") == 10


def test_room_is_exactly_the_depth() -> None:
    memory, ring = make(depth=4)
    for _ in range(4):
        ring.push(PacketOpcode.NOP)
    assert ring.room() == 0
    assert not ring.has_room(1)
    memory.consume(3)
    assert ring.has_room(3)
    assert not ring.has_room(4)


def test_a_full_ring_waits_for_the_read_index() -> None:
    asked = []

    def wait(index: int, timeout: int) -> None:
        asked.append((index, timeout))
        memory.consume(index)

    memory, ring = make(depth=4, wait=wait)
    for _ in range(4):
        ring.push(PacketOpcode.NOP)
    ring.publish()
    ring.wait_room(2, 1234)
    assert asked == [(2, 1234)]
    assert ring.has_room(2)


def test_a_ring_that_stays_full_is_an_error_with_its_cause() -> None:
    def wait(*_: int) -> None:
        raise DeviceHangError("the fetcher stands", queue=5, packet=2, in_flight=("x",))

    _, ring = make(depth=2, wait=wait)
    ring.push(PacketOpcode.NOP)
    ring.push(PacketOpcode.NOP)
    ring.publish()
    with pytest.raises(RingFullError, match="ring of 2 packets stayed full: the fetcher") as caught:
        ring.wait_room(1, 100)
    assert (caught.value.queue, caught.value.packet, caught.value.in_flight) == (5, 2, ("x",))
    assert isinstance(caught.value.__cause__, DeviceHangError)
    assert ring.written == 2


def test_other_errors_of_the_wait_pass_through() -> None:
    def wait(*_: int) -> None:
        raise StaleHandleError("the device was reset")

    _, ring = make(depth=2, wait=wait)
    ring.push(PacketOpcode.NOP)
    with pytest.raises(StaleHandleError):
        ring.wait_room(2, 100)


def test_more_packets_than_slots_are_refused() -> None:
    _, ring = make(depth=4)
    with pytest.raises(InvalidArgumentError, match="at most 4 packets"):
        ring.wait_room(5, 100)


def test_what_was_not_published_can_be_taken_back() -> None:
    memory, ring = make()
    ring.push(PacketOpcode.NOP)
    ring.publish()
    ring.push(PacketOpcode.NOP)
    ring.discard_pending()
    assert ring.push(PacketOpcode.NOP) == 1
    ring.publish()
    assert memory.steps[-1] == ("doorbell", 2)
