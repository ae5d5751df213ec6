"""The program of the device CPU: boot, then a loop that never ends."""

from abi.geometry import CORES, DMA_CHANNELS, QUEUES
from abi.mailbox import FirmwarePhase
from abi.registers_core import CoreOperation
from abi.registers_dma import DmaStart
from abi.status import Status
from firmware.config import FirmwareConfig
from firmware.cores import Cores
from firmware.dispatch import Engines
from firmware.faults import FaultKeeper
from firmware.grids import GridScheduler
from firmware.heartbeat import Heartbeat, StatusBoard
from firmware.mailbox import MailboxServer
from firmware.port import FirmwarePort, PortError
from firmware.queues import QueueTable
from firmware.registers import EVENT, Registers
from firmware.scheduler import Scheduler
from firmware.state import CrashRecord, DeviceSram

__all__ = ["Firmware", "main"]

ENABLED = sum(EVENT.values()) & ~EVENT["doorbell"]
"""A doorbell itself is no work: the packet that the fetcher brings is, and raises its own event."""

ALL = sum(EVENT.values())


class Firmware:
    """One run of the program, from reset to reset."""

    def __init__(self, port: FirmwarePort, sram: DeviceSram, config: FirmwareConfig) -> None:
        self._port = port
        self._sram = sram
        self._config = config
        self._registers = Registers(port)
        self._heartbeat = Heartbeat(port, self._registers, config)
        self._board = StatusBoard(port, self._registers, config)
        faults = FaultKeeper(port, config.costs.fault)
        self._cores = Cores(port, self._registers, config)
        self._scheduler = Scheduler(
            port,
            self._registers,
            config,
            sram,
            Engines(port, self._registers),
            GridScheduler(port, config, sram, self._cores),
            faults,
            self._board,
        )
        self._queues = QueueTable(self._registers, sram, self._scheduler, faults)
        self._mailbox = MailboxServer(port, self._registers, config, self._board, self._queues)

    def run(self) -> None:
        """Boot and serve. Never returns."""
        self._boot()
        while True:
            busy = self._turn()
            if not busy:
                self._sleep()

    def _boot(self) -> None:
        self._sram.boots += 1
        self._sram.queues = [None] * QUEUES
        self._port.note("boot", boots=self._sram.boots, crashed=int(self._sram.crash is not None))
        self._board.enter(FirmwarePhase.BOOTING)
        self._port.compute(self._config.costs.boot)
        self._quiesce()
        self._cores.boot()
        self._mailbox.resume()
        self._registers.firmware.write("events", ALL)
        self._registers.firmware.write("event_enable", ENABLED)
        self._board.enter(FirmwarePhase.WAITING_FOR_HANDSHAKE)

    def _quiesce(self) -> None:
        """Stop what an earlier program left running: the chip need not have been reset."""
        registers = self._registers
        for number in range(QUEUES):
            if registers.queue.read("control", number):
                registers.queue.write_fields("control", number, enable=0)
        for channel in range(DMA_CHANNELS):
            registers.dma.write_fields("start", channel, kind=DmaStart.ABORT)
        for core in range(CORES):
            registers.core.write_fields("start", core, operation=CoreOperation.ABORT)
        limit = self._port.now() + self._config.quiesce_limit
        while self._left_over():
            if self._port.now() >= limit:
                raise TimeoutError(
                    f"the chip must be quiet within {self._config.quiesce_limit} cycles of boot"
                )
            self._heartbeat.beat()
            self._port.wait(self._port.now() + self._config.close_recheck)

    def _left_over(self) -> bool:
        registers = self._registers
        return bool(
            registers.dma.read("busy")
            or any(registers.core.fields("state", core)["busy"] for core in range(CORES))
            or registers.completion.fields("state")["busy"]
            or any(registers.queue.fields("state", number)["busy"] for number in range(QUEUES))
        )

    def _turn(self) -> bool:
        """One turn of the loop; returns whether there is more to do at once."""
        # After a long silence every source is looked at, should an event have been lost.
        silent = self._port.now() >= self._heartbeat.deadline
        self._heartbeat.beat()
        self._port.compute(self._config.costs.turn)
        events = self._registers.firmware.read("events")
        if events:
            # Clear, then look: what happens in between raises its event again.
            self._registers.firmware.write("events", events)
        if events & EVENT["interrupt_fault"]:
            # The message is lost, and no message can say so: only the trace can.
            self._port.note("interrupt_fault")
        if silent:
            events = ALL
        self._mailbox.look(events)
        self._scheduler.look(events)
        self._scheduler.tick()
        for _ in range(self._config.requests_per_turn):
            if not self._mailbox.pending:
                break
            self._mailbox.serve()
        self._mailbox.finish_closing()
        more = all(self._scheduler.step() for _ in range(self._config.steps_per_turn))
        return more or self._mailbox.pending

    def _sleep(self) -> None:
        deadlines = [self._heartbeat.deadline]
        task = self._scheduler.deadline()
        if task is not None:
            deadlines.append(task)
        if self._queues.closing or self._mailbox.blocked:
            deadlines.append(self._port.now() + self._config.close_recheck)
        self._board.sleep()
        self._port.wait(min(deadlines))

    def crash(self, error: Exception) -> None:
        """Leave behind what a post-mortem needs. The code is a `Status`."""
        queues = sum(1 << queue.number for queue in self._sram.live())
        self._sram.crash = CrashRecord(self._port.now(), repr(error), queues)
        code = Status.BUS_ERROR if isinstance(error, PortError) else Status.FIRMWARE_CRASH
        self._board.enter(FirmwarePhase.CRASHED, code)


def main(
    port: FirmwarePort, sram: DeviceSram | None = None, config: FirmwareConfig | None = None
) -> None:
    """The firmware's entry point; never returns.

    Args:
        port: the device CPU's view of the chip.
        sram: what survived from an earlier run; a new one by default.
        config: costs and intervals.

    Raises:
        Exception: the program crashed; FIRMWARE_STATE then shows phase CRASHED.
    """
    firmware = Firmware(port, sram or DeviceSram(), config or FirmwareConfig())
    try:
        firmware.run()
    except Exception as error:
        firmware.crash(error)
        raise
