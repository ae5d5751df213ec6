"""The ioctl face: fixed structures, checks, handles, and what is given back."""

import pytest

from abi.address import HOST_BASE, PAGE_BYTES
from driver.bus import Bus
from driver.errors import (
    DeviceClosedError,
    FirmwareStallError,
    InvalidArgumentError,
    OutOfMemoryError,
    StaleHandleError,
)
from driver.kmd.device import KernelDriver
from driver.kmd.interrupts import Interrupts
from driver.kmd.ioctl import IOCTLS, IoctlCode, MemoryKind
from driver.kmd.reset import reset_hardware
from driver.kmd.session import Session
from driver.registers import Registers
from driver.umd.client import Client
from tb.models.device import ModelMachine


def state(kmd: KernelDriver) -> tuple[int, int, int]:
    """What is taken: HBM allocations, host pages, queues."""
    return kmd.hbm.allocations, kmd.pages.pages, len(kmd.queues.live)


def test_a_queue_that_was_made_too_late_is_destroyed_before_its_number_is_used(
    kmd: KernelDriver, machine: ModelMachine
) -> None:
    sizes = {
        "depth_log2": 4,
        "priority": 0,
        "pasid": 0,
        "task_timeout": 1000,
        "block_timeout": 1000,
    }
    machine.faults.stall_firmware()
    with pytest.raises(FirmwareStallError):
        kmd.queues.create(**sizes)
    assert state(kmd) == (0, 2, 0), "the firmware may use ring and indices yet"
    with pytest.raises(FirmwareStallError):
        kmd.queues.create(**sizes)
    assert state(kmd) == (0, 2, 0)
    machine.faults.release_firmware()
    queue = kmd.queues.create(**sizes)
    assert queue.number == 0
    assert state(kmd) == (0, 2, 1)
    kmd.queues.destroy(queue)
    assert state(kmd) == (0, 0, 0)


def test_memory_of_both_kinds(client: Client, kmd: KernelDriver, machine: ModelMachine) -> None:
    hbm = client.allocate(1000, MemoryKind.HBM)
    assert hbm.bus_address == 0
    host = client.allocate(5000, MemoryKind.HOST)
    assert host.device_address == HOST_BASE + host.bus_address
    view = client.session.mmap(host.handle)
    assert view.shape == (5000,)
    view[4999] = 77
    assert machine.chip.memory.host[host.bus_address + 4999] == 77
    assert state(kmd) == (1, 2, 0)
    client.free(hbm.handle)
    client.free(host.handle)
    assert state(kmd) == (0, 0, 0)


