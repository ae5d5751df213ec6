"""Several host threads use one device."""

import gc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from abi.packet import PacketOpcode
from driver.bus import Bus
from driver.kmd.ioctl import MemoryKind
from runtime import Device, DeviceClosedError, StaleHandleError, Stream, gemm
from tb.models.device import ModelMachine
from tb.models.device.threads import HostThreads


@pytest.fixture
def threads(machine: Any, seed: int) -> Any:
    """What starts and joins host threads: `spawn`, `join`, `bus`."""
    if isinstance(machine, ModelMachine):
        return HostThreads(machine, seed=seed)
    machine.machine.actors.bus = machine.bus
    return machine.machine.actors


@pytest.fixture
def device(threads: Any) -> Iterator[Device]:
    """The machine's device on the bus that the threads share."""
    with Device(threads.bus) as opened:
        yield opened


@pytest.mark.parametrize("count", [4, 12])
def test_host_threads_make_streams_at_the_same_time(
    device: Device, threads: Any, count: int
) -> None:
    made: dict[int, Stream] = {}
    results: dict[int, list[int]] = {}

    def work(index: int) -> None:
        stream = made[index] = device.stream()
        array = device.empty(100, np.uint8)
        device.memset(array, index, stream)
        stream.synchronize()
        results[index] = sorted(set(array.numpy().tolist()))
        stream.destroy()

    started = [threads.spawn(f"host {i}", lambda i=i: work(i)) for i in range(count)]
    for thread in started:
        threads.join(thread)
    assert results == {i: [i] for i in range(count)}
    assert len({stream.queue for stream in made.values()}) == count


@pytest.mark.parametrize("batched", [False, True])
def test_host_threads_share_the_default_stream(
    device: Device, threads: Any, seed: int, batched: bool
) -> None:
    rounds = 12

    def work(index: int) -> None:
        data = np.full(300, index, np.int32)
        for i in range(rounds):
            data += i
            array = device.array(data)
            if batched:
                with device.default_stream.batch():
                    device.fill(array, -1)
                    device.memcpy_async(array, data)
            assert np.array_equal(array.numpy(), data), f"seed {seed}, round {i}"

    started = [threads.spawn(f"host {i}", lambda i=i: work(i)) for i in range(6)]
    for thread in started:
        threads.join(thread)
    assert len(device.streams) == 1


@pytest.mark.parametrize("waiters", [2, 5])
def test_all_host_threads_that_wait_for_a_stream_wake_at_once(
    device: Device, threads: Any, waiters: int
) -> None:
    """One message for all of them: whoever did not take it must not sleep its slice out."""
    stream, array = device.stream(), device.empty(1 << 20, np.uint8)
    late: list[int] = []

    def work() -> None:
        stream.synchronize()
        late.append(threads.bus.now() - done.cycle)

    done = device.event()
    for _ in range(6):
        device.memset(array, 7, stream)
        done.record(stream)
        started = [threads.spawn(f"waits {i}", work) for i in range(waiters)]
        for thread in started:
            threads.join(thread)
    print("cycles from the signal to each waiter's return:", sorted(late))
    assert len(late) == 6 * waiters
    assert max(late) < 3_000


def largest_run(bus: Bus) -> int:
    """The most contiguous host pages that are free."""
    low, high = 0, 1 << 16
    while low < high:
        middle = (low + high + 1) // 2
        try:
            bus.free_pages(bus.allocate_pages(middle), middle)
            low = middle
        except MemoryError:
            high = middle - 1
    return low


def copies(device: Device, stream: Stream, _draw: Random) -> None:
    data = np.arange(20_000, dtype=np.int32)
    back = np.zeros_like(data)
    array = device.empty(data.shape, data.dtype)
    device.memcpy_async(array, data, stream)
    device.memcpy_async(back, array, stream)
    assert np.array_equal(back, data)
    assert device.array(data[:50]).numpy().tolist() == list(range(50))


def pinned_copies(device: Device, stream: Stream, draw: Random) -> None:
    size = draw.choice([100, 5000])
    here, there = device.pinned(size, np.uint8), device.empty(size, np.uint8)
    device.memcpy_async(there, here, stream)
    event = device.event()
    event.record(stream)
    event.synchronize()
    here.free()


def products(device: Device, stream: Stream, _draw: Random) -> None:
    a = device.empty((16, 16), np.int8)
    device.memset(a, 2, stream)
    gemm(a, a, stream=stream)
    stream.synchronize()


def made_streams(device: Device, stream: Stream, draw: Random) -> None:
    own = device.stream(depth=draw.choice([4, 1024]))
    event = device.event()
    event.record(own)
    stream.wait(event)
    stream.synchronize()
    own.destroy()


WORK: list[Callable[[Device, Stream, Random], None]] = [
    copies,
    pinned_copies,
    products,
    made_streams,
]


