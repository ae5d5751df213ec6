"""The AXI4-Lite slave: random traffic with pauses on all channels, order, errors, latency."""

import itertools
import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import Combine, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from rtl.host.axi_lite import AxiLitePort, AxiLiteSlave
from tb.blocks.harness import run_block
from tb.blocks.host.register_agent import RegisterTarget
from tb.blocks.streams import reset_dut

REFUSED = 0x8000
RAW = ("awaddr", "awvalid", "wdata", "wstrb", "wvalid", "bready", "araddr", "arvalid", "rready")


def pauses(chance: float) -> Any:
    return (random.random() < chance for _ in itertools.count())


async def start(dut: Any, stall: float) -> tuple[AxiLiteMaster, RegisterTarget]:
    dut.rst.value = 1
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axi", bus_separator="__"), dut.clk, dut.rst)
    for channel in (
        master.write_if.aw_channel,
        master.write_if.w_channel,
        master.write_if.b_channel,
        master.read_if.ar_channel,
        master.read_if.r_channel,
    ):
        channel.set_pause_generator(pauses(stall))
    target = RegisterTarget(dut, "bus", stall=stall, refused=lambda address: address >= REFUSED)
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    return master, target


@cocotb.test(timeout_time=60, timeout_unit="us")
async def random_traffic(dut: Any) -> None:
    """Reads and writes at the same time, on disjoint words, so that a model can check both."""
    master, target = await start(dut, 0.4)

    async def user(base: int, model: bytearray) -> None:
        for _ in range(60):
            offset, size = random.randrange(256), random.choice([1, 2, 4, 8, 20])
            size = min(size, 256 - offset)
            if random.random() < 0.5:
                data = random.randbytes(size)
                assert (await master.write(base + offset, data)).resp == AxiResp.OKAY
                model[offset : offset + size] = data
            else:
                read = await master.read(base + offset, size)
                assert (bytes(read.data), read.resp) == (
                    bytes(model[offset : offset + size]),
                    AxiResp.OKAY,
                )

    models = [bytearray(256) for _ in range(4)]
    users = [cocotb.start_soon(user(0x100 * i, model)) for i, model in enumerate(models)]
    await Combine(*users)
    for i, model in enumerate(models):
        words = b"".join(
            target.words.get(0x100 * i + 8 * w, 0).to_bytes(8, "little") for w in range(32)
        )
        assert words == bytes(model)
    assert all(address % 8 == 0 for address, *_ in target.log)


@cocotb.test(timeout_time=20, timeout_unit="us")
async def errors(dut: Any) -> None:
    master, _ = await start(dut, 0.2)
    for _ in range(30):
        address = random.choice([0, REFUSED]) + 8 * random.randrange(16)
        resp = AxiResp.SLVERR if address >= REFUSED else AxiResp.OKAY
        data = random.randbytes(8)
        assert (await master.write(address, data)).resp == resp
        read = await master.read(address, 8)
        assert read.resp == resp
        assert bytes(read.data) == (data if resp == AxiResp.OKAY else bytes(8))


async def raw(dut: Any) -> RegisterTarget:
    dut.rst.value = 1
    for name in RAW:
        getattr(dut, f"axi__{name}").value = 0
    target = RegisterTarget(dut, "bus")
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    return target


async def until(dut: Any, name: str, bound: int = 20) -> int:
    """Cycles until the signal is 1 at an edge."""
    for cycle in range(bound):
        await RisingEdge(dut.clk)
        if int(getattr(dut, f"axi__{name}").value):
            return cycle
    raise AssertionError(f"{name} did not come")


@cocotb.test()
async def order_of_write_channels(dut: Any) -> None:
    """Data far before the address, then the address far before the data."""
    target = await raw(dut)
    for first, second in (("w", "aw"), ("aw", "w")):
        for index, channel in enumerate((first, second)):
            dut.axi__awaddr.value, dut.axi__wdata.value, dut.axi__wstrb.value = 0x40, 7, 0x0F
            getattr(dut, f"axi__{channel}valid").value = 1
            await until(dut, f"{channel}ready")
            getattr(dut, f"axi__{channel}valid").value = 0
            dut.axi__awaddr.value, dut.axi__wdata.value, dut.axi__wstrb.value = 0x80, 9, 0xFF
            if index == 0:
                for _ in range(10):
                    await RisingEdge(dut.clk)
                    assert not int(dut.axi__bvalid.value)
        await until(dut, "bvalid")
        for _ in range(5):  # Held until bready.
            await RisingEdge(dut.clk)
            assert (int(dut.axi__bvalid.value), int(dut.axi__bresp.value)) == (1, 0)
        dut.axi__bready.value = 1
        await RisingEdge(dut.clk)
        dut.axi__bready.value = 0
        await RisingEdge(dut.clk)
        assert not int(dut.axi__bvalid.value)
    assert target.log == [(0x40, True, 7, 0x0F)] * 2


@cocotb.test()
async def reads_and_writes_take_turns(dut: Any) -> None:
    target = await raw(dut)
    dut.axi__bready.value = dut.axi__rready.value = 1
    dut.axi__awvalid.value = dut.axi__wvalid.value = dut.axi__arvalid.value = 1
    dut.axi__wstrb.value = 0xFF
    for _ in range(200):
        await RisingEdge(dut.clk)
    kinds = [write for _, write, *_ in target.log]
    assert len(kinds) > 20
    assert all(a != b for a, b in itertools.pairwise(kinds))


@cocotb.test()
async def latency(dut: Any) -> None:
    """arvalid to rvalid is 2 cycles beside those of the target (here 1), and so are writes."""
    await raw(dut)
    dut.axi__bready.value = dut.axi__rready.value = 1
    for _ in range(3):
        dut.axi__arvalid.value = 1
        await RisingEdge(dut.clk)
        assert int(dut.axi__arready.value)
        dut.axi__arvalid.value = 0
        assert await until(dut, "rvalid") == 2
        dut.axi__awvalid.value = dut.axi__wvalid.value = 1
        await RisingEdge(dut.clk)
        assert int(dut.axi__awready.value) & int(dut.axi__wready.value)
        dut.axi__awvalid.value = dut.axi__wvalid.value = 0
        assert await until(dut, "bvalid") == 2


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_axi_lite(sim: str) -> None:
    run_block(AxiLiteSlave(address_bits=16), __name__, sim=sim)


def test_parameters() -> None:
    with pytest.raises(ValueError, match="address_bits must be between 4 and 28, not 29"):
        AxiLitePort(address_bits=29)
