"""The whole machine in Python: chip, firmware as a greenlet, host memory, and its faults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from greenlet import GreenletExit, getcurrent, greenlet

from abi.geometry import VECTORS
from firmware.port import FirmwarePort, PortError
from tb.models.device.bus import ModelBus
from tb.models.device.chip import Chip
from tb.models.device.clock import EventClock, Timer
from tb.models.device.host import HostSide
from tb.models.device.registers import SlaveError
from tb.models.device.timing import ModelTiming

__all__ = ["FaultHooks", "InjectedCrashError", "ModelMachine", "ModelPort", "Note"]

WAKE_CYCLES = 4
"""From the event line to the first instruction of a firmware that slept."""

Program = Callable[[FirmwarePort], None]


class Note(NamedTuple):
    """What the firmware said with `port.note`, and when (cycles)."""

    time: int
    event: str
    fields: dict[str, int]


class InjectedCrashError(Exception):
    """The exception that `FaultHooks.crash_firmware` raises inside the firmware."""


@dataclass
class _Stall:
    until: int | None = 0
    pending: Callable[[], None] | None = None


class ModelMachine:
    """A chip with its firmware and a host that drives it through `bus`. Time passes only inside
    calls of `bus` and in `run`.

    Args:
        firmware: the program that runs on the device CPU.
        host_bytes, hbm_bytes: sizes of memory.
        timing: costs in cycles.
        seed: of the store buffer's order.
        lazy_stores: `bus.store` reaches memory late and out of order until `bus.barrier`.

    Attributes: `bus`, `port`, `chip`, `clock`, `faults`, `notes` (of the firmware),
    `firmware_error` (what the firmware raised when it crashed, or None).
    """

    def __init__(
        self,
        firmware: Program,
        *,
        host_bytes: int = 32 << 20,
        hbm_bytes: int = 64 << 20,
        timing: ModelTiming | None = None,
        seed: int = 1,
        lazy_stores: bool = True,
    ) -> None:
        self.clock = EventClock()
        self.timing = timing or ModelTiming()
        self.arrived = [0] * VECTORS
        self.notes: list[Note] = []
        self.firmware_error: Exception | None = None
        self.slowdown = 1
        self.stall = _Stall()
        self.crash_planned = False
        self.chip = Chip(
            self.clock,
            self.timing,
            host_bytes=host_bytes,
            hbm_bytes=hbm_bytes,
            arrive=self._arrive,
            event_line=self._event_line,
        )
        self.host = HostSide(self.chip, self._run_firmware, self._reset)
        self.port = ModelPort(self)
        self.bus = ModelBus(self, seed=seed, lazy_stores=lazy_stores)
        self.faults = FaultHooks(self)
        self._program = firmware
        self._firmware: greenlet | None = None
        self._waiting: Timer | None = None
        self._woken = False

    def run(self, cycles: int) -> None:
        """Let time pass."""
        self.clock.run(self.clock.now + cycles)

    @property
    def firmware_alive(self) -> bool:
        """Whether the firmware's program is on its way."""
        return self._firmware is not None and not self._firmware.dead

    def _arrive(self, vector: int) -> None:
        self.arrived[vector] += 1

    # Reset and boot.

    def _reset(self) -> None:
        self._run_firmware(False)
        self.host.resetting, self.host.drained = True, False
        self.clock.after(self.timing.drain, self._isolate)

    def _isolate(self) -> None:
        self.host.isolated, self.host.drained = True, True
        self.clock.clear()
        self.chip.reset()
        self.host.reset()
        self.host.generation += 1
        self.clock.after(self.timing.isolate, self._end_reset)

    def _end_reset(self) -> None:
        self.host.resetting = self.host.isolated = False

    def _run_firmware(self, run: bool) -> None:
        if run == (self._firmware is not None):
            return
        if self._firmware is not None:
            cpu, self._firmware = self._firmware, None
            if not cpu.dead:
                cpu.parent = getcurrent()
                cpu.throw(GreenletExit)
            return
        self.firmware_error, self.crash_planned = None, False
        cpu = self._firmware = greenlet(self._boot)
        self._plan_resume(cpu, 1)

    def _boot(self) -> None:
        try:
            self._program(self.port)
        except Exception as error:
            self.firmware_error = error

    # The firmware's CPU.

    def _plan_resume(self, cpu: greenlet, cycles: int) -> Timer:
        return self.clock.after(cycles, lambda: self._resume(cpu))

    def _resume(self, cpu: greenlet) -> None:
        if self._firmware is None or cpu is not self._firmware:
            return
        stall = self.stall
        if stall.until is None:
            stall.pending = lambda: self._resume(cpu)
            return
        if self.clock.now < stall.until:
            self._plan_resume(cpu, stall.until - self.clock.now)
            return
        cpu.parent = getcurrent()
        cpu.switch()

    def pause(self, cycles: int) -> None:
        """Called by the port: the CPU is busy for `cycles`."""
        cpu = self._firmware
        assert cpu is not None
        self._plan_resume(cpu, cycles * self.slowdown)
        self._give_way()

    def sleep(self, until: int) -> bool:
        """Called by the port: the CPU sleeps until the event line rises or `until`."""
        cpu = self._firmware
        assert cpu is not None
        if self.chip.event_pending:
            return True
        self._woken = False
        self._waiting = self._plan_resume(cpu, until - self.clock.now)
        self._give_way()
        self._waiting = None
        return self._woken or self.chip.event_pending

    def _give_way(self) -> None:
        parent = getcurrent().parent
        assert parent is not None
        parent.switch()
        if self.crash_planned:
            self.crash_planned = False
            raise InjectedCrashError("the firmware was crashed on purpose")

    def _event_line(self) -> None:
        cpu = self._firmware
        if self._waiting is None or cpu is None or not self.chip.event_pending:
            return
        self._waiting.cancel()
        self._waiting, self._woken = None, True
        self._plan_resume(cpu, WAKE_CYCLES)


