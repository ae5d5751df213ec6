"""Faults on purpose: who is blamed, what is kept, what goes on, and how one recovers."""

from typing import Any

import numpy as np
import pytest

from abi.address import HBM_BASE
from abi.core import BLOCK_LIMIT, Pipe
from abi.mailbox import FirmwarePhase
from abi.packet import PacketOpcode
from abi.status import Engine, Side, Status
from driver.kmd.wait import DEFAULT_TIMEOUT
from runtime import (
    DependencyFailedError,
    Device,
    DeviceError,
    DoorbellLostError,
    FirmwareCrashError,
    FirmwareStallError,
    InterruptLostError,
    KernelTimeoutError,
    NpuError,
    RingFullError,
    Stream,
    SubmissionError,
    gemm,
)
from runtime.stream import BLOCK_TIMEOUT
from tb.fullstack import objects

TIMEOUT = 200_000
NOWHERE = HBM_BASE - 4096
"""A device address without memory."""


def bad_copy(device: Device, stream: Stream) -> None:
    """Submit a copy from an address that does not exist."""
    target = device.empty(64, np.uint8)
    fields = {"source": NOWHERE, "destination": target.address, "row_bytes": 64, "rows": 1}
    stream.submit([(PacketOpcode.COPY, fields)], [target.buffer.block])


def hold(device: Device, stream: Stream) -> None:
    """Submit a wait for a semaphore that nobody ever signals."""
    line = device.zeros(64, np.uint8)
    fields = {"semaphore": line.address, "value": 1}
    stream.submit([(PacketOpcode.WAIT, fields)], [line.buffer.block])


def check_works(device: Device, stream: Stream) -> None:
    """The stream does correct work."""
    x = np.random.default_rng(1).integers(-128, 128, (20, 30), dtype=np.int8)
    y = np.random.default_rng(2).integers(-128, 128, (30, 10), dtype=np.int8)
    result = gemm(device.array(x), device.array(y), stream=stream)
    stream.synchronize()
    np.testing.assert_array_equal(result.numpy(), x.astype(np.int32) @ y.astype(np.int32))


def test_a_fault_ends_its_stream_and_no_other(device: Device) -> None:
    guilty, neighbour = device.stream(), device.stream()
    array, other = device.zeros(64, np.uint8), device.zeros(64, np.uint8)
    with guilty.batch():
        device.memset(array, 1, guilty)
        bad_copy(device, guilty)
        device.memset(array, 2, guilty)
    device.memset(other, 3, neighbour)
    with pytest.raises(SubmissionError, match="no memory") as caught:
        guilty.synchronize()
    error = caught.value
    assert (error.side, error.engine, error.status) == (Side.HOST, Engine.DMA, Status.ADDRESS_FAULT)
    assert (error.queue, error.packet, error.address) == (guilty.queue, 1, NOWHERE)
    assert guilty.error is error
    assert device.last_error is error
    neighbour.synchronize()
    assert neighbour.error is None
    assert other.numpy()[0] == 3
    assert array.numpy()[0] == 1, "work behind the fault must not run"
    for call in (guilty.synchronize, guilty.query, lambda: device.memset(array, 9, guilty)):
        with pytest.raises(SubmissionError) as again:
            call()
        assert again.value is error, "the first error is the one that is kept"
    guilty.reset()
    assert guilty.error is None
    check_works(device, guilty)


def test_the_first_of_two_faults_is_kept(device: Device) -> None:
    stream = device.stream()
    with stream.batch():
        bad_copy(device, stream)
        stream.submit([(PacketOpcode.CHAIN, {"descriptor": 64})])
    with pytest.raises(NpuError) as caught:
        stream.synchronize()
    assert (caught.value.packet, caught.value.status) == (0, Status.ADDRESS_FAULT)


def test_a_fault_is_noticed_by_the_next_call_without_waiting(device: Device) -> None:
    stream, other = device.stream(), device.stream()
    bad_copy(device, stream)
    device.memset(device.empty(1 << 14, np.uint8), 0, other)
    other.synchronize()
    assert isinstance(stream.error, SubmissionError)


