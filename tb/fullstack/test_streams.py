"""Streams, batches, events."""

from typing import Any

import numpy as np
import pytest

from abi.packet import PacketOpcode
from driver import tracing
from runtime import (
    Device,
    DeviceClosedError,
    Event,
    InvalidArgumentError,
    NotFinishedError,
    OutOfMemoryError,
    StaleHandleError,
    Stream,
)


class Counter:
    """A trace sink that counts."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.times: list[int] = []
        self.open = 0

    def point(self, time: int, track: str, name: str, arguments: dict[str, int]) -> None:
        """Note a point."""
        assert all(isinstance(value, int) for value in arguments.values())
        self.names.append((track, name))
        self.times.append(time)

    def begin(self, time: int, track: str, name: str, arguments: dict[str, int]) -> None:
        """Note a span."""
        self.point(time, track, name, arguments)
        self.open += 1

    def end(self, time: int, track: str, name: str) -> None:
        """Close it."""
        self.times.append(time)
        self.open -= 1
        assert (track, name) in self.names


def test_a_stream_keeps_its_order(device: Device) -> None:
    stream = device.stream()
    array = device.zeros(64, np.int32)
    for i in range(40):
        device.fill(array, i, stream)
    stream.synchronize()
    np.testing.assert_array_equal(array.numpy(), np.full(64, 39, np.int32))
    assert stream.query()


def test_a_batch_rings_once(device: Device) -> None:
    stream = device.stream()
    arrays = [device.empty(100, np.uint8) for _ in range(5)]
    before = stream.submitted_packets
    sink = Counter()
    tracing.attach(sink, device.bus.now)
    with stream.batch():
        for i, array in enumerate(arrays):
            device.memset(array, i, stream)
        assert stream.submitted_packets == before
        assert not stream.query()
    tracing.detach()
    assert sink.names.count(("doorbell", "ring")) == 1
    assert not [name for name in sink.names if name[0] == "mailbox"], "hot path without messages"
    assert sink.names.count(("api", "memset")) == 5
    assert sink.names.count(("ring", "FILL")) == 5
    assert sink.open == 0
    assert sink.times == sorted(sink.times)
    assert stream.submitted_packets == before + 6
    stream.synchronize()
    for i, array in enumerate(arrays):
        assert set(array.numpy().tolist()) == {i}


def test_nested_batches_ring_at_the_outermost_end(device: Device) -> None:
    stream = device.stream()
    array = device.zeros(16, np.uint8)
    with stream.batch():
        device.memset(array, 1, stream)
        with stream.batch():
            device.memset(array, 2, stream)
        assert stream.submitted_packets == 0
    assert stream.submitted_packets == 3
    stream.synchronize()


def test_waiting_inside_a_batch_rings_first(device: Device) -> None:
    stream = device.stream()
    array = device.zeros(16, np.uint8)
    with stream.batch():
        device.memset(array, 1, stream)
        stream.synchronize()
        assert array.numpy()[0] == 1
        device.memset(array, 2, stream)
    stream.synchronize()
    assert array.numpy()[0] == 2


def test_a_batch_that_raises_still_runs_what_it_gathered(device: Device) -> None:
    stream = device.stream()
    array = device.zeros(16, np.uint8)

    def fail() -> None:
        with stream.batch():
            device.memset(array, 7, stream)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    stream.synchronize()
    assert array.numpy()[0] == 7


def test_a_batch_larger_than_the_ring(device: Device) -> None:
    stream = device.stream(depth=4)
    array = device.zeros(64, np.uint8)
    with stream.batch():
        for i in range(50):
            device.memset(array[i : i + 1], i + 1, stream)
    stream.synchronize()
    np.testing.assert_array_equal(array.numpy()[:50], np.arange(1, 51))


@pytest.mark.parametrize("depth", [2, 8])
def test_a_small_ring_wraps_many_times(device: Device, depth: int) -> None:
    stream = device.stream(depth=depth)
    array = device.zeros(4, np.int32)
    for i in range(40):
        device.fill(array, i, stream)
    stream.synchronize()
    assert array.numpy()[0] == 39


def test_streams_run_side_by_side_and_meet_at_an_event(device: Device) -> None:
    first, second = device.stream(), device.stream()
    a, b = device.zeros(4096, np.uint8), device.zeros(4096, np.uint8)
    event = device.event()
    device.memset(a, 5, first)
    event.record(first)
    second.wait(event)
    device.memcpy_async(b, a, second)
    second.synchronize()
    assert set(b.numpy().tolist()) == {5}


def test_a_wait_holds_the_stream_not_the_host(device: Device) -> None:
    first, second = device.stream(), device.stream()
    a, b = device.zeros(1 << 18, np.uint8), device.zeros(1 << 18, np.uint8)
    event = device.event()
    for value in (1, 2, 3):
        device.memset(a, value, first)
    event.record(first)
    second.wait(event)
    device.memcpy_async(b, a, second)
    assert not second.query()
    device.synchronize()
    assert second.query()
    assert set(b.numpy()[::1000].tolist()) == {3}


def test_a_blocking_copy_waits_for_all_streams_that_use_its_memory(device: Device) -> None:
    stream = device.stream()
    array = device.zeros(1 << 20, np.uint8)
    device.memset(array, 7, stream)
    assert set(array[(1 << 20) - 64 :].numpy().tolist()) == {7}
    device.memset(array, 8, stream)
    tail = np.zeros(64, np.uint8)
    device.memcpy_2d(tail, 32, array[(1 << 20) - 64 :], 32, 32, 2)
    assert set(tail.tolist()) == {8}


def test_an_event_in_an_open_batch_can_be_waited_for(device: Device) -> None:
    first, second = device.stream(), device.stream()
    a, b = device.zeros(64, np.uint8), device.zeros(64, np.uint8)
    event = device.event()
    with first.batch():
        device.memset(a, 9, first)
        event.record(first)
        second.wait(event)
        device.memcpy_async(b, a, second)
        second.synchronize()
    assert set(b.numpy().tolist()) == {9}


def test_an_event_that_was_never_recorded_holds_nothing_up(device: Device) -> None:
    stream, event = device.stream(), device.event()
    stream.wait(event)
    event.synchronize()
    assert event.query()
    stream.synchronize()


def test_elapsed_cycles(device: Device) -> None:
    stream = device.stream()
    array = device.zeros(1 << 16, np.uint8)
    start, end = device.event(), device.event()
    before = device.bus.now()
    start.record(stream)
    device.memset(array, 1, stream)
    end.record(stream)
    with pytest.raises(NotFinishedError, match="end must have happened"):
        start.elapsed_cycles(end)
    end.synchronize()
    elapsed = start.elapsed_cycles(end)
    assert (1 << 16) // 64 <= elapsed <= device.bus.now() - before
    assert end.elapsed_cycles(start) == -elapsed


def test_elapsed_cycles_of_events_that_were_not_recorded(device: Device) -> None:
    start, end = device.event(), device.event()
    start.record()
    start.synchronize()
    with pytest.raises(NotFinishedError, match="end must be recorded"):
        start.elapsed_cycles(end)
    with pytest.raises(NotFinishedError, match="start must be recorded"):
        end.elapsed_cycles(start)


def test_a_record_replaces_the_one_before(device: Device) -> None:
    stream, event = device.stream(), device.event()
    event.record(stream)
    event.synchronize()
    array = device.zeros(1 << 16, np.uint8)
    device.memset(array, 1, stream)
    event.record(stream)
    assert not event.query()
    event.synchronize()
    assert event.query()
    assert set(array.numpy()[::999].tolist()) == {1}


def test_an_event_is_reached_before_later_work(device: Device) -> None:
    stream, event = device.stream(), device.event()
    array = device.zeros(1 << 20, np.uint8)
    with stream.batch():
        device.memset(array[0:64], 1, stream)
        event.record(stream)
        device.memset(array, 2, stream)
    event.synchronize()
    assert not stream.query()
    stream.synchronize()


def test_queues_of_destroyed_streams_are_used_again(device: Device) -> None:
    array = device.zeros(4, np.int32)
    for i in range(40):
        stream = device.stream(depth=8)
        device.fill(array, i, stream)
        stream.destroy()
        stream.destroy()
        assert array.numpy()[0] == i


def test_all_queues_in_use(device: Device) -> None:
    streams = [device.stream(depth=2) for _ in range(device.info.queues)]
    with pytest.raises(OutOfMemoryError, match="queues of the device are in use"):
        device.stream()
    array = device.empty(16, np.int32)
    with pytest.raises(OutOfMemoryError):
        device.memset(array, 0)  # The default stream needs a queue too.
    for i, stream in enumerate(streams):
        device.fill(array[i], i, stream)
    device.synchronize()
    streams.pop().destroy()
    np.testing.assert_array_equal(array.numpy(), np.arange(16))


def test_a_destroyed_stream_is_refused(device: Device) -> None:
    stream, event = device.stream(), device.event()
    stream.destroy()
    array = device.empty(16, np.uint8)
    for call in (
        stream.synchronize,
        stream.query,
        stream.reset,
        lambda: device.memset(array, 0, stream),
        lambda: event.record(stream),
        lambda: stream.wait(event),
    ):
        with pytest.raises(StaleHandleError, match="stream was destroyed"):
            call()
    event.destroy()
    event.destroy()
    with pytest.raises(StaleHandleError, match="event was destroyed"):
        event.query()


def test_many_events_share_pages_and_come_back(device: Device) -> None:
    stream = device.stream()
    pages = device.driver.pages.pages
    for _ in range(10):
        events = [Event(device) for _ in range(30)]
        for event in events:
            event.record(stream)
        stream.synchronize()
        assert all(event.query() for event in events)
        del events, event
    assert device.driver.pages.pages == pages + 1


@pytest.mark.parametrize("depth", [0, 1, 3, 100, 1 << 17, None, "8"])
def test_bad_stream_depths(device: Device, depth: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="depth must be"):
        Stream(device, depth=depth)
    assert device.driver.queues.live == []


def test_a_closed_device_refuses_everything(device: Device) -> None:
    stream, event = device.stream(), device.event()
    array, pinned = device.zeros(16, np.uint8), device.pinned(16, np.uint8)
    device.close()
    device.close()
    assert device.closed
    calls = [
        lambda: device.malloc(1),
        lambda: device.empty(1, np.int8),
        lambda: device.array(np.zeros(1)),
        lambda: device.pinned(1, np.int8),
        lambda: device.free(array),
        lambda: device.free(pinned),
        lambda: device.memcpy(array, np.zeros(16, np.uint8)),
        lambda: device.memset(array, 0),
        lambda: array.numpy(),
        lambda: device.stream(),
        lambda: device.event(),
        lambda: device.synchronize(),
        lambda: device.reset(),
        lambda: device.memory_info,
        lambda: device.default_stream,
        lambda: stream.synchronize(),
        lambda: stream.query(),
        lambda: event.query(),
        lambda: event.record(),
    ]
    for call in calls:
        with pytest.raises(DeviceClosedError, match="device is closed"):
            call()
    stream.destroy()


def test_a_stream_that_ends_leaves_the_events_of_others_alone(device: Device) -> None:
    first, second = device.stream(), device.stream()
    event = device.event()
    event.record(first)
    first.synchronize()
    line = event.block.allocation.bus_address
    del event
    other, never = device.event(), device.event()
    assert line in (e.block.allocation.bus_address for e in (other, never)), "a line is used again"
    wait = {"semaphore": never.block.allocation.device_address, "value": 1}
    second.submit([(PacketOpcode.WAIT, wait)])
    other.record(second)
    never.record(second)
    first.destroy()
    assert not other.query()
    assert not never.query()
    second.reset()
