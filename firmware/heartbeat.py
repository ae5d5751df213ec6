"""Signs of life: the heartbeat and the state register, each written no more than needed."""

from abi.mailbox import FirmwarePhase, FirmwareTask
from abi.registers_firmware import FIRMWARE_STATE
from abi.version import ABI_MAJOR, ABI_MINOR
from firmware.config import FirmwareConfig
from firmware.port import FirmwarePort
from firmware.registers import Registers

__all__ = ["Heartbeat", "StatusBoard"]

CODE_MASK = (1 << 24) - 1


class Heartbeat:
    """Counts turns of the main loop and shows the count."""

    def __init__(self, port: FirmwarePort, registers: Registers, config: FirmwareConfig) -> None:
        self._port = port
        self._registers = registers
        self._config = config
        self._beats = 0
        self._written = port.now() - config.heartbeat_spacing

    def beat(self) -> None:
        """A turn began."""
        self._beats += 1
        now = self._port.now()
        if now - self._written >= self._config.heartbeat_spacing:
            self._registers.firmware.write("heartbeat", self._beats)
            self._written = now

    @property
    def deadline(self) -> int:
        """When the next turn must come at the latest."""
        return self._written + self._config.heartbeat_interval


class StatusBoard:
    """FIRMWARE_STATE. A new phase is written at once, a new task when the last write is old
    enough or the firmware goes to sleep."""

    def __init__(self, port: FirmwarePort, registers: Registers, config: FirmwareConfig) -> None:
        self._port = port
        self._registers = registers
        self._config = config
        self._written = 0
        self._shown = -1
        self.phase = FirmwarePhase.OFF

    def enter(self, phase: FirmwarePhase, code: int = 0) -> None:
        """Show a new phase."""
        self.phase = phase
        self._port.note("phase", phase=phase, code=code)
        self._show(FirmwareTask.SLEEPING, 0, code, now=True)

    def work(self, task: FirmwareTask, queue: int = 0, code: int = 0) -> None:
        """Show what is worked at; `code` is a packet index or a message kind."""
        self._show(task, queue, code, now=False)

    def sleep(self) -> None:
        """Show that there is nothing to do."""
        self._show(FirmwareTask.SLEEPING, 0, 0, now=True)

    def _show(self, task: FirmwareTask, queue: int, code: int, *, now: bool) -> None:
        word = FIRMWARE_STATE.pack(
            phase=self.phase,
            abi_major=ABI_MAJOR,
            abi_minor=ABI_MINOR,
            task=task,
            queue=queue,
            code=code & CODE_MASK,
        )
        if word == self._shown:
            return
        time = self._port.now()
        if now or time - self._written >= self._config.state_spacing:
            self._registers.firmware.write("firmware_state", word)
            self._shown, self._written = word, time
