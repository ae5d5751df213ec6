"""Faults: the first of a queue is kept, what comes after it is discarded and counted."""

from abi.registers_queue import QUEUE_STATE
from abi.status import Engine, Status
from firmware.port import FirmwarePort
from firmware.state import Fault, QueueState

__all__ = ["FaultKeeper"]


class FaultKeeper:
    """Records faults in the queues' state and leaves a note of each."""

    def __init__(self, port: FirmwarePort, cost: int) -> None:
        self._port = port
        self._cost = cost

    def record(self, queue: QueueState, fault: Fault) -> None:
        """Keep `fault` if it is the queue's first."""
        self._port.compute(self._cost)
        self._port.note(
            "fault",
            queue=fault.queue,
            packet=fault.packet,
            status=fault.status,
            engine=fault.engine,
            instance=fault.instance,
            address=fault.address,
            first=int(queue.fault is None),
        )
        if queue.fault is None:
            queue.fault = fault

    def refuse(self, queue: QueueState, packet: int, status: Status, opcode: int) -> None:
        """A packet failed its checks."""
        self.record(
            queue,
            Fault(status, Engine.FIRMWARE, queue.number, queue.number, packet, opcode=opcode),
        )

    def hardware(self, queue: QueueState, state: int, packet: int) -> None:
        """The queue's hardware faulted; `state` is the word of QUEUE_STATE, `packet` the first
        that cannot be fetched any more."""
        fields = QUEUE_STATE.unpack(state)
        status = Status(fields["status"])
        doorbell = status is Status.DOORBELL_VIOLATION
        queue.hardware_fault = True
        self.record(
            queue,
            Fault(
                status,
                Engine.DOORBELL if doorbell else Engine.FETCHER,
                queue.number,
                queue.number,
                packet,
                address=fields["address"],
            ),
        )

    def discard(self, queue: QueueState, packet: int, count: int = 1) -> None:
        """`count` packets from `packet` on are skipped."""
        if count:
            queue.discarded += count
            self._port.note("discard", queue=queue.number, packet=packet, count=count)