def test_a_host_bus_error_is_the_devices_fault(device: Device, machine: Any) -> None:
    pinned = device.pinned(4096, np.uint8)
    array = device.zeros(4096, np.uint8)
    stream = device.stream()
    assert pinned.owner is not None
    bus = pinned.owner.block.allocation.bus_address
    machine.faults.host_slverr(bus, bus + 4096)
    device.memcpy_async(array, pinned, stream)
    with pytest.raises(DeviceError) as caught:
        stream.synchronize()
    assert (caught.value.status, caught.value.engine) == (Status.BUS_ERROR, Engine.DMA)
    machine.faults.host_slverr(0, 0)
    stream.reset()
    pinned[:] = 5
    device.memcpy_async(array, pinned, stream)
    stream.synchronize()
    assert set(array.numpy().tolist()) == {5}


def test_failed_work_delivers_no_data(device: Device) -> None:
    stream = device.stream()
    array = device.zeros(100, np.uint8)
    bad_copy(device, stream)
    result = np.full(100, 77, np.uint8)
    with pytest.raises(SubmissionError):
        device.memcpy_async(result, array, stream)
    assert set(result.tolist()) == {77}


def test_a_failed_event_poisons_those_who_wait(device: Device) -> None:
    first, second, third = device.stream(), device.stream(), device.stream()
    array = device.zeros(64, np.uint8)
    event = device.event()
    second_event = device.event()
    bad_copy(device, first)
    event.record(first)
    second.wait(event)
    device.memset(array, 1, second)
    second_event.record(second)
    third.wait(second_event)
    with pytest.raises(DependencyFailedError) as caught:
        third.synchronize()
    assert caught.value.queue == third.queue
    with pytest.raises(DependencyFailedError) as caught:
        second.synchronize()
    assert (caught.value.queue, caught.value.packet) == (second.queue, 0)
    with pytest.raises(SubmissionError, match="no memory"):
        event.synchronize()
    with pytest.raises(SubmissionError):
        event.query()
    assert array.numpy()[0] == 0
    for stream in (first, second, third):
        stream.reset()
        check_works(device, stream)
    event.record(first)
    event.synchronize()
    assert event.query()


def test_resetting_a_stream_fails_the_events_that_never_come(device: Device) -> None:
    first, second = device.stream(), device.stream()
    array = device.zeros(64, np.uint8)
    event = device.event()
    hold(device, first)
    device.memset(array, 1, first)
    event.record(first)
    second.wait(event)
    first.reset()
    with pytest.raises(NpuError) as caught:
        event.synchronize()
    assert caught.value.status is Status.ABORTED
    with pytest.raises(DependencyFailedError):
        second.synchronize()
    second.reset()
    check_works(device, first)
    check_works(device, second)
    assert array.numpy()[0] == 0


def test_a_lost_doorbell_is_found_and_made_up_for(device: Device, machine: Any) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.drop_doorbells(1)
    device.memset(array, 1, stream)
    with pytest.raises(DoorbellLostError) as caught:
        stream.synchronize(timeout=TIMEOUT)
    assert caught.value.side is Side.HOST
    assert stream.error is None
    stream.synchronize()  # It was rung again.
    device.memset(array[0:1], 2, stream)
    stream.synchronize()
    assert array.numpy()[:2].tolist() == [2, 1]


def test_a_lost_doorbell_of_a_full_ring(device: Device, machine: Any) -> None:
    stream = device.stream(depth=2)
    array = device.zeros(64, np.uint8)
    machine.faults.drop_doorbells(1)
    device.memset(array, 1, stream)
    with pytest.raises(RingFullError, match="packets before 2 were published"):
        device.memset(array, 2, stream)
    device.memset(array, 3, stream)
    stream.synchronize()
    assert array.numpy()[0] == 3


def test_a_stream_is_reset_after_a_lost_doorbell(device: Device, machine: Any) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.drop_doorbells(1)
    device.memset(array, 1, stream)
    stream.reset()
    stream.synchronize()
    check_works(device, stream)
    assert array.numpy()[0] == 0, "dropped work must not run later"


