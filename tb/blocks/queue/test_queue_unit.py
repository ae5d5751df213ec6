"""The queue unit: doorbell rules, fetch under back-pressure, faults, disable, accounting."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from abi.geometry import QUEUES
from abi.registers_firmware import QUEUE_BLOCK
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceSource
from rtl.memory.port import LineError, status_of
from rtl.memory.sram import Sram
from rtl.queue.fetcher import LINES_IN_FLIGHT
from rtl.queue.queue_unit import QueueUnit
from tb.blocks.harness import run_block
from tb.blocks.host.gated import Gated
from tb.blocks.host.register_check import check_map
from tb.blocks.queue.bench import HOST, Bench


async def use_queue(bench: Bench, queue: int, total: int) -> None:
    """The host's side and the firmware's side of one queue, until `total` packets went through."""
    ring = bench.rings[queue]
    written = consumed = 0
    while consumed < total:
        room = ring.depth - (written - bench.published(queue))
        assert 0 <= room <= ring.depth
        count = min(room, total - written, random.randrange(1, 5))
        if count and random.random() < 0.5:
            for _ in range(count):
                ring.write(written)
                written += 1
            assert not (await bench.ring(queue, written)).error
        while consumed < await bench.read("fetched", queue):
            if random.random() < 0.4:
                break
            await bench.check_packet(queue, consumed)
            consumed += 1
            await bench.write("consumed", queue, consumed)
        state = await bench.state(queue)
        assert state["fault"] == 0, state


@cocotb.test(timeout_time=400, timeout_unit="us")
async def sixteen_queues_under_back_pressure(dut: Any) -> None:
    """All queues at once, depths from 2 to 64, many times around; each packet once, in order."""
    bench = Bench(dut, stall=0.3)
    await bench.start()
    totals = {}
    for queue in range(QUEUES):
        await bench.enable(queue, depth_log2=queue % 6 + 1)
        totals[queue] = random.choice([20, 40, 70])
    tasks = [cocotb.start_soon(use_queue(bench, q, total)) for q, total in totals.items()]
    for task in tasks:
        await task
    for queue, total in totals.items():
        await bench.settled(queue)
        assert bench.published(queue) == total == await bench.read("fetched", queue)
        assert int(getattr(dut, f"doorbells__{queue}").value) == total
        assert int(getattr(dut, f"fetched__{queue}").value) == total
        assert int(getattr(dut, f"consumed__{queue}").value) == total
    assert await bench.available() == 0
    # The published index never went back, and every packet was read exactly once.
    for queue in range(QUEUES):
        history = bench.memory.published[queue]
        assert history == sorted(set(history))
    assert len(bench.packets.lines) == sum(totals.values())
    assert bench.packets.most_outstanding > 4
    assert (bench.events["doorbell"] > 0, bench.events["fault"]) == (True, 0)
    assert bench.events["fetched"] == sum(totals.values())
    assert await bench.refused() == 0


@cocotb.test()
async def prefetch_is_bounded(dut: Any) -> None:
    """At most 8 packets of a queue in SRAM or on their way, and 16 on their way in all."""
    bench = Bench(dut, stall=0.0)
    bench.packets.latency = 100
    await bench.start()
    for queue in range(QUEUES):
        await bench.enable(queue, depth_log2=5)
        for index in range(20):
            bench.rings[queue].write(index)
        await bench.ring(queue, 20)
    await ClockCycles(dut.clk, 1500)
    assert bench.packets.most_outstanding == LINES_IN_FLIGHT
    for queue in range(QUEUES):
        assert await bench.read("fetched", queue) == 8
        assert bench.published(queue) == 8
    assert await bench.available() == (1 << QUEUES) - 1
    await bench.write("consumed", 3, 5)
    await ClockCycles(dut.clk, 400)
    assert [await bench.read("fetched", queue) for queue in (2, 3, 4)] == [8, 13, 8]
    for index in range(5, 13):
        await bench.check_packet(3, index)


@cocotb.test()
async def latency_and_rate(dut: Any) -> None:
    """Doorbell accepted to read request: 5 cycles; one queue fetches every second cycle."""
    bench = Bench(dut, stall=0.0)
    bench.packets.latency = 2
    bench.indices.latency = 10
    await bench.start()
    await bench.enable(0, depth_log2=4)
    for index in range(8):
        bench.rings[0].write(index)
    requests = []
    accepted = None
    ring = cocotb.start_soon(bench.ring(0, 8))
    for cycle in range(60):
        await RisingEdge(dut.clk)
        bus = "doorbell_bus__request__"
        if int(getattr(dut, f"{bus}valid").value) & int(getattr(dut, f"{bus}ready").value):
            accepted = cycle
        if int(dut.read_port__request__valid.value) & int(dut.read_port__request__ready.value):
            requests.append(cycle)
    await ring
    assert accepted is not None
    assert requests == [accepted + 5 + 2 * i for i in range(8)]
    # Steps of the read index merge while one write is on its way.
    assert bench.indices.most_outstanding == 1
    await bench.settled(0)
    assert 1 < len(bench.memory.published[0]) < 6
    assert bench.published(0) == 8


@cocotb.test()
async def doorbell_rules(dut: Any) -> None:
    bench = Bench(dut, stall=0.1)
    await bench.start()
    refused = 0

    async def check_refused(queue: int, index: int, **how: Any) -> None:
        nonlocal refused
        assert (await bench.ring(queue, index, **how)).error == 1
        refused += 1
        assert await bench.refused() == refused

    await check_refused(0, 0)  # Never enabled.
    for queue in (0, 1, 2, 3, 4):
        await bench.enable(queue, depth_log2=2)
    # Half-strobe writes are no doorbells: refused, not latched, no fault.
    for strobe in (0x0F, 0xF0, 0x7F, 0xFE, 0x01, 0x00):
        await check_refused(1, 2, strobe=strobe)
    assert await bench.read("doorbell", 1) == 0
    # Other addresses of BAR2, and reads, are answered with an error, but are no doorbells.
    for address in (8, 0x1000 - 8, QUEUES * 0x1000, 0x800_0000):
        assert (await bench.doorbells.access(address, write=True, data=1)).error == 1
    assert (await bench.doorbells.access(0, write=False)).error == 1
    assert await bench.refused() == refused
    # Exactly `depth` past the read index is right, one more is not.
    assert not (await bench.ring(1, 4)).error
    await bench.settled(1)
    assert await bench.read("fetched", 1) == 4
    assert not (await bench.ring(1, 8)).error
    await bench.settled(1)
    assert await bench.read("fetched", 1) == 8  # SRAM is full: the read index stays here.
    assert not (await bench.ring(1, 8)).error  # The same again is allowed.
    assert not (await bench.ring(1, 12)).error
    assert (await bench.state(1))["fault"] == 0
    assert not (await bench.ring(1, 13)).error
    assert await bench.fault(1) == (Status.DOORBELL_VIOLATION, 13)
    assert await bench.read("doorbell", 1) == 12
    # Backwards.
    assert not (await bench.ring(2, 3)).error
    assert not (await bench.ring(2, 2)).error
    assert await bench.fault(2) == (Status.DOORBELL_VIOLATION, 2)
    assert await bench.read("doorbell", 2) == 3
    # Far away, such as an index that lost its upper half or wrapped.
    for queue, index in ((3, 2**64 - 1), (4, 1 << 32)):
        assert not (await bench.ring(queue, index)).error
        assert await bench.fault(queue) == (Status.DOORBELL_VIOLATION, index % 2**48)
    # Faulted queues refuse; the neighbour works on.
    for queue in (1, 2, 3, 4):
        await check_refused(queue, 4)
    bench.rings[0].write(0)
    assert not (await bench.ring(0, 1)).error
    await bench.settled(0)
    await bench.check_packet(0, 0)
    assert await bench.faulted() == 0b11110
    assert bench.events["fault"] == 4
    # Disabled and enabled again, all is new.
    await bench.disable(1)
    await check_refused(1, 1)
    assert await bench.fault(1) == (Status.DOORBELL_VIOLATION, 13)
    await bench.enable(1, depth_log2=2)
    assert await bench.faulted() == 0b11100
    assert [await bench.read(name, 1) for name in ("doorbell", "fetched", "consumed", "state")] == [
        0,
        0,
        0,
        0,
    ]
    bench.rings[1].write(0)
    assert not (await bench.ring(1, 1)).error
    await bench.settled(1)
    await bench.check_packet(1, 0)


@cocotb.test()
async def stale_doorbell_after_destroy(dut: Any) -> None:
    """Someone still has the old queue's page: the ring is refused, the new queue is not touched."""
    bench = Bench(dut, stall=0.0)
    await bench.start()
    await bench.enable(5, depth_log2=4)
    for index in range(16):
        bench.rings[5].write(index)
    await bench.ring(5, 12)
    await bench.settled(5)
    await bench.disable(5)
    assert (await bench.ring(5, 13)).error == 1
    assert [await bench.read(name, 5) for name in ("doorbell", "fetched")] == [12, 8]
    # Packets that were never fetched, and room for them: they belong to the old queue.
    await bench.write("consumed", 5, 4)
    requests = len(bench.packets.lines)
    await bench.enable(5, depth_log2=3)
    await ClockCycles(dut.clk, 50)
    assert [await bench.read(name, 5) for name in ("doorbell", "fetched", "consumed")] == [0, 0, 0]
    assert len(bench.packets.lines) == requests


