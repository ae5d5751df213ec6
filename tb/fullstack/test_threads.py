"""Several host threads use one device."""

from typing import Any

import numpy as np
import pytest

from runtime import Device, Stream


@pytest.mark.parametrize("count", [4, 12])
def test_host_threads_make_streams_at_the_same_time(
    device: Device, engine: Any, count: int
) -> None:
    made: dict[int, Stream] = {}
    results: dict[int, list[int]] = {}

    def work(index: int) -> None:
        stream = made[index] = device.stream()
        array = device.empty(100, np.uint8)
        device.memset(array, index, stream)
        stream.synchronize()
        results[index] = sorted(set(array.numpy().tolist()))
        stream.destroy()

    threads = [engine.actors.spawn(f"host {i}", lambda i=i: work(i)) for i in range(count)]
    for thread in threads:
        engine.actors.join(thread)
    assert results == {i: [i] for i in range(count)}
    assert len({stream.queue for stream in made.values()}) == count