def test_a_lost_interrupt_is_reported_once_and_the_work_is_valid(
    device: Device, machine: Any
) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.drop_messages(1 + stream.queue, 1)
    device.memset(array, 4, stream)
    with pytest.raises(InterruptLostError):
        stream.synchronize(timeout=TIMEOUT)
    stream.synchronize()
    assert array.numpy()[0] == 4


def test_a_kernel_that_runs_too_long_is_aborted(device: Device) -> None:
    stream = device.stream(task_timeout=50_000)
    kernel = device.load(objects.endless()).kernel()
    start = device.bus.now()
    kernel.launch(1, stream=stream)
    with pytest.raises(KernelTimeoutError) as caught:
        stream.synchronize()
    assert 50_000 < device.bus.now() - start < 100_000
    assert (caught.value.side, caught.value.engine) == (Side.DEVICE, Engine.CORE)
    stream.reset()
    check_works(device, stream)


def test_a_block_that_never_ends_is_aborted_by_default(device: Device) -> None:
    """Nobody set a timeout; the other core's work is right, and the next kernel runs."""
    stream, neighbour = device.stream(), device.stream()
    code, pc = objects.stuck(7)
    x = np.random.default_rng(3).integers(-128, 128, (64, 64), dtype=np.int8)
    left = device.array(x)
    start = device.bus.now()
    device.load(code).kernel().launch((4, 3), stream=stream)
    result = gemm(left, left, stream=neighbour)
    neighbour.synchronize()
    assert device.bus.now() - start < BLOCK_TIMEOUT
    np.testing.assert_array_equal(result.numpy(), x.astype(np.int32) @ x.astype(np.int32))
    with pytest.raises(KernelTimeoutError, match=rf"pc {pc:#x}, block \(3, 1, 0\)") as caught:
        stream.synchronize()
    assert BLOCK_TIMEOUT < device.bus.now() - start < DEFAULT_TIMEOUT
    error = caught.value
    assert (error.side, error.engine) == (Side.DEVICE, Engine.CORE)
    assert (error.pipe, error.pc, error.block_number) == (Pipe.SCALAR, pc, 7)
    assert error.instance in range(device.info.cores)
    stream.reset()
    objects.check_all_cores(device, stream)


def test_a_long_block_runs_where_the_stream_allows_it(device: Device) -> None:
    short = device.stream(block_timeout=10_000)
    long = device.stream(block_timeout=1_000_000)
    kernel = device.load(objects.squares(loops=10_000)).kernel()
    out = device.zeros(2, np.int32)
    kernel.launch(2, out, stream=short)
    with pytest.raises(KernelTimeoutError):
        short.synchronize()
    assert not out.numpy().any()
    kernel.launch(2, out, stream=long)
    long.synchronize()
    np.testing.assert_array_equal(out.numpy(), [7, 8])


def test_a_kernel_of_a_failed_stream_runs_on_others(device: Device) -> None:
    guilty, neighbour, third = device.stream(), device.stream(), device.stream()
    check_works(device, guilty)
    bad_copy(device, guilty)
    with pytest.raises(SubmissionError):
        guilty.synchronize()
    for stream in (neighbour, third):
        check_works(device, stream)
    guilty.reset()
    check_works(device, guilty)


def test_the_cap_of_a_block_leaves_room_for_the_librarys_and_ends_before_a_wait() -> None:
    assert 4 * BLOCK_LIMIT <= BLOCK_TIMEOUT <= DEFAULT_TIMEOUT - 4 * BLOCK_LIMIT // 2


def test_a_crashed_firmware_is_named_and_a_device_reset_helps(device: Device, machine: Any) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.crash_firmware()
    device.memset(array, 1, stream)
    with pytest.raises(FirmwareCrashError) as caught:
        stream.synchronize(timeout=TIMEOUT)
    assert (caught.value.side, caught.value.engine) == (Side.FIRMWARE, Engine.FIRMWARE)
    assert caught.value.status is Status.FIRMWARE_CRASH
    assert caught.value.in_flight
    state = device.driver.registers.bar0.firmware_state
    assert state.field("phase") == FirmwarePhase.CRASHED
    device.reset()
    check_works(device, device.stream())