@cocotb.test()
async def disable_during_fetch(dut: Any) -> None:
    """Busy until all is in; every packet is accounted for; a re-enable waits for the old life."""
    bench = Bench(dut, stall=0.0)
    bench.packets.latency = 60
    bench.indices.latency = 40
    await bench.start()
    for attempt in range(6):
        await bench.enable(2, depth_log2=4)
        await bench.enable(3, depth_log2=4)
        for index in range(8):
            bench.rings[2].write(index)
            bench.rings[3].write(index)
        asked = len(bench.packets.lines)
        await bench.ring(2, 8)
        await bench.ring(3, 4)
        await ClockCycles(dut.clk, 4 * attempt)
        await bench.write("control", 2, 0)
        assert (await bench.state(2))["busy"] == 1
        if attempt % 2:  # The firmware does not wait: the queue starts once it is quiet.
            await bench.write("control", 2, 1)
            assert (await bench.ring(2, 1)).error == 1
            await bench.settled(2)
            await ClockCycles(dut.clk, 20)
            assert [await bench.read(n, 2) for n in ("doorbell", "fetched")] == [0, 0]
            assert not (await bench.ring(2, 1)).error
            await bench.settled(2)
            await bench.check_packet(2, 0)
        else:
            await bench.settled(2)
            fetched = await bench.read("fetched", 2)
            mine = [line for line in bench.packets.lines[asked:] if bench.owner(line) == 2]
            assert fetched == len(mine) <= 8
            assert bench.published(2) == fetched
            for index in range(fetched):
                await bench.check_packet(2, index)
        await bench.settled(3)
        assert await bench.read("fetched", 3) == 4
        await bench.disable(2)
        await bench.disable(3)


