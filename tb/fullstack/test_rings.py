"""Rings: they wrap, fill up, wait, time out; a batch costs one doorbell and no message."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from abi.address import DOORBELL_PAGE_BYTES
from abi.packet import PacketOpcode
from abi.status import Side, Status
from driver.bus import Region
from runtime import Device, RingFullError, Stream

TIMEOUT = 100_000
PROBE = 60_000


def packets(device: Device, stream: Stream) -> tuple[int, ...]:
    """Packets that hardware knows of, has fetched, and the firmware has finished."""
    bar0 = device.driver.registers.bar0
    q = stream.queue
    return tuple(
        x[q].read() for x in (bar0.queue_doorbell, bar0.queue_fetched, bar0.queue_consumed)
    )


@pytest.mark.parametrize("depth", [2, 4, 16])
def test_a_ring_wraps_many_times(device: Device, machine: Any, seed: int, depth: int) -> None:
    random = np.random.default_rng((seed, depth))
    if hasattr(machine.faults, "stall_host_memory"):
        machine.faults.stall_host_memory(6, seed)
    stream = device.stream(depth=depth)
    array = device.zeros(256, np.int32)
    expected = np.zeros(256, np.int32)
    while stream.submitted_packets < 25 * depth + 200:
        with stream.batch():
            for _ in range(int(random.integers(1, 2 * depth))):
                at, value = int(random.integers(256)), int(random.integers(-(2**31), 2**31))
                device.fill(array[at], value, stream)
                expected[at] = value
    stream.synchronize()
    np.testing.assert_array_equal(array.numpy(), expected)
    sent = stream.submitted_packets
    assert packets(device, stream) == (sent, sent, sent)
    assert sent // depth >= 25


def held(device: Device, depth: int) -> tuple[Stream, Any]:
    """A stream that waits for an event of its neighbour, which is not submitted yet."""
    stream, line = device.stream(depth=depth), device.zeros(64, np.uint8)
    fields = {"semaphore": line.address, "value": 1}
    stream.submit([(PacketOpcode.WAIT, fields)], [line.buffer.block])
    return stream, line


def test_a_full_ring_waits_until_there_is_room(device: Device) -> None:
    stream, line = held(device, 4)
    array = device.zeros(16, np.uint8)
    release = device.stream()
    # Some time passes on the other queue before the semaphore moves.
    busy = device.empty(1 << 20, np.uint8)
    begun = device.bus.now()
    with release.batch():
        for _ in range(4):
            device.memset(busy, 1, release)
        device.memset(line[0:1], 1, release)
    times = []
    for i in range(10):
        device.memset(array[i : i + 1], i + 1, stream)
        times.append(device.bus.now() - begun)
    assert times[0] < 2_000, "there was room for the first"
    assert times[-1] > 20_000, "it did not wait"
    stream.synchronize()
    np.testing.assert_array_equal(array.numpy()[:11], [*range(1, 11), 0])


def test_a_full_ring_times_out_and_the_operation_leaves_no_trace(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.stream.DEFAULT_TIMEOUT", TIMEOUT)
    stream, line = held(device, 4)
    array = device.zeros(16, np.uint8)
    # The fetcher takes all packets at once, so more than a ring's depth is on its way.
    accepted = begun = 0

    def submit_for_ever() -> None:
        nonlocal accepted, begun
        while accepted < 16:
            begun = device.bus.now()
            device.memset(array[accepted : accepted + 1], 1, stream)
            accepted += 1

    with pytest.raises(RingFullError) as caught:
        submit_for_ever()
    assert TIMEOUT <= device.bus.now() - begun <= TIMEOUT + PROBE
    error = caught.value
    assert (error.side, error.status) == (Side.HOST, Status.WAIT_TIMEOUT)
    assert (error.queue, error.packet) == (stream.queue, 0)
    assert 0 < accepted < 16
    assert stream.submitted_packets == 2 + 2 * accepted
    device.memset(line[0:1], 1)
    stream.synchronize()  # What was accepted runs, what was refused does not.
    np.testing.assert_array_equal(array.numpy(), [1] * accepted + [0] * (16 - accepted))
    device.memset(array, 7, stream)
    assert set(array.numpy().tolist()) == {7}


@pytest.mark.parametrize("operations", [1, 10, 100])
def test_a_batch_costs_one_doorbell_and_no_message(
    device: Device, monkeypatch: pytest.MonkeyPatch, operations: int
) -> None:
    """Counted at the bus: every register write that the host makes."""
    stream = device.stream()
    array = device.zeros(128, np.uint8)
    writes: Counter[tuple[Region, int]] = Counter()
    bus, write = device.bus, device.bus.write
    page = DOORBELL_PAGE_BYTES * stream.queue

    def counted(region: Region, offset: int, value: int, size: int = 8) -> None:
        writes[region, offset] += 1
        write(region, offset, value, size)

    bar0 = device.driver.registers.bar0
    before = bar0.request_write.read(), bar0.queue_doorbell[stream.queue].read()
    # The doorbell's accessor holds the bus's method since it was made.
    monkeypatch.setattr(bus, "write", counted)
    doorbell = stream._queue.ring._doorbell
    monkeypatch.setattr(doorbell, "_write", lambda value: counted(Region.BAR2, page, value))
    with stream.batch():
        for i in range(operations):
            device.memset(array[i : i + 1], i + 1, stream)
    assert writes == {(Region.BAR2, page): 1}
    stream.synchronize()
    assert writes == {(Region.BAR2, page): 1}, "waiting writes no register"
    after = bar0.request_write.read(), bar0.queue_doorbell[stream.queue].read()
    assert (after[0] - before[0], after[1] - before[1]) == (0, operations + 1)
    np.testing.assert_array_equal(array.numpy()[:operations], np.arange(1, operations + 1))