class Workers:
    """Threads, each with its own stream, that go on until `stop`."""

    def __init__(self, device: Device, threads: Any, seed: int) -> None:
        self.stop = False
        self.errors: list[StaleHandleError] = []
        self.up: int | None = device.generation
        """The generation that nobody is about to end."""
        self.rounds = 0
        self._device = device
        self._threads = threads
        self.started = [
            threads.spawn(work.__name__, lambda w=work, i=i: self._work(w, Random(seed + i)))
            for i, work in enumerate(WORK)
        ]

    def _work(self, work: Callable[[Device, Stream, Random], None], draw: Random) -> None:
        bus, device = self._threads.bus, self._device
        while not self.stop:
            begun = self.up
            try:
                with_stream(device, lambda stream: work(device, stream, draw))
                self.rounds += 1
            except StaleHandleError as error:
                if begun is not None and begun == self.up:
                    raise AssertionError("a new call met state of a former life") from error
                self.errors.append(error)
                bus.wait_interrupt(0, bus.now() + 200)

    def join(self) -> None:
        self.stop = True
        for thread in self.started:
            self._threads.join(thread)


def with_stream(device: Device, work: Callable[[Stream], None]) -> None:
    stream = device.stream()
    work(stream)
    stream.destroy()


def taken(device: Device) -> tuple[int, int, int]:
    """Allocations of device memory, pinned pages and queues."""
    gc.collect()
    device.heap.reap()
    driver = device.driver
    return driver.hbm.allocations, driver.pages.pages, len(driver.queues.live)


@pytest.mark.parametrize("moment", range(6))
def test_a_reset_while_others_work_makes_their_calls_stale(
    device: Device, threads: Any, seed: int, moment: int
) -> None:
    bus, draw = threads.bus, Random(100 * seed + moment)
    workers = Workers(device, threads, seed + moment)
    for _ in range(2):
        bus.wait_interrupt(0, bus.now() + draw.randrange(500, 40_000))
        workers.up = None
        device.reset()
        workers.up = device.generation
        assert device.last_error is None
        before = workers.rounds
        while workers.rounds < before + len(WORK):
            bus.wait_interrupt(0, bus.now() + 1000)
    workers.join()
    assert workers.errors, "nobody was in a call"
    assert not any(isinstance(error, DeviceClosedError) for error in workers.errors)
    device.synchronize()
    assert device.last_error is None, "an error of a former life is none of this one"
    hbm, _, queues = taken(device)
    assert queues == len(device.streams) <= 1, "only the default stream is left"
    assert hbm <= len(device.programs)
    device.reset()
    assert taken(device) == (0, 0, 0)
    assert device.array(np.arange(5)).numpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("call", ["synchronize", "download", "upload", "room"])
def test_a_reset_ends_waits_and_leaves_nothing_of_them(
    device: Device, threads: Any, call: str
) -> None:
    stream, event = device.stream(depth=64), device.event()
    host = np.zeros(5 << 20, np.uint8)  # More than the staging memory.
    array = device.empty(host.shape, host.dtype)
    never = {"semaphore": event.block.allocation.device_address, "value": 1}
    stream.submit([(PacketOpcode.WAIT, never)])
    calls: dict[str, Callable[[], object]] = {
        "synchronize": lambda: stream.synchronize(),
        "download": lambda: device.memcpy_async(host, array, stream),
        "upload": lambda: device.memcpy_async(array, host, stream),
        "room": lambda: [stream.submit([(PacketOpcode.NOP, {})]) for _ in range(100)],
    }
    heap, staging, errors = device.heap, device.staging, []

    def work() -> None:
        with pytest.raises(StaleHandleError, match="the device was reset") as caught:
            calls[call]()
        errors.append(caught.value)

    thread = threads.spawn("waits", work)
    bus = threads.bus
    bus.wait_interrupt(0, bus.now() + 60_000)
    assert not thread.done
    device.reset()
    fresh = device.stream(depth=64)
    assert fresh.queue == stream.queue
    small = device.empty(1 << 16, np.uint8)
    for _ in range(8):
        begin = bus.now()
        device.memset(small, 0, fresh)
        fresh.synchronize()
        assert bus.now() - begin < 20_000, "somebody took the interrupt of the next life"
    threads.join(thread)
    assert len(errors) == 1
    assert device.array(host[:100]).numpy().tolist() == [0] * 100
    device.memcpy(device.empty(host.shape, host.dtype), host)
    with pytest.raises(StaleHandleError, match="the device was reset"):
        staging.take(300_000)
    with pytest.raises(StaleHandleError, match="the device was reset"):
        heap.allocate(1, MemoryKind.HBM)


def reset_forever(device: Device) -> None:
    while True:
        device.reset()


@pytest.mark.parametrize("moment", range(6))
@pytest.mark.parametrize("resets", [False, True])
def test_a_close_while_others_work_ends_their_calls(
    machine: Any, threads: Any, seed: int, moment: int, resets: bool
) -> None:
    bus, draw = threads.bus, Random(100 * seed + moment)
    free = largest_run(machine.bus)
    device = Device(bus)
    workers = Workers(device, threads, seed + moment)

    def reset() -> None:
        with pytest.raises(DeviceClosedError):
            reset_forever(device)

    workers.up = None
    resetting = threads.spawn("resets", reset) if resets else None
    bus.wait_interrupt(0, bus.now() + draw.randrange(500, 40_000))
    device.close()
    workers.join()
    if resetting is not None:
        threads.join(resetting)
    assert any(isinstance(error, DeviceClosedError) for error in workers.errors)
    assert device.driver.pages.pages == 0
    assert largest_run(machine.bus) == free, "pages leaked"
    with Device(bus) as again:
        assert again.array(np.arange(5)).numpy().tolist() == [0, 1, 2, 3, 4]