@cocotb.test()
async def fetch_errors(dut: Any) -> None:
    """The first error is kept, with its address; what follows is dropped; neighbours work on."""
    bench = Bench(dut, stall=0.2)
    bench.packets.latency = (1, 40)
    await bench.start()
    for error, bad in ((LineError.BUS, 2), (LineError.ADDRESS, 5), (LineError.BUS, 0)):
        for queue in (0, 9):
            await bench.enable(queue, depth_log2=3)
            for index in range(8):
                bench.rings[queue].write(index)
        faults = bench.events["fault"]
        address = bench.rings[9].address + 64 * bad
        bench.memory.fail(address, 64, error)
        bench.memory.fail(address + 64, 64, LineError.ADDRESS)
        await bench.ring(9, 8)
        await bench.ring(0, 8)
        await bench.settled(0)
        await bench.settled(9)
        assert await bench.fault(9) == (status_of(error), address)
        assert await bench.read("fetched", 9) == bad == bench.published(9)
        assert await bench.faulted() == 1 << 9
        assert bench.events["fault"] == faults + 1
        for index in range(bad):
            await bench.check_packet(9, index)
        assert await bench.read("fetched", 0) == 8
        requests = len(bench.packets.lines)
        await bench.write("consumed", 9, bad)
        await ClockCycles(dut.clk, 60)
        assert len(bench.packets.lines) == requests
        bench.memory.heal()
        await bench.disable(0)
        await bench.disable(9)


@cocotb.test()
async def publish_errors(dut: Any) -> None:
    bench = Bench(dut, stall=0.1)
    await bench.start()
    await bench.enable(6, depth_log2=3)
    bench.rings[6].write(0)
    address = bench.rings[6].read_index
    bench.memory.fail(address, 64, LineError.BUS)
    await bench.ring(6, 1)
    await bench.settled(6)
    assert await bench.fault(6) == (Status.BUS_ERROR, address)
    assert (await bench.read("fetched", 6), bench.published(6)) == (1, 0)
    assert (await bench.ring(6, 2)).error == 1


@cocotb.test()
async def first_fault_is_kept(dut: Any) -> None:
    """A read index write fails while the queue is faulted for its doorbell already."""
    bench = Bench(dut, stall=0.0)
    bench.indices.latency = 200
    await bench.start()
    await bench.enable(6, depth_log2=3)
    bench.rings[6].write(0)
    bench.memory.fail(bench.rings[6].read_index, 64, LineError.BUS)
    await bench.ring(6, 1)
    while not bench.indices.lines:
        await RisingEdge(dut.clk)
    await bench.ring(6, 0)
    for _ in range(2):
        assert await bench.fault(6) == (Status.DOORBELL_VIOLATION, 0)
        await bench.settled(6)
    assert bench.events["fault"] == 1


