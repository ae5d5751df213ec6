"""Diagnosis: why a wait does not end, and on which side the fault lies."""

from abi.mailbox import FirmwarePhase, QueuePhase
from abi.packet import PacketOpcode
from abi.status import Engine
from driver.bus import Bus
from driver.errors import (
    DeviceHangError,
    DoorbellLostError,
    FirmwareCrashError,
    FirmwareStallError,
    InterruptLostError,
    NpuError,
    WaitTimeoutError,
    fault_from_status,
)
from driver.kmd.interrupts import Interrupts
from driver.kmd.queues import WRITE_INDEX_OFFSET, Queue, Queues
from driver.registers import Registers

__all__ = ["PROBE_CYCLES", "Diagnosis"]

PROBE_CYCLES = 50_000
"""How long the device is watched before a unit is called dead: several periods of the
firmware's timer, and far more than one core command or DMA line takes."""


class Diagnosis:
    """Reads the state of the device as a wait sees it."""

    def __init__(
        self, bus: Bus, registers: Registers, interrupts: Interrupts, queues: Queues
    ) -> None:
        self._bus = bus
        self._bar0 = registers.bar0
        self._interrupts = interrupts
        self._queues = queues

    def progress(self, queue: Queue) -> tuple[int, ...]:
        """Figures that change as long as work retires; a heartbeat is no progress."""
        bar0 = self._bar0
        return (
            bar0.queue_consumed[queue.number].read(),
            bar0.queue_fetched[queue.number].read(),
            *(core.read() for core in bar0.core_retired),
            *(core.read() for core in bar0.core_blocks),
            *(channel.read() for channel in bar0.dma_bytes),
        )

    def certain(self, queue: Queue) -> NpuError | None:
        """A fault that no further waiting can cure."""
        fault = self._queues.hardware_fault(queue)
        if fault is not None:
            fault.in_flight = self.in_flight(queue)
            return fault
        state = self._bar0.firmware_state.fields()
        if state["phase"] == FirmwarePhase.CRASHED:
            return FirmwareCrashError(
                f"the firmware crashed in task {state['task']}, code {state['code']:#x}",
                queue=queue.number,
                in_flight=self.in_flight(queue),
            )
        return None

    def doorbell_behind(self, queue: Queue) -> int:
        """How many published packets the doorbell register does not show."""
        published = self._queues.load_index(queue, WRITE_INDEX_OFFSET)
        return published - self._bar0.queue_doorbell[queue.number].read()

    def doorbell_lost(self, queue: Queue) -> NpuError:
        """The error for a doorbell that is behind and stays so."""
        rung = self._bar0.queue_doorbell[queue.number].read()
        return DoorbellLostError(
            f"the device knows of packets before {rung}, but packets before "
            f"{self._queues.load_index(queue, WRITE_INDEX_OFFSET)} were published; the next "
            "doorbell of this queue makes up for it",
            instance=queue.number,
            queue=queue.number,
            packet=rung,
            in_flight=self.in_flight(queue),
        )

    def explain(self, queue: Queue, timeout: int, beats: int, *, moving: bool) -> NpuError:
        """Why `queue` made no progress for `timeout` cycles.

        `beats` is the heartbeat and `moving` whether work still retired, both over a probe
        interval of PROBE_CYCLES up to now.
        """
        in_flight = self.in_flight(queue)
        if self.doorbell_behind(queue) > 0:
            return self.doorbell_lost(queue)
        certain = self.certain(queue)
        if certain is not None:
            return certain
        if self._bar0.heartbeat.read() == beats:
            state = self._bar0.firmware_state.fields()
            return FirmwareStallError(
                f"the firmware's heartbeat stands still in task {state['task']}",
                queue=queue.number,
                packet=self._bar0.queue_consumed[queue.number].read(),
                in_flight=in_flight,
            )
        if self._interrupts.pending(queue.vector):
            return InterruptLostError(
                f"the device holds back a message of vector {queue.vector}: it is masked",
                instance=queue.vector,
                queue=queue.number,
                in_flight=in_flight,
            )
        if moving:
            return WaitTimeoutError(
                f"the wait ended at its limit of {timeout} cycles while work still retires",
                queue=queue.number,
                in_flight=in_flight,
            )
        return self._hang(queue, timeout, in_flight)

    def lost_interrupt(self, queue: Queue, value: int, *, pending: bool) -> NpuError:
        """The error for a completed wait whose message did not come."""
        sent = self._interrupts.sent(queue.vector)
        how = (
            "is held back by the device: it is masked"
            if pending
            else f"did not arrive; the device has sent {sent} since its reset"
        )
        return InterruptLostError(
            f"value {value} is reached and its results are valid, but the message of vector "
            f"{queue.vector} {how}",
            instance=queue.vector,
            queue=queue.number,
            in_flight=self.in_flight(queue),
        )

    def in_flight(self, queue: Queue) -> tuple[str, ...]:
        """What has not finished: packets of the queue, busy channels and cores."""
        bar0 = self._bar0
        published = self._queues.load_index(queue, WRITE_INDEX_OFFSET)
        rung = bar0.queue_doorbell[queue.number].read()
        fetched = bar0.queue_fetched[queue.number].read()
        taken = bar0.queue_consumed[queue.number].read()
        found = []
        if taken < published:
            found.append(
                f"queue {queue.number}: packets before {published} published, before {rung} rung, "
                f"before {fetched} fetched, before {taken} done"
            )
        for i, channel in enumerate(bar0.dma_state):
            if channel.field("busy"):
                found.append(f"DMA {i}: busy, {bar0.dma_bytes[i].read()} bytes written")
        for i, core in enumerate(bar0.core_state):
            if core.field("busy"):
                found.append(
                    f"core {i}: busy, {bar0.core_blocks[i].read()} blocks ended, "
                    f"{bar0.core_retired[i].read()} commands retired"
                )
        return tuple(found)

    def _hang(self, queue: Queue, timeout: int, in_flight: tuple[str, ...]) -> NpuError:
        bar0 = self._bar0
        taken = bar0.queue_consumed[queue.number].read()
        text = f"makes no progress ({timeout} cycles)"
        state = self._queues.query(queue)
        if state["status_word"]:
            return fault_from_status(
                state["status_word"],
                packet=state["fault_packet"],
                address=state["fault_address"],
                pipe=state["pipe"],
                detail=state["detail"],
                block=state["block"],
                in_flight=in_flight,
            )
        if state["phase"] == QueuePhase.WAITING:
            return WaitTimeoutError(
                "the queue waits for a semaphore that nobody signals",
                instance=queue.number,
                queue=queue.number,
                packet=state["running"],
                in_flight=in_flight,
            )
        running = state["opcode"] if state["phase"] == QueuePhase.RUNNING else 0
        units = [(Engine.DMA, bar0.dma_state), (Engine.CORE, bar0.core_state)]
        if running == PacketOpcode.KERNEL:
            units.reverse()
        if running != PacketOpcode.SIGNAL:
            for engine, states in units:
                for i, unit in enumerate(states):
                    if unit.field("busy"):
                        return DeviceHangError(
                            f"{engine.name} {i} {text}",
                            engine=engine,
                            instance=i,
                            queue=queue.number,
                            packet=taken,
                            in_flight=in_flight,
                        )
        fetched = bar0.queue_fetched[queue.number].read()
        if fetched < bar0.queue_doorbell[queue.number].read():
            return DeviceHangError(
                f"the fetcher {text}",
                engine=Engine.FETCHER,
                instance=queue.number,
                queue=queue.number,
                packet=fetched,
                in_flight=in_flight,
            )
        if running == PacketOpcode.SIGNAL:
            return DeviceHangError(
                f"the completion unit {text}",
                engine=Engine.COMPLETION,
                queue=queue.number,
                packet=taken,
                in_flight=in_flight,
            )
        return WaitTimeoutError(
            "the queue is idle, and nothing that was submitted signals this value",
            queue=queue.number,
            in_flight=in_flight,
        )
