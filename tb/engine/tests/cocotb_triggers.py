"""cocotb tests whose log of (who, time, values) must not depend on the simulator's main."""

import json
import os
import random
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.simtime import get_sim_time
from cocotb.triggers import (
    ClockCycles,
    Combine,
    Event,
    FallingEdge,
    First,
    NextTimeStep,
    ReadOnly,
    ReadWrite,
    RisingEdge,
    Timer,
    ValueChange,
    with_timeout,
)

LOG: list[Any] = []


def log(dut: Any, who: str) -> None:
    names = ("clk", "rst", "host__araddr", "host__arvalid", "host__arready", "host__rvalid")
    values = [str(getattr(dut, name).value) for name in (*names, "msi__valid", "msi__vector")]
    LOG.append([who, get_sim_time("ps"), *values])


async def start(dut: Any) -> None:
    if os.environ["GLASSNPU_CLOCK"] == "cocotb":
        Clock(dut.clk, 1, unit="ns").start(start_high=False)
    dut.rst.value = 1
    for prefix in ("host", "fw"):
        for name in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
            getattr(dut, f"{prefix}__{name}").value = 0
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0


def finish(name: str) -> None:
    path = Path(os.environ["GLASSNPU_LOG"])
    logs = json.loads(path.read_text()) if path.exists() else {}
    logs[name] = LOG.copy()
    LOG.clear()
    path.write_text(json.dumps(logs))


async def each_trigger_alone(dut: Any) -> None:
    log(dut, "start")
    for _ in range(20):
        await RisingEdge(dut.clk)
        log(dut, "rising")
        dut.host__araddr.value = random.getrandbits(28)
        await ReadWrite()
        log(dut, "read-write")
        await ReadOnly()
        log(dut, "read-only")
        await FallingEdge(dut.clk)
        log(dut, "falling")
        dut.host__arvalid.value = random.getrandbits(1)
        await NextTimeStep()
        log(dut, "next")
        await Timer(random.randrange(1, 3000), "ps")
        log(dut, "timer")
        dut.host__rready.value = random.getrandbits(1)
        await ValueChange(dut.clk)
        log(dut, "change")
    await ClockCycles(dut.clk, 100)
    log(dut, "cycles")
    for _ in range(10):
        # Nothing but an output is watched, and it moves after some cycles only.
        dut.fw__araddr.value, dut.fw__rready.value, dut.fw__arvalid.value = 8, 1, 1
        await RisingEdge(dut.fw__rvalid)
        log(dut, "answer")
        dut.fw__arvalid.value = 0
        await FallingEdge(dut.fw__rvalid)
        log(dut, "answer taken")
    await Timer(123, "ns")
    log(dut, "long timer")
    finish("each_trigger_alone")


async def many_tasks_at_once(dut: Any) -> None:
    event = Event()

    async def edges() -> None:
        for i in range(60):
            await RisingEdge(dut.clk)
            log(dut, "edges")
            dut.host__arvalid.value = i & 1
            if i % 7 == 0:
                event.set()

    async def half_cycle_timers() -> None:
        for _ in range(60):
            await Timer(500, "ps")
            log(dut, "half-cycle timer")
            dut.host__rready.value = random.getrandbits(1)

    async def odd_timers() -> None:
        for _ in range(40):
            await Timer(random.randrange(1, 1700), "ps")
            log(dut, "odd timer")
            await ReadOnly()
            log(dut, "odd timer, read-only")

    async def listener() -> None:
        for _ in range(6):
            await event.wait()
            event.clear()
            log(dut, "event")
            await ReadWrite()
            dut.host__araddr.value = random.getrandbits(28)

    async def output_watcher() -> None:
        for _ in range(10):
            await First(ValueChange(dut.host__rvalid), Timer(4, "ns"))
            log(dut, "output")

    async def timeouts() -> None:
        for _ in range(10):
            try:
                await with_timeout(RisingEdge(dut.host__rvalid), 3500, "ps")
                log(dut, "in time")
            except TimeoutError:
                log(dut, "too late")
            await NextTimeStep()

    bodies = (edges, half_cycle_timers, odd_timers, listener, output_watcher, timeouts)
    tasks = [cocotb.start_soon(body()) for body in bodies]
    await Combine(*(task.complete for task in tasks))
    log(dut, "all done")
    finish("many_tasks_at_once")


@cocotb.test()
async def everything(dut: Any) -> None:
    # One test, since a clock of cocotb's restarts with each test, at another phase.
    await start(dut)
    await each_trigger_alone(dut)
    await many_tasks_at_once(dut)
