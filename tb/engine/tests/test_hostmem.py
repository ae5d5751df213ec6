"""The page allocator and the store buffer, without a simulator."""

from random import Random

import numpy as np
import pytest

from abi.address import PAGE_BYTES
from tb.engine.clockwork import NEVER
from tb.engine.hostmem import HostMemory, StoreBuffer


def memory(pages: int) -> HostMemory:
    return HostMemory(np.zeros(pages * PAGE_BYTES, np.uint8))


def test_pages_never_overlap_and_all_come_back() -> None:
    random = Random(5)
    host = memory(33)
    held: dict[int, int] = {}
    refused = 0
    for _ in range(3000):
        if held and random.random() < 0.48:
            address = random.choice(list(held))
            host.free(address, held.pop(address))
            continue
        count = random.randrange(1, 6)
        try:
            address = host.allocate(count)
        except MemoryError:
            refused += 1
            used = {a // PAGE_BYTES + i for a, n in held.items() for i in range(n)} | {0}
            runs = [all(p + i not in used for i in range(count)) for p in range(33 - count + 1)]
            assert not any(runs)
            continue
        assert address % PAGE_BYTES == 0
        assert 0 < address <= (33 - count) * PAGE_BYTES
        for other, pages in held.items():
            assert address + count * PAGE_BYTES <= other or other + pages * PAGE_BYTES <= address
        held[address] = count
    assert refused
    for address, count in held.items():
        host.free(address, count)
    assert host.allocate(32) == PAGE_BYTES


def test_wrong_frees_are_refused() -> None:
    host = memory(8)
    address = host.allocate(2)
    with pytest.raises(ValueError, match="not free already"):
        host.free(address, 3)
    host.free(address, 2)
    with pytest.raises(ValueError, match="not free already"):
        host.free(address, 2)
    with pytest.raises(ValueError, match="must lie in host memory, not 1 at 0x0"):
        host.free(0, 1)
    with pytest.raises(ValueError, match="must lie in host memory, not 1 at 0x1001"):
        host.free(address + 1, 1)
    with pytest.raises(ValueError, match="positive number of pages, not 0"):
        host.allocate(0)


def test_store_buffer_against_a_model() -> None:
    """Loads see all stores; memory only ever holds, for each word, some prefix of its stores."""
    random = Random(6)
    host = memory(2)
    buffer = StoreBuffer(host, Random(7), window=64)
    newest = bytearray(64)
    histories: list[list[bytes]] = [[bytes(8)] for _ in range(8)]
    now, reordered = 0, False
    for _ in range(2000):
        at, size = random.randrange(64), random.randrange(1, 20)
        data = random.randbytes(min(size, 64 - at))
        buffer.store(PAGE_BYTES + at, data, now)
        newest[at : at + len(data)] = data
        for word in range(at // 8, (at + len(data) - 1) // 8 + 1):
            histories[word].append(bytes(newest[8 * word : 8 * word + 8]))
        low = random.randrange(64)
        assert buffer.load(PAGE_BYTES + low, 64 - low) == newest[low:]
        now += random.randrange(30)
        due = buffer.settle(now)
        assert due > now
        ages = []
        for word, history in enumerate(histories):
            held = bytes(host.data[PAGE_BYTES + 8 * word : PAGE_BYTES + 8 * word + 8])
            age = len(history) - 1 - history[::-1].index(held)
            del history[:age]
            ages.append(len(history))
        reordered |= 1 in ages and max(ages) > 2
        if random.random() < 0.05:
            buffer.drain()
            assert bytes(host.data[PAGE_BYTES : PAGE_BYTES + 64]) == newest
            assert buffer.settle(now) == NEVER
    assert reordered
