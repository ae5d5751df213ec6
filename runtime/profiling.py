"""Where the time went: the device's performance counters, read through the driver."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from abi.core import Pipe
from runtime.arguments import check_device

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["Counters", "PipeCycles", "read_counters"]


@dataclass(frozen=True)
class PipeCycles:
    """Cycles of one pipe, or the scalar unit, while blocks ran; the three add up to
    `Counters.core_cycles`."""

    busy: int
    stall: int
    idle: int


@dataclass(frozen=True)
class Counters:
    """Counters since the chip's reset, or, as a difference, of what lies between two readings.

    `cycles`: device time. `dma_cycles`: sum over the channels of busy cycles. `core_cycles`:
    cycles in which a block ran. `instructions`: of the scalar units. `macs`:
    multiply-accumulates. Bytes are whole 64-byte lines.
    """

    cycles: int
    dma_cycles: int
    dma_bytes: int
    core_cycles: int
    instructions: int
    macs: int
    link_read_bytes: int
    link_write_bytes: int
    hbm_read_bytes: int
    hbm_write_bytes: int
    pipes: dict[Pipe, PipeCycles]

    def __sub__(self, earlier: "Counters") -> "Counters":
        """What happened since an earlier reading."""
        numbers = {
            name: value - getattr(earlier, name)
            for name, value in vars(self).items()
            if name != "pipes"
        }
        pipes = {
            pipe: PipeCycles(
                now.busy - earlier.pipes[pipe].busy,
                now.stall - earlier.pipes[pipe].stall,
                now.idle - earlier.pipes[pipe].idle,
            )
            for pipe, now in self.pipes.items()
        }
        return Counters(**numbers, pipes=pipes)


def read_counters(device: "Device") -> Counters:
    """Read the counters; each costs one register read. All cores are summed up.

    Raises:
        InvalidArgumentError: `device` is none.
        DeviceClosedError, StaleHandleError: the device is closed, or was reset meanwhile.
    """
    check_device("device", device)
    device.check_open()
    bar0 = device.driver.leased_registers.bar0
    channels = range(device.info.dma_channels)
    cores = range(device.info.cores)

    def core(name: str) -> int:
        return sum(getattr(bar0, name)[i].field("count") for i in cores)

    return Counters(
        cycles=bar0.time.field("cycles"),
        dma_cycles=sum(bar0.dma_cycles[i].field("cycles") for i in channels),
        dma_bytes=sum(bar0.dma_bytes[i].field("bytes") for i in channels),
        core_cycles=core("core_cycles"),
        instructions=core("core_instructions"),
        macs=core("core_macs"),
        link_read_bytes=bar0.link_read_bytes.field("count"),
        link_write_bytes=bar0.link_write_bytes.field("count"),
        hbm_read_bytes=bar0.hbm_read_bytes.field("count"),
        hbm_write_bytes=bar0.hbm_write_bytes.field("count"),
        pipes={
            pipe: PipeCycles(
                *(core(f"{pipe.name.lower()}_{kind}") for kind in ("busy", "stall", "idle"))
            )
            for pipe in Pipe
        },
    )
