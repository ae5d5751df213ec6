"""Kernels from objects over grids: results, sharing, preemption, faults, cleaning."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abi.core import Pipe
from abi.status import Engine, Side, Status
from runtime import Device, DeviceArray, KernelTimeoutError, NpuError, Stream
from runtime.toolchain.elf import write_object
from tb.fullstack import objects

TIMEOUT = 200_000


def expected(count: int) -> np.ndarray:
    """What `squares` makes."""
    return np.arange(count, dtype=np.int32) ** 2 + 7


def check(array: DeviceArray) -> None:
    """An array holds squares."""
    np.testing.assert_array_equal(array.numpy(), expected(array.size))


def blocks_ended(device: Device) -> int:
    """Blocks of all cores since reset."""
    return sum(core.read() for core in device.driver.registers.bar0.core_blocks)


@pytest.mark.parametrize("grid", [1, 2, 7, (5,), (4, 3), (2, 3, 4), (1, 1, 9)])
def test_each_block_of_a_grid_runs_once(device: Device, grid: int | tuple[int, ...]) -> None:
    total = int(np.prod(grid))
    out = device.zeros(total + 3, np.int32)
    kernel = device.load(objects.squares()).kernel("squares")
    before = blocks_ended(device)
    kernel[grid](out)
    device.synchronize()
    np.testing.assert_array_equal(out.numpy(), [*expected(total), 0, 0, 0])
    assert blocks_ended(device) - before == total


def test_arguments_of_every_kind_from_a_file(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "axpy.elf"
    path.write_bytes(write_object(objects.axpy(3)))
    kernel = device.load(str(path)).kernel("axpy")
    x = np.random.default_rng(1).integers(-1000, 1000, 20).astype(np.int32)
    out, pinned = device.zeros(20, np.int32), device.pinned(20, np.int32)
    pinned[:] = x
    kernel.launch(20, device.array(x), out, -5, 2.5)
    kernel.launch(20, pinned, pinned, np.int32(7), -1)
    device.synchronize()
    bits = np.array([2.5, -1], np.float32).view(np.int32)
    np.testing.assert_array_equal(out.numpy(), 3 * x - 5 + bits[0])
    np.testing.assert_array_equal(pinned, 3 * x + 7 + bits[1])


def test_launches_without_arguments_of_their_own(device: Device) -> None:
    """Temporary arrays live until the launch is done; argument blocks are used again."""
    kernel = device.load(objects.squares(20)).kernel()
    outs = [device.zeros(6, np.int32) for _ in range(8)]
    pages = device.driver.pages.pages
    for turn in range(200):
        kernel.launch(6, outs[turn % 8])
        kernel.launch(3, device.empty(3, np.int32))
    device.synchronize()
    for out in outs:
        check(out)
    assert device.driver.pages.pages - pages <= 8


def test_a_binary_is_replaced_between_launches(device: Device) -> None:
    module = device.load(objects.axpy(2))
    kernel = module.kernel("axpy")
    x = np.arange(30, dtype=np.int32)
    source = device.array(x)
    outs = [device.zeros(30, np.int32) for _ in range(6)]
    for i, out in enumerate(outs):
        module.replace(write_object(objects.axpy(i + 1)))
        kernel.launch(30, source, out, 0, 0.0)
    module.replace(objects.axpy(1))
    device.synchronize()
    for i, out in enumerate(outs):
        np.testing.assert_array_equal(out.numpy(), (i + 1) * x)


def test_a_module_outlives_a_reset(device: Device) -> None:
    kernel = device.load(objects.squares()).kernel()
    kernel.launch(4, device.zeros(4, np.int32))
    device.reset()
    out = device.zeros(9, np.int32)
    kernel.launch(9, out)
    check(out)


def test_two_streams_share_the_cores(device: Device) -> None:
    first, second = device.stream(), device.stream()
    kernel = device.load(objects.squares(500)).kernel()
    a, b = device.zeros(40, np.int32), device.zeros(10, np.int32)
    kernel.launch(40, a, stream=first)
    kernel.launch(10, b, stream=second)
    second.synchronize()
    assert not first.query()
    first.synchronize()
    check(a)
    check(b)


def test_a_better_band_overtakes(device: Device) -> None:
    low, high = device.stream(priority=3), device.stream(priority=0)
    a, b = device.zeros(60, np.int32), device.zeros(2, np.int32)
    slow = device.load(objects.squares(1000)).kernel()
    fast = device.load(objects.squares(1)).kernel()
    fast.launch(2, b, stream=high)  # Uploads it.
    high.synchronize()
    slow.launch(60, a, stream=low)
    while blocks_ended(device) < 6:
        device.bus.wait_interrupt(0, device.bus.now() + 500)
    begun = device.bus.now()
    fast.launch(2, b, stream=high)
    high.synchronize()
    # One block of the other kernel, some 2000 instructions, and the way there and back.
    assert device.bus.now() - begun < 8_000
    assert not low.query()
    low.synchronize()
    check(a)
    check(b)


@pytest.mark.parametrize("turn", range(3))
def test_preemption_at_random_blocks_changes_no_result(
    device: Device, seed: int, turn: int
) -> None:
    draw = random.Random(f"{seed} {turn}")
    streams = [device.stream(priority=draw.randrange(4)) for _ in range(3)]
    loads = [device.load(objects.squares(loops)).kernel() for loops in (0, 60, 300)]
    work: list[tuple[Stream, DeviceArray]] = []
    before = blocks_ended(device)
    for _ in range(16):
        stream, count = draw.choice(streams), draw.randrange(1, 20)
        out = device.zeros(count, np.int32)
        draw.choice(loads).launch(count, out, stream=stream)
        work.append((stream, out))
        device.bus.wait_interrupt(0, device.bus.now() + draw.randrange(2_000))
    device.synchronize()
    for _, out in work:
        check(out)
    assert blocks_ended(device) - before == sum(out.size for _, out in work)


def test_a_fault_names_its_place_and_spares_the_neighbour(device: Device) -> None:
    bad, good = device.stream(), device.stream()
    code, pc = objects.failing(17, 100)
    a, b = device.zeros(24, np.int32), device.zeros(30, np.int32)
    device.load(objects.squares(300)).kernel().launch(30, b, stream=good)
    device.load(code).kernel().launch((2, 3, 4), a, None, stream=bad)
    with pytest.raises(NpuError) as caught:
        bad.synchronize()
    error = caught.value
    assert (error.side, error.status) == (Side.HOST, Status.ADDRESS_FAULT)
    assert (error.engine, error.pipe, error.pc) == (Engine.CORE, Pipe.MTE2, pc)
    assert error.instance in range(device.info.cores)
    assert (error.block, error.block_number) == ((1, 2, 2), 17)
    assert error.queue == bad.queue
    good.synchronize()
    check(b)
    bad.reset()
    device.load(objects.squares()).kernel().launch(24, a, stream=bad)
    bad.synchronize()
    check(a)


def test_code_that_is_none(device: Device) -> None:
    stream = device.stream()
    device.load(objects.illegal()).kernel().launch(3, stream=stream)
    with pytest.raises(NpuError, match="no instruction") as caught:
        stream.synchronize()
    error = caught.value
    assert (error.side, error.status) == (Side.HOST, Status.ILLEGAL_INSTRUCTION)
    assert (error.pipe, error.pc) == (Pipe.SCALAR, 4)


def test_an_endless_kernel_is_aborted_on_all_cores(device: Device) -> None:
    stream, other = device.stream(), device.stream()
    device.load(objects.endless()).kernel().launch(50, stream=stream, timeout=10_000)
    with pytest.raises(KernelTimeoutError) as caught:
        stream.synchronize(timeout=TIMEOUT)
    error = caught.value
    assert (error.side, error.engine, error.pc) == (Side.DEVICE, Engine.CORE, 0)
    assert error.block is not None
    assert error.block[0] < device.info.cores
    assert not any(core.field("busy") for core in device.driver.registers.bar0.core_state)
    out = device.zeros(8, np.int32)
    device.load(objects.squares()).kernel().launch(8, out, stream=other)
    other.synchronize()
    check(out)


def test_the_wait_for_an_endless_kernel_names_the_core(device: Device) -> None:
    stream = device.stream()
    device.load(objects.endless()).kernel().launch(1, stream=stream, timeout=1_000_000)
    with pytest.raises(NpuError, match="CORE 0 makes no progress") as caught:
        stream.synchronize(timeout=50_000)
    assert caught.value.status is Status.DEVICE_HANG
    assert any("core 0: busy" in text for text in caught.value.in_flight)
    with pytest.raises(KernelTimeoutError):
        stream.synchronize()


@pytest.mark.parametrize("same", [True, False])
def test_nothing_is_left_for_another_user(device: Device, monkeypatch: Any, same: bool) -> None:
    """A queue of another session has another PASID: the core's buffers are cleaned first."""
    secret = np.arange(1, 69, dtype=np.uint8)
    out, given = device.zeros(68, np.uint8), device.array(secret)
    first = device.stream()
    device.load(objects.leak(True)).kernel().launch(8, given, stream=first)
    first.synchronize()
    if not same:
        # Another session on the same device: only its address space matters here.
        session: Any = device.client.session
        monkeypatch.setattr(session, "_pasid", session._pasid + 1)
    second = device.stream()
    device.load(objects.leak(False)).kernel().launch(1, out, stream=second)
    second.synchronize()
    found = out.numpy()
    left = np.concatenate([secret[:64], secret[:4]])
    np.testing.assert_array_equal(found, left if same else np.zeros(68, np.uint8))
