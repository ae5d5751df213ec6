"""Programs that tests of the engine run inside the simulator."""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge, Timer

from driver.bus import BusError, Region, attached_bus
from firmware.port import FirmwarePort
from tb.engine.actors import NothingCanHappenError
from tb.engine.clockwork import NEVER
from tb.engine.host import current_machine

CONFIG = Region.CONFIG
FIRMWARE_RUN, MESSAGES, STORE_STROBE, STORE_LINE, STORE_VALUE, LOAD_LINE, LOADED = (
    8 * word for word in (15, 14, 7, 9, 8, 10, 11)
)
SLVERR, SILENT = 1 << 12, 1 << 13

LOG: list[Any] = []


def note(who: str, *values: Any) -> None:
    LOG.append([attached_bus().now(), who, *values])


def echo_firmware(port: FirmwarePort) -> None:
    """Answers every event: clears it, reads word 1, computes, writes its double to word 2."""
    note("firmware starts")
    while True:
        if not port.wait(port.now() + 500):
            note("firmware beats")
            continue
        port.write(0, 0)
        value = port.read(8)
        port.compute(7)
        port.write(16, value * 2 & (1 << 64) - 1)
        port.note("echo", value=value & 0xFFFF)
        note("firmware echoes", value)


def mixture(path: str, seed: int, operations: int) -> None:
    """Host threads, firmware and messages at once; the log goes to `path`."""
    LOG.clear()
    machine, bus = current_machine(), attached_bus()
    machine.clockwork.set_bus_timeout(200)
    bus.write(CONFIG, FIRMWARE_RUN, 1)
    bus.write(CONFIG, MESSAGES, 1)

    def registers(name: str, seed: int) -> None:
        random = Random(seed)
        for i in range(operations):
            offset = 8 * random.randrange(1, 7) | random.choice([0, 0, 0, 0, SLVERR])
            offset |= SILENT if i == operations // 2 and name == "first" else 0
            size = random.choice([4, 8])
            try:
                if random.random() < 0.5:
                    bus.write(CONFIG, offset, random.getrandbits(8 * size), size)
                    note(name, "wrote", offset)
                else:
                    note(name, "read", offset, bus.read(CONFIG, offset, size))
            except BusError as error:
                note(name, "refused", error.response)
            if random.random() < 0.2:
                machine.actors.sleep(bus.now() + random.randrange(40))
                note(name, "slept")

    def interrupts() -> None:
        for _ in range(operations // 4):
            note("interrupts", bus.wait_interrupt(0xF0F0_F0F0, bus.now() + 150))

    threads = [
        machine.actors.spawn("first", lambda: registers("first", seed)),
        machine.actors.spawn("second", lambda: registers("second", seed + 1)),
        machine.actors.spawn("interrupts", interrupts),
    ]
    for thread in threads:
        machine.actors.join(thread)
    # The slave that did not answer is still busy: only a reset helps.
    machine.reset()
    note("after reset", bus.read(CONFIG, FIRMWARE_RUN))
    traces = machine.clockwork.traces()
    LOG.append([len(traces), [int(word) for word in traces.flatten()]])
    LOG.append([list(note) for note in machine.firmware_bus.notes])
    Path(path).write_text(json.dumps(LOG))


def memory(path: str) -> None:
    """The machine stores to and loads from host memory that Python sees."""
    bus = attached_bus()
    page = bus.allocate_pages(2)
    view = bus.host_view(page, 8192)
    assert not view.any()
    line = page // 64 + 5
    bus.write(CONFIG, STORE_STROBE, 0xFF00_0000_0000_000F)
    bus.write(CONFIG, STORE_LINE, line)
    value = 0x1122_3344_5566_7788
    bus.write(CONFIG, STORE_VALUE, value)
    bus.read(CONFIG, 0)
    expected = bytearray(64)
    expected[0:4] = value.to_bytes(8, "little")[:4]
    expected[56:64] = value.to_bytes(8, "little")
    assert bytes(view[320:384]) == bytes(expected)
    bus.write(CONFIG, STORE_STROBE, (1 << 64) - 1)
    bus.write(CONFIG, STORE_VALUE, value)
    bus.read(CONFIG, 0)
    assert bytes(view[320:384]) == value.to_bytes(8, "little") * 8
    view[320:328] = list(b"abcdefgh")
    bus.write(CONFIG, LOAD_LINE, line)
    bus.read(CONFIG, 0)
    assert bus.read(CONFIG, LOADED).to_bytes(8, "little") == b"abcdefgh"
    Path(path).write_text("done")


def weak_order() -> None:
    """Stores arrive late and out of order, but not behind a barrier; loads see them at once."""
    bus = attached_bus()
    page = bus.allocate_pages(1)
    view = bus.host_view(page, 4096)
    orders = set()
    for attempt in range(20):
        view[:16] = 0
        bus.store(page, bytes([attempt + 1]) * 8)
        bus.store(page + 8, bytes([attempt + 1]) * 8)
        assert bus.load(page, 16) == bytes([attempt + 1]) * 16
        seen = []
        while not (view[0] and view[8]):
            current_machine().actors.sleep(bus.now() + 1)
            if view[0] and 0 not in seen:
                seen.append(0)
            if view[8] and 8 not in seen:
                seen.append(8)
        orders.add(tuple(seen[:2]))
    assert {(0, 8), (8, 0)} <= orders, orders
    for attempt in range(20):
        bus.store(page, bytes([attempt]) * 8)
        bus.store(page + 4, bytes([attempt + 100]) * 8)
        bus.barrier()
        assert bytes(view[:12]) == bytes([attempt]) * 4 + bytes([attempt + 100]) * 8
    # A register write is no barrier: some of these stores are still on their way after it.
    late = 0
    for attempt in range(20):
        bus.store(page, bytes([attempt + 50]) * 8)
        bus.write(CONFIG, 8, 1)
        late += view[0] != attempt + 50
        bus.barrier()
    assert late > 5, late


def lost() -> None:
    """Writes and messages vanish on request."""
    machine, bus = current_machine(), current_machine().bus
    bus.write(CONFIG, 16, 1)
    bus.lose_writes(CONFIG, 16, 24, 2)
    for value in (2, 3):
        bus.write(CONFIG, 24, value)
        bus.write(CONFIG, 16, value)
    assert (bus.read(CONFIG, 16), bus.read(CONFIG, 24)) == (1, 3)
    bus.write(CONFIG, 16, 4)
    assert bus.read(CONFIG, 16) == 4
    bus.write(CONFIG, MESSAGES, 1)
    first = bus.wait_interrupt(0xFFFF_FFFF, NEVER)
    assert first
    bus.write(CONFIG, MESSAGES, 0)
    bus.wait_interrupt(0xFFFF_FFFF, bus.now() + 10)
    for vector in range(32):
        bus.lose_messages(vector, 1000)
    bus.write(CONFIG, MESSAGES, 1)
    assert bus.wait_interrupt(0xFFFF_FFFF, bus.now() + 2000) == 0
    bus.end_faults()
    assert bus.wait_interrupt(0xFFFF_FFFF, bus.now() + 2000)
    assert machine.actors.now() == bus.now()


def firmware_faults() -> None:
    """The firmware is started, stalled, slowed, crashed, stopped and started again."""
    LOG.clear()
    machine, bus = current_machine(), current_machine().bus

    def answer(value: int) -> int:
        start = bus.now()
        bus.write(CONFIG, 8, value)
        while bus.read(CONFIG, 16) != 2 * value:
            if bus.now() > start + 3000:
                return -1
        return bus.now() - start

    bus.write(CONFIG, FIRMWARE_RUN, 1)
    usual = answer(21)
    assert 0 < usual < 100, usual
    machine.firmware_bus.slowness = 50
    assert 350 < answer(22) < 500
    machine.firmware_bus.slowness = 1
    machine.firmware_bus.stall(bus.now() + 1000)
    assert 1000 < answer(23) < 1100
    machine.firmware_bus.stall(NEVER)
    assert answer(24) == -1
    machine.firmware_bus.resume()
    assert 0 < answer(25) < 100
    machine.crash_firmware()
    assert answer(26) == -1
    starts = sum(entry[1] == "firmware starts" for entry in LOG)
    assert starts == 1
    bus.write(CONFIG, FIRMWARE_RUN, 0)
    bus.write(CONFIG, FIRMWARE_RUN, 1)
    assert 0 < answer(27) < 100
    for _ in range(20):  # stopped at any point of an access
        bus.write(CONFIG, 8, 5)
        machine.actors.sleep(bus.now() + Random(machine.seed).randrange(20))
        bus.write(CONFIG, FIRMWARE_RUN, 0)
        bus.write(CONFIG, FIRMWARE_RUN, 1)
    assert 0 < answer(28) < 200


def stuck() -> None:
    """Two threads wait for one another: the error says so."""
    actors = current_machine().actors
    main = actors.current
    thread = actors.spawn("thread", lambda: actors.join(main))
    try:
        actors.join(thread)
    except NothingCanHappenError as error:
        text = str(error)
        assert "main waits for the end of thread" in text, text
        assert "thread waits for the end of main" in text, text
    else:
        raise AssertionError("a deadlock was not seen")


def fails_in_thread() -> None:
    """An exception of a thread that nobody joins ends the program with it."""
    actors = current_machine().actors

    def body() -> None:
        raise LookupError("lost in a thread")

    actors.spawn("thread", body)
    actors.sleep(actors.now() + 10)


def broken_firmware(port: FirmwarePort) -> None:
    port.read(SLVERR)


def waits_for_firmware() -> None:
    attached_bus().write(CONFIG, FIRMWARE_RUN, 1)
    current_machine().actors.sleep(1000)


def exits(code: Any) -> None:
    sys.exit(code)


def returns(value: Any) -> Any:
    return value


def echoes_input() -> int:
    print("got", input("? "))
    return 0


def beside_cocotb_tasks(count: int) -> None:
    """Other cocotb tasks keep their times while the hosted program reads registers."""
    machine, bus = current_machine(), attached_bus()
    ticks: list[float] = []
    edges: list[int] = []
    now = cocotb.simtime.get_sim_time

    async def timers() -> None:
        for _ in range(50):
            await Timer(1700, "ps")
            ticks.append(now("ps"))

    dut: Any = cocotb.top

    async def watcher() -> None:
        for _ in range(30):
            await RisingEdge(dut.clk)
            edges.append(machine.clockwork.now())

    start = now("ps")
    tasks = [cocotb.start_soon(timers())]
    for _ in range(count):
        bus.read(CONFIG, 8)
    tasks.append(cocotb.start_soon(watcher()))
    for _ in range(count):
        bus.read(CONFIG, 8)
    assert all(task.done() for task in tasks)
    steps = [b - a for a, b in pairwise(ticks)]
    assert steps == [1700] * 49, steps
    assert 0 < ticks[0] - start - 1700 <= 1000 or ticks[0] - start == 1700
    assert edges == list(range(edges[0], edges[0] + 30)), edges


def reading_speed(path: str, count: int) -> None:
    """Register reads a second of processor time, and cycles a second of three kinds."""
    machine, bus = current_machine(), attached_bus()
    clock = time.process_time
    start, cycles = clock(), bus.now()
    for _ in range(count):
        bus.read(CONFIG, 8)
    reads = count / (clock() - start)
    figures = {"reads": reads, "cycles_per_read": (bus.now() - cycles) / count}
    turns = 20 * count
    start = clock()
    machine.actors.sleep(bus.now() + turns)
    figures["hosted_cycles"] = turns / (clock() - start)
    bare = getattr(machine.clockwork, "bare_run", None)
    if bare is not None:
        start = clock()
        bare(turns)
        figures["bare_cycles"] = turns / (clock() - start)
    Path(path).write_text(json.dumps(figures))


def sleeps_long() -> None:
    """Runs the clock until somebody interrupts; then the machine still answers."""
    machine, bus = current_machine(), attached_bus()
    try:
        print("sleeping", flush=True)
        machine.actors.sleep(10**15)
    except KeyboardInterrupt:
        bus.write(CONFIG, 16, 7)
        print("interrupted, register", bus.read(CONFIG, 16), flush=True)
        raise


def pytest_inside(path: str) -> int:
    """A pytest session inside the machine."""
    import pytest

    return int(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", path, path]))
