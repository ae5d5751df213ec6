"""Transfers for the tests of the DMA engine: random ones, and what they do to memory."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from abi.descriptor import DESCRIPTOR, DESCRIPTOR_MAGIC, DescriptorOpcode
from tb.blocks.memory.agents import LineMemory

__all__ = [
    "EDGE_HIGH",
    "EDGE_LOW",
    "HBM",
    "HOST",
    "REGION_BYTES",
    "Transfer",
    "copy_of",
    "fill_randomly",
    "image_of",
    "make_memory",
    "random_transfer",
]

HBM = 0x1_0000_0000
HOST = 0x8000_0000_0000
REGION_BYTES = 1 << 16
"""Of each of the two regions, at `HBM` and `HOST`."""

EDGE_BYTES = 1 << 12
EDGE_LOW = 0
EDGE_HIGH = (1 << 48) - EDGE_BYTES
"""The two ends of the address space, where no machine has memory."""

HALF = REGION_BYTES // 2
Image = dict[int, NDArray[np.uint8]]
"""The bytes of each region."""


def make_memory(edges: bool = False) -> LineMemory:
    """The two regions, with random bytes; with `edges` also those at `EDGE_LOW`, `EDGE_HIGH`."""
    ends = {EDGE_LOW: EDGE_BYTES, EDGE_HIGH: EDGE_BYTES} if edges else {}
    memory = LineMemory({HBM: REGION_BYTES, HOST: REGION_BYTES, **ends})
    for base in ends:
        memory.view(base)[:] = np.frombuffer(random.randbytes(EDGE_BYTES), np.uint8)
    fill_randomly(memory)
    return memory


def fill_randomly(memory: LineMemory) -> None:
    """New random bytes everywhere."""
    for base in (HBM, HOST):
        memory.view(base)[:] = np.frombuffer(random.randbytes(REGION_BYTES), np.uint8)


def image_of(memory: LineMemory) -> Image:
    """A copy of all bytes."""
    return {base: memory.view(base).copy() for base in (HBM, HOST)}


def _part(image: Mapping[int, NDArray[np.uint8]], address: int, nbytes: int) -> NDArray[np.uint8]:
    base = HOST if address >= HOST else HBM
    assert base <= address
    assert address + nbytes <= base + REGION_BYTES
    return image[base][address - base : address - base + nbytes]


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Fields of a descriptor."""

    opcode: int = DescriptorOpcode.COPY
    source: int = 0
    destination: int
    row_bytes: int
    rows: int = 1
    source_stride: int = 0
    destination_stride: int = 0
    pattern: int = 0
    next: int = 0

    def descriptor(self, **other: int) -> int:
        """The 512 bits; `other` replaces fields, reserved ones and the magic included."""
        return DESCRIPTOR.pack({"magic": DESCRIPTOR_MAGIC, **self.__dict__, **other})

    def then(self, address: int) -> "Transfer":
        """This, with the next descriptor at `address`."""
        return replace(self, next=address)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Address and length of each destination row."""
        for row in range(self.rows):
            yield self.destination + row * self.destination_stride, self.row_bytes

    @property
    def lines(self) -> int:
        """The larger number of lines that its rows lie in, source or destination."""
        sides = [(self.destination, self.destination_stride)]
        if self.opcode == DescriptorOpcode.COPY:
            sides.append((self.source, self.source_stride))
        return max(
            sum(
                (start + row * stride + self.row_bytes - 1) // 64 - (start + row * stride) // 64 + 1
                for row in range(self.rows)
            )
            for start, stride in sides
        )

    def perform(self, image: Image) -> None:
        """The golden model."""
        for row, (address, nbytes) in enumerate(self.ranges()):
            if self.opcode == DescriptorOpcode.COPY:
                data = _part(image, self.source + row * self.source_stride, nbytes)
            else:
                raw = self.pattern.to_bytes(8, "little") * (nbytes // 8 + 1)
                data = np.frombuffer(raw[:nbytes], np.uint8)
            _part(image, address, nbytes)[:] = data

    def mask(self) -> Image:
        """Which bytes it may touch, as 0 and 1."""
        masks = {base: np.zeros(REGION_BYTES, np.uint8) for base in (HBM, HOST)}
        for address, nbytes in self.ranges():
            _part(masks, address, nbytes)[:] = 1
        return masks


def _side(low: int, row_bytes: int, rows: int, disjoint: bool) -> tuple[int, int]:
    """A start address and a stride, of either sign, so that all rows lie in a half region."""
    room = (HALF - row_bytes) // max(1, rows - 1)
    least = row_bytes if disjoint else 0
    stride = random.choice([least, least, room, random.randint(least, max(least, room))])
    stride = min(stride, room)
    span = stride * (rows - 1)
    first = low + random.choice([0, random.randint(0, HALF - row_bytes - span)])
    if random.random() < 0.5:
        return first + span, -stride
    return first, stride


def random_transfer(longest: int = 3000, most_rows: int = 6) -> Transfer:
    """A copy or fill whose source, if any, lies in another half region than its destination."""
    rows = random.choice([1, 1, random.randint(1, most_rows)])
    row_bytes = random.choice(
        [1, 8, 63, 64, 65, 128, random.randint(1, 200), random.randint(1, longest // rows)]
    )
    halves = [HBM, HBM + HALF, HOST, HOST + HALF]
    source_half, destination_half = random.sample(halves, 2)
    source, source_stride = _side(source_half, row_bytes, rows, disjoint=False)
    destination, destination_stride = _side(destination_half, row_bytes, rows, disjoint=True)
    if random.random() < 0.25:
        return Transfer(
            opcode=DescriptorOpcode.FILL,
            destination=destination,
            row_bytes=row_bytes,
            rows=rows,
            source_stride=random.randrange(-1000, 1000),
            destination_stride=destination_stride,
            pattern=random.getrandbits(64),
        )
    return Transfer(
        source=source,
        destination=destination,
        row_bytes=row_bytes,
        rows=rows,
        source_stride=source_stride,
        destination_stride=destination_stride,
        pattern=random.getrandbits(64),
    )


def copy_of(nbytes: int, source_offset: int = 0, destination_offset: int = 0) -> Transfer:
    """One row from HBM to host memory."""
    return Transfer(
        source=HBM + source_offset, destination=HOST + destination_offset, row_bytes=nbytes
    )