@cocotb.test()
async def bad_registers(dut: Any) -> None:
    """A queue with wrong registers is faulted from the start, and never fetches."""
    bench = Bench(dut, stall=0.0)
    await bench.start()
    last_line = (1 << 48) - 64
    for queue, (ring, index, depth, status, address) in enumerate(
        (
            (HOST + 8, HOST, 2, Status.MISALIGNED, HOST + 8),
            (HOST, HOST + 32, 2, Status.MISALIGNED, HOST + 32),
            (HOST, HOST, 17, Status.BAD_FIELD, 17),
            (HOST, HOST, 31, Status.BAD_FIELD, 31),
            (last_line, HOST, 1, Status.ADDRESS_FAULT, last_line),
            (last_line - 64 * 65534, HOST, 16, Status.ADDRESS_FAULT, last_line - 64 * 65534),
        )
    ):
        await bench.program(queue, ring=ring, read_index=index, depth_log2=depth)
        assert await bench.fault(queue) == (status, address)
        assert (await bench.ring(queue, 1)).error == 1
    assert await bench.faulted() == 0b111111
    # The largest ring that just fits is none of these.
    await bench.program(8, ring=last_line - 64 * 65535, read_index=HOST, depth_log2=16)
    await bench.program(9, ring=last_line, read_index=HOST, depth_log2=0)
    assert await bench.faulted() == 0b111111
    assert not (await bench.ring(9, 1)).error
    await ClockCycles(dut.clk, 30)
    assert bench.packets.lines == [last_line >> 6]
    assert await bench.fault(9) == (Status.ADDRESS_FAULT, last_line)


@cocotb.test()
async def every_register(dut: Any) -> None:
    bench = Bench(dut, stall=0.1)
    await bench.start()
    found = await check_map(
        bench.firmware, 0, QUEUE_BLOCK, QUEUE_BLOCK.nbytes, {}, fixed={"control": 0, "consumed": 0}
    )
    assert found == sum(place.count for place in QUEUE_BLOCK) == 7 * QUEUES + 2
    for queue in range(QUEUES):
        await bench.write("consumed", queue, 100 + queue)
    assert await bench.available() == (1 << QUEUES) - 1
    assert [await bench.read("consumed", q) for q in range(QUEUES)] == [*range(100, 100 + QUEUES)]


@cocotb.test()
async def packet_sram_is_read_only(dut: Any) -> None:
    bench = Bench(dut, stall=0.0)
    await bench.start()
    assert (await bench.sram.access(0, write=True, data=1)).error == 1
    assert (await bench.sram.access(QUEUES * 8 * 64, write=False)).error == 1
    assert (await bench.sram.access(QUEUES * 8 * 64 - 8, write=False)).error == 0


@cocotb.test()
async def firmware_copy_is_taken_once(dut: Any) -> None:
    """What the user writes into the slot later does not reach the copy that was checked."""
    bench = Bench(dut, stall=0.0)
    await bench.start()
    await bench.enable(1, depth_log2=1)
    bench.rings[1].write(0)
    await bench.ring(1, 1)
    await bench.settled(1)
    packet = list(bench.rings[1].packets[0])
    bench.rings[1].write(2)  # The same slot.
    assert await bench.packet(1, 0) == packet


@cocotb.test()
async def blocked_trace_stalls_nothing(dut: Any) -> None:
    bench = Bench(dut, stall=0.0, trace_stall=1.0)
    await bench.start()
    await bench.enable(0, depth_log2=3)
    for index in range(8):
        bench.rings[0].write(index)
    for index in range(1, 9):
        assert not (await bench.ring(0, index)).error
    await bench.settled(0)
    assert await bench.read("fetched", 0) == 8
    assert bench.trace_drops == [7, 7]


@cocotb.test()
async def traces(dut: Any) -> None:
    bench = Bench(dut, stall=0.0)
    await bench.start()
    await bench.enable(4, depth_log2=3)
    for index in range(3):
        bench.rings[4].write(index)
    await bench.ring(4, 1)
    await bench.ring(4, 3)
    await bench.settled(4)
    await ClockCycles(dut.clk, 3)
    events = [[TRACE_EVENT.unpack(word) for word in sink.received] for sink in bench.traces]
    sources = (TraceSource.DOORBELL, TraceSource.FETCHER)
    for which, arguments in ((0, [1, 3]), (1, [0, 1, 2])):
        assert [e["argument"] for e in events[which]] == arguments
        assert {(e["source"], e["instance"]) for e in events[which]} == {(sources[which], 4)}
    assert bench.trace_drops == [0, 0]


@cocotb.test()
async def sleeps_when_quiet(dut: Any) -> None:
    bench = Bench(dut, stall=0.0)
    await bench.start()
    await bench.enable(0, depth_log2=3)
    for index in range(8):
        bench.rings[0].write(index)
    await bench.ring(0, 8)
    await bench.settled(0)
    await ClockCycles(dut.clk, 10)
    assert int(dut.idle.value) == 1
    assert int(dut.wake.value) == 0


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_queue_unit(sim: str) -> None:
    block = QueueUnit()
    wrapped = Gated(block) if sim == "verilator" else block
    run_block(wrapped, __name__, sim=sim, sources=[Sram.SOURCE])
