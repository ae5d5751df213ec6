"""A unit of the device that hangs: only the model can do that."""

import numpy as np
import pytest

from abi.status import Engine
from firmware.main import main
from runtime import Device, DeviceHangError, StaleHandleError, gemm
from tb.models.device import ModelMachine

TIMEOUT = 200_000


@pytest.mark.parametrize("unit", [Engine.DMA, Engine.CORE])
def test_a_hanging_unit_is_named_and_a_device_reset_helps(unit: Engine) -> None:
    machine = ModelMachine(main)
    device = Device(machine.bus)
    stream = device.stream()
    array, event = device.array(np.ones((4, 4), np.int8)), device.event()
    gemm(array, array, stream=stream)
    stream.synchronize()
    start = device.bus.now()
    if unit is Engine.DMA:
        machine.faults.hang_dma(0xF)
        device.memset(array, 1, stream)
    else:
        machine.faults.hang_core()
        gemm(array, array, stream=stream)
    with pytest.raises(DeviceHangError) as caught:
        stream.synchronize(timeout=TIMEOUT)
    assert device.bus.now() - start < 3 * TIMEOUT
    assert caught.value.engine is unit
    assert caught.value.in_flight
    machine.faults.hang_dma(0)
    machine.faults.hang_core(False)
    device.reset()
    for call in (stream.synchronize, array.numpy, event.query, array.free, stream.reset):
        with pytest.raises(StaleHandleError, match="belongs to generation 0, not 1"):
            call()
    stream.destroy()
    assert device.last_error is None
    again = device.array(np.full((4, 4), 2, np.int8))
    np.testing.assert_array_equal(gemm(again, again).numpy(), np.full((4, 4), 16, np.int32))
    device.close()
    assert device.driver.pages.pages == 0
