"""Probe, boot, handshake, closing and re-opening."""

import pytest

import driver.kmd.boot
from abi.address import PAGE_BYTES
from abi.mailbox import FirmwarePhase
from abi.version import ABI_MAJOR
from driver.bus import BusError
from driver.errors import (
    DeviceClosedError,
    FirmwareCrashError,
    FirmwareStallError,
    ProbeError,
    StaleHandleError,
    VersionMismatchError,
)
from driver.kmd.device import KernelDriver
from firmware.port import FirmwarePort
from tb.models.device import ModelMachine


def test_boot_brings_the_firmware_up(kmd: KernelDriver, machine: ModelMachine) -> None:
    assert kmd.registers.bar0.firmware_state.field("phase") == FirmwarePhase.RUNNING
    assert kmd.properties.hbm_bytes == len(machine.chip.memory.hbm)
    assert (kmd.properties.queues, kmd.properties.dma_channels) == (16, 4)
    assert (kmd.properties.l1_lines, kmd.properties.bias_lines) == (4096, 64)


def test_another_device_is_refused(machine: ModelMachine) -> None:
    machine.host.config.words["identity"] = [0x8086 | 0x1234 << 16]
    with pytest.raises(ProbeError, match="must be 1d7e:6e01, not 8086:1234"):
        KernelDriver(machine.bus)


def test_another_hardware_version_is_named(machine: ModelMachine) -> None:
    word = machine.host.bar0.words["identity"][0]
    machine.host.bar0.words["identity"] = [word & ~(0xFF << 32) | (ABI_MAJOR + 1) << 32]
    with pytest.raises(VersionMismatchError, match=r"driver speaks ABI 2\.0, the hardware 3\.0"):
        KernelDriver(machine.bus)


def test_another_firmware_version_is_named(
    machine: ModelMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.kmd.boot, "ABI_MAJOR", ABI_MAJOR + 1)
    with pytest.raises(VersionMismatchError, match=r"driver speaks ABI 3\.0, the firmware 2\.0"):
        KernelDriver(machine.bus)


def test_a_firmware_that_does_nothing_is_a_stall() -> None:
    def silent(port: FirmwarePort) -> None:
        port.wait(1 << 60)

    machine = ModelMachine(silent)
    with pytest.raises(FirmwareStallError, match="must reach phase WAITING_FOR_HANDSHAKE"):
        KernelDriver(machine.bus)
    assert machine.bus.now() < 2_000_000


def test_a_firmware_that_crashes_at_boot_is_reported() -> None:
    def crashing(port: FirmwarePort) -> None:
        from abi.registers_firmware import FIRMWARE_BASE, FIRMWARE_BLOCK

        port.write(FIRMWARE_BASE + FIRMWARE_BLOCK.address("firmware_state"), FirmwarePhase.CRASHED)
        port.wait(1 << 60)

    with pytest.raises(FirmwareCrashError, match="crashed at boot"):
        KernelDriver(ModelMachine(crashing).bus)


def test_a_device_is_opened_once(kmd: KernelDriver, machine: ModelMachine) -> None:
    with pytest.raises(StaleHandleError, match="already open"):
        KernelDriver(machine.bus)
    assert not kmd.closed


def test_close_gives_everything_back_and_is_idempotent(machine: ModelMachine) -> None:
    free = machine.bus._free.copy()
    first = KernelDriver(machine.bus)
    first.queues.create(depth_log2=4, priority=0, pasid=1, task_timeout=1000, block_timeout=1000)
    first.pages.allocate(3)
    first.close()
    first.close()
    assert (machine.bus._free == free).all()
    with pytest.raises(BusError):
        machine.bus.read(driver.bus.Region.BAR0, 0)
    with pytest.raises(DeviceClosedError):
        first.reset()
    again = KernelDriver(machine.bus)
    assert again.registers.bar0.firmware_state.field("phase") == FirmwarePhase.RUNNING
    again.close()


def test_a_device_left_running_is_reset_at_probe(machine: ModelMachine) -> None:
    first = KernelDriver(machine.bus)
    del first
    second = KernelDriver(machine.bus)
    assert second.registers.bar0.reset_state.field("generation") == 1
    second.close()


def test_a_failed_boot_leaves_the_bus_free_for_another_try(machine: ModelMachine) -> None:
    machine.faults.stall_firmware()
    with pytest.raises(FirmwareStallError):
        KernelDriver(machine.bus)
    machine.faults.release_firmware()
    KernelDriver(machine.bus).close()


def test_the_host_window_is_empty_until_the_first_page_is_pinned(kmd: KernelDriver) -> None:
    def window() -> tuple[int, int]:
        fields = kmd.registers.bar0.host_window.fields()
        return fields["base"], fields["limit"]

    assert window() == (0, 0)
    first, second = kmd.pages.allocate(2), kmd.pages.allocate(1)
    assert window() == (first // PAGE_BYTES, second // PAGE_BYTES + 1)
    kmd.pages.free(first)
    assert window() == (second // PAGE_BYTES, second // PAGE_BYTES + 1)
    kmd.reset()
    assert window() == (0, 0)
