"""Cuts: break one thing; the error names side and unit in time, and the next inference is right."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from abi.address import HBM_BASE, PACKET_BYTES
from abi.descriptor import DESCRIPTOR, DESCRIPTOR_MAGIC, DescriptorOpcode
from abi.packet import PacketOpcode
from abi.status import Engine, Side, Status
from runtime import (
    Device,
    DeviceError,
    DoorbellLostError,
    FirmwareStallError,
    InterruptLostError,
    KernelTimeoutError,
    NpuError,
    Stream,
    SubmissionError,
    gemm,
)
from tb.fullstack import objects
from tb.fullstack.test_products import operands, rescaled

TIMEOUT = 200_000
"""Of each wait, in cycles."""

PROBE = 60_000
"""For how long a wait watches the device before it names a unit that stands still."""

TASK_TIMEOUT = 30_000
NOWHERE = HBM_BASE - 4096
"""A device address without memory."""


def infer(device: Device, stream: Stream, seed: int) -> bool:
    """One inference of a network of two layers; whether all logits equal those of numpy."""
    random = np.random.default_rng(seed)
    x, w1 = operands(random, 5, 32, 64)
    _, w2 = operands(random, 5, 10, 32)
    bias = random.integers(-1000, 1000, 32).astype(np.int32)
    sums = np.maximum(x.astype(np.int32) @ w1.astype(np.int32) + bias, 0)
    hidden = np.clip(rescaled(sums, 3, 10), -128, 127).astype(np.int8)
    expected = hidden.astype(np.int32) @ w2.astype(np.int32)
    given = [device.array(v) for v in (x, w1, bias, w2)]
    with stream.batch():
        middle = gemm(
            given[0], given[1], bias=given[2], relu=True, requantise=(3, 10), stream=stream
        )
        logits = gemm(middle, given[3], stream=stream)
    stream.synchronize(timeout=TIMEOUT)
    return bool(np.array_equal(logits.numpy(), expected))


@contextmanager
def fails(
    device: Device, kind: type[NpuError], side: Side, engine: Engine, status: Status, within: int
) -> Iterator[None]:
    """The block raises this error, in at most `within` device cycles."""
    begun = device.bus.now()
    with pytest.raises(kind) as caught:
        yield
    taken = device.bus.now() - begun
    print(f"{caught.value} after {taken} cycles")
    error = caught.value
    assert (error.side, error.engine, error.status) == (side, engine, status)
    assert taken <= within


def submit(stream: Stream, opcode: PacketOpcode, **fields: int) -> None:
    """Submit a packet as it stands."""
    stream.submit([(opcode, fields)])


def corrupt_last_packet(device: Device, stream: Stream, at: int, value: int) -> None:
    """Change one byte of the packet that was pushed last and is not yet published."""
    ring = stream._queue.ring
    slot = ring._ring + ((ring.written - 1) % ring.depth) * PACKET_BYTES
    device.bus.store(slot + at, bytes([value]))


def test_a_flipped_product_bit_is_seen_by_the_comparison(device: Device, engine: Any) -> None:
    assert engine is not None
    injection = device.driver.registers.bar0.core_fault_injection[0]
    assert infer(device, device.default_stream, 1)
    for bit in range(16):
        injection.set(product_xor=1 << bit)
        a, b = operands(np.random.default_rng(bit), 20, 20, 16)
        product = gemm(device.array(a), device.array(b)).numpy()
        assert not np.array_equal(product, a.astype(np.int32) @ b.astype(np.int32)), bit
    assert not infer(device, device.default_stream, 1)
    injection.set(product_xor=0)
    assert infer(device, device.default_stream, 1)


def test_a_dropped_doorbell(device: Device, machine: Any) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.drop_doorbells(1)
    device.memset(array, 1, stream)
    with fails(
        device,
        DoorbellLostError,
        Side.HOST,
        Engine.DOORBELL,
        Status.DOORBELL_LOST,
        TIMEOUT + PROBE,
    ):
        stream.synchronize(timeout=TIMEOUT)
    assert infer(device, stream, 2)
    assert array.numpy()[0] == 1


def test_a_dropped_interrupt(device: Device, machine: Any) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.drop_messages(1 + stream.queue, 1)
    device.memset(array, 1, stream)
    with fails(
        device,
        InterruptLostError,
        Side.DEVICE,
        Engine.INTERRUPT,
        Status.INTERRUPT_LOST,
        TIMEOUT + PROBE,
    ):
        stream.synchronize(timeout=TIMEOUT)
    assert array.numpy()[0] == 1
    assert infer(device, stream, 3)


DESCRIPTOR_CUTS: dict[str, dict[str, int]] = {
    "magic": {"magic": DESCRIPTOR_MAGIC ^ 1},
    "opcode": {"opcode": 0x7F},
    "row_bytes": {"row_bytes": 0},
    "rows": {"rows": 0},
    "next": {"next": HBM_BASE + 1},
}


@pytest.mark.parametrize("cut", DESCRIPTOR_CUTS)
def test_a_corrupt_descriptor(device: Device, cut: str) -> None:
    stream = device.stream()
    source, target = device.zeros(64, np.uint8), device.zeros(64, np.uint8)
    fields: dict[str, int] = {
        "opcode": DescriptorOpcode.COPY,
        "magic": DESCRIPTOR_MAGIC,
        "source": source.address,
        "destination": target.address,
        "row_bytes": 64,
        "rows": 1,
    }
    good = DESCRIPTOR.pack_bytes(fields)
    bad = DESCRIPTOR.pack_bytes(fields | DESCRIPTOR_CUTS[cut])
    chain = device.array(np.frombuffer(good + bad, np.uint8))
    submit(stream, PacketOpcode.CHAIN, descriptor=chain.address)
    stream.synchronize()
    submit(stream, PacketOpcode.CHAIN, descriptor=chain.address + 64)
    with fails(device, SubmissionError, Side.HOST, Engine.DMA, Status.BAD_DESCRIPTOR, TIMEOUT):
        stream.synchronize(timeout=TIMEOUT)
    stream.reset()
    assert infer(device, stream, 4)


@pytest.mark.parametrize(
    ("at", "value", "status"),
    [
        (0, 0x5A, Status.BAD_OPCODE),
        (0, 0, Status.BAD_OPCODE),
        (1, 1, Status.BAD_FIELD),
        (5, 9, Status.BAD_SEQUENCE),
        (63, 1, Status.BAD_FIELD),
    ],
    ids=["opcode", "no opcode", "reserved header", "sequence", "reserved tail"],
)
def test_a_malformed_packet(device: Device, at: int, value: int, status: Status) -> None:
    stream = device.stream()
    with stream.batch():
        submit(stream, PacketOpcode.NOP)
        corrupt_last_packet(device, stream, at, value)
    with fails(device, SubmissionError, Side.HOST, Engine.FIRMWARE, status, TIMEOUT):
        stream.synchronize(timeout=TIMEOUT)
    stream.reset()
    assert infer(device, stream, 5)


def copy_from_nowhere(device: Device, stream: Stream) -> Engine:
    """A DMA source without memory."""
    target = device.empty(64, np.uint8)
    address = target.address
    submit(stream, PacketOpcode.COPY, source=NOWHERE, destination=address, row_bytes=64, rows=1)
    return Engine.DMA


def copy_past_the_end(device: Device, stream: Stream) -> Engine:
    """A DMA destination that leaves HBM."""
    end = HBM_BASE + device.info.hbm_bytes
    submit(stream, PacketOpcode.FILL, destination=end - 4096, row_bytes=8192, rows=1)
    return Engine.DMA


def kernel_nowhere(device: Device, stream: Stream) -> Engine:
    """A kernel without memory."""
    assert device.info.cores
    submit(
        stream,
        PacketOpcode.KERNEL,
        code=NOWHERE,
        code_bytes=64,
        grid_x=1,
        grid_y=1,
        grid_z=1,
    )
    return Engine.CORE


def signal_nowhere(device: Device, stream: Stream) -> Engine:
    """A semaphore without memory."""
    assert device.info.queues
    submit(stream, PacketOpcode.SIGNAL, semaphore=NOWHERE, value=1)
    return Engine.COMPLETION


@pytest.mark.parametrize(
    "cut", [copy_from_nowhere, copy_past_the_end, kernel_nowhere, signal_nowhere]
)
def test_an_address_out_of_range(device: Device, cut: Callable[[Device, Stream], Engine]) -> None:
    stream = device.stream()
    engine = cut(device, stream)
    with fails(device, SubmissionError, Side.HOST, engine, Status.ADDRESS_FAULT, TIMEOUT):
        stream.synchronize(timeout=TIMEOUT)
    stream.reset()
    assert infer(device, stream, 6)


@pytest.mark.parametrize("to_device", [True, False])
def test_an_axi_slverr(device: Device, machine: Any, to_device: bool) -> None:
    stream = device.stream()
    pinned, array = device.pinned(8192, np.uint8), device.zeros(8192, np.uint8)
    assert pinned.owner is not None
    base = pinned.owner.block.allocation.bus_address
    machine.faults.host_slverr(base + 4096, base + 4160)
    if to_device:
        device.memcpy_async(array, pinned, stream)
    else:
        device.memcpy_async(pinned, array, stream)
    with fails(device, DeviceError, Side.DEVICE, Engine.DMA, Status.BUS_ERROR, TIMEOUT):
        stream.synchronize(timeout=TIMEOUT)
    machine.faults.host_slverr(0, 0)
    stream.reset()
    assert infer(device, stream, 7)


def test_a_stalled_firmware(device: Device, machine: Any) -> None:
    stream = device.stream()
    array = device.zeros(64, np.uint8)
    machine.faults.stall_firmware()
    device.memset(array, 1, stream)
    with fails(
        device,
        FirmwareStallError,
        Side.FIRMWARE,
        Engine.FIRMWARE,
        Status.FIRMWARE_STALL,
        TIMEOUT + PROBE,
    ):
        stream.synchronize(timeout=TIMEOUT)
    machine.faults.release_firmware()
    assert infer(device, stream, 8)
    assert array.numpy()[0] == 1


def test_a_kernel_that_never_ends(device: Device) -> None:
    stream = device.stream(task_timeout=TASK_TIMEOUT)
    device.load(objects.endless()).kernel().launch(100, stream=stream)
    with fails(
        device,
        KernelTimeoutError,
        Side.DEVICE,
        Engine.CORE,
        Status.KERNEL_TIMEOUT,
        TASK_TIMEOUT + TIMEOUT // 4,
    ):
        stream.synchronize(timeout=TIMEOUT)
    stream.reset()
    assert infer(device, stream, 9)


def test_a_launchs_own_timeout_ends_its_kernel(device: Device) -> None:
    stream = device.stream()
    device.load(objects.endless()).kernel().launch(1, stream=stream, timeout=5_000)
    with fails(device, KernelTimeoutError, Side.DEVICE, Engine.CORE, Status.KERNEL_TIMEOUT, 30_000):
        stream.synchronize(timeout=TIMEOUT)
    stream.reset()
    assert infer(device, stream, 10)


def test_a_copy_that_never_ends(device: Device) -> None:
    """A user cannot hold a channel for longer than a task may take."""
    stream = device.stream(task_timeout=TASK_TIMEOUT)
    array = device.zeros(64, np.uint8)
    submit(
        stream,
        PacketOpcode.FILL,
        destination=array.address,
        row_bytes=64,
        rows=2**32 - 1,
        pattern=0x0101_0101_0101_0101,
    )
    with fails(
        device,
        KernelTimeoutError,
        Side.DEVICE,
        Engine.DMA,
        Status.KERNEL_TIMEOUT,
        TASK_TIMEOUT + TIMEOUT // 4,
    ):
        stream.synchronize(timeout=TIMEOUT)
    stream.reset()
    assert not any(state.field("busy") for state in device.driver.registers.bar0.dma_state)
    assert infer(device, stream, 11)


def test_pipes_that_wait_for_one_another(device: Device) -> None:
    stream = device.stream()
    device.load(objects.deadlock()).kernel().launch(1, stream=stream)
    with fails(device, DeviceError, Side.DEVICE, Engine.CORE, Status.FLAG_DEADLOCK, TIMEOUT):
        stream.synchronize(timeout=TIMEOUT)
    stream.reset()
    assert infer(device, stream, 12)


@pytest.mark.parametrize("level", [0, 12])
def test_a_slow_but_healthy_run_never_times_out(
    device: Device, machine: Any, seed: int, level: int
) -> None:
    """Every wait's timeout is far shorter than the run; work that retires starts it anew."""
    machine.faults.slow_firmware(20)
    if hasattr(machine.faults, "stall_host_memory"):
        machine.faults.stall_host_memory(level, seed)
    stream = device.stream()
    x = device.pinned(1 << 20, np.uint8)
    x[:] = np.random.default_rng(seed).integers(0, 256, 1 << 20, dtype=np.uint8)
    array, back = device.empty(1 << 20, np.uint8), device.pinned(1 << 20, np.uint8)
    begun = device.bus.now()
    with stream.batch():
        for _ in range(3):
            device.memcpy_async(array, x, stream)
            device.memcpy_async(back, array, stream)
    stream.synchronize(timeout=20_000)
    assert device.bus.now() - begun > 5 * 20_000
    np.testing.assert_array_equal(back, x)
    assert infer(device, stream, 13)
    assert device.last_error is None
