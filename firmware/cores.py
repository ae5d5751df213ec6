"""The AI cores: what each one works at, and the registers that tell it to."""

from dataclasses import dataclass, field

from abi.geometry import CORES
from abi.registers_core import CORE_STATE, CoreOperation
from abi.status import Engine, Status
from firmware.config import FirmwareConfig
from firmware.port import FirmwarePort, PortError
from firmware.registers import Registers
from firmware.state import Fault, QueueState, Task

__all__ = ["Core", "Cores", "Report"]

CORE_BLOCKS = 2
"""Blocks that a core holds: one runs, one waits to start behind it."""


@dataclass(eq=False)
class Core:
    """A core as the firmware knows it."""

    number: int
    queue: QueueState | None = None
    """Whose blocks it holds."""

    task: Task | None = None
    """Whose kernel and arguments its registers name."""

    blocks: list[int] = field(default_factory=list)
    """The block that runs, then the next."""

    row: tuple[int, int] | None = None
    """CORE_BLOCK_YZ as last written."""

    pasid: int | None = None
    """Address space whose data its buffers may hold; None: they are clean."""

    scrubbing: bool = False
    stopping: bool = False
    """It was told to abort."""

    since: int = 0
    """When it last went from idle to work."""

    progress: int = 0
    """When its running block was first known to run, or last seen to have ended a command."""

    looked: int = 0
    """When that was last looked at."""

    retired: int = 0
    """CORE_RETIRED as of then."""

    wanted: int | None = None
    """Since when a better band that has no core waits for this one; None: none does."""

    overdue: bool = False
    """The wait has been noted as too long."""

    ended: int = 0
    """CORE_BLOCKS as far as it is accounted for."""

    @property
    def idle(self) -> bool:
        """Whether it does nothing."""
        return not self.blocks and not self.scrubbing

    def is_foreign(self, queue: QueueState) -> bool:
        """Whether its buffers may hold data that a queue's user must not see."""
        return self.pasid is not None and self.pasid != queue.pasid

    @property
    def has_room(self) -> bool:
        """Whether it takes one more block of the task whose blocks it holds."""
        return 0 < len(self.blocks) < CORE_BLOCKS and not self.stopping


@dataclass(frozen=True)
class Report:
    """What became of the blocks of a core."""

    ended: int = 0
    """Blocks that ended."""

    returned: tuple[int, ...] = ()
    """Blocks that never started, or were aborted."""

    fault: Fault | None = None
    """Why they failed."""

    stopped: Fault | None = None
    """What was aborted."""


