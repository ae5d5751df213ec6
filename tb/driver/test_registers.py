"""Register accessors."""

import time
from typing import Any

import pytest

from abi.registers_host import BAR0
from abi.version import ABI_MAJOR
from driver.bus import Bus, BusError, Region
from driver.kmd.device import KernelDriver
from driver.registers import Registers
from tb.models.device import ModelMachine


class NoBus:
    """Counts accesses and remembers the last."""

    def __init__(self) -> None:
        self.last: tuple[Any, ...] = ()

    def read(self, region: Region, offset: int, size: int = 8) -> int:
        """A word whose bits are the offset."""
        self.last = (region, offset, size)
        return offset

    def write(self, region: Region, offset: int, value: int, size: int = 8) -> None:
        """Remember it."""
        self.last = (region, offset, value, size)


def registers_of(bus: Any) -> Registers:
    """Registers over a stand-in for a bus."""
    stand_in: Bus = bus
    return Registers(stand_in)


def test_each_register_is_read_at_its_place() -> None:
    bus = NoBus()
    bar0 = registers_of(bus).bar0
    for place in BAR0:
        accessor = getattr(bar0, place.name)
        assert len(accessor) == place.count
        for index, element in enumerate(accessor):
            assert element.read() == place.address(index)
            assert bus.last == (Region.BAR0, place.address(index), 8)


def test_fields_are_named(kmd: KernelDriver) -> None:
    bar0 = kmd.registers.bar0
    assert bar0.identity.field("abi_major") == ABI_MAJOR
    bar0.control.update(trace_enable=0)
    assert bar0.control.fields() == {"firmware_run": 1, "trace_enable": 0}
    bar0.control.update(trace_enable=1)
    assert bar0.control.fields() == {"firmware_run": 1, "trace_enable": 1}
    bar0.core_fault_injection.set(product_xor=0x1234)
    assert bar0.core_fault_injection.read() == 0x1234


def test_doorbell_pages_lie_apart() -> None:
    bus = NoBus()
    registers_of(bus).doorbell_page(3).doorbell.write(7)
    assert bus.last == (Region.BAR2, 3 * 4096, 7, 8)


def test_unknown_names_are_refused(kmd: KernelDriver) -> None:
    with pytest.raises(AttributeError, match="BAR0 has no register 'nothing'"):
        _ = kmd.registers.bar0.nothing
    with pytest.raises(KeyError, match="nothing"):
        kmd.registers.bar0.control.field("nothing")
    with pytest.raises(IndexError):
        _ = kmd.registers.bar0.queue_state[16]


def test_an_error_response_names_the_access(kmd: KernelDriver) -> None:
    with pytest.raises(BusError, match=r"write to BAR0\+0x0 was answered with SLVERR"):
        kmd.registers.bar0.identity.write(0)


def test_reading_a_register_costs_less_than_a_microsecond_more_than_the_bus() -> None:
    bus = NoBus()
    registers = registers_of(bus)
    count = 20_000

    def best(action: Any) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(count):
                action()
            times.append(time.perf_counter() - start)
        return min(times)

    plain = best(lambda: bus.read(Region.BAR0, 0x28, 8))
    named = best(lambda: registers.bar0.time.read())
    assert (named - plain) / count < 1e-6


def test_time_passes(machine: ModelMachine, kmd: KernelDriver) -> None:
    assert kmd.registers.bar0.time.read() == machine.bus.now()
