"""Waits: what is reached, what is slow, and who is to blame for what never comes."""

import pytest

from abi.address import HBM_BASE, HOST_BASE
from abi.packet import PacketOpcode
from abi.status import Engine, Side, Status
from driver.errors import (
    DeviceHangError,
    DoorbellLostError,
    FirmwareCrashError,
    FirmwareStallError,
    InterruptLostError,
    NpuError,
    RingFullError,
    SubmissionError,
    WaitTimeoutError,
)
from driver.kmd.device import KernelDriver
from driver.umd.client import Client
from driver.umd.queue import UserQueue
from tb.models.device import ModelMachine

TIMEOUT = 200_000


@pytest.fixture
def queue(client: Client) -> UserQueue:
    """A queue of 8 slots."""
    return client.create_queue(
        depth_log2=3, priority=0, task_timeout=100_000_000, block_timeout=100_000_000
    )


def wait(client: Client, queue: UserQueue, timeout: int = TIMEOUT, limit: int = 10**9) -> None:
    """Wait for everything submitted."""
    value = queue.submitted
    client.wait(
        queue.handle,
        queue.timeline.bus_address,
        value,
        timeout=timeout,
        limit=limit,
    )


def copy(queue: UserQueue, nbytes: int = 4096) -> None:
    """Push a copy within HBM."""
    queue.push(
        PacketOpcode.COPY,
        source=HBM_BASE,
        destination=HBM_BASE + (1 << 20),
        row_bytes=nbytes,
        rows=1,
    )


def test_a_value_that_is_reached_costs_no_register_access(
    client: Client, queue: UserQueue, machine: ModelMachine
) -> None:
    queue.publish()
    wait(client, queue)
    before = machine.bus.now()
    queue_value = queue.submitted
    client.wait(queue.handle, queue.timeline.bus_address, queue_value)
    assert machine.bus.now() == before


def test_progress_restarts_the_timeout(
    client: Client, queue: UserQueue, machine: ModelMachine
) -> None:
    """Six copies of 1 MiB in a row take far longer than the timeout of one."""
    for _ in range(6):
        copy(queue, 1 << 20)
    queue.publish()
    start = machine.bus.now()
    wait(client, queue, timeout=30_000)
    assert machine.bus.now() - start > 60_000
    assert queue.timeline.status == 0


def test_the_limit_ends_a_wait_that_makes_progress(client: Client, queue: UserQueue) -> None:
    for _ in range(7):
        copy(queue, 8 << 20)
    queue.publish()
    with pytest.raises(WaitTimeoutError, match="work still retires") as caught:
        wait(client, queue, limit=50_000)
    assert caught.value.side is Side.HOST
    assert any("DMA" in text for text in caught.value.in_flight)


def test_a_short_timeout_on_a_healthy_device_is_no_hang(client: Client, queue: UserQueue) -> None:
    """The value comes while the device is watched before anyone is blamed: no error."""
    copy(queue, 1 << 20)
    queue.publish()
    wait(client, queue, timeout=1)


def check(error: NpuError, side: Side, engine: Engine, status: Status) -> None:
    """Where an error lies."""
    assert (error.side, error.engine, error.status) == (side, engine, status), str(error)


def test_a_lost_doorbell(client: Client, queue: UserQueue, machine: ModelMachine) -> None:
    machine.faults.drop_doorbells(1)
    copy(queue)
    queue.publish()
    with pytest.raises(DoorbellLostError, match="packets before 0, but packets before 2") as caught:
        wait(client, queue)
    check(caught.value, Side.HOST, Engine.DOORBELL, Status.DOORBELL_LOST)
    assert caught.value.queue == queue.number
    queue.publish()  # The next doorbell covers both.
    wait(client, queue)


def test_a_lost_interrupt(client: Client, queue: UserQueue, machine: ModelMachine) -> None:
    machine.faults.drop_messages(1 + queue.number, 1)
    queue.publish()
    with pytest.raises(InterruptLostError, match="did not arrive") as caught:
        wait(client, queue)
    check(caught.value, Side.DEVICE, Engine.INTERRUPT, Status.INTERRUPT_LOST)
    assert queue.timeline.value == queue.submitted
    wait(client, queue)
    queue.publish()
    wait(client, queue)


def test_a_masked_vector(client: Client, queue: UserQueue, kmd: KernelDriver) -> None:
    kmd.registers.bar0.vector_data[1 + queue.number].update(masked=1)
    queue.publish()
    with pytest.raises(InterruptLostError, match="is held back by the device"):
        wait(client, queue)
    kmd.registers.bar0.vector_data[1 + queue.number].update(masked=0)
    queue.publish()
    wait(client, queue)