class Cores:
    """Hands out blocks, takes them back, and tells what became of them."""

    def __init__(self, port: FirmwarePort, registers: Registers, config: FirmwareConfig) -> None:
        self._port = port
        self._registers = registers.core
        self._config = config
        self.all = [Core(number) for number in range(CORES)]

    def boot(self) -> None:
        """Clean the buffers: nobody knows who used them before. The cores must be quiet."""
        for core in self.all:
            core.ended = self._registers.read("blocks", core.number)
            self.scrub(core)

    def working(self, task: Task) -> list[Core]:
        """The cores that hold blocks of a task."""
        return [core for core in self.all if core.blocks and core.task is task]

    def scrub(self, core: Core) -> None:
        """Clean the buffers of an idle core; it is not idle until that is done."""
        self._registers.write_fields("start", core.number, operation=CoreOperation.SCRUB)
        core.scrubbing = True

    def issue(self, core: Core, queue: QueueState, task: Task) -> None:
        """Hand the next block of a task to a core that is idle or has room."""
        grid = task.grid
        assert grid is not None
        if not core.blocks:
            core.since = core.progress = core.looked = self._port.now()
        if core.task is not task:
            self._load(core, queue, task)
        self._port.compute(self._config.costs.block)
        block = grid.take()
        x, y, z = grid.place(block)
        if core.row != (y, z):
            self._registers.write_fields("block_yz", core.number, y=y, z=z)
            core.row = (y, z)
        try:
            self._registers.write_fields(
                "start", core.number, operation=CoreOperation.START, block_x=x
            )
        except PortError:
            # The block that runs has just failed: the core takes no more, and tells soon.
            if not core.blocks:
                raise
            grid.returned.insert(0, block)
            core.stopping = True
            return
        grid.in_flight += 1
        core.blocks.append(block)
        self._port.note(
            "block", queue=queue.number, packet=task.packet.index, core=core.number, block=block
        )

    def _load(self, core: Core, queue: QueueState, task: Task) -> None:
        """Name a task's kernel and arguments to a core. Even if it is the kernel that ran last:
        its code may have changed, and this empties the instruction cache."""
        registers, number, fields = self._registers, core.number, task.packet.fields
        self._port.compute(self._config.costs.dispatch)
        registers.write("code", fields["code"], number)
        registers.write_fields(
            "sizes",
            number,
            code_bytes=fields["code_bytes"],
            argument_bytes=fields["argument_bytes"],
        )
        if fields["argument_bytes"]:
            registers.write("arguments", fields["arguments"], number)
        registers.write_fields(
            "grid", number, x=fields["grid_x"], y=fields["grid_y"], z=fields["grid_z"]
        )
        registers.write_fields("entry", number, offset=fields["entry"])
        core.queue, core.task, core.pasid = queue, task, queue.pasid
        self._port.note(
            "dispatch",
            queue=queue.number,
            packet=task.packet.index,
            engine=Engine.CORE,
            instance=number,
        )

    def abort(self, core: Core) -> None:
        """End what a core runs, drop what it would run next; it tells later."""
        if core.blocks and not core.stopping:
            core.stopping = True
            self._registers.write_fields("start", core.number, operation=CoreOperation.ABORT)

    def look(self, core: Core) -> Report:
        """What has become of a core's blocks since the last look."""
        if core.idle:
            return Report()
        state = CORE_STATE.unpack(self._registers.read("state", core.number))
        if core.scrubbing:
            if not state["busy"]:
                core.scrubbing, core.pasid = False, None
            return Report()
        if not state["status"] and not core.stopping:
            # Right behind a START both bits are 1 although it is the only block.
            return self._take(core, max(0, len(core.blocks) - state["busy"] - state["pending"]))
        if state["busy"]:
            return Report()
        # It failed or was told to abort, and has drained.
        blocks, aborted = tuple(core.blocks), core.stopping
        core.blocks.clear()
        core.stopping = False
        core.ended = self._registers.read("blocks", core.number)
        status = Status(state["status"])
        if status:
            fault = self._fault(core, state)
            if aborted and status is Status.ABORTED:
                return Report(returned=blocks, stopped=fault)
            return Report(returned=blocks, fault=fault)
        if len(blocks) == 1:
            return Report(ended=1)
        return Report(returned=blocks)

    def _take(self, core: Core, count: int) -> Report:
        del core.blocks[:count]
        core.ended += count
        if count:
            core.progress = core.looked = self._port.now()
        return Report(ended=count)

    def _fault(self, core: Core, state: dict[str, int]) -> Fault:
        queue, task = core.queue, core.task
        assert queue is not None
        assert task is not None
        assert task.grid is not None
        block = self._registers.fields("fault_block", core.number)
        return Fault(
            status=Status(state["status"]),
            engine=Engine.CORE,
            instance=core.number,
            queue=queue.number,
            packet=task.packet.index,
            opcode=task.packet.opcode,
            address=self._registers.read("fault_address", core.number),
            pipe=state["pipe"],
            detail=state["pc"],
            block=task.grid.number(block["x"], block["y"], block["z"]),
        )

    def look_for_progress(self, core: Core) -> None:
        """Note whether a command has ended on a core since the last look."""
        core.looked = self._port.now()
        retired = self._registers.read("retired", core.number)
        if retired != core.retired:
            core.retired, core.progress = retired, core.looked

    def drop(self, core: Core) -> Report:
        """Take the next block back from a core, unless it has started meanwhile."""
        assert len(core.blocks) == CORE_BLOCKS
        self._registers.write_fields("start", core.number, operation=CoreOperation.DROP)
        if self._registers.read("blocks", core.number) == core.ended:
            # The first had not ended even now, so the next had not started when it was dropped.
            return Report(returned=(core.blocks.pop(),))
        state = CORE_STATE.unpack(self._registers.read("state", core.number))
        if state["status"]:
            return self.look(core)
        if state["busy"]:
            return self._take(core, 1)
        ended = self._registers.read("blocks", core.number) - core.ended
        returned = tuple(core.blocks[ended:])
        del core.blocks[ended:]
        self._take(core, ended)
        return Report(ended=ended, returned=returned)
