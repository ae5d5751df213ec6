"""Timelines of long runs from those of short ones: what repeats is simulated a few times."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heapreplace
from itertools import cycle, islice

from abi.core import Pipe
from runtime.planner.chip import Chip
from runtime.planner.launch import Launch
from runtime.planner.timeline import PipeTime, Timeline

__all__ = ["ROUNDS", "Kinds", "combined", "estimate_grid", "lengthened"]

Kinds = Callable[[int], Hashable]
"""Tells blocks apart by number: blocks of a kind do the same at different addresses."""

MAIN, OTHERS = 4, 2
"""Blocks that each core simulates, of the kind with the most blocks and of the other ones. In the
second half of them the cores are in step."""

ROUNDS = 48
"""Rounds of a loop that are simulated; caches and queues are in step after the first few."""

Weighted = tuple[float, Timeline]


def combined(*parts: Weighted) -> Timeline:
    """The sum of timelines, each so many times; the longest block is the longest of all."""

    def total(numbers: Iterable[float]) -> int:
        pairs = zip(parts, numbers, strict=True)
        return max(0, round(sum(weight * number for (weight, _), number in pairs)))

    timelines = [timeline for _, timeline in parts]
    core_cycles = total(timeline.core_cycles for timeline in timelines)
    pipes = {}
    for pipe in Pipe:
        times = [timeline.pipes[pipe] for timeline in timelines]
        busy = min(core_cycles, total(time.busy for time in times))
        stall = min(core_cycles - busy, total(time.stall for time in times))
        pipes[pipe] = PipeTime(
            busy=busy,
            stall=stall,
            idle=core_cycles - busy - stall,
            in_work=total(time.in_work for time in times),
            commands=total(time.commands for time in times),
        )
    traffic: Counter[tuple[str, str]] = Counter()
    for key in {key for timeline in timelines for key in timeline.traffic}:
        traffic[key] = total(timeline.traffic[key] for timeline in timelines)
    return Timeline(
        cycles=total(timeline.cycles for timeline in timelines),
        core_cycles=core_cycles,
        pipes=pipes,
        traffic=traffic,
        macs=total(timeline.macs for timeline in timelines),
        operations=total(timeline.operations for timeline in timelines),
        blocks=total(timeline.blocks for timeline in timelines),
        longest_block=max(timeline.longest_block for timeline in timelines),
    )


def lengthened(estimate: Callable[[int], Timeline], rounds: int) -> Timeline:
    """The timeline of `estimate(rounds)`, from two with fewer rounds if there are many."""
    if rounds <= ROUNDS:
        return estimate(rounds)
    few = ROUNDS // 2
    share = (rounds - few) / (ROUNDS - few)
    short, long = estimate(few), estimate(ROUNDS)
    found = combined((1 - share, short), (share, long))
    found.blocks = long.blocks
    found.longest_block = round(
        short.longest_block + share * (long.longest_block - short.longest_block)
    )
    return found


def estimate_grid(launch: Launch, chip: Chip, kinds: Kinds | None = None) -> Timeline:
    """The timeline of a launch, from some blocks of each kind if there are many.

    Args:
        kinds: None: only the last block may differ from the others.

    Raises:
        ValueError: a block fails or does not end.
    """
    if launch.blocks <= 2 * MAIN * chip.cores:
        return launch.estimate(chip)
    last = launch.blocks - 1
    kind_of = kinds or (lambda number: number == last)
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number in range(launch.blocks):
        found[kind_of(number)].append(number)
    parts: list[Weighted] = []
    periods: dict[Hashable, float] = {}
    start = 0.0
    for kind, numbers in sorted(found.items(), key=lambda item: -len(item[1])):
        many = (OTHERS if parts else MAIN) * chip.cores
        few = many // 2
        short, long = _runs(launch, chip, numbers, few, many)
        # A core's cycles from block to block.
        periods[kind] = (long.cycles - short.cycles) / (many - few) * chip.cores
        if not parts:
            start = short.cycles - periods[kind] * few / chip.cores
            parts.append((1, short))
        # What a launch has once is part of the most frequent kind's run.
        share = (len(numbers) - few * (len(parts) == 1)) / (many - few)
        parts += [(-share, short), (share, long)]
    total = combined(*parts)
    free = [start] * chip.cores
    for number in range(launch.blocks):
        heapreplace(free, free[0] + periods[kind_of(number)])
    total.cycles = round(max(free))
    return total


def _runs(
    launch: Launch, chip: Chip, numbers: Sequence[int], few: int, many: int
) -> tuple[Timeline, Timeline]:
    """Runs of so many of the blocks `numbers`; of few blocks, some run several times."""
    spread = numbers[:: max(1, len(numbers) // many)]
    chosen = list(islice(cycle(spread), many))
    return launch.estimate(chip, chosen[:few]), launch.estimate(chip, chosen)
