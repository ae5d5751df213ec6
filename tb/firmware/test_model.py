"""The model of the device itself: it must follow the contract as the chip does."""

import pytest

from abi.address import HBM_BASE, HOST_BASE, PAGE_BYTES
from abi.config_space import CONFIG_SPACE
from abi.packet import PacketOpcode
from abi.register import Access, Place
from abi.registers_firmware import FIRMWARE_PORT, PACKET_SRAM_BASE
from abi.registers_host import BAR0, DEVICE_MAGIC
from abi.version import ABI_MAJOR, ABI_MINOR, DEVICE_ID, VENDOR_ID
from driver.bus import BusError, Region
from firmware.port import FirmwarePort
from tb.firmware.host import Host
from tb.models.device import ModelMachine
from tb.models.device.memory import DeviceMemory, MemoryFaultError
from tb.models.device.registers import SlaveError

ALL_BITS = (1 << 64) - 1


def silent(port: FirmwarePort) -> None:
    """A firmware that does nothing."""
    while True:
        port.wait(port.now() + 1_000_000)


def powered() -> ModelMachine:
    machine = ModelMachine(silent)
    word = CONFIG_SPACE["identity"].register.pack(memory_enable=1, bus_master=1)
    machine.bus.write(Region.CONFIG, 0, word)
    return machine


def is_refused(machine: ModelMachine, region: Region, offset: int, value: int | None) -> bool:
    try:
        if value is None:
            machine.bus.read(region, offset)
        else:
            machine.bus.write(region, offset, value)
    except BusError as error:
        return (error.region, error.offset, error.response) == (region, offset, 2)
    return False


def test_config_space_keeps_its_identity_and_gates_the_bars() -> None:
    machine = ModelMachine(silent)
    assert is_refused(machine, Region.BAR0, 0, None)
    assert is_refused(machine, Region.BAR2, 0, 1)
    machine.bus.write(Region.CONFIG, 0, ALL_BITS)
    identity = CONFIG_SPACE["identity"].register.unpack(machine.bus.read(Region.CONFIG, 0))
    assert identity == {
        "vendor": VENDOR_ID,
        "device": DEVICE_ID,
        "unused": 0,
        "memory_enable": 1,
        "bus_master": 1,
    }
    shown = BAR0["identity"].register.unpack(machine.bus.read(Region.BAR0, 0))
    assert shown == {"magic": DEVICE_MAGIC, "abi_major": ABI_MAJOR, "abi_minor": ABI_MINOR}
    assert machine.bus.read(Region.CONFIG, 0x08) == 0x120000 << 8 | 1


@pytest.mark.parametrize("place", list(BAR0), ids=lambda place: place.name)
def test_bar0_access_rights_and_reset_values(place: Place) -> None:
    machine = powered()
    for index in {0, place.count - 1}:
        offset = place.address(index)
        assert is_refused(machine, Region.BAR0, offset, None) == (
            place.register.access is Access.WO
        )
        assert is_refused(machine, Region.BAR0, offset, 0) == (place.register.access is Access.RO)
        if place.register.access is Access.RW:
            machine = powered()
            assert machine.bus.read(Region.BAR0, offset) == place.register.reset


def test_offsets_without_a_register_are_refused() -> None:
    machine = powered()
    taken = {place.address(i) for place in BAR0 for i in range(place.count)}
    for offset in (0x70, 0x0F8, 0x1020, 0x3FF8, 0x4000, 0x8000):
        assert offset not in taken
        assert is_refused(machine, Region.BAR0, offset, None)
        assert is_refused(machine, Region.BAR0, offset, 0)
    assert is_refused(machine, Region.BAR2, 16 * 4096, 1)
    assert is_refused(machine, Region.BAR2, 0, None)


def test_half_words_use_strobes() -> None:
    machine = powered()
    offset = BAR0.address("host_window")
    machine.bus.write(Region.BAR0, offset, 0x1111_2222_3333_4444)
    machine.bus.write(Region.BAR0, offset + 4, 0xAAAA_BBBB, size=4)
    assert machine.bus.read(Region.BAR0, offset) == 0xAAAA_BBBB_3333_4444
    assert machine.bus.read(Region.BAR0, offset, size=4) == 0x3333_4444
    assert machine.bus.read(Region.BAR0, offset + 4, size=4) == 0xAAAA_BBBB
    for bad in (1, 2, 12):
        with pytest.raises(ValueError, match="multiple of size"):
            machine.bus.read(Region.BAR0, offset + bad)


def test_firmware_port_access_rights() -> None:
    machine = powered()
    for base, register_map in FIRMWARE_PORT.items():
        for place in register_map:
            address = base + place.address(place.count - 1)
            if place.register.access is Access.WO:
                with pytest.raises(SlaveError):
                    machine.chip.firmware_read(address)
            else:
                assert machine.chip.firmware_read(address) >= 0
            if place.register.access is Access.RO:
                with pytest.raises(SlaveError):
                    machine.chip.firmware_write(address, 0)
    for address in (0x200, 0x1418, 0x5000, PACKET_SRAM_BASE + 16 * 8 * 64):
        with pytest.raises(SlaveError):
            machine.chip.firmware_read(address)
    with pytest.raises(SlaveError):
        machine.chip.firmware_write(PACKET_SRAM_BASE, 0)


