"""The kernel driver of one device: probe, boot, sessions, reset and removal."""

import weakref

from abi.address import HBM_BASE
from abi.mailbox import FirmwarePhase
from driver.bus import Bus
from driver.errors import DeviceClosedError, StaleHandleError
from driver.kmd.boot import boot
from driver.kmd.interrupts import Interrupts
from driver.kmd.memory import HbmAllocator, HostPages
from driver.kmd.probe import probe
from driver.kmd.queues import Queues
from driver.kmd.reset import reset_hardware
from driver.kmd.wait import Waiter
from driver.registers import Registers

__all__ = ["KernelDriver"]

_open: "weakref.WeakValueDictionary[int, KernelDriver]" = weakref.WeakValueDictionary()


class KernelDriver:
    """Owns the device behind a bus. All of its state belongs to a generation, which each reset
    ends: what was made before is refused afterwards.

    Attributes: `registers`, `properties`, `generation`, and of the current generation
    `interrupts`, `mailbox`, `hbm`, `pages`, `queues`, `waiter`.

    Raises:
        StaleHandleError: another driver already owns this device.
        NpuError: it does not come up.
    """

    def __init__(self, bus: Bus) -> None:
        if id(bus) in _open:
            raise StaleHandleError("the device is already open; close it first")
        self.bus = bus
        self.registers = Registers(bus)
        self.properties = probe(self.registers)
        self.generation = 0
        self.closed = False
        self.interrupts = Interrupts(bus, self.registers, self.properties.vectors)
        self.pages = HostPages(bus, self.registers)
        phase = self.registers.bar0.firmware_state.field("phase")
        if phase != FirmwarePhase.OFF or self.registers.bar0.control.field("firmware_run"):
            reset_hardware(bus, self.registers, self.interrupts)
        self._boot()
        _open[id(bus)] = self

    def reset(self) -> None:
        """Reset the device and start a new generation.

        Raises:
            NpuError: it does not come up again; the driver is closed then.
        """
        self._check_open()
        self.generation += 1
        try:
            self._stop()
            self._boot()
        except BaseException:
            self._forget()
            raise

    def close(self) -> None:
        """Stop the device and give everything back. A second call does nothing."""
        if self.closed:
            return
        self.generation += 1
        try:
            self._stop()
            self.registers.config.identity.update(memory_enable=0)
        finally:
            self._forget()

    def _boot(self) -> None:
        """Bring up a device that was just reset."""
        self.registers.config.identity.update(memory_enable=1, bus_master=1)
        bus, registers, properties = self.bus, self.registers, self.properties
        self.interrupts = Interrupts(bus, registers, properties.vectors)
        self.mailbox = boot(bus, registers, self.interrupts)
        self.hbm = HbmAllocator(HBM_BASE, properties.hbm_bytes)
        self.queues = Queues(bus, registers, self.mailbox, self.pages, properties.queues)
        self.waiter = Waiter(bus, registers, self.interrupts, self.queues)

    def _stop(self) -> None:
        drained = False
        try:
            drained = reset_hardware(self.bus, self.registers, self.interrupts)
        finally:
            # Pages that the device may still write to must never be handed out again.
            self.pages.release(drained=drained)

    def _forget(self) -> None:
        self.closed = True
        _open.pop(id(self.bus), None)

    def _check_open(self) -> None:
        if self.closed:
            raise DeviceClosedError("the device is closed")

    def check_generation(self, generation: int) -> None:
        """Refuse what belongs to a closed device or a former generation.

        Raises:
            DeviceClosedError, StaleHandleError: it does.
        """
        self._check_open()
        if generation != self.generation:
            raise StaleHandleError(
                f"the device was reset: this belongs to generation {generation}, "
                f"not {self.generation}"
            )
