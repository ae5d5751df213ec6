"""DmaChannel: corrupt descriptors, rows outside, error responses, and life after them."""

import random
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
import pytest

from abi.descriptor import DescriptorOpcode
from abi.status import Status
from rtl.dma.channel import DmaChannel
from rtl.memory.port import LineError, status_of
from tb.blocks.dma.channel_bench import ChannelBench, put_descriptor
from tb.blocks.dma.transfers import (
    EDGE_HIGH,
    EDGE_LOW,
    HBM,
    HOST,
    REGION_BYTES,
    Transfer,
    copy_of,
    fill_randomly,
    image_of,
    random_transfer,
)
from tb.blocks.harness import run_block
from tb.blocks.memory.agents import LineMemory

FIRST, SECOND = HBM + REGION_BYTES - 128, HBM + REGION_BYTES - 64
"""Where chains lie; small transfers stay clear of it."""

SMALL = Transfer(source=HBM + 11, destination=HOST + 5, row_bytes=300)


async def works(bench: ChannelBench) -> None:
    """The channel is as good as new."""
    transfer = random_transfer(longest=800)
    image = image_of(bench.memory)
    transfer.perform(image)
    assert await bench.run(transfer) is Status.OK
    bench.assert_equal(image)
    assert (bench.fault_address, bench.finished) == (0, 1)