def test_events_are_write_1_to_clear_and_drive_the_line() -> None:
    machine = powered()
    chip = machine.chip
    chip.event("dma")
    chip.event("core")
    assert not chip.event_pending
    chip.firmware_write(0x8, 0b100)
    assert chip.event_pending
    chip.firmware_write(0x0, 0b100)
    assert not chip.event_pending
    assert chip.firmware_read(0x0) == 0b1000


def test_doorbell_rules(host: Host) -> None:
    ring = host.create(0, depth_log2=3)

    def refused(offset: int, value: int, size: int = 8) -> bool:
        try:
            host.bus.write(Region.BAR2, offset, value, size)
        except BusError:
            return True
        return False

    assert refused(0, 1, size=4)
    assert refused(4, 1, size=4)
    assert refused(4096, 1), "queue 1 is off"
    assert host.read("doorbell_refused") == 3
    assert refused(8, 1), "no doorbell there, so none is counted"
    assert host.read("doorbell_refused") == 3
    for _ in range(8):
        ring.put(PacketOpcode.NOP)
    assert not refused(0, 8)
    assert not refused(0, 8), "ringing the same index again changes nothing"
    host.until(lambda: ring.query()["completed"] == 8, 10_000)
    assert not refused(0, 17), "the violation itself is answered without an error"
    assert refused(0, 9), "a faulted queue takes no doorbell"
    assert host.read("doorbell_refused") == 4


def test_an_exactly_full_ring_is_no_violation(host: Host) -> None:
    ring = host.create(0, depth_log2=3)
    for _ in range(8):
        ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    host.until(lambda: ring.query()["completed"] == 8, 10_000)
    assert ring.query()["status_word"] == 0


def test_the_fetcher_holds_8_packets_and_publishes_the_read_index(host: Host) -> None:
    ring = host.create(0, depth_log2=5)
    host.machine.faults.hang_dma(0b1111)
    for _ in range(20):
        ring.copy(HBM_BASE, HBM_BASE + 4096, 64)
    ring.ring_doorbell()
    host.machine.run(3_000)
    # The firmware took one; its slot is released with others, so no more than 8 are held.
    fetched = host.read("queue_fetched", 0)
    assert fetched <= host.read("queue_consumed", 0) + 8
    assert fetched >= 8
    assert ring.read_index == fetched


def memory(host_pages: int = 4) -> DeviceMemory:
    device = DeviceMemory(host_pages * PAGE_BYTES, 1 << 16)
    device.bus_master = True
    device.grant(1, host_pages + 4)
    return device


@pytest.mark.parametrize(
    ("address", "nbytes", "status", "line"),
    [
        (0, 8, "ADDRESS_FAULT", 0),
        (HBM_BASE - 8, 16, "ADDRESS_FAULT", HBM_BASE - 64),
        (HBM_BASE + (1 << 16) - 8, 16, "ADDRESS_FAULT", HBM_BASE + (1 << 16)),
        (HOST_BASE + PAGE_BYTES - 8, 16, "ADDRESS_FAULT", HOST_BASE + PAGE_BYTES - 64),
        (HOST_BASE + 4 * PAGE_BYTES - 8, 16, "BUS_ERROR", HOST_BASE + 4 * PAGE_BYTES),
        (HOST_BASE + 9 * PAGE_BYTES, 8, "ADDRESS_FAULT", HOST_BASE + 9 * PAGE_BYTES),
    ],
)
def test_the_guard_names_the_first_bad_line(
    address: int, nbytes: int, status: str, line: int
) -> None:
    device = memory()
    for access in (
        lambda: device.read(address, nbytes),
        lambda: device.write(address, bytes(nbytes)),
    ):
        with pytest.raises(MemoryFaultError) as raised:
            access()
        assert (raised.value.status.name, raised.value.address) == (status, line)


def test_without_bus_master_host_memory_is_a_bus_error() -> None:
    device = memory()
    assert device.read(HOST_BASE + PAGE_BYTES, 8).size == 8
    device.bus_master = False
    with pytest.raises(MemoryFaultError, match="BUS_ERROR"):
        device.read(HOST_BASE + PAGE_BYTES, 8)
    assert device.read(HBM_BASE, 8).size == 8


def test_interrupts_wait_while_masked_and_merge(host: Host) -> None:
    ring = host.create(0)
    host.write("vector_data", 1, data=1, masked=1)
    ring.signal(1)
    ring.signal(2)
    ring.ring_doorbell()
    assert host.bus.wait_interrupt(2, host.bus.now() + 5_000) == 0
    assert ring.value() == 2
    assert host.read("vector_pending") == 2
    host.write("vector_data", 1, data=1, masked=0)
    assert host.bus.wait_interrupt(2, host.bus.now() + 500) == 2
    host.machine.run(200)
    assert host.read("vector_pending") == 0
    assert host.read("vector_sent", 1) == 1


