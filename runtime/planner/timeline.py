"""A simulation of blocks on cores: when each command starts and ends, and who waits for whom.

It follows the hardware's own rules, event by event: queues of four commands in front of the pipes,
two commands in flight in each, flags, barriers, one event of the scoreboard a cycle. What a
command does inside of its pipe is its `Cost`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from abi.address import LINE_BYTES
from abi.core import FLAGS, PIPES, CommandOpcode, Pipe
from runtime.planner.chip import Chip
from runtime.planner.costs import Channel, Cost, command_cost
from runtime.planner.scalar import BlockSteps, InstructionCache
from runtime.toolchain.events import Barrier, Exit, FlagSet, FlagWait, Issue

__all__ = ["BlockSource", "PipeTime", "Timeline", "run_blocks"]

QUEUE_DEPTH = 4
IN_FLIGHT = 2
QUEUE_CYCLES = 2
"""From the issue of a command to its appearance at the head of an empty queue."""

EXIT_CYCLES = 2
"""From the last instruction's event to the end of the block."""

NEXT_BLOCK = 3
"""From the end of a block to the start of the next one that waits."""

BlockSource = Callable[[int, InstructionCache], BlockSteps]
"""Gives the steps of a block by its number in the grid."""


@dataclass
class PipeTime:
    """Cycles of a pipe or the scalar unit over all blocks, as the performance counters have them.

    Attributes:
        busy: it works.
        stall: it holds a command, waiting or in work, and does not work.
        idle: it has none.
        in_work: it has begun a command and not ended it.
        commands: how many it executed; of the scalar unit, instructions.
    """

    busy: int = 0
    stall: int = 0
    idle: int = 0
    in_work: int = 0
    commands: int = 0

    @property
    def total(self) -> int:
        """All cycles."""
        return self.busy + self.stall + self.idle


@dataclass
class Timeline:
    """What a run takes.

    Attributes:
        cycles: from the packet to the end of the last block.
        core_cycles: of blocks, summed up over the cores.
        pipes: cycles of each pipe and the scalar unit; their total is `core_cycles`.
        traffic: bytes by (level, "read" or "write").
        macs: of the Cube, padded to whole tiles. operations: elements of vector commands.
        blocks: how many ran. longest_block: cycles of the longest one.
    """

    cycles: int = 0
    core_cycles: int = 0
    pipes: dict[Pipe, PipeTime] = field(default_factory=lambda: {p: PipeTime() for p in Pipe})
    traffic: Counter[tuple[str, str]] = field(default_factory=Counter)
    macs: int = 0
    operations: int = 0
    blocks: int = 0
    longest_block: int = 0

    @property
    def limiter(self) -> Pipe:
        """The pipe, or the scalar unit, with the most busy cycles."""
        return max(Pipe, key=lambda pipe: self.pipes[pipe].busy)


@dataclass
class _Waiting:
    """A command in a queue, and later in its pipe.

    Attributes:
        begin, end: of its stream: its first cycle, and the one behind its last.
        ended: cycle of its last effect.
    """

    cost: Cost
    wait: int
    give: int
    nop: bool
    visible: int
    begin: int = 0
    end: int = 0
    ended: int = 0


class _PipeState:
    """A pipe during a block."""

    def __init__(self) -> None:
        self.queue: deque[_Waiting] = deque()
        self.in_flight: deque[_Waiting] = deque()
        self.taken_until = 0
        self.ready = 0
        self.stream_end = 0
        self.ended = -1
        self.holding_since = 0
        self.working_since = 0

    def delay(self, command: _Waiting, cycles: int) -> None:
        """The stream of a command in flight takes longer, and what follows it comes later."""
        later = False
        for other in self.in_flight:
            later |= other is command
            if later:
                other.end += cycles
                other.ended += cycles
                if other is not command:
                    other.begin += cycles
        if later:
            self.ready += cycles
            self.stream_end += cycles
            self.ended += cycles

    @property
    def outstanding(self) -> int:
        """Commands that it holds."""
        return len(self.queue) + len(self.in_flight)


