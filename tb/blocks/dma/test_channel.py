"""DmaChannel: data, chains, throughput, counters, abort."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from abi.descriptor import DescriptorOpcode
from abi.status import Status
from rtl.dma.channel import DmaChannel
from tb.blocks.dma.channel_bench import ChannelBench, put_descriptor
from tb.blocks.dma.transfers import (
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


def random_stalls(bench: ChannelBench) -> None:
    bench.set_stall(random.choice([0.0, 0.2, 0.6]), random.choice([0.0, 0.2, 0.6]))
    latency = random.choice([(1, 1), (24, 24), (1, 60)])
    bench.read.latency = bench.write.latency = latency


@cocotb.test()
async def random_transfers(dut: Any) -> None:
    bench = ChannelBench(dut)
    await bench.reset()
    nbytes = 0
    for turn in range(1, 61):
        random_stalls(bench)
        transfer = random_transfer()
        image = image_of(bench.memory)
        transfer.perform(image)
        assert await bench.run(transfer) is Status.OK, transfer
        bench.assert_equal(image)
        nbytes += transfer.rows * transfer.row_bytes
        assert int(dut.bytes.value) == nbytes
        assert int(dut.cycles.value) == bench.busy_cycles
        assert bench.pulses == turn
        assert (bench.finished, bench.fault_address) == (1, 0)


@cocotb.test()
async def every_pair_of_alignments(dut: Any) -> None:
    bench = ChannelBench(dut, latency=2)
    await bench.reset()
    for source in random.sample(range(64), 12):
        for destination in random.sample(range(64), 4):
            transfer = Transfer(
                source=HBM + source,
                destination=HOST + destination,
                row_bytes=random.choice([1, 64, 64 - source, 64 - destination, 130]),
                rows=3,
                source_stride=192,
                destination_stride=256,
            )
            image = image_of(bench.memory)
            transfer.perform(image)
            assert await bench.run(transfer) is Status.OK
            bench.assert_equal(image)
            fill_randomly(bench.memory)


@cocotb.test()
async def chains(dut: Any) -> None:
    bench = ChannelBench(dut)
    await bench.reset()
    for _ in range(10):
        random_stalls(bench)
        fill_randomly(bench.memory)
        # Descriptors in the upper quarter of HBM, out of the way of small transfers below it.
        slots = random.sample(range(REGION_BYTES // 64 * 3 // 4, REGION_BYTES // 64), 6)
        places = [HBM + 64 * slot for slot in slots[: random.randint(1, 6)]]
        transfers = []
        for place, follower in zip(places, [*places[1:], 0], strict=True):
            offset, target = random.randrange(20000), random.randrange(20000)
            length = random.randint(1, 1500)
            transfer = Transfer(
                source=HBM + offset,
                destination=HOST + target,
                row_bytes=length,
                rows=random.randint(1, 3),
                source_stride=random.randint(-offset // 3, 2000),
                destination_stride=random.choice([length, 2000]),
            )
            if random.random() < 0.3:
                transfer = Transfer(
                    opcode=DescriptorOpcode.FILL,
                    destination=HOST + target,
                    row_bytes=length,
                    pattern=random.getrandbits(64),
                )
            transfers.append(transfer.then(follower))
            put_descriptor(bench.memory, place, transfers[-1].descriptor())
        image = image_of(bench.memory)
        for transfer in transfers:
            transfer.perform(image)
        bench.chain(places[0])
        assert await bench.finish() is Status.OK
        bench.assert_equal(image)
        assert bench.finished == len(transfers)


@cocotb.test()
async def a_descriptor_sees_what_the_one_before_wrote(dut: Any) -> None:
    bench = ChannelBench(dut, latency=(1, 40), stall=0.3)
    await bench.reset()
    first, second, third, stored = (HBM + 64 * slot for slot in (1, 2, 3, 4))
    # The first writes the second, the second writes the source of the third.
    put_descriptor(bench.memory, second, random.getrandbits(512))
    put_descriptor(
        bench.memory,
        first,
        Transfer(source=stored, destination=second, row_bytes=64, next=second).descriptor(),
    )
    fill = Transfer(
        opcode=DescriptorOpcode.FILL,
        destination=HBM + 0x1003,
        row_bytes=500,
        pattern=0x0123_4567_89AB_CDEF,
        next=third,
    )
    put_descriptor(bench.memory, stored, fill.descriptor())
    last = Transfer(source=HBM + 0x1000, destination=HOST + 77, row_bytes=510)
    put_descriptor(bench.memory, third, last.descriptor())
    bench.chain(first)
    assert await bench.finish() is Status.OK
    assert bench.finished == 3
    written = bench.memory.view(HOST)[77 + 3 : 77 + 503].tobytes()
    assert written == ((0x0123_4567_89AB_CDEF).to_bytes(8, "little") * 63)[:500]


async def cycles_of(bench: ChannelBench, transfer: Transfer) -> int:
    before = int(bench.dut.cycles.value)
    image = image_of(bench.memory)
    transfer.perform(image)
    assert await bench.run(transfer) is Status.OK
    bench.assert_equal(image)
    return int(bench.dut.cycles.value) - before


@cocotb.test()
async def throughput(dut: Any) -> None:
    latency = 24
    bench = ChannelBench(dut, latency=latency)
    await bench.reset()
    # Fixed costs: two latencies and the pipeline's registers, whatever the length.
    fixed = 2 * latency + 16
    lines = 500
    aligned = await cycles_of(bench, copy_of(64 * lines))
    assert aligned <= lines + fixed
    longer = await cycles_of(bench, copy_of(64 * 2 * lines))
    assert longer - aligned == lines, "aligned: exactly a line a cycle"
    for source, destination in [(0, 13), (13, 0), (5, 5), (1, 63), (63, 1), (20, 40)]:
        misaligned = await cycles_of(bench, copy_of(64 * 2 * lines - 64, source, destination))
        assert misaligned <= longer + 4
        assert longer / misaligned >= 0.95
    fill = Transfer(opcode=DescriptorOpcode.FILL, destination=HOST + 9, row_bytes=64 * lines)
    assert await cycles_of(bench, fill) <= lines + fixed
    # Rows of one line each, and short rows that are not aligned.
    rows = Transfer(
        source=HBM,
        destination=HOST + REGION_BYTES - 64,
        row_bytes=64,
        rows=lines,
        source_stride=128,
        destination_stride=-128,
    )
    assert await cycles_of(bench, rows) <= lines + fixed
    short = Transfer(
        source=HBM + 3,
        destination=HOST + 9,
        row_bytes=200,
        rows=100,
        source_stride=301,
        destination_stride=211,
    )
    assert await cycles_of(bench, short) <= short.lines + 2 * short.rows + fixed


@cocotb.test()
async def reads_and_writes_in_flight(dut: Any) -> None:
    bench = ChannelBench(dut, latency=200)
    await bench.reset()
    assert await cycles_of(bench, copy_of(64 * 400, 3, 5)) > 0
    assert bench.read.most_outstanding >= 8
    assert bench.read.most_outstanding == 64
    assert bench.write.most_outstanding == 64
    # 2-D with one-line rows keeps as many.
    bench.read.seen.most_outstanding = 0
    rows = Transfer(
        source=HBM,
        destination=HOST,
        row_bytes=8,
        rows=200,
        source_stride=64,
        destination_stride=64,
    )
    await cycles_of(bench, rows)
    assert bench.read.most_outstanding == 64


@cocotb.test()
async def abort_at_any_time(dut: Any) -> None:
    bench = ChannelBench(dut)
    await bench.reset()
    aborted = 0
    for turn in range(60):
        random_stalls(bench)
        fill_randomly(bench.memory)
        place = HBM + REGION_BYTES - 64
        transfer = Transfer(
            source=HBM + random.randrange(3000),
            destination=HOST + random.randrange(3000),
            row_bytes=random.choice([1, 70, 900]),
            rows=random.randint(1, 10),
            source_stride=random.randint(0, 1500),
            destination_stride=1001,
        )
        put_descriptor(bench.memory, place, transfer.descriptor())
        before = image_of(bench.memory)
        moved = int(dut.bytes.value)
        if turn % 2:
            bench.chain(place)
        else:
            bench.command(transfer.descriptor())
        await RisingEdge(dut.busy)
        await ClockCycles(dut.clk, random.choice([0, 1, 2, 3, random.randrange(200)]))
        dut.stop.value = 1
        await RisingEdge(dut.clk)
        dut.stop.value = 0
        if dut.busy.value:
            status = await bench.finish()
        else:
            status = Status(int(dut.status.value))
        moved = int(dut.bytes.value) - moved
        if status is Status.ABORTED:
            aborted += 1
            assert (bench.finished, bench.fault_address) == (0, 0)
            bench.assert_partly(before, transfer)
            assert moved <= transfer.rows * transfer.row_bytes
        else:
            assert status is Status.OK
            transfer.perform(before)
            bench.assert_equal(before)
        # The channel works as before.
        again = random_transfer(longest=500)
        image = image_of(bench.memory)
        again.perform(image)
        assert await bench.run(again) is Status.OK
        bench.assert_equal(image)
    assert aborted >= 20
    # An abort without a run does nothing.
    dut.stop.value = 1
    await ClockCycles(dut.clk, 3)
    dut.stop.value = 0
    assert not dut.busy.value
    assert await bench.run(random_transfer()) is Status.OK


@cocotb.test()
async def huge_transfers_do_not_wrap(dut: Any) -> None:
    bench = ChannelBench(dut, latency=4)
    await bench.reset()
    # Products of 2^32, 2^40 and nearly 2^64: a counter that multiplies would end at once.
    for rows, row_bytes in [(1 << 16, 1 << 16), (1 << 20, 1 << 20), (2**32 - 1, 2**32 - 1)]:
        transfer = Transfer(
            opcode=DescriptorOpcode.FILL, destination=HBM, row_bytes=row_bytes, rows=rows
        )
        bench.write.lines.clear()
        moved = int(dut.bytes.value)
        bench.command(transfer.descriptor())
        await ClockCycles(dut.clk, 1020 if row_bytes > REGION_BYTES else 2100)
        lines = bench.write.lines
        assert dut.busy.value
        if row_bytes > REGION_BYTES:
            # The region ends after 1024 lines: an error there and nowhere else.
            assert await bench.finish() is Status.ADDRESS_FAULT
            assert bench.fault_address == HBM + REGION_BYTES
        else:
            dut.stop.value = 1
            await RisingEdge(dut.clk)
            dut.stop.value = 0
            assert await bench.finish() is Status.ABORTED
        per_row = row_bytes // 64 + (row_bytes % 64 > 0)
        assert lines == [HBM // 64 + index % per_row for index in range(len(lines))]
        assert len(lines) >= 1024
        good = sum(line < (HBM + REGION_BYTES) // 64 for line in lines)
        assert int(dut.bytes.value) - moved == 64 * good


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_dma_channel(sim: str) -> None:
    run_block(DmaChannel(), __name__, sim=sim)