class ModelPort:
    """The firmware's port onto the model."""

    def __init__(self, machine: ModelMachine) -> None:
        self._machine = machine
        self.accesses = 0
        """Register accesses so far, for cost tests."""

    def read(self, address: int) -> int:
        """See `FirmwarePort.read`."""
        self.accesses += 1
        self._machine.pause(self._machine.timing.firmware_read)
        try:
            return self._machine.chip.firmware_read(address)
        except SlaveError:
            raise PortError(address, write=False) from None

    def write(self, address: int, value: int) -> None:
        """See `FirmwarePort.write`."""
        self.accesses += 1
        self._machine.pause(self._machine.timing.firmware_write)
        try:
            self._machine.chip.firmware_write(address, value)
        except SlaveError:
            raise PortError(address, write=True) from None

    def wait(self, until: int) -> bool:
        """See `FirmwarePort.wait`."""
        return self._machine.sleep(until)

    def compute(self, cycles: int) -> None:
        """See `FirmwarePort.compute`."""
        if cycles > 0:
            self._machine.pause(cycles)

    def now(self) -> int:
        """See `FirmwarePort.now`."""
        return self._machine.clock.now

    def note(self, event: str, **fields: int) -> None:
        """See `FirmwarePort.note`."""
        self._machine.notes.append(
            Note(self._machine.clock.now, event, {k: int(v) for k, v in fields.items()})
        )


class FaultHooks:
    """What can go wrong on purpose."""

    def __init__(self, machine: ModelMachine) -> None:
        self._machine = machine

    def drop_doorbells(self, count: int) -> None:
        """The next `count` doorbell writes vanish (they are answered OKAY)."""
        self._machine.chip.queues.drop_doorbells = count

    def drop_messages(self, vector: int, count: int) -> None:
        """The next `count` messages of a vector are counted as sent but never arrive."""
        self._machine.chip.interrupts.drop[vector] = count

    def host_slverr(self, base: int, limit: int) -> None:
        """Bus addresses from `base` up to `limit` (exclusive) answer with SLVERR; equal: none."""
        self._machine.chip.memory.slverr = range(base, limit)

    def stall_firmware(self, cycles: int | None = None) -> None:
        """The device CPU stands still for `cycles`, or until `release_firmware`."""
        now = self._machine.clock.now
        self._machine.stall.until = None if cycles is None else now + cycles

    def release_firmware(self) -> None:
        """End a stall."""
        stall = self._machine.stall
        stall.until = 0
        if stall.pending is not None:
            self._machine.clock.after(1, stall.pending)
            stall.pending = None

    def slow_firmware(self, factor: int) -> None:
        """Everything that the device CPU does takes `factor` times as long."""
        self._machine.slowdown = factor

    def crash_firmware(self) -> None:
        """The firmware gets an exception where it stands (a sleeping one: when it wakes)."""
        self._machine.crash_planned = True

    def hang_dma(self, channels: int) -> None:
        """Runs of the channels in the mask do not end until they are aborted."""
        self._machine.chip.dma.hang = channels

    def hang_core(self, hang: bool = True) -> None:
        """Programs do not end until they are aborted."""
        self._machine.chip.core.hang = hang

    def hang_completion(self, hang: bool = True) -> None:
        """Operations of the completion unit do not end."""
        self._machine.chip.completion.hang = hang
