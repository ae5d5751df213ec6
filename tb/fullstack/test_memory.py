"""Device memory: frees that wait for work, forgotten objects, exhaustion."""

import gc

import numpy as np
import pytest

from runtime import Device, OutOfMemoryError, PinnedArray, StaleHandleError, gemm


def used(device: Device) -> int:
    """Bytes in use."""
    return device.memory_info["used"]


def test_memory_comes_back(device: Device) -> None:
    before = device.memory_info
    arrays = [device.empty(1000 * (i + 1), np.int8) for i in range(20)]
    assert used(device) >= sum(array.nbytes for array in arrays)
    for array in arrays[::2] + arrays[1::2]:
        array.free()
    assert device.memory_info == before
    assert before["free"] == before["total"] - before["used"]


def test_forgotten_arrays_free_themselves(device: Device) -> None:
    before = used(device)
    pages = device.driver.pages.pages
    device.array(np.ones(5000, np.uint8))
    view = device.pinned(5000, np.uint8)[10:20]
    assert device.driver.pages.pages > pages
    del view
    gc.collect()
    device.synchronize()
    device.heap.reap()
    assert used(device) == before


def test_a_view_keeps_its_buffer(device: Device) -> None:
    view = device.array(np.arange(100, dtype=np.uint8))[10:20]
    gc.collect()
    other = device.zeros(100, np.uint8)
    np.testing.assert_array_equal(view.numpy(), np.arange(10, 20))
    assert other.numpy().sum() == 0


def test_a_free_waits_for_the_work_that_uses_the_memory(device: Device) -> None:
    """What was freed while a copy reads it is not handed out to anyone who would overwrite it."""
    stream, other = device.stream(), device.stream()
    source = device.array(np.full(1 << 18, 7, np.uint8))
    target = device.empty(1 << 18, np.uint8)
    address = source.address
    device.memcpy_async(target, source, stream)
    source.free()
    assert source.buffer.freed
    taken = device.empty(1 << 18, np.uint8)
    assert taken.address != address
    device.memset(taken, 9, other)
    assert set(target.numpy()[::1000].tolist()) == {7}
    device.synchronize()
    again = device.empty(1 << 18, np.uint8)
    assert again.address == address


def test_an_unfinished_free_holds_up_no_other(device: Device) -> None:
    slow, fast = device.stream(), device.stream()
    big = device.empty(1 << 20, np.uint8)
    small = device.empty(256, np.uint8)
    for _ in range(4):
        device.memset(big, 1, slow)
    big.free()
    device.memset(small, 1, fast)
    fast.synchronize()
    before = used(device)
    small.free()
    assert not slow.query()
    assert used(device) == before - 256
    slow.synchronize()


def test_exhaustion_first_finishes_work_that_holds_freed_memory(device: Device) -> None:
    half = device.info.hbm_bytes // 2 + 256
    stream = device.stream()
    array = device.empty(half, np.uint8)
    device.memset(array[0 : 1 << 16], 1, stream)
    array.free()
    again = device.empty(half, np.uint8)
    assert again.address == array.address
    with pytest.raises(OutOfMemoryError, match="bytes asked for"):
        device.empty(half, np.uint8)
    again.free()
    assert device.empty(half, np.uint8).nbytes == half


def test_programs_leave_when_memory_is_short(device: Device) -> None:
    a, b = device.array(np.ones((4, 4), np.int8)), device.array(np.ones((4, 4), np.int8))
    gemm(a, b).numpy()
    assert len(device.programs) == 1
    out = device.empty((4, 8), np.int32)
    wide = device.array(np.ones((4, 8), np.int8))
    rest = device.malloc(device.memory_info["largest"])
    gemm(a, wide, out)
    assert len(device.programs) == 1
    np.testing.assert_array_equal(out.numpy(), np.full((4, 8), 4))
    rest.free()


def test_staging_memory_is_bounded(device: Device) -> None:
    stream = device.stream()
    x = np.zeros(6 << 20, np.uint8)
    array = device.empty(x.shape, np.uint8)
    device.memcpy_async(array, x, stream)
    assert device.driver.pages.pages * 4096 < 5 << 20
    stream.synchronize()


def test_pinned_memory_that_was_freed_is_refused(device: Device) -> None:
    pinned = device.pinned(64, np.uint8)
    view: PinnedArray = pinned[3:].view(PinnedArray)
    device.free(pinned)
    array = device.empty(61, np.uint8)
    with pytest.raises(StaleHandleError, match="src was freed"):
        device.memcpy(array, view)
    with pytest.raises(StaleHandleError, match="memory was freed"):
        view.free()
