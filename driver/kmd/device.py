"""The kernel driver of one device: probe, boot, sessions, reset and removal."""

import weakref

from abi.address import HBM_BASE
from abi.mailbox import FirmwarePhase
from driver.bus import Bus
from driver.errors import DeviceClosedError, StaleHandleError
from driver.kmd.boot import boot
from driver.kmd.interrupts import Interrupts
from driver.kmd.lease import Lease
from driver.kmd.memory import HbmAllocator, HostPages
from driver.kmd.probe import probe
from driver.kmd.queues import Queues
from driver.kmd.reset import POLL, reset_hardware
from driver.kmd.wait import Waiter
from driver.registers import Registers

__all__ = ["KernelDriver"]

_open: "weakref.WeakValueDictionary[int, KernelDriver]" = weakref.WeakValueDictionary()


class KernelDriver:
    """Owns the device behind a bus. All of its state belongs to a generation, which each reset
    ends: what was made before is refused afterwards. Host threads that are inside a call at that
    moment get StaleHandleError from it.

    Attributes: `registers`, `properties`, `generation`, `closed`, and of the current generation
    `lease` (the bus, as long as it lasts), `leased_registers`, `interrupts`, `mailbox`, `hbm`,
    `pages`, `queues`, `waiter`.

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
        self._resetting = False
        self._stopping = False
        self._quarantined = 0
        phase = self.registers.bar0.firmware_state.field("phase")
        if phase != FirmwarePhase.OFF or self.registers.bar0.control.field("firmware_run"):
            self._reset_hardware()
        self._boot(self.generation)
        _open[id(bus)] = self

    def reset(self) -> None:
        """Reset the device and start a new generation.

        Raises:
            NpuError: it does not come up again; the driver is closed then.
        """
        self.check_ready()
        self.generation += 1
        generation = self.generation
        self.lease.end(StaleHandleError, "the device was reset meanwhile")
        self._resetting = True
        try:
            self._stop()
            self._boot(generation)
        except BaseException:
            if not self.closed:
                self.closed = True
                self._forget()
            raise
        finally:
            self._resetting = False

    def close(self) -> None:
        """Stop the device and give everything back. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self.generation += 1
        self.lease.end(DeviceClosedError, "the device is closed")
        try:
            self._stop()
            self.registers.config.identity.update(memory_enable=0)
        finally:
            self._forget()

    def _boot(self, generation: int) -> None:
        """Bring up a device that was just reset."""
        self.check_generation(generation)  # It may have been closed meanwhile.
        bus = self.lease = Lease(self.bus)
        registers = self.leased_registers = Registers(bus)
        properties = self.properties
        registers.config.identity.update(memory_enable=1, bus_master=1)
        self.pages = HostPages(self.bus, registers, quarantined=self._quarantined)
        self.interrupts = Interrupts(bus, registers, properties.vectors)
        self.mailbox = boot(bus, registers, self.interrupts)
        self.hbm = HbmAllocator(HBM_BASE, properties.hbm_bytes)
        self.queues = Queues(bus, registers, self.mailbox, self.pages, properties.queues)
        self.waiter = Waiter(bus, registers, self.interrupts, self.queues)

    def _reset_hardware(self) -> bool:
        interrupts = Interrupts(self.bus, self.registers, self.properties.vectors)
        return reset_hardware(self.bus, self.registers, interrupts)

    def _stop(self) -> None:
        """End a generation: reset the chip, take its pages back, let its waits end."""
        while self._stopping:  # One host thread closes while another resets.
            self._let_time_pass()
        self._stopping = True
        drained = False
        try:
            drained = self._reset_hardware()
            # A wait of this generation would take the next one's messages.
            while self.lease.waiting:
                self._let_time_pass()
        finally:
            self._stopping = False
            # Pages that the device may still write to must never be handed out again.
            self.pages.release(drained=drained)
            self._quarantined = self.pages.quarantined

    def _let_time_pass(self) -> None:
        self.bus.wait_interrupt(0, self.bus.now() + POLL)

    def _forget(self) -> None:
        _open.pop(id(self.bus), None)

    def _check_open(self) -> None:
        if self.closed:
            raise DeviceClosedError("the device is closed")

    def check_ready(self) -> None:
        """Refuse calls while the device is closed or not yet up again.

        Raises:
            DeviceClosedError, StaleHandleError: it is.
        """
        self._check_open()
        if self._resetting:
            raise StaleHandleError("the device is being reset")

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