@pytest.mark.parametrize("hang", ["dma", "core", "completion"])
def test_a_hanging_unit(client: Client, queue: UserQueue, machine: ModelMachine, hang: str) -> None:
    program = HBM_BASE + 4096
    engine = {"dma": Engine.DMA, "core": Engine.CORE, "completion": Engine.COMPLETION}[hang]
    if hang == "dma":
        machine.faults.hang_dma(0xF)
        copy(queue)
    elif hang == "core":
        machine.faults.hang_core()
        queue.push(PacketOpcode.KERNEL, code=program, code_bytes=4, grid_x=1, grid_y=1, grid_z=1)
    else:
        machine.faults.hang_completion()  # The first operation ends the unit's work.
        queue.publish()
    queue.publish()
    with pytest.raises(DeviceHangError) as caught:
        wait(client, queue)
    check(caught.value, Side.DEVICE, engine, Status.DEVICE_HANG)
    assert caught.value.queue == queue.number
    assert caught.value.packet == 0
    assert any(f"queue {queue.number}: packets" in text for text in caught.value.in_flight)


def test_a_stalled_firmware(client: Client, queue: UserQueue, machine: ModelMachine) -> None:
    machine.faults.stall_firmware()
    copy(queue)
    queue.publish()
    with pytest.raises(FirmwareStallError, match="heartbeat stands still") as caught:
        wait(client, queue)
    check(caught.value, Side.FIRMWARE, Engine.FIRMWARE, Status.FIRMWARE_STALL)
    machine.faults.release_firmware()
    wait(client, queue)


def test_a_slow_firmware_is_not_dead(
    client: Client, queue: UserQueue, machine: ModelMachine
) -> None:
    machine.faults.slow_firmware(20)
    copy(queue)
    queue.publish()
    wait(client, queue)


def test_a_crashed_firmware(client: Client, queue: UserQueue, machine: ModelMachine) -> None:
    machine.faults.crash_firmware()
    copy(queue)
    queue.publish()
    start = machine.bus.now()
    with pytest.raises(FirmwareCrashError) as caught:
        wait(client, queue, timeout=10_000_000)
    check(caught.value, Side.FIRMWARE, Engine.FIRMWARE, Status.FIRMWARE_CRASH)
    assert machine.bus.now() - start < 1_000_000


def test_a_wait_that_nobody_signals(client: Client, queue: UserQueue) -> None:
    semaphore = queue.timeline.device_address - 64
    queue.push(PacketOpcode.WAIT, semaphore=semaphore, value=1 << 60)
    queue.publish()
    with pytest.raises(WaitTimeoutError, match="that nobody signals") as caught:
        wait(client, queue)
    assert (caught.value.packet, caught.value.queue) == (0, queue.number)


def test_a_value_that_nothing_signals(client: Client, queue: UserQueue) -> None:
    with pytest.raises(WaitTimeoutError, match="nothing that was submitted signals"):
        client.wait(queue.handle, queue.timeline.bus_address, 5, timeout=TIMEOUT)


def test_a_doorbell_violation(client: Client, queue: UserQueue) -> None:
    """Only this queue faults, and the wait names the fault without waiting for its timeout."""
    client.session.map_doorbell(queue.handle).write(9)
    with pytest.raises(SubmissionError, match="backwards or past") as caught:
        client.wait(queue.handle, queue.timeline.bus_address, 1, timeout=10**9)
    check(caught.value, Side.HOST, Engine.DOORBELL, Status.DOORBELL_VIOLATION)
    other = client.create_queue(depth_log2=3, priority=0, task_timeout=10**6, block_timeout=10**6)
    other.publish()
    wait(client, other)


def test_a_ring_that_cannot_be_fetched(
    client: Client, queue: UserQueue, kmd: KernelDriver, machine: ModelMachine
) -> None:
    ring = kmd.queues.live[0].ring
    machine.faults.host_slverr(ring, ring + 4096)
    queue.publish()
    with pytest.raises(NpuError) as caught:
        wait(client, queue)
    check(caught.value, Side.DEVICE, Engine.FETCHER, Status.BUS_ERROR)
    assert caught.value.address is not None
    assert caught.value.address - HOST_BASE == ring


def test_a_ring_that_stays_full(queue: UserQueue, machine: ModelMachine) -> None:
    machine.faults.hang_dma(0xF)
    for _ in range(7):
        copy(queue)
    queue.publish()
    machine.run(5_000)
    while queue.ring.has_room(1):
        queue.push(PacketOpcode.NOP)
    queue.ring.publish()
    with pytest.raises(RingFullError) as caught:
        queue.ring.wait_room(1, TIMEOUT)
    assert isinstance(caught.value.__cause__, DeviceHangError)
    assert caught.value.engine is Engine.DMA