def test_a_stalled_firmware_is_named_and_may_come_back(device: Device, machine: Any) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.stall_firmware()
    device.memset(array, 1, stream)
    with pytest.raises(FirmwareStallError):
        stream.synchronize(timeout=TIMEOUT)
    machine.faults.release_firmware()
    stream.synchronize()
    assert array.numpy()[0] == 1


def test_a_full_ring_times_out_and_nothing_of_the_operation_is_submitted(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.stream.DEFAULT_TIMEOUT", TIMEOUT)
    stream = device.stream(depth=4)
    array = device.zeros(64, np.uint8)
    hold(device, stream)
    done: list[int] = []

    def submit_for_ever() -> None:
        while len(done) < 20:
            device.memset(array, 1, stream)
            done.append(1)

    with pytest.raises(RingFullError, match="a semaphore that nobody signals") as caught:
        submit_for_ever()
    assert (caught.value.queue, caught.value.packet) == (stream.queue, 0)
    assert stream.submitted_packets == 2 + 2 * len(done)
    stream.reset()
    check_works(device, stream)


@pytest.mark.parametrize("fault", ["hold", "crash", "stall"])
def test_closing_a_broken_device_gives_everything_back(
    device: Device, machine: Any, fault: str
) -> None:
    stream = device.stream()
    array, pinned = device.zeros(4096, np.uint8), device.pinned(4096, np.uint8)
    {
        "hold": lambda: hold(device, stream),
        "crash": machine.faults.crash_firmware,
        "stall": machine.faults.stall_firmware,
    }[fault]()
    device.memcpy_async(pinned, array, stream)
    device.close()
    assert device.driver.pages.pages == 0
    machine.faults.release_firmware()
    with Device(machine.bus) as again:
        check_works(again, again.stream())


def test_a_device_is_reset_many_times(device: Device) -> None:
    for generation in range(1, 6):
        stream = device.stream()
        device.memset(device.empty(1 << 16, np.uint8), 1, stream)
        device.reset()
        assert device.generation == generation
    check_works(device, device.default_stream)
    assert device.driver.pages.quarantined == 0


def test_a_kernel_fault_names_pipe_pc_and_block(device: Device) -> None:
    stream = device.stream()
    code, pc = objects.failing(13)
    out = device.zeros(24, np.int32)
    kernel = device.load(code).kernel()
    kernel.launch((4, 3, 2), out, None, stream=stream)
    with pytest.raises(NpuError, match=rf"pipe MTE2, pc {pc:#x}, block \(1, 0, 1\)") as caught:
        stream.synchronize()
    error = caught.value
    assert (error.engine, error.status) == (Engine.CORE, Status.ADDRESS_FAULT)
    assert error.instance in range(device.info.cores)
    assert (error.side, error.pipe, error.pc) == (Side.HOST, Pipe.MTE2, pc)
    assert (error.block, error.block_number) == ((1, 0, 1), 13)
    stream.reset()
    check_works(device, stream)


def test_destroying_a_faulted_stream_raises_nothing_new_and_frees_its_queue(
    device: Device,
) -> None:
    stream = device.stream()
    bad_copy(device, stream)
    with pytest.raises(SubmissionError):
        stream.synchronize()
    live = len(device.driver.queues.live)
    stream.destroy()
    assert len(device.driver.queues.live) == live - 1
    check_works(device, device.stream())


def test_destroying_a_stream_whose_work_fails_reports_it_and_frees_its_queue(
    device: Device,
) -> None:
    stream = device.stream()
    bad_copy(device, stream)
    live = len(device.driver.queues.live)
    with pytest.raises(SubmissionError):
        stream.destroy()
    assert len(device.driver.queues.live) == live - 1
