"""Which queue gets what, and when: one packet of a queue at a time, many queues in parallel."""

from abi.mailbox import FirmwareTask
from abi.packet import PacketOpcode
from abi.status import Engine, Status
from firmware.arbiter import Arbiter
from firmware.config import FirmwareConfig
from firmware.dispatch import Engines, Outcome
from firmware.faults import FaultKeeper
from firmware.grids import GridScheduler
from firmware.heartbeat import StatusBoard
from firmware.packets import RESOURCE_OF, PacketError, read_packet
from firmware.port import FirmwarePort
from firmware.registers import EVENT, Registers
from firmware.state import DeviceSram, Fault, Grid, Packet, QueueState, Resource, Stage, Task

__all__ = ["Scheduler"]

RELEASE_SLOTS = 4
"""Consumed packets are reported in groups of this many, or when SRAM holds no more."""

ENGINE_EVENTS = (
    (EVENT["completion"], Resource.COMPLETION),
    (EVENT["dma"], Resource.DMA),
    (EVENT["core"], Resource.CORE),
)


class Scheduler:
    """Takes packets, hands them to engines and finishes them."""

    def __init__(
        self,
        port: FirmwarePort,
        registers: Registers,
        config: FirmwareConfig,
        sram: DeviceSram,
        engines: Engines,
        grids: GridScheduler,
        faults: FaultKeeper,
        board: StatusBoard,
    ) -> None:
        self._port = port
        self._registers = registers
        self._config = config
        self._sram = sram
        self._engines = engines
        self._grids = grids
        self._faults = faults
        self._board = board
        self._arbiters = {resource: Arbiter(config.starvation_share) for resource in Resource}
        self._serial = 0

    # Events.

    def look(self, events: int) -> None:
        """Look at every source that `events` names."""
        for mask, resource in ENGINE_EVENTS:
            if events & mask:
                self.collect(resource)
        if events & EVENT["queue_fault"]:
            self.look_for_faults()
        if events & EVENT["fetched"]:
            available = self._registers.queue.read("available")
            for queue in self._sram.live():
                if available >> queue.number & 1 and not queue.look:
                    queue.look = True
                    self._join(queue)

    def look_for_faults(self) -> None:
        """Record the faults of queues' hardware."""
        faulted = self._registers.queue.read("faulted")
        for queue in self._sram.live():
            if faulted >> queue.number & 1 and not queue.hardware_fault and not queue.closing:
                self._board.work(FirmwareTask.HANDLING_FAULT, queue.number)
                state = self._registers.queue.read("state", queue.number)
                packet = self._registers.queue.read("fetched", queue.number)
                self._faults.hardware(queue, state, packet)

    def collect(self, resource: Resource) -> None:
        """Take what an engine has ended."""
        if resource is Resource.CORE:
            for queue, fault in self._grids.collect():
                self._end_kernel(queue, fault)
            return
        for outcome in self._engines.ended(resource):
            self._end(outcome)

    def _join(self, queue: QueueState) -> None:
        self._serial += 1
        queue.since = self._serial

    # Decisions.

    def step(self) -> bool:
        """Make one decision; returns False if there is nothing to decide."""
        live = self._sram.live()
        for _, resource in ENGINE_EVENTS:
            if resource is Resource.CORE:
                if self._issue():
                    return True
                continue
            ready = [
                queue
                for queue in live
                if queue.task is not None
                and queue.task.stage is Stage.READY
                and queue.task.resource is resource
            ]
            if ready and self._engines.free(resource):
                self._dispatch(self._pick(resource, ready))
                return True
        takers = [
            queue
            for queue in live
            if queue.task is None
            and not queue.closing
            and (queue.look or queue.head < queue.fetched)
        ]
        if not takers:
            return False
        self._take(self._pick(Resource.PROCESSOR, takers))
        return True

    def _issue(self) -> bool:
        """Let the cores' scheduler make a decision; returns whether there was one to make."""
        queue = self._grids.step()
        if queue is None:
            return False
        task = queue.task
        if task is not None:
            self._board.work(FirmwareTask.DISPATCHING, queue.number, task.packet.index)
        self._join(queue)
        return True

    def _pick(self, resource: Resource, candidates: list[QueueState]) -> QueueState:
        self._port.compute(self._config.costs.pick)
        return self._arbiters[resource].pick(candidates)

    def _dispatch(self, queue: QueueState) -> None:
        task = queue.task
        assert task is not None
        self._board.work(FirmwareTask.DISPATCHING, queue.number, task.packet.index)
        self._port.compute(self._config.costs.dispatch)
        self._engines.start(queue, task)
        if task.packet.opcode is not PacketOpcode.WAIT:
            task.deadline = self._port.now() + self._cap(queue, task.packet)

    @staticmethod
    def _cap(queue: QueueState, packet: Packet) -> int:
        own = packet.fields.get("timeout", 0)
        return min(own, queue.task_timeout) if own else queue.task_timeout

    def _take(self, queue: QueueState) -> None:
        number = queue.number
        if queue.head == queue.fetched:
            queue.look = False
            queue.fetched = self._registers.queue.read("fetched", number)
            if queue.head == queue.fetched:
                return
        self._board.work(FirmwareTask.SCHEDULING, number, queue.head)
        index = queue.head
        packet, error = self._read(queue, index)
        self._port.compute(self._config.costs.check)
        queue.head += 1
        if queue.head == queue.fetched or queue.head - queue.released >= RELEASE_SLOTS:
            queue.released = queue.head
            self._registers.queue.write("consumed", queue.head, number)
        if error is not None and queue.fault is None:
            self._port.note("begin", queue=number, packet=index, opcode=error.opcode)
            self._faults.refuse(queue, index, error.status, error.opcode)
            self._finish(queue, index, error.status)
            return
        if packet is None:
            self._faults.discard(queue, index)
            self._join(queue)
            return
        self._port.note("begin", queue=number, packet=index, opcode=packet.opcode)
        if packet.opcode is PacketOpcode.NOP:
            self._finish(queue, index, Status.OK)
        else:
            task = Task(packet, RESOURCE_OF[packet.opcode])
            task.deadline = self._port.now() + self._cap(queue, packet)
            if packet.opcode is PacketOpcode.KERNEL:
                x, y, z = (packet.fields[f"grid_{axis}"] for axis in "xyz")
                task.grid = Grid(x, y, z, self._cap(queue, packet))
            queue.task = task
            self._join(queue)

    def _read(self, queue: QueueState, index: int) -> tuple[Packet | None, PacketError | None]:
        """The packet, or why it is refused, or neither if a poisoned queue skips it."""
        only = None if queue.fault is None else PacketOpcode.SIGNAL
        try:
            packet = read_packet(
                lambda word: self._registers.packet_word(queue.number, index, word),
                index,
                only=only,
            )
        except PacketError as error:
            return None, error
        return packet, None

    # Ends.

    def _end(self, outcome: Outcome) -> None:
        queue, task = outcome.queue, outcome.queue.task
        assert task is not None
        self._port.compute(self._config.costs.complete)
        packet, status = task.packet, outcome.status
        if status is Status.ABORTED and task.aborted_with:
            status = task.aborted_with
        if status:
            self._fail(queue, task, self._fault(queue, task, outcome, status))
        elif packet.opcode is PacketOpcode.WAIT:
            self._end_load(queue, task, outcome)
        else:
            queue.task = None
            self._finish(queue, packet.index, Status.OK)
            if packet.opcode is PacketOpcode.SIGNAL:
                self._wake(packet.fields["semaphore"])

    def _end_kernel(self, queue: QueueState, fault: Fault | None) -> None:
        task = queue.task
        assert task is not None
        self._port.compute(self._config.costs.complete)
        if fault is not None:
            self._fail(queue, task, fault)
        else:
            queue.task = None
            self._finish(queue, task.packet.index, Status.OK)

    @staticmethod
    def _fault(queue: QueueState, task: Task, outcome: Outcome, status: Status) -> Fault:
        return Fault(
            status,
            outcome.engine,
            outcome.instance,
            queue.number,
            task.packet.index,
            task.packet.opcode,
            outcome.address,
            detail=outcome.detail,
        )

    def _fail(self, queue: QueueState, task: Task, fault: Fault) -> None:
        self._board.work(FirmwareTask.HANDLING_FAULT, queue.number, task.packet.index)
        self._faults.record(queue, fault)
        queue.task = None
        self._finish(queue, task.packet.index, fault.status)

    def _end_load(self, queue: QueueState, task: Task, outcome: Outcome) -> None:
        fields, now = task.packet.fields, self._port.now()
        status = Status.OK
        if outcome.semaphore_status:
            status = Status.DEPENDENCY_FAILED
        elif outcome.value >= fields["value"]:
            queue.task = None
            self._finish(queue, task.packet.index, Status.OK)
            return
        elif now >= task.deadline:
            status = Status.WAIT_TIMEOUT
        if status or queue.closing:
            own = Outcome(queue, status, Engine.FIRMWARE, queue.number, fields["semaphore"])
            status = status or Status.ABORTED
            self._fail(queue, task, self._fault(queue, task, own, status))
            return
        if not task.recheck:
            self._port.note("sleep", queue=queue.number, packet=task.packet.index)
        task.stage = Stage.SLEEPING
        task.recheck = min(now + self._config.wait_recheck, task.deadline)

    def _wake(self, semaphore: int) -> None:
        """A semaphore was signalled: who waits for it looks again."""
        for queue in self._sram.live():
            task = queue.task
            if (
                task is not None
                and task.stage is Stage.SLEEPING
                and task.packet.fields["semaphore"] == semaphore
            ):
                task.stage = Stage.READY
                self._join(queue)

    def _finish(self, queue: QueueState, index: int, status: Status) -> None:
        queue.completed += 1
        self._join(queue)
        self._port.note("end", queue=queue.number, packet=index, status=status)

    # Time.

    def deadline(self) -> int | None:
        """When the next task wants to be looked at, if any does."""
        overdue = self._grids.deadline()
        times = [] if overdue is None else [overdue]
        for queue in self._sram.live():
            task = queue.task
            if task is None:
                continue
            if task.stage is Stage.SLEEPING:
                times.append(task.recheck)
            elif (
                task.stage is Stage.RUNNING
                and task.resource is not Resource.COMPLETION
                and not task.aborted_with
            ):
                times.append(task.deadline)
        return min(times, default=None)

    def tick(self) -> None:
        """Re-check waits that are due, abort tasks that are over their time and blocks
        that are stuck, note blocks that keep others waiting for too long."""
        self._grids.tick()
        if self._grids.stuck():
            # Whoever just made it in time is not aborted.
            self.collect(Resource.CORE)
            self._grids.stop_stuck()
        now = self._port.now()
        for queue in self._sram.live():
            task = queue.task
            if task is None:
                continue
            if task.stage is Stage.SLEEPING and now >= task.recheck:
                task.stage = Stage.READY
                self._join(queue)
            elif (
                task.stage is Stage.RUNNING
                and task.resource is not Resource.COMPLETION
                and not task.aborted_with
                and now >= task.deadline
            ):
                # Whoever just made it in time is not aborted.
                self.collect(task.resource)
                if queue.task is task:
                    self._abort(task, Status.KERNEL_TIMEOUT)

    def _abort(self, task: Task, status: Status) -> None:
        if task.grid is not None:
            self._grids.abort(task, status)
        else:
            self._engines.abort(task, status)

    def close(self, queue: QueueState) -> None:
        """Begin to end a queue: abort what runs, drop what waits."""
        queue.closing = True
        task = queue.task
        if task is None:
            return
        if task.stage is not Stage.RUNNING:
            fault = self._grids.interrupted(queue, task) if task.grid is not None else None
            if fault is not None:
                self._fail(queue, task, fault)
                return
            self._faults.discard(queue, task.packet.index)
            queue.task = None
        elif task.resource is not Resource.COMPLETION and not task.aborted_with:
            self._abort(task, Status.ABORTED)
