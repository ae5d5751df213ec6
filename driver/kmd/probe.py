"""Probe: find out what answers on the bus, and that both sides speak the same ABI."""

from dataclasses import dataclass

from abi.registers_host import DEVICE_MAGIC
from abi.version import ABI_MAJOR, ABI_MINOR, DEVICE_ID, VENDOR_ID
from driver.errors import ProbeError, VersionMismatchError
from driver.registers import Registers

__all__ = ["DeviceProperties", "probe"]


@dataclass(frozen=True)
class DeviceProperties:
    """What the device is made of. Sizes in bytes or, for the core's buffers, lines of 64 bytes.
    `bf16_depth`: bf16 products that an output of the Cube gains in a cycle."""

    vendor: int
    device: int
    abi_major: int
    abi_minor: int
    queues: int
    dma_channels: int
    cores: int
    vectors: int
    hbm_bytes: int
    l1_lines: int
    l0a_lines: int
    l0b_lines: int
    l0c_lines: int
    bias_lines: int
    ub_lines: int
    bf16_depth: int


def probe(registers: Registers) -> DeviceProperties:
    """Identify the function, enable its BARs and bus mastering, and read its properties.

    Raises:
        ProbeError: another device, or nothing, answers.
        VersionMismatchError: the hardware has another ABI major.
    """
    config = registers.config.identity.fields()
    if (config["vendor"], config["device"]) != (VENDOR_ID, DEVICE_ID):
        raise ProbeError(
            f"PCI function must be {VENDOR_ID:04x}:{DEVICE_ID:04x}, "
            f"not {config['vendor']:04x}:{config['device']:04x}"
        )
    registers.config.identity.update(memory_enable=1, bus_master=1)
    bar0 = registers.bar0
    identity = bar0.identity.fields()
    if identity["magic"] != DEVICE_MAGIC:
        raise ProbeError(f"BAR0 magic must be {DEVICE_MAGIC:#x}, not {identity['magic']:#x}")
    if identity["abi_major"] != ABI_MAJOR:
        raise VersionMismatchError(
            f"the driver speaks ABI {ABI_MAJOR}.{ABI_MINOR}, the hardware "
            f"{identity['abi_major']}.{identity['abi_minor']}"
        )
    more = bar0.core_buffers_2.fields()
    return DeviceProperties(
        vendor=config["vendor"],
        device=config["device"],
        abi_major=identity["abi_major"],
        abi_minor=identity["abi_minor"],
        hbm_bytes=bar0.memory.field("hbm_bytes"),
        **bar0.capabilities.fields(),
        **bar0.core_buffers.fields(),
        **{name: more[name] for name in ("bias_lines", "ub_lines", "bf16_depth")},
    )
