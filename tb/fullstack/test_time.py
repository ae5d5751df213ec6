"""Device time: one clock for the host, the registers and the time stamps."""

from runtime import Device


def test_the_time_register_lies_within_its_read(device: Device) -> None:
    time = device.driver.registers.bar0.time
    for _ in range(10):
        before = device.bus.now()
        value = time.read()
        assert before < value <= device.bus.now()


def test_a_time_stamp_lies_between_submission_and_wake(device: Device) -> None:
    stream, event = device.default_stream, device.event()
    for _ in range(5):
        before = device.bus.now()
        event.record(stream)
        event.synchronize()
        assert before < event.cycle <= device.bus.now()