class _Channel:
    """Requests to memory: a pipe asks for a line a cycle, if there is one; two at the same time get
    the same share."""

    def __init__(self, lines_per_cycle: float) -> None:
        self._rate = min(1.0, lines_per_cycle)
        # Cycles more for each line of a stream as long as another one runs.
        self._extra = max(0.0, 2 / lines_per_cycle - 1 / self._rate)
        self._active: list[tuple[_PipeState, _Waiting]] = []

    def reserve(self, state: "_PipeState", command: _Waiting) -> int:
        """The cycle behind the last request of a command that begins; streams of others that run
        at the same time become longer too."""
        begin, lines = command.begin, command.cost.lines
        self._active = [user for user in self._active if user[1].end > begin]
        end = begin + round(lines / self._rate)
        for other_state, other in self._active:
            if other_state is state:
                continue
            left = (other.end - max(begin, other.begin)) * self._rate
            delay = round(min(lines, left, other.cost.lines) * self._extra)
            other_state.delay(other, delay)
            end += delay
        self._active.append((state, command))
        return end


class _Core:
    """A core: runs a block at a time."""

    def __init__(self, number: int, chip: Chip) -> None:
        self.number = number
        self.cache = InstructionCache(chip)
        self.start = 0
        self.steps: Iterator[tuple[int, int, object]] = iter(())
        self.event: object = None
        self.pipes: dict[Pipe, _PipeState] = {}
        self.flags = [0] * FLAGS
        self.present = 0
        self.last_event = -1
        self.blocked_on: Pipe | None = None
        self.scalar_waits = False


