"""Device SRAM: what the firmware knows, and what of it survives a crash.

`DeviceSram` belongs to the chip, not to one run of the program: whoever restarts the firmware
without losing power hands the same object to it again. Local variables of the program are lost.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from abi.geometry import QUEUES
from abi.mailbox import QueuePhase
from abi.packet import PacketOpcode
from abi.semaphore import STATUS_WORD
from abi.status import Engine, Status

__all__ = [
    "CrashRecord",
    "DeviceSram",
    "Fault",
    "Grid",
    "Packet",
    "QueueState",
    "Resource",
    "Stage",
    "Task",
]


class Resource(Enum):
    """What a packet needs; packets contend for it."""

    COMPLETION = auto()
    CORE = auto()
    DMA = auto()
    PROCESSOR = auto()
    """The device CPU itself: reading and checking the next packet."""


class Stage(Enum):
    """How far a task is."""

    READY = auto()
    """Checked; waits for its resource."""

    RUNNING = auto()
    """On an engine; a kernel: on at least one core."""

    SLEEPING = auto()
    """A WAIT whose semaphore has not reached its value."""


@dataclass(frozen=True)
class Packet:
    """A packet that passed all checks. `index` is its ring index, 64 bits, never wrapping."""

    index: int
    opcode: PacketOpcode
    fields: dict[str, int]


@dataclass
class Grid:
    """The blocks of a kernel, by their numbers: x + `x` * (y + `y` * z)."""

    x: int
    y: int
    z: int
    cycles_left: int
    """Time that it may still have cores for, as of when it lost its last one."""

    next: int = 0
    """First block that was never issued."""

    returned: list[int] = field(default_factory=list)
    """Blocks that were taken back from a core; they are issued again first."""

    in_flight: int = 0
    """Blocks on cores."""

    fault: "Fault | None" = None
    """The first failure of a block."""

    stopped: "Fault | None" = None
    """A block that was aborted: the first, or the one that was stuck."""

    stuck: int | None = None
    """The core whose block ended no command for too long."""

    @property
    def total(self) -> int:
        """Number of blocks."""
        return self.x * self.y * self.z

    @property
    def remaining(self) -> int:
        """Blocks that are left to issue."""
        return len(self.returned) + self.total - self.next

    def take(self) -> int:
        """The block to issue next."""
        if self.returned:
            return self.returned.pop(0)
        self.next += 1
        return self.next - 1

    def place(self, block: int) -> tuple[int, int, int]:
        """Coordinates of a block."""
        row, x = divmod(block, self.x)
        z, y = divmod(row, self.y)
        return x, y, z

    def number(self, x: int, y: int, z: int) -> int:
        """Number of the block at these coordinates."""
        return x + self.x * (y + self.y * z)


@dataclass(eq=False)
class Task:
    """The packet that a queue works at. Times are device cycles."""

    packet: Packet
    resource: Resource
    stage: Stage = Stage.READY
    instance: int = 0
    deadline: int = 0
    recheck: int = 0
    aborted_with: Status = Status.OK
    """Why the engine was told to abort; OK: it was not."""

    grid: Grid | None = None
    """The blocks of a KERNEL."""


@dataclass(frozen=True)
class Fault:
    """A failure of a packet, or of a queue's hardware."""

    status: Status
    engine: Engine
    instance: int
    queue: int
    packet: int
    opcode: int = 0
    address: int = 0
    pipe: int = 0
    detail: int = 0
    """PC of a core, else index of the failed descriptor."""

    block: int = 0
    """Number of the block in its grid."""

    @property
    def status_word(self) -> int:
        """As semaphores carry it."""
        return STATUS_WORD.pack(
            status=self.status,
            engine=self.engine,
            instance=self.instance,
            queue=self.queue,
            packet=self.packet & 0xFFFF_FFFF,
        )


@dataclass(eq=False)
class QueueState:
    """A queue that exists. `head` is the ring index of the next packet to take; `fetched` is
    what is known of QUEUE_FETCHED, `released` was last written to QUEUE_CONSUMED."""

    number: int
    priority: int
    vector: int
    pasid: int
    task_timeout: int
    block_timeout: int
    head: int = 0
    fetched: int = 0
    released: int = 0
    look: bool = False
    """More packets may have arrived than `fetched` says."""

    since: int = 0
    """Serial number of the moment from which it waits for its next grant."""

    task: Task | None = None
    fault: Fault | None = None
    hardware_fault: bool = False
    closing: bool = False
    completed: int = 0
    discarded: int = 0

    @property
    def phase(self) -> QueuePhase:
        """As the mailbox shows it."""
        if self.fault is not None:
            return QueuePhase.FAULTED
        if self.task is None:
            return QueuePhase.RUNNING if self.head < self.fetched else QueuePhase.IDLE
        if self.task.packet.opcode is PacketOpcode.WAIT:
            return QueuePhase.WAITING
        return QueuePhase.RUNNING


@dataclass(frozen=True)
class CrashRecord:
    """What the firmware was at when it crashed."""

    time: int
    error: str
    queues: int
    """Mask of the queues that existed."""


@dataclass
class DeviceSram:
    """Survives a crash of the firmware: the count of boots, the last crash, the queue table as it
    stood (kept for a debugger until the next boot clears it)."""

    boots: int = 0
    crash: CrashRecord | None = None
    queues: list[QueueState | None] = field(default_factory=lambda: [None] * QUEUES)

    def live(self) -> list[QueueState]:
        """The queues that exist."""
        return [queue for queue in self.queues if queue is not None]
