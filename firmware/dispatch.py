"""DMA channels and the completion unit, and who works on them."""

from collections.abc import Iterator
from dataclasses import dataclass

from abi.geometry import DMA_CHANNELS
from abi.packet import PacketOpcode
from abi.registers_dma import DMA_STATE, DmaStart
from abi.registers_firmware import CompletionOperation
from abi.status import Engine, Status
from firmware.port import FirmwarePort
from firmware.registers import Registers
from firmware.state import QueueState, Resource, Stage, Task

__all__ = ["Engines", "Outcome"]

DMA_START = {
    PacketOpcode.COPY: DmaStart.COPY,
    PacketOpcode.FILL: DmaStart.FILL,
    PacketOpcode.CHAIN: DmaStart.CHAIN,
}
COUNTS = {Resource.DMA: DMA_CHANNELS, Resource.COMPLETION: 1}
ENGINES = {Resource.DMA: Engine.DMA, Resource.COMPLETION: Engine.COMPLETION}


@dataclass(frozen=True)
class Outcome:
    """How an engine ended a task of `queue`. For a LOAD, `value` and `semaphore_status` are what
    the semaphore held."""

    queue: QueueState
    status: Status
    engine: Engine
    instance: int
    address: int = 0
    detail: int = 0
    value: int = 0
    semaphore_status: int = 0


class Engines:
    """Starts, ends and aborts work. Each instance of an engine works for one queue at a time."""

    def __init__(self, port: FirmwarePort, registers: Registers) -> None:
        self._port = port
        self._registers = registers
        self._workers: dict[Resource, list[QueueState | None]] = {
            resource: [None] * count for resource, count in COUNTS.items()
        }

    def free(self, resource: Resource) -> bool:
        """Whether an instance is free."""
        return None in self._workers[resource]

    def start(self, queue: QueueState, task: Task) -> None:
        """Hand the task of a queue to a free instance."""
        workers = self._workers[task.resource]
        task.instance = workers.index(None)
        task.stage = Stage.RUNNING
        match task.resource:
            case Resource.DMA:
                self._start_dma(task)
            case _:
                self._start_completion(queue, task)
        workers[task.instance] = queue
        self._port.note(
            "dispatch",
            queue=queue.number,
            packet=task.packet.index,
            engine=ENGINES[task.resource],
            instance=task.instance,
        )

    def _start_dma(self, task: Task) -> None:
        dma, channel, fields = self._registers.dma, task.instance, task.packet.fields
        if task.packet.opcode is PacketOpcode.CHAIN:
            dma.write("source", fields["descriptor"], channel)
        else:
            if task.packet.opcode is PacketOpcode.COPY:
                dma.write("source", fields["source"], channel)
            else:
                dma.write("pattern", fields["pattern"], channel)
            dma.write("destination", fields["destination"], channel)
            dma.write_fields("size", channel, row_bytes=fields["row_bytes"], rows=fields["rows"])
            if fields["rows"] > 1:
                dma.write_fields(
                    "stride",
                    channel,
                    source=fields.get("source_stride", 0),
                    destination=fields["destination_stride"],
                )
        dma.write_fields("start", channel, kind=DMA_START[task.packet.opcode])

    def _start_completion(self, queue: QueueState, task: Task) -> None:
        completion, fields = self._registers.completion, task.packet.fields
        completion.write("address", fields["semaphore"])
        if task.packet.opcode is PacketOpcode.WAIT:
            completion.write_fields("start", operation=CompletionOperation.LOAD)
            return
        completion.write("value", fields["value"])
        completion.write("status", queue.fault.status_word if queue.fault else 0)
        completion.write_fields(
            "start",
            operation=CompletionOperation.SIGNAL,
            interrupt=fields["interrupt"],
            vector=queue.vector,
        )

    def abort(self, task: Task, status: Status) -> None:
        """Tell the engine of a running task to stop; it ends later, with ABORTED."""
        task.aborted_with = status
        match task.resource:
            case Resource.DMA:
                self._registers.dma.write_fields("start", task.instance, kind=DmaStart.ABORT)
            case _:
                raise AssertionError("the completion unit has no abort")

    def ended(self, resource: Resource) -> Iterator[Outcome]:
        """Look at the working instances of an engine and take those that are done."""
        workers = self._workers[resource]
        working = [i for i, queue in enumerate(workers) if queue is not None]
        if not working:
            return
        if len(working) > 1:
            busy = self._registers.dma.read("busy")
            working = [i for i in working if not busy >> i & 1]
        for instance in working:
            queue = workers[instance]
            assert queue is not None
            match resource:
                case Resource.DMA:
                    outcome = self._dma_outcome(queue, instance)
                case _:
                    outcome = self._completion_outcome(queue)
            if outcome is not None:
                workers[instance] = None
                yield outcome

    def _dma_outcome(self, queue: QueueState, channel: int) -> Outcome | None:
        state = DMA_STATE.unpack(self._registers.dma.read("state", channel))
        if state["busy"]:
            return None
        status = Status(state["status"])
        if not status:
            return Outcome(queue, status, Engine.DMA, channel)
        address = self._registers.dma.read("fault_address", channel)
        return Outcome(queue, status, Engine.DMA, channel, address, detail=state["descriptor"])

    def _completion_outcome(self, queue: QueueState) -> Outcome | None:
        completion, task = self._registers.completion, queue.task
        state = completion.fields("state")
        if state["busy"] or task is None:
            return None
        status = Status(state["status"])
        address = task.packet.fields["semaphore"] if status else 0
        if status or task.packet.opcode is PacketOpcode.SIGNAL:
            return Outcome(queue, status, Engine.COMPLETION, 0, address)
        return Outcome(
            queue,
            status,
            Engine.COMPLETION,
            0,
            value=completion.read("loaded_value"),
            semaphore_status=completion.read("loaded_status"),
        )
