"""Which kernel gets which core, block by block.

A core that becomes idle goes to the best band that has blocks to issue, in turn inside a band.
While it works for a task it is given that task's next block ahead, unless somebody else is to
have it: a better band at once (then the block that waits is taken back too), a task of the same
band without a core if this one has several, anybody without a core after a quantum. What runs is
never interrupted, so the longest wait is one block; on a chip with a single core two, for now and
then a grant goes to whoever waits longest. Kernels promise blocks of BLOCK_LIMIT cycles. One that
keeps a better band waiting for longer is noted in the trace.
"""

from collections.abc import Iterator
from dataclasses import replace

from abi.status import Engine, Status
from firmware.arbiter import Arbiter
from firmware.config import FirmwareConfig
from firmware.cores import Core, Cores, Report
from firmware.port import FirmwarePort
from firmware.state import DeviceSram, Fault, QueueState, Stage, Task

__all__ = ["GridScheduler"]

LOOKS = 8
"""Times that a block is looked at until it may be called stuck."""


class GridScheduler:
    """Issues the blocks of kernels to cores."""

    def __init__(
        self, port: FirmwarePort, config: FirmwareConfig, sram: DeviceSram, cores: Cores
    ) -> None:
        self._port = port
        self._config = config
        self._sram = sram
        self._cores = cores
        self._arbiter = Arbiter(config.starvation_share)

    # Decisions.

    def step(self) -> QueueState | None:
        """Make one decision; returns the queue whose task got a core or lost a block, or None if
        there is nothing to decide."""
        wanting = [queue for queue in self._sram.live() if self._wants(queue)]
        self._watch(wanting)
        if not wanting:
            return None
        idle = [core for core in self._cores.all if core.idle]
        takers = [queue for queue in wanting if self._may_take(queue, idle)]
        if takers:
            chosen = self._pick(takers)
            # Rather a core that needs no cleaning first.
            return self._give(min(idle, key=lambda core: core.is_foreign(chosen)), chosen)
        for core in self._cores.all:
            queue = core.queue
            if core.has_room and queue in wanting and not self._is_wanted(core, wanting):
                assert queue is not None
                assert queue.task is not None
                self._cores.issue(core, queue, queue.task)
                return queue
        for core in self._cores.all:
            queue = core.queue
            if len(core.blocks) > 1 and not core.stopping and self._is_wanted(core, wanting):
                assert queue is not None
                self._account(core, self._cores.drop(core))
                return queue
        return None

    @staticmethod
    def _wants(queue: QueueState) -> bool:
        task = queue.task
        return (
            task is not None
            and task.grid is not None
            and task.grid.remaining > 0
            and not task.aborted_with
            and not queue.closing
        )

    def _may_take(self, queue: QueueState, idle: list[Core]) -> bool:
        """Whether an idle core helps a queue: one that it may use as it is, or one to clean as
        long as fewer are being cleaned than it has blocks."""
        if any(not core.is_foreign(queue) for core in idle):
            return True
        assert queue.task is not None
        assert queue.task.grid is not None
        scrubs = sum(core.scrubbing for core in self._cores.all)
        return bool(idle) and scrubs < queue.task.grid.remaining

    def _pick(self, wanting: list[QueueState]) -> QueueState:
        self._port.compute(self._config.costs.pick)
        return self._arbiter.pick(wanting)

    def _give(self, core: Core, queue: QueueState) -> QueueState:
        """Give an idle core to a queue's task, or clean it first."""
        task = queue.task
        assert task is not None
        assert task.grid is not None
        if core.is_foreign(queue):
            self._cores.scrub(core)
            self._port.note("scrub", queue=queue.number, core=core.number)
            return queue
        if task.stage is Stage.READY:
            task.stage = Stage.RUNNING
            task.deadline = self._port.now() + task.grid.cycles_left
        self._cores.issue(core, queue, task)
        return queue

    def _is_wanted(self, core: Core, wanting: list[QueueState]) -> bool:
        """Whether somebody else is to have a core that works."""
        holder = core.queue
        assert holder is not None
        assert holder.task is not None
        if any(queue.priority < holder.priority for queue in wanting):
            return True
        waiting = [queue for queue in wanting if not self._cores_of(queue)]
        if not waiting:
            return False
        if self._port.now() - core.since >= self._config.core_quantum:
            return True
        return self._cores_of(holder) > 1 and any(
            queue.priority == holder.priority for queue in waiting
        )

    # Waits.

    def _watch(self, wanting: list[QueueState]) -> None:
        """Keep since when a better band, without a core so far, waits for each core."""
        waiting = [queue.priority for queue in wanting if not self._cores_of(queue)]
        best = min(waiting, default=None)
        for core in self._cores.all:
            holder = core.queue if core.blocks else None
            if holder is None or best is None or best >= holder.priority:
                core.wanted, core.overdue = None, False
            elif core.wanted is None:
                core.wanted = self._port.now()

    def deadline(self) -> int | None:
        """When the next wait for a block becomes too long, or a block is to be looked at."""
        limit = self._config.block_limit
        cores = [core for core in self._cores.all if not core.overdue]
        waits = [core.wanted + limit for core in cores if core.wanted is not None]
        return min([*waits, *map(self._next_look, self._running())], default=None)

    def tick(self) -> None:
        """Note the blocks that keep a better band waiting for too long."""
        for core in self._cores.all:
            if core.wanted is None or core.overdue or not core.blocks:
                continue
            waited = self._port.now() - core.wanted
            if waited >= self._config.block_limit:
                core.overdue = True
                assert core.queue is not None
                assert core.task is not None
                self._port.note(
                    "overdue",
                    queue=core.queue.number,
                    packet=core.task.packet.index,
                    core=core.number,
                    block=core.blocks[0],
                    waited=waited,
                )

    def _running(self) -> list[Core]:
        """The cores with a block that nobody has told to stop."""
        return [core for core in self._cores.all if core.blocks and not core.stopping]

    @staticmethod
    def _next_look(core: Core) -> int:
        assert core.queue is not None
        return core.looked + max(1, core.queue.block_timeout // LOOKS)

    def stuck(self) -> list[Core]:
        """The cores whose block has ended no command for as long as its queue allows."""
        now = self._port.now()
        found = []
        for core in self._running():
            assert core.queue is not None
            if now >= self._next_look(core):
                self._cores.look_for_progress(core)
            if now - core.progress >= core.queue.block_timeout:
                found.append(core)
        return found

    def stop_stuck(self) -> None:
        """Abort the kernels of blocks that have ended no command for too long."""
        for core in self.stuck():
            task = core.task
            assert task is not None
            assert task.grid is not None
            if not task.aborted_with:
                task.grid.stuck = core.number
                self.abort(task, Status.KERNEL_TIMEOUT)

    def _cores_of(self, queue: QueueState) -> int:
        return len(self._cores.working(queue.task)) if queue.task is not None else 0

    # Ends.

    def collect(self) -> Iterator[tuple[QueueState, Fault | None]]:
        """Take what cores have ended; yields the queues whose kernel has, with its fault."""
        for core in self._cores.all:
            report = self._cores.look(core)
            if report.ended or report.returned:
                self._account(core, report)
        for queue in self._sram.live():
            task = queue.task
            if task is not None and task.grid is not None and self._is_over(task):
                yield queue, self._outcome(queue, task)

    def _account(self, core: Core, report: Report) -> None:
        task = core.task
        assert task is not None
        assert task.grid is not None
        grid = task.grid
        grid.in_flight -= report.ended + len(report.returned)
        grid.returned = sorted([*report.returned, *grid.returned])
        if report.fault is not None and grid.fault is None:
            grid.fault = report.fault
            self.abort(task, task.aborted_with or report.fault.status)
        if grid.stopped is None or core.number == grid.stuck:
            grid.stopped = report.stopped or grid.stopped
        if not grid.in_flight and task.stage is Stage.RUNNING and grid.remaining:
            task.stage = Stage.READY
            grid.cycles_left = max(1, task.deadline - self._port.now())

    @staticmethod
    def _is_over(task: Task) -> bool:
        grid = task.grid
        assert grid is not None
        return not grid.in_flight and (bool(task.aborted_with) or not grid.remaining)

    @staticmethod
    def _outcome(queue: QueueState, task: Task) -> Fault | None:
        grid = task.grid
        assert grid is not None
        if grid.fault is not None:
            return grid.fault
        if not grid.remaining:
            return None
        if grid.stopped is not None:
            return replace(grid.stopped, status=task.aborted_with)
        return Fault(
            task.aborted_with,
            Engine.FIRMWARE,
            queue.number,
            queue.number,
            task.packet.index,
            task.packet.opcode,
            block=grid.returned[0] if grid.returned else grid.next,
        )

    def abort(self, task: Task, status: Status) -> None:
        """Stop a task on all its cores; it ends later."""
        task.aborted_with = status
        for core in self._cores.working(task):
            self._cores.abort(core)

    def interrupted(self, queue: QueueState, task: Task) -> Fault | None:
        """The fault of a kernel that has no core at present and is to get none any more; None if
        none of its blocks ever ran."""
        assert task.grid is not None
        if not task.grid.next:
            return None
        task.aborted_with = Status.ABORTED
        return self._outcome(queue, task)