def test_a_message_to_another_address_lands_in_memory(host: Host) -> None:
    page = host.bus.allocate_pages(1)
    host.write("vector_address", 1, address=page + 4)
    host.write("vector_data", 1, data=0xCAFE, masked=0)
    ring = host.create(0)
    ring.signal(1)
    ring.ring_doorbell()
    assert host.bus.wait_interrupt(2, host.bus.now() + 3_000) == 0
    assert host.word(page) == 0xCAFE << 32
    assert host.read("vector_sent", 1) == 1


def test_lost_messages_and_doorbells(host: Host) -> None:
    ring = host.create(0)
    host.machine.faults.drop_messages(1, 1)
    ring.signal(1)
    ring.ring_doorbell()
    assert host.bus.wait_interrupt(2, host.bus.now() + 5_000) == 0
    assert ring.value() == 1
    assert host.read("vector_sent", 1) == 1
    host.machine.faults.drop_doorbells(1)
    ring.signal(2)
    ring.ring_doorbell()
    host.machine.run(5_000)
    assert host.read("queue_doorbell", 0) == 1
    ring.ring_doorbell()
    ring.reach(2)


def test_stores_are_late_and_out_of_order_without_a_barrier() -> None:
    orders = set[tuple[int, ...]]()
    for seed in range(6):
        machine = ModelMachine(silent, seed=seed)
        page = machine.bus.allocate_pages(1)
        for i in range(3):
            machine.bus.store(page + 64 * i, b"\1")
        assert machine.bus.load(page, 1) == b"\1"
        assert machine.bus.host_view(page, 192)[::64].sum() == 0
        seen: list[int] = []
        for _ in range(500):
            machine.run(1)
            for i in range(3):
                if machine.bus.host_view(page + 64 * i, 1)[0] and i not in seen:
                    seen.append(i)
        assert sorted(seen) == [0, 1, 2]
        orders.add(tuple(seen))
    assert len(orders) > 1


def test_stores_to_one_place_stay_in_order_and_a_barrier_drains() -> None:
    for seed in range(10):
        machine = ModelMachine(silent, seed=seed)
        page = machine.bus.allocate_pages(1)
        machine.bus.store(page, b"\1\1")
        machine.bus.store(page + 1, b"\2\2")
        machine.run(1_000)
        assert machine.bus.host_view(page, 3).tobytes() == b"\1\2\2"
        machine.bus.store(page, b"\5")
        machine.bus.barrier()
        assert machine.bus.host_view(page, 1)[0] == 5


def test_pages_are_contiguous_and_checked() -> None:
    machine = ModelMachine(silent, host_bytes=8 * PAGE_BYTES)
    bus = machine.bus
    a, b = bus.allocate_pages(3), bus.allocate_pages(4)
    assert (a, b) == (PAGE_BYTES, 4 * PAGE_BYTES)
    with pytest.raises(MemoryError):
        bus.allocate_pages(1)
    bus.free_pages(a, 3)
    with pytest.raises(ValueError, match="taken pages"):
        bus.free_pages(a, 3)
    with pytest.raises(ValueError, match="taken pages"):
        bus.free_pages(b + 8, 1)
    assert bus.allocate_pages(2) == a


def test_a_reset_isolates_the_bars_and_ends_with_a_new_generation(host: Host) -> None:
    ring = host.create(0)
    host.machine.chip.memory.hbm[5] = 77
    now = host.bus.now()
    host.write("reset", reset=1)
    assert host.read_fields("reset_state")["busy"] == 1
    with pytest.raises(BusError):
        ring.ring_doorbell()
    host.machine.run(30)
    with pytest.raises(BusError):
        host.read("reset_state")
    host.machine.run(60)
    assert host.read_fields("reset_state")["generation"] == 1
    assert host.read("host_window") == 0
    assert host.read_fields("vector_data", 1)["masked"] == 1
    assert not any(queue.enabled for queue in host.machine.chip.queues.queues)
    assert host.machine.chip.memory.hbm[5] == 77
    assert host.bus.now() > now
    host.requests = host.responses = 0
    host.power_up()


def test_the_same_run_takes_the_same_time_twice() -> None:
    def run() -> tuple[int, int, list[object]]:
        host = Host()
        rings = [host.create(i) for i in range(4)]
        for value in range(1, 6):
            for ring in rings:
                ring.copy(HBM_BASE, HBM_BASE + 4096 * (1 + ring.number), 500)
                ring.signal(value)
                ring.ring_doorbell()
        for ring in rings:
            ring.reach(5)
        return host.bus.now(), host.machine.port.accesses, list(host.machine.notes)

    assert run() == run()
