"""The machine as the hosted program sees it: clock, actors, buses, firmware."""

from collections.abc import Callable

from driver.bus import attach_bus, detach_bus
from firmware.port import FirmwarePort
from tb.engine.actors import Actor, Actors
from tb.engine.clockwork import Clockwork
from tb.engine.firmwarebus import FirmwareBus, InjectedCrashError
from tb.engine.hostbus import HostBus
from tb.engine.hostmem import HostMemory

__all__ = ["Machine", "current_machine"]

Firmware = Callable[[FirmwarePort], object]

_current: list["Machine"] = []


def current_machine() -> "Machine":
    """The machine in which the calling program is hosted.

    Raises:
        RuntimeError: the program does not run inside a simulator.
    """
    if not _current:
        raise RuntimeError("no machine: the program is not hosted in a simulator")
    return _current[-1]


class Machine:
    """One simulated machine.

    Attributes: `clockwork`, `actors` (spawn host threads here), `bus` (the driver's), `memory`
    (host memory), `firmware_bus`, `seed`.

    `firmware` is the device program; it is started with its port when the chip releases the
    firmware CPU, and ended (an access in flight ends first) when the chip holds it in reset. An
    exception that leaves it is raised in `main`. Making a machine resets it.
    """

    def __init__(
        self,
        clockwork: Clockwork,
        *,
        seed: int,
        firmware: Firmware | None = None,
        drain_window: int = 512,
    ) -> None:
        self.clockwork = clockwork
        self.seed = seed
        self._firmware = firmware
        self._actor: Actor | None = None
        self.actors = Actors(clockwork, seed=seed)
        clockwork.reset()
        self.memory = HostMemory(clockwork.host_memory())
        self.bus = HostBus(self.actors, self.memory, seed=seed, drain_window=drain_window)
        self.firmware_bus = FirmwareBus(self.actors)
        self.actors.on_run_change = self._run_changed

    def run(self, program: Callable[[], object]) -> None:
        """Run `program` as the actor `main` with the bus attached.

        Raises:
            BaseException: what the program, the firmware or an unjoined thread raised.
        """

        def main() -> None:
            attach_bus(self.bus)
            _current.append(self)
            try:
                program()
            finally:
                _current.remove(self)
                detach_bus(self.bus)

        self.actors.run(main)

    def reset(self) -> None:
        """Reset the chip and give host memory back its first state (zeros, all pages free).

        Device time starts at 0. Called from `main` while no other host thread runs.

        Raises:
            RuntimeError: another thread uses the machine.
        """
        self.bus.end_faults()
        self.firmware_bus.resume()
        self.firmware_bus.slowness = 1
        if self._actor is not None:
            self.actors.kill(self._actor)
            if not self._actor.done:
                self.actors.join(self._actor)
            self._actor = None
        self.actors.forget_hardware()
        self.bus.store_buffer.drain()
        self.clockwork.reset()
        self.clockwork.messages()
        self.memory.clear()

    # ---- firmware ----

    def _run_changed(self, runs: bool) -> None:
        old = self._actor
        if not runs:
            if old is not None:
                self.actors.kill(old)
            return
        firmware = self._firmware
        if firmware is None:
            return

        def body() -> None:
            if old is not None and not old.done:
                self.actors.join(old)
            try:
                firmware(self.firmware_bus)
            except InjectedCrashError:
                pass
            except Exception as error:
                error.add_note("raised in the firmware")
                self.actors.fail(error)

        self._actor = self.actors.spawn("firmware", body)

    def crash_firmware(self) -> None:
        """The firmware gets an `InjectedCrashError` where it stands, as after a trap; an access
        in flight ends first. What it does about it is its own affair."""
        if self._actor is not None and not self._actor.done:
            error = InjectedCrashError("the firmware was crashed on purpose")
            self.actors.throw(self._actor, error)
