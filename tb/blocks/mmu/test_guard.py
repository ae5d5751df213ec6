"""The address guard against plain arithmetic on byte addresses."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import Timer

from abi.address import HBM_BASE, HOST_BASE, MSI_BUS_ADDRESS
from rtl.mmu.guard import AddressGuard, Target
from tb.blocks.harness import parameters, run_block

HBM_BYTES = 3 << 20
MSI_PAGE = MSI_BUS_ADDRESS >> 12


def expected(line: int, base: int, limit: int, trusted: bool) -> tuple[Target, int]:
    address = line * 64
    if HBM_BASE <= address < HBM_BASE + HBM_BYTES:
        return Target.HBM, (address - HBM_BASE) // 64
    if address >= HOST_BASE:
        bus = address - HOST_BASE
        if trusted or (base <= bus >> 12 < limit and bus >> 12 != MSI_PAGE):
            return Target.HOST, bus // 64
    return Target.NONE, 0


def lines(base: int, limit: int) -> list[int]:
    """Lines around every border, their aliases in the upper bits, and random ones."""
    borders = [0, HBM_BASE, HBM_BASE + HBM_BYTES, HOST_BASE, (1 << 48) - 64]
    borders += [HOST_BASE + (page << 12) for page in (base, limit, MSI_PAGE, MSI_PAGE + 1)]
    found = []
    for border in borders:
        for step in (-1, 0, 1):
            line = (border // 64 + step) % (1 << 42)
            found += [line, line ^ 1 << random.randrange(42), line ^ 1 << 41]
    return found + [random.getrandbits(42) for _ in range(20)]


@cocotb.test()
async def classifies(dut: Any) -> None:
    windows = [(0, 0), (0, 0xFFFFFFFF), (16, 4096), (4096, 16), (MSI_PAGE, MSI_PAGE + 1)]
    windows += [(random.getrandbits(32), random.getrandbits(32)) for _ in range(5)]
    seen = dict.fromkeys(Target, 0)
    for base, limit in windows:
        dut.window_base.value, dut.window_limit.value = base, limit
        for line in lines(base, limit):
            dut.line.value = line
            await Timer(1, unit="ns")
            target, local = expected(line, base, limit, parameters()["trusted"])
            assert int(dut.target.value) == target, f"line {line:#x}, pages {base:#x}-{limit:#x}"
            if target is not Target.NONE:
                assert int(dut.local_line.value) == local, f"line {line:#x}"
            seen[target] += 1
    assert min(seen.values()) > 10, seen


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_guard(sim: str, trusted: bool) -> None:
    guard = AddressGuard(hbm_bytes=HBM_BYTES, trusted=trusted)
    run_block(guard, __name__, sim=sim, parameters={"trusted": trusted})


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_refuses_bad_sizes() -> None:
    with pytest.raises(ValueError, match="positive multiple of 64, not 65"):
        AddressGuard(hbm_bytes=65)
    with pytest.raises(ValueError, match=f"must end below 0x800000000000, not {1 << 47}"):
        AddressGuard(hbm_bytes=1 << 47)
