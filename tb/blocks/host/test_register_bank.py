"""The register bank: all accesses against a model, pulses, strobes, refusals, set and clear."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from abi.record import Field, Owner
from abi.register import Access, Place, Register, RegisterMap
from rtl.host.register_bank import RegisterBank
from tb.blocks.harness import run_block
from tb.blocks.host.gated import Gated
from tb.blocks.host.register_agent import RegisterInitiator
from tb.blocks.streams import reset_dut

FW, HW = Owner.FW, Owner.HW


def _field(name: str, width: int, fills: Owner = FW, reset: int = 0) -> Field:
    return Field(name, width, fills, HW, HW, "", reset=reset)


MAP = RegisterMap(
    "Test map",
    "",
    0x100,
    Place("plain", 0x00, Register("PLAIN", Access.RW, "", _field("all", 64, reset=0x1234))),
    Place(
        "mixed",
        0x08,
        Register(
            "MIXED",
            Access.RW,
            "",
            _field("low", 12, reset=0xABC),
            _field("fixed", 12, HW, 0x5A5),
            _field("negative", -16, reset=-2),
        ),
    ),
    Place("status", 0x10, Register("STATUS", Access.RO, "", _field("value", 40))),
    Place("count", 0x18, Register("COUNT", Access.RO, "", _field("value", 64))),
    Place("start", 0x20, Register("START", Access.WO, "", _field("kind", 20))),
    Place("events", 0x28, Register("EVENTS", Access.W1C, "", _field("mask", 10))),
    Place("many", 0x40, Register("MANY", Access.RW, "", _field("value", 64)), 3, 0x10),
)
MANY = [MAP.address("many", i) for i in range(3)]
BYTE_MASK = [sum(0xFF << 8 * i for i in range(8) if strobe >> i & 1) for strobe in range(256)]
MIXED_RESET = 0xFFFE5A5ABC
MIXED_WRITABLE = 0xFFFF000FFF


async def start(dut: Any, stall: float) -> RegisterInitiator:
    for name in ("status", "count", "start_refuse", "events_set", "plain_clear"):
        getattr(dut, name).value = 0
    bus = RegisterInitiator(dut, "bus", stall=stall)
    dut.rst.value = 1
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await reset_dut(dut)
    return bus


class Pulses:
    """Counts the cycles of a pulse, and keeps the value that was there with the last one."""

    def __init__(self, dut: Any, name: str) -> None:
        self.count = 0
        self.value: int | None = None
        self._pulse, self._value = getattr(dut, f"{name}_written"), getattr(dut, name)
        self._edge = RisingEdge(dut.clk)
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await self._edge
            if int(self._pulse.value):
                self.count += 1
                self.value = int(self._value.value)


@cocotb.test()
async def reset_values(dut: Any) -> None:
    bus = await start(dut, 0.0)
    assert await bus.read(MAP.address("plain")) == 0x1234
    assert await bus.read(MAP.address("mixed")) == MIXED_RESET
    assert await bus.read(MAP.address("events")) == 0
    assert [await bus.read(address) for address in MANY] == [0, 0, 0]


@cocotb.test()
async def random_accesses(dut: Any) -> None:
    bus = await start(dut, 0.4)
    names = {"plain": (0x1234, 2**64 - 1), "mixed": (MIXED_RESET, MIXED_WRITABLE)}
    names |= {f"many_{i}": (0, 2**64 - 1) for i in range(3)}
    addresses = {"plain": 0, "mixed": 8} | {f"many_{i}": MANY[i] for i in range(3)}
    model = {name: value for name, (value, _) in names.items()}
    pulses = {name: Pulses(dut, name) for name in names}
    writes = dict.fromkeys(names, 0)
    for _ in range(400):
        name = random.choice(list(names))
        if random.random() < 0.5:
            assert await bus.read(addresses[name] + random.randrange(8)) == model[name]
            continue
        data, strobe = random.getrandbits(64), random.choice([0xFF, 0, random.getrandbits(8)])
        await bus.write(addresses[name], data, strobe)
        mask = BYTE_MASK[strobe] & names[name][1]
        model[name] = model[name] & ~mask | data & mask
        writes[name] += strobe != 0
        if random.random() < 0.5:
            continue
        await RisingEdge(dut.clk)
        if strobe:
            assert pulses[name].value == model[name]
        assert int(getattr(dut, name).value) == model[name]
    # The pulse of the last write is seen at the edge after its response.
    await ClockCycles(dut.clk, 2)
    assert {name: pulse.count for name, pulse in pulses.items()} == writes


@cocotb.test()
async def refused_accesses(dut: Any) -> None:
    bus = await start(dut, 0.2)
    dut.status.value, dut.count.value = 0x12_3456_789A, 0xFEDC_BA98_7654_3210
    assert await bus.read(MAP.address("status")) == 0x12_3456_789A
    assert await bus.read(MAP.address("count")) == 0xFEDC_BA98_7654_3210
    for name in ("status", "count"):
        assert (await bus.access(MAP.address(name), write=True, data=1)).error == 1
    answer = await bus.access(MAP.address("start"), write=False)
    assert (answer.error, answer.data) == (1, 0)
    taken = {MAP.address(place.name, i) for place in MAP for i in range(place.count)}
    for address in [*range(0, 0x200, 8), 0x1000, 0x800_0000]:
        for write in (False, True):
            if address not in taken:
                answer = await bus.access(address, write=write, data=2**64 - 1)
                assert (answer.error, answer.data) == (1, 0), hex(address)
    assert int(dut.plain.value) == 0x1234


@cocotb.test()
async def write_only(dut: Any) -> None:
    bus = await start(dut, 0.3)
    pulse = Pulses(dut, "start")
    await bus.write(MAP.address("start"), 0xA_BCDE)
    await RisingEdge(dut.clk)
    assert (pulse.count, pulse.value) == (1, 0xA_BCDE)
    await bus.write(MAP.address("start"), 0x5_4321, strobe=0b101)
    await RisingEdge(dut.clk)
    assert (pulse.count, pulse.value) == (2, 0x5_0021)
    await bus.write(MAP.address("start"), 0x5_4321, strobe=0)
    dut.start_refuse.value = 1
    assert (await bus.access(MAP.address("start"), write=True, data=1)).error == 1
    dut.start_refuse.value = 0
    assert pulse.count == 2
    await bus.write(MAP.address("start"), 3)
    await RisingEdge(dut.clk)
    assert (pulse.count, pulse.value) == (3, 3)


@cocotb.test()
async def write_one_to_clear(dut: Any) -> None:
    """Bits come at any time, also in the cycle in which they are cleared; none is lost."""
    bus = await start(dut, 0.2)
    happened = [0] * 10

    async def strike() -> None:
        for _ in range(3000):
            bits = sum(1 << i for i in range(10) if random.random() < 0.02)
            dut.events_set.value = bits
            await RisingEdge(dut.clk)
            for i in range(10):
                happened[i] += bits >> i & 1
        dut.events_set.value = 0
        await RisingEdge(dut.clk)

    # A level of each event source, as a unit would have it: firmware clears, then looks.
    task = cocotb.start_soon(strike())
    seen = [0] * 10
    clears = 0
    while not task.done() or await bus.read(MAP.address("events")):
        events = await bus.read(MAP.address("events"))
        await bus.write(MAP.address("events"), events)
        clears += 1
        for i in range(10):
            if events >> i & 1:
                seen[i] = happened[i]
    assert seen == happened
    assert sum(happened) > 200
    assert clears > 100
    dut.events_set.value = 0x3FF
    await RisingEdge(dut.clk)
    dut.events_set.value = 0
    await bus.write(MAP.address("events"), 0x0FF, strobe=1)
    assert await bus.read(MAP.address("events")) == 0x300
    await bus.write(MAP.address("events"), 0x3FF, strobe=0b10)
    assert await bus.read(MAP.address("events")) == 0


@cocotb.test()
async def set_in_the_cycle_of_the_clear(dut: Any) -> None:
    bus = await start(dut, 0.0)
    dut.events_set.value = 0b11
    await RisingEdge(dut.clk)
    dut.events_set.value = 0
    clear = cocotb.start_soon(bus.write(MAP.address("events"), 0b11))
    await RisingEdge(dut.clk)  # Takes the request, which is decoded in the next cycle.
    assert int(dut.events.value) == 0b11
    dut.events_set.value = 0b10
    await RisingEdge(dut.clk)
    dut.events_set.value = 0
    await clear
    assert await bus.read(MAP.address("events")) == 0b10


@cocotb.test()
async def hardware_clear(dut: Any) -> None:
    bus = await start(dut, 0.0)
    await bus.write(0, 99)
    dut.plain_clear.value = 1
    await RisingEdge(dut.clk)
    dut.plain_clear.value = 0
    assert await bus.read(0) == 0x1234


@cocotb.test()
async def latency(dut: Any) -> None:
    bus = await start(dut, 0.0)
    assert (await bus.access(0, write=False)).cycles == 2
    assert (await bus.access(0, write=True, data=5)).cycles == 2
    dut.count.value = 1000
    await RisingEdge(dut.clk)
    assert await bus.read(MAP.address("count")) == 1000
    dut.count.value = 1001
    assert await bus.read(MAP.address("count")) == 1001


def _bank() -> RegisterBank:
    return RegisterBank(MAP, clearable=["plain"], sampled=["count"])


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_register_bank(sim: str) -> None:
    run_block(_bank(), __name__, sim=sim)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exclude": ["absent"]}, "exclude must name places of Test map, not 'absent'"),
        ({"clearable": ["status"]}, "clearable must name RW places, not 'status'"),
        ({"sampled": ["plain"]}, "sampled must name RO places, not 'plain'"),
        ({"resets": {"events": {}}}, "resets must name RW places, not 'events'"),
    ],
)
def test_parameters(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegisterBank(MAP, **arguments)


def test_wakes() -> None:
    """With its clock stopped while idle, the bank loses neither requests nor events."""
    run_block(Gated(_bank()), __name__, only="random_accesses|write_one_to_clear|write_only")