def corrupt_fields() -> Iterator[tuple[dict[str, int], Status, int | None]]:
    """Changed fields, status, and fault address (None: the descriptor's own)."""
    bad, outside = Status.BAD_DESCRIPTOR, Status.ADDRESS_FAULT
    for bit in range(16):
        yield {"magic": 0x444D ^ 1 << bit}, bad, None
    yield {"magic": 0}, bad, None
    for opcode in (0, 3, 4, 5, 0x41, 0x82, 0xFF):
        yield {"opcode": opcode}, bad, None
    for name, bits in (("reserved_header", 8), ("reserved_word", 32), ("reserved", 64)):
        for bit in {0, bits // 2, bits - 1}:
            yield {name: 1 << bit}, bad, None
    yield {"row_bytes": 0}, bad, None
    yield {"rows": 0}, bad, None
    yield {"rows": 0, "row_bytes": 0}, bad, None
    for bit in range(6):
        yield {"next": HBM | 1 << bit}, bad, None
    yield {"opcode": DescriptorOpcode.FILL, "source": 1 << 40}, bad, None
    for name in ("source", "destination", "next"):
        for bit in (48, 55, 63):
            yield {name: HBM | 1 << bit}, outside, HBM | 1 << bit
    # A malformed descriptor is that first.
    yield {"magic": 1, "source": 1 << 50}, bad, None


@cocotb.test()
async def corrupt_descriptors(dut: Any) -> None:
    bench = ChannelBench(dut, latency=(1, 8))
    await bench.reset()
    for fields, status, address in corrupt_fields():
        # Alone, by a chain, and behind a good one.
        fill_randomly(bench.memory)
        put_descriptor(bench.memory, FIRST, SMALL.descriptor(**fields))
        image = image_of(bench.memory)
        bench.chain(FIRST)
        assert await bench.finish() is status, fields
        assert bench.fault_address == (FIRST if address is None else address), fields
        assert bench.finished == 0
        bench.assert_equal(image)

        put_descriptor(bench.memory, FIRST, SMALL.then(SECOND).descriptor())
        put_descriptor(bench.memory, SECOND, copy_of(100, 64, 7000).descriptor(**fields))
        image = image_of(bench.memory)
        SMALL.perform(image)
        bench.chain(FIRST)
        assert await bench.finish() is status, fields
        assert bench.fault_address == (SECOND if address is None else address), fields
        assert bench.finished == 1
        bench.assert_equal(image)

        if "next" not in fields and "magic" not in fields:
            bench.command(SMALL.descriptor(**fields))
            assert await bench.finish() is status, fields
            assert bench.fault_address == (address or 0), fields
    await works(bench)


@cocotb.test()
async def bad_heads_of_chains(dut: Any) -> None:
    bench = ChannelBench(dut)
    await bench.reset()
    image = image_of(bench.memory)
    for head, status, address in (
        (FIRST + 1, Status.BAD_DESCRIPTOR, FIRST + 1),
        (FIRST + 32, Status.BAD_DESCRIPTOR, FIRST + 32),
        (FIRST | 1 << 60, Status.ADDRESS_FAULT, FIRST | 1 << 60),
        (0, Status.ADDRESS_FAULT, 0),
        (HBM + REGION_BYTES, Status.ADDRESS_FAULT, HBM + REGION_BYTES),
        (HOST - 64, Status.ADDRESS_FAULT, HOST - 64),
    ):
        bench.chain(head)
        assert await bench.finish() is status
        assert (bench.fault_address, bench.finished) == (address, 0)
    bench.assert_equal(image)
    await works(bench)


@cocotb.test()
async def descriptor_fetch_errors(dut: Any) -> None:
    bench = ChannelBench(dut, stall=0.3)
    await bench.reset()
    for error in (LineError.ADDRESS, LineError.BUS):
        put_descriptor(bench.memory, FIRST, SMALL.then(SECOND).descriptor())
        put_descriptor(bench.memory, SECOND, SMALL.descriptor())
        for place, finished in ((FIRST, 0), (SECOND, 1)):
            bench.memory.fail(place, 64, error)
            bench.chain(FIRST)
            assert await bench.finish() is status_of(error)
            assert (bench.fault_address, bench.finished) == (place, finished)
            bench.memory.heal()
    await works(bench)


@cocotb.test()
async def error_responses(dut: Any) -> None:
    bench = ChannelBench(dut)
    await bench.reset()
    for turn in range(60):
        bench.set_stall(random.choice([0.0, 0.2, 0.6]), random.choice([0.0, 0.2, 0.6]))
        bench.read.latency = bench.write.latency = random.choice([(1, 1), (24, 24), (1, 60)])
        fill_randomly(bench.memory)
        transfer = random_transfer()
        reads = transfer.opcode == DescriptorOpcode.COPY and turn % 2 == 0
        row = random.randrange(transfer.rows)
        start = (
            transfer.source + row * transfer.source_stride
            if reads
            else transfer.destination + row * transfer.destination_stride
        )
        line = (start + random.randrange(transfer.row_bytes)) // 64
        error = random.choice([LineError.ADDRESS, LineError.BUS])
        bench.memory.fail(64 * line, 64, error)
        before = image_of(bench.memory)
        moved = int(dut.bytes.value)
        assert await bench.run(transfer) is status_of(error)
        assert (bench.fault_address, bench.finished) == (64 * line, 0)
        bench.memory.heal()
        # Whatever was written, it was only right bytes at right places.
        bench.assert_partly(before, transfer)
        moved = int(dut.bytes.value) - moved
        whole = transfer.rows * transfer.row_bytes
        # A failing read keeps at least its own beat away, a failing write its line.
        assert moved < whole
        await works(bench)


@cocotb.test()
async def an_error_ends_a_long_row_soon(dut: Any) -> None:
    bench = ChannelBench(dut, latency=8)
    await bench.reset()
    for where in (HBM + 640, HOST + 640):
        bench.memory.fail(where, 1, LineError.BUS)
        bench.read.lines.clear()
        bench.write.lines.clear()
        assert await bench.run(copy_of(REGION_BYTES)) is Status.BUS_ERROR
        assert bench.fault_address == where
        assert len(bench.read.lines) < 120
        assert len(bench.write.lines) < 40
        bench.memory.heal()


LIMIT = 1 << 48

OUTSIDE = [
    # First address, stride, rows that lie inside, first address outside.
    (LIMIT - 300, 100, 3, LIMIT),
    (LIMIT - 250, 100, 2, LIMIT),
    (LIMIT - 99, 0, 0, LIMIT),
    (LIMIT - 100, (1 << 31) - 1, 1, LIMIT - 100 + (1 << 31) - 1),
    (250, -100, 3, (1 << 64) - 50),
    (100, -100, 2, (1 << 64) - 100),
    (7, -(1 << 31), 1, (1 << 64) + 7 - (1 << 31)),
]
"""Rows of 100 bytes that leave the address space, and never come back into it by wrapping."""


def edge_bytes(memory: LineMemory, address: int) -> bytes:
    base = EDGE_HIGH if address >= EDGE_HIGH else EDGE_LOW
    return memory.view(base)[address - base : address - base + 100].tobytes()


@cocotb.test()
async def destinations_outside(dut: Any) -> None:
    bench = ChannelBench(dut, latency=(1, 30), stall=0.2, edges=True)
    await bench.reset()
    for first, stride, inside, outside in OUTSIDE:
        before = {base: bench.memory.view(base).copy() for base in (EDGE_LOW, EDGE_HIGH)}
        source = random.randrange(1000)
        moved = int(dut.bytes.value)
        transfer = Transfer(
            source=HBM + source,
            destination=first,
            row_bytes=100,
            rows=50,
            source_stride=107,
            destination_stride=stride,
        )
        assert await bench.run(transfer) is Status.ADDRESS_FAULT
        assert bench.fault_address == outside
        assert int(dut.bytes.value) - moved == 100 * inside
        for row in range(inside):
            address = first + row * stride
            at = source + 107 * row
            wanted = bench.memory.view(HBM)[at : at + 100].tobytes()
            assert edge_bytes(bench.memory, address) == wanted
            base = EDGE_HIGH if address >= EDGE_HIGH else EDGE_LOW
            before[base][address - base : address - base + 100] = bench.memory.view(HBM)[
                at : at + 100
            ]
        for base, array in before.items():
            assert (bench.memory.view(base) == array).all()
    await works(bench)


@cocotb.test()
async def sources_outside(dut: Any) -> None:
    bench = ChannelBench(dut, latency=(1, 30), stall=0.2, edges=True)
    await bench.reset()
    for first, stride, inside, outside in OUTSIDE:
        image = image_of(bench.memory)
        target = random.randrange(1000)
        transfer = Transfer(
            source=first,
            destination=HOST + target,
            row_bytes=100,
            rows=50,
            source_stride=stride,
            destination_stride=103,
        )
        for row in range(inside):
            at = target + 103 * row
            image[HOST][at : at + 100] = np.frombuffer(
                edge_bytes(bench.memory, first + row * stride), np.uint8
            )
        assert await bench.run(transfer) is Status.ADDRESS_FAULT
        assert bench.fault_address == outside
        bench.assert_equal(image)
    await works(bench)


@cocotb.test()
async def the_first_row_outside_counts(dut: Any) -> None:
    bench = ChannelBench(dut, edges=True)
    await bench.reset()
    for source_rows, destination_rows in [(1, 2), (2, 1), (2, 2)]:
        transfer = Transfer(
            source=LIMIT - 100 * source_rows,
            destination=100 * destination_rows - 100,
            row_bytes=100,
            rows=9,
            source_stride=100,
            destination_stride=-100,
        )
        moved = int(dut.bytes.value)
        assert await bench.run(transfer) is Status.ADDRESS_FAULT
        source_first = source_rows <= destination_rows
        assert bench.fault_address == (LIMIT if source_first else (1 << 64) - 100)
        assert int(dut.bytes.value) - moved == 100 * min(source_rows, destination_rows)
    # An error response of an earlier row comes first, although it is seen later.
    bench.read.latency = (300, 300)
    bench.memory.fail(LIMIT - 200, 1, LineError.BUS)
    transfer = Transfer(
        source=LIMIT - 200, destination=HOST, row_bytes=100, rows=4, source_stride=100
    )
    assert await bench.run(transfer) is Status.BUS_ERROR
    assert bench.fault_address == (LIMIT - 200) // 64 * 64
    await works(bench)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_dma_channel_faults(sim: str) -> None:
    run_block(DmaChannel(), __name__, sim=sim)
