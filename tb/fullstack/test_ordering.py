"""Order on the way to the host and to the device, while every channel stalls at random."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from abi.packet import PacketOpcode
from abi.status import Status
from runtime import Device, NpuError

ROW = 1000
"""Bytes of each copy: not whole lines, and several bursts."""

COPIES = 60


@pytest.mark.parametrize("draw", range(3))
@pytest.mark.parametrize("level", [0, 3, 8, 14])
def test_a_message_never_precedes_data_or_value(
    device: Device, machine: Any, engine: Any, seed: int, level: int, draw: int
) -> None:
    """Looked at in the very cycle in which each message reaches the host."""
    random = np.random.default_rng((seed, level, draw))
    machine.faults.stall_host_memory(level, int(random.integers(1, 1 << 32)))
    content = random.integers(1, 256, (COPIES, ROW), dtype=np.uint8)
    array = device.array(content)
    results = device.pinned((COPIES, ROW), np.uint8)
    stream = device.stream()
    timeline = stream._queue.timeline.bus_address
    memory = engine.memory.data
    arrived: list[tuple[int, int, bool]] = []
    receive = engine.actors.on_message

    def look(vector: int) -> bool:
        if vector == 1 + stream.queue:
            value = int.from_bytes(memory[timeline : timeline + 8].tobytes(), "little")
            done = len(arrived) + 1
            exact = bool(np.array_equal(results[:done], content[:done]))
            arrived.append((value, int(results[done:].any()), exact))
        return bool(receive(vector))

    engine.actors.on_message = look
    try:
        for i in range(COPIES):
            device.memcpy_async(results[i], array[i], stream)
        stream.synchronize()
        machine.bus.wait_interrupt(0, machine.bus.now() + 5_000)
    finally:
        engine.actors.on_message = receive
    assert len(arrived) == COPIES
    for i, (value, _, exact) in enumerate(arrived):
        assert value >= i + 1, f"message {i + 1} came before its value: {value}"
        assert exact, f"message {i + 1} came before its data"
    # The look itself can fail: data of later copies was mostly not there yet.
    assert sum(value == i + 1 for i, (value, _, _) in enumerate(arrived)) > COPIES // 2


def submit_many(
    device: Device, machine: Any, seed: int, *, barrier: bool = True
) -> tuple[list[NpuError], int]:
    """Single submissions at random distances; errors, and how many operations went wrong."""
    random = np.random.default_rng(seed)
    stream = device.stream(depth=8)
    array = device.zeros(64, np.int32)
    if not barrier:
        stream._queue.ring._barrier = lambda: None
    errors: list[NpuError] = []
    wrong = 0
    for i in range(1, 151):
        machine.bus.wait_interrupt(0, machine.bus.now() + int(random.integers(1, 700)))
        pattern = i | i << 32
        fields = {"destination": array.address, "row_bytes": 256, "rows": 1, "pattern": pattern}
        try:
            stream.submit([(PacketOpcode.FILL, fields)], [array.buffer.block])
            stream.synchronize(timeout=20_000)
        except NpuError as error:
            errors.append(error)
            stream.reset()
            continue
        wrong += not np.array_equal(array.numpy(), np.full(64, i, np.int32))
    return errors, wrong


@pytest.mark.parametrize("level", [0, 8])
def test_the_doorbell_never_passes_the_packet(
    device: Device, machine: Any, engine: Any, seed: int, level: int
) -> None:
    assert engine is not None
    machine.faults.stall_host_memory(level, seed)
    assert submit_many(device, machine, seed) == ([], 0)


def test_without_its_barrier_the_doorbell_passes_the_packet(
    device: Device, machine: Any, engine: Any, seed: int
) -> None:
    """So the test above can fail: the CPU is weakly ordered, and the device says what it saw."""
    assert engine is not None
    errors, wrong = submit_many(device, machine, seed, barrier=False)
    seen = Counter(error.status for error in errors)
    print(f"{len(errors)} errors ({seen}), {wrong} wrong results, of 150")
    assert seen[Status.BAD_SEQUENCE] > 10