@pytest.mark.parametrize(
    ("code", "fields", "message"),
    [
        (IoctlCode.ALLOCATE, {"nbytes": 0}, "nbytes must be at least 1, not 0"),
        (IoctlCode.ALLOCATE, {"nbytes": 1, "kind": 9}, "kind must be a MemoryKind, not 9"),
        (IoctlCode.ALLOCATE, {"nbytes": 1, "alignment": 96}, "power of two .*, not 96"),
        (
            IoctlCode.CREATE_QUEUE,
            {"depth_log2": 0, "task_timeout": 1, "block_timeout": 1},
            "depth_log2 .*, not 0",
        ),
        (
            IoctlCode.CREATE_QUEUE,
            {"depth_log2": 17, "task_timeout": 1, "block_timeout": 1},
            "depth_log2 .*, not 17",
        ),
        (
            IoctlCode.CREATE_QUEUE,
            {"depth_log2": 4, "priority": 4, "task_timeout": 1, "block_timeout": 1},
            "priority .*, not 4",
        ),
        (IoctlCode.CREATE_QUEUE, {"depth_log2": 4}, "task_timeout must be at least 1, not 0"),
        (
            IoctlCode.CREATE_QUEUE,
            {"depth_log2": 4, "task_timeout": 1},
            "block_timeout must be at least 1, not 0",
        ),
    ],
)
def test_bad_fields_are_refused(
    client: Client, kmd: KernelDriver, code: IoctlCode, fields: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        client.call(code, **fields)
    assert state(kmd) == (0, 0, 0)


def test_malformed_structures_are_refused(client: Client) -> None:
    session = client.session
    with pytest.raises(InvalidArgumentError, match="code must be an IoctlCode, not 99"):
        session.ioctl(99)
    with pytest.raises(InvalidArgumentError, match="ALLOCATE must have 16 bytes, not 8"):
        session.ioctl(IoctlCode.ALLOCATE, bytes(8))
    raw = bytearray(IOCTLS[IoctlCode.ALLOCATE][0].pack_bytes(nbytes=1, alignment=64))
    raw[9] = 1
    with pytest.raises(InvalidArgumentError, match="reserved must be 0"):
        session.ioctl(IoctlCode.ALLOCATE, bytes(raw))


def test_handles_are_checked(client: Client) -> None:
    memory = client.allocate(64, MemoryKind.HBM)
    queue = client.create_queue(depth_log2=2, priority=0, task_timeout=1000, block_timeout=1000)
    with pytest.raises(InvalidArgumentError, match="handle must be that of a queue"):
        client.query_queue(memory.handle)
    with pytest.raises(InvalidArgumentError, match="handle must be that of memory"):
        client.free(queue.handle)
    with pytest.raises(InvalidArgumentError, match="handle must be that of host memory"):
        client.session.mmap(memory.handle)
    client.free(memory.handle)
    with pytest.raises(StaleHandleError, match="was freed or destroyed"):
        client.free(memory.handle)
    client.destroy_queue(queue.handle)
    with pytest.raises(StaleHandleError, match="was freed or destroyed"):
        client.query_queue(queue.handle)


def test_a_wait_reads_only_memory_of_its_session(client: Client, kmd: KernelDriver) -> None:
    queue = client.create_queue(depth_log2=2, priority=0, task_timeout=1000, block_timeout=1000)
    other = Client(Session(kmd), client.bus).allocate(PAGE_BYTES, MemoryKind.HOST)
    for address in (other.bus_address, 0, queue.timeline.bus_address + 4):
        with pytest.raises(InvalidArgumentError, match="semaphore must lie in pinned memory"):
            client.wait(queue.handle, address, 1)


def test_sessions_do_not_share_handles(client: Client, kmd: KernelDriver) -> None:
    memory = client.allocate(64, MemoryKind.HBM)
    with pytest.raises(StaleHandleError):
        Client(Session(kmd), client.bus).free(memory.handle)


def test_queues_run_out_cleanly_and_come_back(client: Client, kmd: KernelDriver) -> None:
    queues = [
        client.create_queue(depth_log2=1, priority=i % 4, task_timeout=1000, block_timeout=1000)
        for i in range(16)
    ]
    taken = state(kmd)
    with pytest.raises(OutOfMemoryError, match="all 16 queues"):
        client.create_queue(depth_log2=1, priority=0, task_timeout=1000, block_timeout=1000)
    assert state(kmd) == taken
    assert sorted(q.number for q in queues) == list(range(16))
    client.destroy_queue(queues[5].handle)
    again = client.create_queue(depth_log2=1, priority=0, task_timeout=1000, block_timeout=1000)
    assert again.number == 5


def test_closing_a_session_gives_back_all_it_took(client: Client, kmd: KernelDriver) -> None:
    client.allocate(64, MemoryKind.HBM)
    client.allocate(64, MemoryKind.HOST)
    client.create_queue(depth_log2=4, priority=0, task_timeout=1000, block_timeout=1000)
    client.session.close()
    client.session.close()
    assert state(kmd) == (0, 0, 0)


def test_a_queue_that_is_made_anew_holds_nothing_of_its_former_life(
    client: Client, kmd: KernelDriver, machine: ModelMachine
) -> None:
    """Old packets would carry sequence numbers that are valid again."""
    queue = client.create_queue(depth_log2=3, priority=0, task_timeout=10_000, block_timeout=10_000)
    for _ in range(3):
        queue.publish()
    machine.run(20_000)
    memory = kmd.queues.live[0]
    assert machine.bus.host_view(memory.ring, 512).any()
    assert not client.reset_queue(queue.handle), "a sound queue is kept"
    client.session.map_doorbell(queue.handle).write(1)
    assert client.reset_queue(queue.handle)
    assert not machine.bus.host_view(memory.ring, 512).any()
    assert not machine.bus.host_view(memory.indices, 128).any()
    assert machine.bus.host_view(memory.indices + 128, 8).any(), "the timeline goes on"
    queue.restart()
    queue.publish()
    client.wait(queue.handle, queue.timeline.bus_address, queue.submitted)


def test_old_handles_fail_after_a_reset(client: Client, kmd: KernelDriver) -> None:
    memory = client.allocate(64, MemoryKind.HOST)
    queue = client.create_queue(depth_log2=4, priority=0, task_timeout=1000, block_timeout=1000)
    client.reset_device()
    assert state(kmd) == (0, 0, 0)
    for call in (
        lambda: client.free(memory.handle),
        lambda: client.query_queue(queue.handle),
        lambda: client.session.mmap(memory.handle),
        lambda: client.session.map_doorbell(queue.handle),
    ):
        with pytest.raises(StaleHandleError, match="belongs to generation 0, not 1"):
            call()
    kmd.close()
    with pytest.raises(DeviceClosedError):
        client.allocate(64, MemoryKind.HBM)


def test_undrained_pages_are_quarantined(
    client: Client, kmd: KernelDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = client.allocate(3 * PAGE_BYTES, MemoryKind.HOST)
    monkeypatch.setattr("driver.kmd.device.reset_hardware", undrained)
    client.reset_device()
    assert kmd.pages.quarantined == 3
    taken = client.allocate(PAGE_BYTES, MemoryKind.HOST)
    assert taken.bus_address >= memory.bus_address + 3 * PAGE_BYTES


def undrained(bus: Bus, registers: Registers, interrupts: Interrupts) -> bool:
    """A reset that could not drain."""
    reset_hardware(bus, registers, interrupts)
    return False
