"""Host memory, driven by the AXI manager of cocotbext-axi."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiBurstType, AxiBus, AxiMaster, AxiResp

from tb.blocks.harness import run_block
from tb.blocks.memory.linked import dram_sources
from tb.blocks.streams import reset_dut
from tb.machine.host_memory import HostMemory

NBYTES = 0x4000
LATENCY = 20


async def start(dut: Any, stall_level: int) -> AxiMaster:
    dut.rst.value = 1
    dut.stall_level.value, dut.stall_seed.value = 0, random.getrandbits(32)
    for name in ("base", "limit", "enable"):
        getattr(dut, f"fault__slverr_{name}").value = 0
    bus = AxiBus.from_prefix(dut, "axi", bus_separator="__")
    manager = AxiMaster(bus, dut.clk, dut.rst, max_burst_len=16)
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    dut.stall_level.value = stall_level
    return manager


@cocotb.test()
async def any_bytes(dut: Any) -> None:
    """Reads and writes of any address and length, so bursts of 1 to 16 beats, at any stalls."""
    manager = await start(dut, random.choice([0, 4, 12]))
    model = bytearray(random.randbytes(NBYTES))
    await manager.write(0, bytes(model))
    for _ in range(60):
        nbytes = random.choice([1, 8, 32, 64, random.randint(1, 700)])
        address = random.randrange(NBYTES - nbytes)
        if random.random() < 0.5:
            value = random.randbytes(nbytes)
            model[address : address + nbytes] = value
            assert (await manager.write(address, value)).resp == AxiResp.OKAY
        else:
            answer = await manager.read(address, nbytes)
            assert answer.resp == AxiResp.OKAY
            assert answer.data == bytes(model[address : address + nbytes])
    assert (await manager.read(0, NBYTES)).data == bytes(model)
    for _ in range(40):
        await RisingEdge(dut.clk)
    assert int(dut.idle.value) == 1


@cocotb.test()
async def refuses_what_it_must(dut: Any) -> None:
    manager = await start(dut, random.choice([0, 8]))
    model = bytes(random.randbytes(NBYTES))
    await manager.write(0, model)
    beyond = await manager.write(NBYTES - 32, bytes(96))
    assert beyond.resp == AxiResp.DECERR
    assert (await manager.read(NBYTES, 4)).resp == AxiResp.DECERR
    # What lies inside is written all the same.
    answer = await manager.read(NBYTES - 64, 64)
    assert answer.data == model[NBYTES - 64 : NBYTES - 32] + bytes(32)
    for burst in (AxiBurstType.FIXED, AxiBurstType.WRAP):
        assert (await manager.write(128, bytes(64), burst=burst)).resp == AxiResp.SLVERR
    assert (await manager.write(128, bytes(64), size=2)).resp == AxiResp.SLVERR
    assert (await manager.read(128, 64, size=2)).resp == AxiResp.SLVERR
    assert (await manager.read(128, 64)).data == model[128:192]
    dut.fault__slverr_base.value, dut.fault__slverr_limit.value = 300, 301
    assert (await manager.read(256, 64)).resp == AxiResp.OKAY
    dut.fault__slverr_enable.value = 1
    # One bad line among others spoils the response of its burst, and nothing but itself.
    assert (await manager.write(192, b"\xa5" * 192)).resp == AxiResp.SLVERR
    dut.fault__slverr_enable.value = 0
    answer = await manager.read(192, 192)
    assert answer.data == b"\xa5" * 64 + model[256:320] + b"\xa5" * 64


@cocotb.test()
async def latency_is_exact_without_stalls(dut: Any) -> None:
    """And with stalls the same seed gives the same cycles, another seed others."""
    manager = await start(dut, 0)
    await manager.write(0, bytes(64))

    async def cycles_of(valid: str, channel: str) -> int:
        while not (valid_of(f"{channel}valid") and valid_of(f"{channel}ready")):
            await RisingEdge(dut.clk)
        count = 0
        while not valid_of(valid):
            await RisingEdge(dut.clk)
            count += 1
        return count

    def valid_of(name: str) -> int:
        return int(getattr(dut, f"axi__{name}").value)

    read = cocotb.start_soon(cycles_of("rvalid", "ar"))
    await manager.read(0, 32)
    assert await read == LATENCY
    write = cocotb.start_soon(cycles_of("bvalid", "w"))
    await manager.write(0, bytes(32))
    assert await write == LATENCY

    async def duration(seed: int) -> int:
        dut.stall_level.value, dut.stall_seed.value = 0, seed
        await ClockCycles(dut.clk, 3)
        dut.stall_level.value = 9
        began = get_sim_time("step")
        for i in range(8):
            await manager.read(64 * i, 64)
        return get_sim_time("step") - began

    durations = [await duration(seed) for seed in (11, 11, 12, 13)]
    assert durations[0] == durations[1]
    assert len(set(durations)) > 1


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_host_memory(sim: str) -> None:
    run_block(
        HostMemory(lines=NBYTES // 64, latency=LATENCY),
        __name__,
        sim=sim,
        sources=dram_sources(sim),
    )


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_refuses_bad_parameters() -> None:
    with pytest.raises(ValueError, match="lines must be from 1 to"):
        HostMemory(lines=0)
    with pytest.raises(ValueError, match="latency must be at least 2 cycles, not 1"):
        HostMemory(lines=1, latency=1)
