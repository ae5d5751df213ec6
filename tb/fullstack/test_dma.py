"""Random copies in all directions while host memory stalls, between canaries; link use."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from abi.address import HOST_BASE
from abi.packet import PacketOpcode
from runtime import Device, Stream
from runtime.memory import DeviceArray, PinnedArray

Bytes = npt.NDArray[np.uint8]

ARENA = (1 << 20) + (1 << 18)
"""Bytes of each memory: the longest copy, with room around it for offsets and canaries."""

LONGEST = 1 << 20
LINK_BYTES_PER_CYCLE = 32
DIRECTIONS = ("host to HBM", "HBM to host", "HBM to HBM", "host to host")


class Place:
    """An arena in host memory or HBM, full of known random bytes: all of them are canaries."""

    def __init__(self, device: Device, kind: str, content: Bytes) -> None:
        self.memory: PinnedArray | DeviceArray
        if kind == "host":
            self.memory = device.pinned(ARENA, np.uint8)
            self.memory[:] = content
            owner = self.memory.owner
            assert owner is not None
            self.block = owner.block
            self.address = HOST_BASE + owner.block.allocation.bus_address
        else:
            self.memory = device.array(content)
            self.block = self.memory.buffer.block
            self.address = self.memory.address

    def read(self) -> Bytes:
        """All its bytes."""
        if isinstance(self.memory, DeviceArray):
            return self.memory.numpy()
        return np.array(self.memory)


def shape(random: np.random.Generator) -> tuple[int, int, int, int]:
    """Bytes of a row, rows, and the strides of source and destination: 1 B to 1 MiB in all."""
    total = int(2 ** random.uniform(0, 20))
    if random.random() < 0.4:
        return max(1, total), 1, 0, 0
    rows = int(random.integers(1, min(total, 200) + 1))
    row = max(1, total // rows)
    gaps = random.choice([0, 1, 5, 63, 64, 65, 100], 2) if row < 4096 else random.choice([0, 1], 2)
    strides = [row + int(gap) for gap in gaps]
    while max(strides) * rows > ARENA - 1024:
        rows -= 1
    if random.random() < 0.3:
        strides[0] = -strides[0]  # Read from the last row to the first.
    return row, rows, strides[0], strides[1]


def stall(machine: Any, level: int, seed: int = 1) -> None:
    """Let host memory stall, where the machine can: the model's has no cycles to stall in."""
    if hasattr(machine.faults, "stall_host_memory"):
        machine.faults.stall_host_memory(level, seed)


def copy_and_check(
    machine: Any,
    stream: Stream,
    source: Place,
    target: Place,
    level: int,
    random: np.random.Generator,
) -> None:
    """One random copy by packet; afterwards every byte of both arenas is compared."""
    row, rows, source_stride, target_stride = shape(random)
    offsets = []
    for stride in (source_stride, target_stride):
        span = abs(stride) * (rows - 1) + row
        lowest = int(random.integers(64, ARENA - span - 64 + 1))
        offsets.append(lowest + (abs(stride) * (rows - 1) if stride < 0 else 0))
    print(f"row {row}, rows {rows}, strides {source_stride} {target_stride}, offsets {offsets}")
    before, expected = source.read(), target.read()
    for i in range(rows):
        at, to = offsets[0] + i * source_stride, offsets[1] + i * target_stride
        expected[to : to + row] = before[at : at + row]
    fields = {
        "source": source.address + offsets[0],
        "destination": target.address + offsets[1],
        "row_bytes": row,
        "rows": rows,
        "source_stride": source_stride,
        "destination_stride": target_stride,
    }
    stall(machine, level, int(random.integers(1, 1 << 32)))
    stream.submit([(PacketOpcode.COPY, fields)], [source.block, target.block])
    stream.synchronize()
    stall(machine, 0)
    np.testing.assert_array_equal(target.read(), expected)
    np.testing.assert_array_equal(source.read(), before)


@pytest.mark.parametrize("level", [0, 4, 12])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_random_copies_touch_nothing_else(
    device: Device, machine: Any, seed: int, direction: str, level: int
) -> None:
    random = np.random.default_rng((seed, level, DIRECTIONS.index(direction)))
    content = random.integers(0, 256, (2, ARENA), dtype=np.uint8)
    kinds = direction.split(" to ")
    source, target = (Place(device, kind, c) for kind, c in zip(kinds, content, strict=True))
    stream = device.stream()
    for _ in range(5):
        copy_and_check(machine, stream, source, target, level, random)


@pytest.mark.parametrize("level", [0, 8])
def test_the_longest_copy_under_stalls(device: Device, machine: Any, seed: int, level: int) -> None:
    random = np.random.default_rng((seed, level))
    host = device.pinned(LONGEST + 2, np.uint8)
    host[:] = random.integers(0, 256, LONGEST + 2, dtype=np.uint8)
    array = device.zeros(LONGEST + 2, np.uint8)
    stall(machine, level, seed)
    device.memcpy(array[1 : LONGEST + 1], host[2:])
    stall(machine, 0)
    back = array.numpy()
    assert back[0] == back[-1] == 0
    np.testing.assert_array_equal(back[1:-1], host[2:])


def link_use(device: Device, source_offset: int, target_offset: int) -> float:
    """Share of the link's 32 bytes a cycle that 1 MiB from host memory to HBM reaches."""
    host = device.pinned(LONGEST + 64, np.uint8)
    host[:] = np.random.default_rng(1).integers(0, 256, host.size, dtype=np.uint8)
    memory = device.empty(LONGEST + 64, np.uint8)
    near = host[source_offset : source_offset + LONGEST]
    far = memory[target_offset : target_offset + LONGEST]
    stream, start, end = device.default_stream, device.event(), device.event()
    with stream.batch():
        start.record(stream)
        device.memcpy_async(far, near, stream)
        end.record(stream)
    end.synchronize()
    np.testing.assert_array_equal(far.numpy(), near)
    return LONGEST / LINK_BYTES_PER_CYCLE / start.elapsed_cycles(end)


@pytest.mark.usefixtures("engine")
def test_large_copies_use_the_link(device: Device) -> None:
    aligned, misaligned = link_use(device, 0, 0), link_use(device, 1, 3)
    print(f"aligned {aligned:.4f}, misaligned {misaligned:.4f}")
    assert 0.90 <= aligned <= 1
    assert 0.80 <= misaligned <= 1
