"""The life of queues: create, destroy, reset, query."""

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.geometry import MAXIMUM_DEPTH_LOG2, QUEUES, VECTORS
from abi.mailbox import QueuePhase
from abi.status import Status
from firmware.arbiter import PRIORITY_BANDS
from firmware.faults import FaultKeeper
from firmware.registers import Registers
from firmware.scheduler import Scheduler
from firmware.state import DeviceSram, QueueState

__all__ = ["QueueTable"]

START_READS = 100
"""Reads of a register within which an enabled queue has surely started."""

Answer = tuple[Status, dict[str, int]]
"""A status, and the fields of the QUEUE response (empty for a refusal)."""


class QueueTable:
    """Serves the requests that concern queues."""

    def __init__(
        self, registers: Registers, sram: DeviceSram, scheduler: Scheduler, faults: FaultKeeper
    ) -> None:
        self._registers = registers
        self._sram = sram
        self._scheduler = scheduler
        self._faults = faults

    def find(self, number: int) -> QueueState | None:
        """The queue with a number, if it exists."""
        return self._sram.queues[number] if number < QUEUES else None

    @property
    def closing(self) -> bool:
        """Whether a queue is on its way out."""
        return any(queue.closing for queue in self._sram.live())

    @staticmethod
    def _check(request: dict[str, int]) -> Status:
        inside = (
            request["queue"] < QUEUES
            and 1 <= request["depth_log2"] <= MAXIMUM_DEPTH_LOG2
            and request["priority"] < PRIORITY_BANDS
            # Vector 0 is the mailbox's.
            and 1 <= request["vector"] < VECTORS
            and request["task_timeout"] > 0
            and request["block_timeout"] > 0
        )
        if not inside:
            return Status.BAD_FIELD
        for name in ("ring", "read_index"):
            if request[name] % LINE_BYTES:
                return Status.MISALIGNED
            if not 0 < request[name] < 1 << ADDRESS_BITS:
                return Status.ADDRESS_FAULT
        return Status.OK

    def create(self, request: dict[str, int]) -> Status:
        """Make a queue and turn on its doorbell."""
        status = self._check(request)
        if status:
            return status
        number = request["queue"]
        if self._sram.queues[number] is not None:
            return Status.NO_RESOURCE
        hardware = self._registers.queue
        hardware.write_fields(
            "ring", number, address=request["ring"], depth_log2=request["depth_log2"]
        )
        hardware.write_fields("read_index_address", number, address=request["read_index"])
        hardware.write_fields("control", number, enable=1)
        # Until the queue has started, its indices are those of its former life.
        for _ in range(START_READS):
            if not hardware.read("fetched", number):
                break
        else:
            raise TimeoutError(f"queue {number} must start within {START_READS} reads")
        self._sram.queues[number] = QueueState(
            number=number,
            priority=request["priority"],
            vector=request["vector"],
            pasid=request["pasid"],
            task_timeout=request["task_timeout"],
            block_timeout=request["block_timeout"],
        )
        return Status.OK

    def query(self, number: int) -> Answer:
        """State and first fault, up to date."""
        if number >= QUEUES:
            return Status.BAD_FIELD, {}
        queue = self._sram.queues[number]
        if queue is None:
            return Status.OK, {"phase": QueuePhase.ABSENT, "queue": number}
        self._scheduler.look_for_faults()
        return Status.OK, self.describe(queue)

    def reset(self, number: int) -> Answer:
        """Clear a queue's fault, if every packet before its doorbell is accounted for."""
        queue = self.find(number)
        if number >= QUEUES:
            return Status.BAD_FIELD, {}
        if queue is None or queue.closing:
            return Status.NO_RESOURCE, {}
        self._scheduler.look_for_faults()
        doorbell = self._registers.queue.read("doorbell", number)
        if queue.task is not None or queue.hardware_fault or queue.head != doorbell:
            return Status.NO_RESOURCE, {}
        queue.fault = None
        return Status.OK, self.describe(queue)

    def close(self, number: int) -> Status:
        """Begin to destroy a queue; `closed` tells when that has ended."""
        queue = self.find(number)
        if number >= QUEUES:
            return Status.BAD_FIELD
        if queue is None or queue.closing:
            return Status.NO_RESOURCE
        # First the doorbell, so that what there is to account for grows no more.
        self._registers.queue.write_fields("control", number, enable=0)
        self._scheduler.close(queue)
        return Status.OK

    def closed(self, number: int) -> dict[str, int] | None:
        """The last state of a queue that is being destroyed, or None while work is left."""
        queue = self._sram.queues[number]
        assert queue is not None
        if queue.task is not None:
            return None
        hardware = self._registers.queue
        if hardware.fields("state", number)["busy"]:
            return None
        doorbell = hardware.read("doorbell", number)
        self._faults.discard(queue, queue.head, doorbell - queue.head)
        queue.head = doorbell
        self._sram.queues[number] = None
        return self.describe(queue) | {"phase": QueuePhase.ABSENT}

    @staticmethod
    def describe(queue: QueueState) -> dict[str, int]:
        """The fields of a QUEUE response."""
        task, fault = queue.task, queue.fault
        fields: dict[str, int] = {
            "phase": queue.phase,
            "queue": queue.number,
            "opcode": task.packet.opcode if task else 0,
            "completed": queue.completed,
            "discarded": queue.discarded,
            "running": task.packet.index if task else queue.head,
        }
        if fault is not None:
            fields |= {
                "opcode": fault.opcode,
                "pipe": fault.pipe,
                "detail": fault.detail,
                "block": fault.block,
                "status_word": fault.status_word,
                "fault_packet": fault.packet,
                "fault_address": fault.address,
            }
        return fields