class _Simulation:
    """Cores, memory and the events that are due."""

    def __init__(self, chip: Chip, blocks: int, source: BlockSource) -> None:
        self.chip = chip
        self.source = source
        self.result = Timeline(blocks=blocks)
        lines = chip.hbm_bytes_per_cycle / LINE_BYTES
        self.channels = {channel: _Channel(lines) for channel in Channel}
        self.events: list[tuple[int, int, int, Callable[[int], None]]] = []
        self.sequence = 0
        self.blocks = iter(range(blocks))
        self.dispatched = chip.launch_cycles - chip.dispatch_cycles
        self.running = 0

    def at(self, time: int, priority: int, action: Callable[[int], None]) -> None:
        """Do something at a time; of the same time, the lowest priority number first."""
        self.sequence += 1
        heappush(self.events, (time, priority, self.sequence, action))

    def run(self) -> Timeline:
        """Run all blocks."""
        for number in range(self.chip.cores):
            core = _Core(number, self.chip)
            self.next_block(core, 0)
        while self.events:
            time, _, _, action = heappop(self.events)
            action(time)
        return self.result

    # Blocks.

    def next_block(self, core: _Core, free: int) -> None:
        """The core is free: it gets the next block, once the firmware has started that."""
        number = next(self.blocks, None)
        if number is None:
            return
        # The firmware starts a block while the core's last one still runs, but not earlier.
        self.dispatched = max(self.dispatched, core.start) + self.chip.dispatch_cycles
        start = max(free, self.dispatched)
        self.at(start, 0, lambda time: self.start_block(core, number, time))

    def start_block(self, core: _Core, number: int, time: int) -> None:
        """A block starts: its flags are 0, its queues empty."""
        self.running += 1
        block = self.source(number, core.cache)
        core.start = time
        core.steps = iter(block.steps)
        core.pipes = {pipe: _PipeState() for pipe in PIPES}
        core.flags, core.present = [0] * FLAGS, 0
        core.last_event = time
        self.result.pipes[Pipe.SCALAR].commands += block.instructions
        self.next_step(core, time + 1)

    def next_step(self, core: _Core, time: int) -> None:
        """The scalar unit goes on until its next event."""
        busy, wait, core.event = next(core.steps)
        self.result.pipes[Pipe.SCALAR].busy += busy + 1
        self.at(time + busy + wait, 1, lambda now: self.scalar_event(core, now))

    def finish_block(self, core: _Core, time: int) -> None:
        """The exit's instruction is done in cycle `time`."""
        self.running -= 1
        end = time + EXIT_CYCLES
        length = end - core.start
        self.result.core_cycles += length
        self.result.longest_block = max(self.result.longest_block, length)
        self.result.cycles = max(self.result.cycles, end)
        scalar = self.result.pipes[Pipe.SCALAR]
        scalar.in_work += length
        scalar.idle += EXIT_CYCLES
        for pipe in PIPES:
            self.result.pipes[pipe].idle += length
        self.next_block(core, end + NEXT_BLOCK)

    # The scalar unit's events.

    def scalar_event(self, core: _Core, time: int) -> None:
        """Try what the scalar unit needs to happen; a change of the core tries again."""
        event = core.event
        core.blocked_on, core.scalar_waits = None, False
        match event:
            case Issue():
                self.issue(core, event, time)
            case FlagWait() | FlagSet():
                if core.last_event == time:
                    self.at(time + 1, 1, lambda now: self.scalar_event(core, now))
                elif isinstance(event, FlagSet) or core.flags[event.flag]:
                    core.last_event = time
                    self.add_flags(core, 1 << event.flag, 1 if isinstance(event, FlagSet) else -1)
                    self.changed(core, time + 1)
                    self.next_step(core, time + 1)
                else:
                    core.scalar_waits = True
            case Barrier() | Exit():
                if any(state.outstanding for state in core.pipes.values()):
                    core.scalar_waits = True
                elif isinstance(event, Exit):
                    self.finish_block(core, time)
                else:
                    self.next_step(core, time + 1)

    def issue(self, core: _Core, event: Issue, time: int) -> None:
        """Queue a command."""
        state = core.pipes[event.pipe]
        if len(state.queue) >= QUEUE_DEPTH:
            core.blocked_on = event.pipe
            return
        if not state.outstanding:
            state.holding_since = time + 1
        cost = command_cost(self.chip, event.command, event.base)
        nop = event.command[0] == CommandOpcode.NOP
        visible = time + QUEUE_CYCLES
        state.queue.append(_Waiting(cost, event.wait, event.set, nop, visible))
        if len(state.queue) == 1:
            self.look(core, event.pipe, visible)
        self.next_step(core, time + 1)

    def changed(self, core: _Core, time: int) -> None:
        """Flags or counts have changed: who waits for that looks again."""
        for pipe, state in core.pipes.items():
            if state.queue and not state.queue[0].wait & ~core.present:
                self.look(core, pipe, max(time, state.queue[0].visible, state.taken_until))
        if core.scalar_waits:
            core.scalar_waits = False
            self.at(time, 1, lambda now: self.scalar_event(core, now))

    # Commands.

    def look(self, core: _Core, pipe: Pipe, time: int) -> None:
        """See at a time whether the head of a pipe's queue may start."""
        self.at(time, 2 + pipe, lambda now: self.try_start(core, pipe, now))

    def try_start(self, core: _Core, pipe: Pipe, time: int) -> None:
        """Start the head of a queue if it may."""
        state = core.pipes[pipe]
        if not state.queue:
            return
        head = state.queue[0]
        limit = 1 if head.nop else IN_FLIGHT
        if time < head.visible or time < state.taken_until or len(state.in_flight) >= limit:
            return
        if head.wait & ~core.present:
            return
        if core.last_event == time:
            self.look(core, pipe, time + 1)
            return
        core.last_event = time
        self.add_flags(core, head.wait, -1)
        if head.nop:
            state.queue.popleft()
            self.add_flags(core, head.give, 1)
            self.left_queue(core, pipe, time)
            self.released(core, pipe, time)
            self.changed(core, time + 1)
            return
        accepted = max(time + 1, state.ready)
        state.taken_until = accepted + 1
        state.in_flight.append(head)
        if len(state.in_flight) == 1:
            state.working_since = accepted
        self.pass_through(state, head, accepted)
        self.at(head.ended + 1, 0, lambda now: self.end(core, pipe, now))
        self.at(accepted, 0, lambda now: self.accept(core, pipe, now))

    def pass_through(self, state: _PipeState, command: _Waiting, accepted: int) -> None:
        """A pipe takes a command."""
        cost = command.cost
        begin = max(accepted + cost.setup, state.stream_end)
        if cost.lead is not None and state.ended >= 0:
            begin = max(begin, state.ended + cost.lead)
        command.begin, end = begin, begin + cost.stream
        if cost.channel is not None:
            end = max(end, self.channels[cost.channel].reserve(state, command))
        ended = max(end - 1 + cost.tail, state.ended + 1)
        ready = max(begin + cost.hold + (end - begin - cost.stream), accepted + 1)
        if cost.ordered:
            ready = max(ready, state.ended + 1)
        if cost.keeps:
            ready = max(ready, ended + 2)
        command.end, command.ended = end, ended
        state.ready, state.stream_end, state.ended = ready, end + cost.gap, ended
        result = self.result
        result.traffic.update(cost.traffic)
        result.macs += cost.macs
        result.operations += cost.operations

    def accept(self, core: _Core, pipe: Pipe, time: int) -> None:
        """The command leaves its queue."""
        core.pipes[pipe].queue.popleft()
        self.left_queue(core, pipe, time)

    def left_queue(self, core: _Core, pipe: Pipe, time: int) -> None:
        """There is room in a queue, and a next head."""
        state = core.pipes[pipe]
        if state.queue:
            self.look(core, pipe, max(time + 1, state.queue[0].visible))
        if core.blocked_on == pipe:
            core.blocked_on = None
            self.at(time + 1, 1, lambda now: self.scalar_event(core, now))

    def end(self, core: _Core, pipe: Pipe, time: int) -> None:
        """The scoreboard takes the end of a command."""
        state = core.pipes[pipe]
        due = state.in_flight[0].ended + 1
        if core.last_event == time or due > time:
            self.at(max(time + 1, due), 0, lambda now: self.end(core, pipe, now))
            return
        core.last_event = time
        ended = state.in_flight.popleft()
        self.add_flags(core, ended.give, 1)
        counted = self.result.pipes[pipe]
        counted.busy += ended.cost.work
        if not state.in_flight:
            counted.in_work += time + 1 - state.working_since
        self.released(core, pipe, time)
        self.changed(core, time + 1)

    def released(self, core: _Core, pipe: Pipe, time: int) -> None:
        """A command has ended: it may have been the pipe's last."""
        state, counted = core.pipes[pipe], self.result.pipes[pipe]
        counted.commands += 1
        if not state.outstanding:
            held = time + 1 - state.holding_since
            counted.stall += held
            counted.idle -= held

    def add_flags(self, core: _Core, mask: int, amount: int) -> None:
        """Take or give one of each flag of a mask."""
        while mask:
            lowest = mask & -mask
            flag = lowest.bit_length() - 1
            core.flags[flag] += amount
            core.present = core.present | lowest if core.flags[flag] else core.present & ~lowest
            mask ^= lowest


def run_blocks(chip: Chip, blocks: int, source: BlockSource) -> Timeline:
    """Run blocks 0 to `blocks` - 1, each on the next core that is free.

    Raises:
        ValueError: a block fails, or waits for a flag for ever.
    """
    simulation = _Simulation(chip, blocks, source)
    result = simulation.run()
    scalar = result.pipes[Pipe.SCALAR]
    if simulation.running:
        raise ValueError("the block must end, not wait for a flag that nothing sets")
    for pipe in PIPES:
        result.pipes[pipe].stall -= result.pipes[pipe].busy
    scalar.stall = result.core_cycles - scalar.busy - scalar.idle
    return result
