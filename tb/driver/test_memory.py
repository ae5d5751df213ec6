"""The HBM allocator and pinned pages."""

import random

import pytest

from abi.address import PAGE_BYTES
from driver.errors import InvalidArgumentError, OutOfMemoryError
from driver.kmd.device import KernelDriver
from driver.kmd.memory import ALIGNMENT, HbmAllocator
from tb.models.device import ModelMachine

BASE = 0x1_0000_0000


@pytest.mark.parametrize("seed", range(4))
def test_random_use_never_overlaps_and_everything_comes_back(seed: int) -> None:
    draw = random.Random(seed)
    hbm = HbmAllocator(BASE, 1 << 20)
    live: dict[int, int] = {}
    for _ in range(3000):
        if live and draw.random() < 0.5:
            address = draw.choice(list(live))
            hbm.free(address)
            del live[address]
            continue
        size = draw.choice([1, 63, 256, 257, 4096, draw.randint(1, 100_000)])
        alignment = draw.choice([64, 256, 4096])
        try:
            address = hbm.allocate(size, alignment)
        except OutOfMemoryError:
            assert hbm.largest_free < size + alignment
            continue
        assert address % alignment == 0
        assert address >= BASE
        assert address + size <= BASE + (1 << 20)
        assert all(address + size <= a or a + s <= address for a, s in live.items())
        live[address] = size
    for address in live:
        hbm.free(address)
    assert (hbm.used_bytes, hbm.allocations, hbm.largest_free) == (0, 0, 1 << 20)


def test_freed_neighbours_coalesce_in_any_order() -> None:
    hbm = HbmAllocator(BASE, 4 * ALIGNMENT)
    blocks = [hbm.allocate(ALIGNMENT) for _ in range(4)]
    for i in (1, 3, 0, 2):
        hbm.free(blocks[i])
    assert hbm.allocate(4 * ALIGNMENT) == BASE


def test_exhaustion_names_what_is_free() -> None:
    hbm = HbmAllocator(BASE, 1024)
    hbm.allocate(512)
    with pytest.raises(OutOfMemoryError, match="600 bytes asked for, 512 of 1024 bytes free"):
        hbm.allocate(600)
    assert hbm.used_bytes == 512


@pytest.mark.parametrize("address", [BASE + 64, 0, BASE + 4096])
def test_freeing_what_is_not_allocated_is_refused(address: int) -> None:
    hbm = HbmAllocator(BASE, 1 << 16)
    hbm.allocate(64)
    with pytest.raises(InvalidArgumentError, match="live allocation"):
        hbm.free(address)


def test_freeing_twice_is_refused() -> None:
    hbm = HbmAllocator(BASE, 1 << 16)
    address = hbm.allocate(64)
    hbm.free(address)
    with pytest.raises(InvalidArgumentError, match="live allocation"):
        hbm.free(address)


def test_the_window_follows_the_pages(kmd: KernelDriver) -> None:
    pages, window = kmd.pages, kmd.registers.bar0.host_window
    assert window.fields() == {"base": 0, "limit": 0}
    first, second = pages.allocate(3), pages.allocate(2)
    assert window.fields() == {"base": first // PAGE_BYTES, "limit": second // PAGE_BYTES + 2}
    pages.free(first)
    assert window.fields()["base"] == second // PAGE_BYTES
    pages.free(second)
    assert window.fields() == {"base": 0, "limit": 0}
    assert pages.pages == 0


def test_pages_come_zeroed(kmd: KernelDriver, machine: ModelMachine) -> None:
    address = kmd.pages.allocate(1)
    machine.bus.host_view(address, PAGE_BYTES)[:] = 7
    kmd.pages.free(address)
    again = kmd.pages.allocate(1)
    assert again == address
    assert not machine.bus.host_view(again, PAGE_BYTES).any()


def test_no_host_memory_is_an_error_without_a_leak(kmd: KernelDriver) -> None:
    with pytest.raises(OutOfMemoryError, match="no run of 1000000 free pages"):
        kmd.pages.allocate(1_000_000)
    assert kmd.pages.pages == 0
    with pytest.raises(InvalidArgumentError, match="pinned pages"):
        kmd.pages.free(4096)
