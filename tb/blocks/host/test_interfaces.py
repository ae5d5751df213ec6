"""Host and firmware interface together: every register, privilege, mailbox, events, reset."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from abi.address import BAR0_BASE, BAR2_BASE, HOST_BASE, MAILBOX_SLOTS, MSI_BUS_ADDRESS
from abi.config_space import CONFIG_SPACE
from abi.geometry import CORES, DMA_CHANNELS, QUEUES, VECTORS
from abi.register import Access
from abi.registers_core import CORE_COUNTERS
from abi.registers_firmware import (
    COMPLETION_BASE,
    CORE_BASE,
    CORE_BLOCK,
    DMA_BASE,
    FIRMWARE_BASE,
    FIRMWARE_BLOCK,
    PACKET_SRAM_BASE,
    QUEUE_BASE,
)
from abi.registers_host import BAR0, BAR0_BYTES, DEVICE_MAGIC
from abi.version import ABI_MAJOR, ABI_MINOR, DEVICE_ID, VENDOR_ID
from rtl.host.config_space import CLASS_CODE, REVISION
from rtl.host.host_interface import COUNTERS
from tb.blocks.harness import run_block
from tb.blocks.host.axi_port import AxiPort
from tb.blocks.host.interface_bench import CORE_SIZES, DRAIN_CYCLES, HBM_BYTES, InterfaceBench
from tb.blocks.host.register_agent import RegisterTarget
from tb.blocks.host.register_check import check_map
from tb.blocks.memory.agents import LineMemory, WriteTarget
from tb.blocks.streams import StreamSink, StreamSource, reset_dut

MSI = HOST_BASE + MSI_BUS_ADDRESS
CORE_STRIDE = CORE_BLOCK["code"].stride
BLOCKS = {
    "queue": (QUEUE_BASE, 0x1000),
    "dma": (DMA_BASE, 0x1000),
    "completion": (COMPLETION_BASE, 0x1000),
    **{f"core{i}": (CORE_BASE + i * CORE_STRIDE, CORE_STRIDE) for i in range(CORES)},
    "packet": (PACKET_SRAM_BASE, 0x2000),
}
EVENTS = ("doorbell", "fetched", "dma", "core", "completion", "mailbox", "queue_fault")
IDENTITY_ENABLED = CONFIG_SPACE["identity"].register.pack(
    vendor=VENDOR_ID, device=DEVICE_ID, memory_enable=1, bus_master=1
)


def bar0(name: str, index: int = 0) -> int:
    return BAR0_BASE + BAR0.address(name, index)


def fw(name: str, index: int = 0) -> int:
    return FIRMWARE_BASE + FIRMWARE_BLOCK.address(name, index)


class Bench:
    """Both AXI ports, targets for all blocks, random values on all status inputs."""

    def __init__(self, dut: Any, stall: float, *, ports: bool = True) -> None:
        self.dut = dut
        dut.rst.value = 1
        if ports:
            self.host = AxiPort(dut, "host", stall=stall)
            self.fw = AxiPort(dut, "fw", stall=stall)
        self.doorbells = RegisterTarget(dut, "doorbell_bus", stall=stall)
        self.blocks = {name: RegisterTarget(dut, f"{name}_bus", stall=stall) for name in BLOCKS}
        self.memory = LineMemory({MSI: 4096})
        self.messages = WriteTarget(dut, "interrupt_port", self.memory, latency=5)
        self.vectors = StreamSource(dut, "interrupt")
        self.trace = StreamSink(dut, "interrupt_trace")
        dut.link_quiet.value = 1
        for name in EVENTS:
            if name != "mailbox":
                getattr(dut, f"{name}_event").value = 0
        self.shown: dict[tuple[str, int], int] = {}
        self._drive_status()

    def _drive_status(self) -> None:
        counts = {"queue": QUEUES, "dma": DMA_CHANNELS, "core": CORES}
        for place in BAR0:
            unit = place.name.split("_")[0]
            if place.register.access is not Access.RO or place.name in CORE_COUNTERS:
                continue
            if unit not in counts and place.name not in (*COUNTERS, "doorbell_refused"):
                continue
            if place.name.startswith("core_buffers"):
                continue
            for index in range(place.count):
                value = random.getrandbits(place.register.size)
                port = place.name if unit not in counts else f"{place.name}__{index}"
                getattr(self.dut, port).value = value
                self.shown[place.name, index] = value
        for core in range(CORES):
            word = 0
            for number, name in enumerate(CORE_COUNTERS):
                value = self.shown[name, core] = random.getrandbits(64)
                word |= value << 64 * number
            getattr(self.dut, f"core_counters__{core}").value = word
        constants = {
            "identity": {"magic": DEVICE_MAGIC, "abi_major": ABI_MAJOR, "abi_minor": ABI_MINOR},
            "capabilities": {
                "queues": QUEUES,
                "dma_channels": DMA_CHANNELS,
                "cores": CORES,
                "vectors": VECTORS,
            },
            "memory": {"hbm_bytes": HBM_BYTES},
            **{
                place: {n: CORE_SIZES[n] for n in BAR0[place].register.fields if n != "unused"}
                for place in ("core_buffers", "core_buffers_2")
            },
        }
        for name, fields in constants.items():
            self.shown[name, 0] = BAR0[name].register.pack(fields)

    async def start(self, *, enable: bool = True) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        await ClockCycles(self.dut.clk, 3)
        if enable:
            await self.host.write(0, IDENTITY_ENABLED)

    async def pulse(self, name: str) -> None:
        getattr(self.dut, f"{name}_event").value = 1
        await RisingEdge(self.dut.clk)
        getattr(self.dut, f"{name}_event").value = 0


@cocotb.test()
async def every_register_of_config_space(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start(enable=False)
    registers = {place.name: place.register for place in CONFIG_SPACE}
    shown = {
        ("identity", 0): registers["identity"].pack(vendor=VENDOR_ID, device=DEVICE_ID),
        ("class", 0): registers["class"].pack(revision=REVISION, class_code=CLASS_CODE),
        ("bar_size", 0): registers["bar_size"].pack(bar0=BAR0_BYTES, bar2=QUEUES * 4096),
    }
    assert await check_map(bench.host, 0, CONFIG_SPACE, 4096, shown) == 3


@cocotb.test()
async def every_register_of_bar0(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    found = await check_map(bench.host, BAR0_BASE, BAR0, BAR0_BYTES, bench.shown)
    assert found == sum(place.count for place in BAR0) > 300


@cocotb.test()
async def every_register_of_the_firmware_port(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    found = await check_map(bench.fw, FIRMWARE_BASE, FIRMWARE_BLOCK, FIRMWARE_BLOCK.nbytes, {})
    assert found == sum(place.count for place in FIRMWARE_BLOCK)
    for name, (base, nbytes) in BLOCKS.items():
        for offset in (0, 8, nbytes - 8, random.randrange(0, nbytes, 8)):
            value = random.getrandbits(64)
            await bench.fw.write(base + offset, value)
            assert bench.blocks[name].log[-1] == (offset, True, value, 0xFF)
            assert await bench.fw.read(base + offset) == value
            assert bench.blocks[name].log[-1][:2] == (offset, False)
    for hole in (0x4200, 0x5000, 0xF000, 0x12000, 0xFFFF8):
        assert await bench.fw.access_read(hole) == (0, False)
        assert not await bench.fw.access_write(hole, 1)


@cocotb.test()
async def outside_and_memory_enable(dut: Any) -> None:
    bench = Bench(dut, 0.1)
    await bench.start(enable=False)
    inside = (bar0("identity"), bar0("request_word", 3), BAR2_BASE, BAR2_BASE + QUEUES * 4096 - 8)
    outside = (0x1000, BAR0_BASE - 8, BAR0_BASE + BAR0_BYTES, BAR2_BASE + QUEUES * 4096, 0xFFF_FFF8)
    for address in inside + outside:
        assert await bench.host.access_read(address) == (0, False), hex(address)
        assert not await bench.host.access_write(address, 1), hex(address)
    assert bench.doorbells.log == []
    await bench.host.write(0, IDENTITY_ENABLED)
    assert int(dut.bus_master.value) == 1
    for address in inside:
        await bench.host.read(address)
    for address in outside:
        assert await bench.host.access_read(address) == (0, False), hex(address)
    for queue in (0, 7, QUEUES - 1):
        await bench.host.write(BAR2_BASE + 4096 * queue, 5 + queue)
        assert bench.doorbells.log[-1] == (4096 * queue, True, 5 + queue, 0xFF)
    assert await bench.host.access_write(BAR2_BASE + 4, 1, 4)
    assert bench.doorbells.log[-1][3] == 0xF0
    await bench.host.write(0, 0)
    assert int(dut.bus_master.value) == 0
    assert await bench.host.access_read(inside[0]) == (0, False)


@cocotb.test()
async def controls_and_time(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    control = BAR0["control"].register
    for run, trace in ((1, 0), (0, 1), (0, 0), (1, 1)):
        await bench.host.write(bar0("control"), control.pack(firmware_run=run, trace_enable=trace))
        assert (int(dut.fw_run.value), int(dut.trace_enable.value)) == (run, trace)
    await bench.host.write(bar0("host_window"), 0x0000_9ABC_0000_1234)
    assert (int(dut.window_base.value), int(dut.window_limit.value)) == (0x1234, 0x9ABC)
    await bench.host.write(bar0("core_fault_injection"), 0xBEEF)
    assert int(dut.product_xor__0.value) == 0xBEEF
    for port, address in ((bench.host, bar0("time")), (bench.fw, fw("time"))):
        await ClockCycles(dut.clk, random.randrange(50))
        before = int(dut.cycles.value)
        value = await port.read(address)
        assert before <= value <= int(dut.cycles.value)


@cocotb.test()
async def latency(dut: Any) -> None:
    """arvalid to rvalid, and awvalid with wvalid to bvalid, in cycles."""
    bench = Bench(dut, 0.0, ports=False)
    for port in ("host", "fw"):
        for name in ("awaddr", "awvalid", "wdata", "wstrb", "wvalid", "araddr", "arvalid"):
            getattr(dut, f"{port}__{name}").value = 0
        for name in ("bready", "rready"):
            getattr(dut, f"{port}__{name}").value = 1
    await bench.start(enable=False)

    async def measure(port: str, channels: tuple[str, ...], answer: str) -> int:
        for channel in channels:
            getattr(dut, f"{port}__{channel}valid").value = 1
        await RisingEdge(dut.clk)
        for channel in channels:
            getattr(dut, f"{port}__{channel}valid").value = 0
        for cycle in range(1, 20):
            await RisingEdge(dut.clk)
            if int(getattr(dut, f"{port}__{answer}valid").value):
                return cycle
        raise AssertionError("no answer")

    await ClockCycles(dut.clk, 70)  # The mailbox clears its words first.
    dut.host__wdata.value, dut.host__wstrb.value = IDENTITY_ENABLED, 0xFF
    assert await measure("host", ("aw", "w"), "b") == 4
    expected = {"host": ((bar0("time"), 4), (bar0("response_word"), 3), (0, 4))}
    expected["fw"] = ((fw("time"), 4), (fw("request_word"), 3), (fw("events"), 4))
    for port, places in expected.items():
        for address, cycles in places:
            getattr(dut, f"{port}__araddr").value = address
            assert await measure(port, ("ar",), "r") == cycles, hex(address)
            getattr(dut, f"{port}__awaddr").value = address
            getattr(dut, f"{port}__wstrb").value = 0
            assert await measure(port, ("aw", "w"), "b") == cycles, hex(address)


@cocotb.test()
async def events_and_the_event_line(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    register = FIRMWARE_BLOCK["events"].register
    for name in EVENTS:
        bit = register.pack({name: 1})
        for enabled in (0xFF ^ bit, 0xFF):
            await bench.fw.write(fw("event_enable"), enabled)
            if name == "mailbox":
                await bench.host.write(bar0("request_write"), 1)
            else:
                await bench.pulse(name)
            await ClockCycles(dut.clk, 2)
            assert int(dut.fw_event.value) == int(enabled == 0xFF), name
            assert await bench.fw.read(fw("events")) == bit
            await bench.fw.write(fw("events"), bit)
            assert int(dut.fw_event.value) == 0
    bench.vectors.send(3)
    await bench.host.write(bar0("vector_address", 3), 0)
    await bench.host.write(bar0("vector_data", 3), 7)
    await ClockCycles(dut.clk, 40)
    assert await bench.fw.read(fw("events")) == register.pack(interrupt_fault=1)
    await bench.fw.write(fw("firmware_state"), 0x1122_3344_5566_7788)
    await bench.fw.write(fw("heartbeat"), 99)
    assert await bench.host.read(bar0("firmware_state")) == 0x1122_3344_5566_7788
    assert await bench.host.read(bar0("heartbeat")) == 99


@cocotb.test()
async def mailbox_wraps_in_both_directions(dut: Any) -> None:
    """Three times around both rings; the firmware echoes, the host waits for vector 0."""
    bench = Bench(dut, 0.05)
    await bench.start()
    await bench.host.write(bar0("vector_address"), MSI_BUS_ADDRESS)
    await bench.host.write(bar0("vector_data"), 0xC0)
    await bench.fw.write(fw("event_enable"), 0xFF)
    total = 3 * MAILBOX_SLOTS + 1

    async def firmware() -> None:
        read = written = 0
        while written < total:
            while not int(dut.fw_event.value):
                await RisingEdge(dut.clk)
            await bench.fw.write(fw("events"), 0xFF)
            while read < await bench.fw.read(fw("request_write")):
                slot = read % MAILBOX_SLOTS * 8
                words = [await bench.fw.read(fw("request_word", slot + w)) for w in (0, 3, 7)]
                read += 1
                await bench.fw.write(fw("request_read"), read)
                while written - await bench.fw.read(fw("response_read")) >= MAILBOX_SLOTS:
                    await RisingEdge(dut.clk)
                slot = written % MAILBOX_SLOTS * 8
                for w, value in zip((0, 3, 7), words, strict=True):
                    await bench.fw.write(fw("response_word", slot + w), value ^ 0xFF)
                written += 1
                await bench.fw.write(fw("response_write"), written)

    cocotb.start_soon(firmware())
    sent: list[tuple[int, ...]] = []
    got: list[tuple[int, ...]] = []
    for _ in range(3000):
        free = len(sent) - await bench.host.read(bar0("request_read")) < MAILBOX_SLOTS
        if len(sent) < total and free and random.random() < 0.7:
            message = tuple(random.getrandbits(64) for _ in range(3))
            slot = len(sent) % MAILBOX_SLOTS * 8
            for w, value in zip((0, 3, 7), message, strict=True):
                await bench.host.write(bar0("request_word", slot + w), value)
            sent.append(message)
            await bench.host.write(bar0("request_write"), len(sent))
        if random.random() < 0.3:
            while len(got) < await bench.host.read(bar0("response_write")):
                slot = len(got) % MAILBOX_SLOTS * 8
                words = [await bench.host.read(bar0("response_word", slot + w)) for w in (0, 3, 7)]
                got.append(tuple(words))
                await bench.host.write(bar0("response_read"), len(got))
        if len(got) == total:
            break
    assert got == [tuple(value ^ 0xFF for value in message) for message in sent]
    assert len(got) == total
    count = await bench.host.read(bar0("vector_sent"))
    assert 1 <= count <= total
    assert count == len(bench.messages.lines)
    assert bench.memory.view(MSI)[0] == 0xC0


@cocotb.test()
async def reset_under_traffic(dut: Any) -> None:
    """Whatever is on its way, on both ports, gets an answer; BAR0 is cleared, config space not."""
    bench = Bench(dut, 0.1)
    await bench.start()
    host, firmware = bench.host, bench.fw
    for attempt in range(6):
        quiet = attempt % 2 == 0
        dut.link_quiet.value = int(quiet)
        control = BAR0["control"].register.pack(firmware_run=1, trace_enable=1)
        await host.write(bar0("control"), control)
        await host.write(bar0("host_window"), 0x5000_0000_1000)
        await host.write(bar0("request_write"), 5)
        await host.write(bar0("request_word"), 5)
        await firmware.write(fw("firmware_state"), 3)
        await firmware.write(fw("response_write"), 9)
        # One firmware access hangs in a block; the reset has to end it.
        bench.blocks["core1"].silent = True
        hanging = cocotb.start_soon(firmware.access_read(CORE_BASE + CORE_STRIDE))
        answers: list[bool] = []

        async def use(port: AxiPort, addresses: list[int], answers: list[bool]) -> None:
            for _ in range(40):
                answers.append((await port.access_read(random.choice(addresses)))[1])

        await host.write(bar0("reset"), 1)
        if attempt == 0:
            assert not await host.access_write(bar0("reset"), 1)
        assert not await host.access_write(BAR2_BASE, 1)
        assert int(dut.fw_run.value) == 0
        tasks: list[Any] = [
            hanging,
            cocotb.start_soon(use(host, [bar0("identity"), bar0("request_word")], answers)),
            cocotb.start_soon(use(host, [0], answers)),
            cocotb.start_soon(use(firmware, [fw("time"), DMA_BASE], answers)),
        ]
        for _ in range(4000):
            await RisingEdge(dut.clk)
            if all(task.done() for task in tasks):
                break
        assert all(task.done() for task in tasks)
        assert hanging.result()[1] is False
        assert not all(answers)
        bench.blocks["core1"].silent = False
        bench.blocks["core1"].reset()
        for _ in range(DRAIN_CYCLES):
            await RisingEdge(dut.clk)
        state = BAR0["reset_state"].register.unpack(await host.read(bar0("reset_state")))
        assert (state["busy"], state["drained"], state["generation"]) == (
            0,
            int(quiet),
            attempt + 1,
        )
        assert await host.read(0) == IDENTITY_ENABLED
        for name in ("control", "host_window", "request_write", "request_word", "firmware_state"):
            assert await host.read(bar0(name)) == BAR0[name].register.reset, name
        assert int(dut.fw_run.value) == 0
        assert await host.read(bar0("response_write")) == 0
        assert await host.read(bar0("vector_data", 5)) == BAR0["vector_data"].register.reset
        assert (int(dut.window_base.value), int(dut.window_limit.value)) == (0, 0)
        assert await host.read(bar0("time")) > 1000 * attempt // 10
        dut.link_quiet.value = 1


@cocotb.test()
async def sleeps(dut: Any) -> None:
    bench = Bench(dut, 0.0)
    await bench.start()
    await bench.host.read(bar0("time"))
    await bench.fw.read(fw("time"))
    await ClockCycles(dut.clk, 100)
    for _ in range(50):
        await RisingEdge(dut.clk)
        assert int(dut.sleeping.value)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_interfaces(sim: str) -> None:
    run_block(InterfaceBench(), __name__, sim=sim)
