"""Full-stack tests with the runtime API: `glassnpu pytest examples/test_full_stack.py`.

`device` is an open device on a machine fresh from reset.
"""

import numpy as np
import pytest

from abi.packet import PacketOpcode
from abi.status import Engine, Side, Status
from runtime import Device, NpuError, gemm


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (17, 33, 65), (5, 64, 10)])
def test_gemm_is_exact(device: Device, m: int, k: int, n: int) -> None:
    random = np.random.default_rng(m * k * n)
    x = random.integers(-128, 128, (m, k)).astype(np.int8)
    y = random.integers(-128, 128, (k, n)).astype(np.int8)
    product = gemm(device.array(x), device.array(y)).numpy()
    assert np.array_equal(product, x.astype(np.int32) @ y.astype(np.int32))


def test_a_strided_copy_leaves_its_neighbours_alone(device: Device) -> None:
    canvas = device.zeros((6, 100), np.uint8)
    stamp = np.arange(1, 22, dtype=np.uint8).reshape(3, 7)
    for row in range(3):
        device.memcpy(canvas[row + 2].reshape(100)[13:20], stamp[row])
    expected = np.zeros((6, 100), np.uint8)
    expected[2:5, 13:20] = stamp
    assert np.array_equal(canvas.numpy(), expected)


def test_a_bad_address_is_blamed_and_harms_nobody_else(device: Device) -> None:
    good, bad = device.stream(), device.stream()
    x = np.arange(-128, 128).astype(np.int8).reshape(16, 16)
    a, b = device.array(x), device.array(np.eye(16, dtype=np.int8))
    nowhere = 0x1000  # Below HBM: null and small integers are never valid.
    bad.submit(
        [
            (
                PacketOpcode.COPY,
                {
                    "source": nowhere,
                    "destination": a.address,
                    "row_bytes": 64,
                    "rows": 1,
                },
            )
        ]
    )
    product = gemm(a, b, stream=good)
    with pytest.raises(NpuError) as failure:
        bad.synchronize()
    error = failure.value
    assert (error.side, error.engine, error.status) == (
        Side.HOST,
        Engine.DMA,
        Status.ADDRESS_FAULT,
    )
    assert error.address == nowhere
    good.synchronize()
    assert np.array_equal(product.numpy(), x.astype(np.int32))
