"""Checks of a whole register map, made from its declaration."""

import random
from collections.abc import Iterator, Mapping
from typing import Protocol

from abi.record import Owner
from abi.register import Access, Place, Register, RegisterMap

__all__ = ["WordPort", "check_map"]


class WordPort(Protocol):
    """Anything that reads and writes words, and tells whether the answer was OKAY."""

    async def access_read(self, address: int) -> tuple[int, bool]: ...

    async def access_write(self, address: int, value: int, nbytes: int = 8) -> bool: ...


def elements(register_map: RegisterMap) -> Iterator[tuple[Place, int]]:
    for place in register_map:
        for index in range(place.count):
            yield place, index


def writable(register: Register) -> int:
    """Bits that keep what is written: fields that neither hardware nor nobody fills."""
    return sum(
        ((1 << field.width) - 1) << register.offset_of(name)
        for name, field in register.fields.items()
        if field.fills not in (Owner.HW, Owner.NONE)
    )


async def check_map(
    port: WordPort,
    base: int,
    register_map: RegisterMap,
    nbytes: int,
    shown: Mapping[tuple[str, int], int],
    *,
    fixed: Mapping[str, int] | None = None,
) -> int:
    """Check reset value, access and holes of every register behind `base`.

    Args:
        shown: what registers hold now, by place and element, where it is not their reset value.
        fixed: RW places that get this value instead of random ones, for their side effects.

    Returns the number of registers.
    """
    taken = {}
    for place, index in elements(register_map):
        register, address = place.register, base + place.address(index)
        taken[address] = place
        value, okay = await port.access_read(address)
        what = f"{place.name} {index}"
        if register.access is Access.WO:
            assert (value, okay) == (0, False), what
            continue
        assert okay, what
        reset = shown.get((place.name, index), register.reset)
        assert value == reset or place.name == "time", what
        if register.access is Access.RO:
            assert not await port.access_write(address, 2**64 - 1), what
            value, okay = await port.access_read(address)
            assert okay, what
            assert value == reset or place.name == "time", what
        if register.access is Access.W1C:
            assert await port.access_write(address, 2**64 - 1), what
            assert await port.access_read(address) == (0, True), what
    # All RW registers get different values before any is read back: no two share a place.
    written = {}
    for place, index in elements(register_map):
        if place.register.access is Access.RW:
            address, mask = base + place.address(index), writable(place.register)
            reset = shown.get((place.name, index), place.register.reset)
            value = (fixed or {}).get(place.name, random.getrandbits(64))
            assert await port.access_write(address, value)
            written[address] = reset & ~mask | value & mask
    for address, value in written.items():
        assert await port.access_read(address) == (value, True), taken[address].name
        if taken[address].name in (fixed or {}):
            continue
        for size in (1, 2, 4):
            part = random.getrandbits(8 * size)
            lane = random.randrange(0, 8, size)
            assert await port.access_write(address + lane, part, size)
            mask = ((1 << 8 * size) - 1) << 8 * lane & writable(taken[address].register)
            value = value & ~mask | part << 8 * lane & mask
        assert await port.access_read(address) == (value, True), taken[address].name
    holes = set(range(base, base + nbytes, 8)) - set(taken)
    beside = {address for address in holes if {address - 8, address + 8} & set(taken)}
    for address in sorted(beside) + random.sample(sorted(holes - beside), 100):
        assert await port.access_read(address) == (0, False), hex(address)
        assert not await port.access_write(address, 2**64 - 1), hex(address)
    return len(taken)
