"""A plan as text: a table of the pipes, of the bytes, a roofline, and what to change."""

from dataclasses import dataclass
from math import log2

from abi.address import LINE_BYTES
from abi.core import BLOCK_LIMIT, Pipe
from runtime.planner.operators import OperatorPlan
from runtime.planner.timeline import Timeline

__all__ = ["diagnosis", "plan_record", "report", "roofline"]

BUSY_SHARE = 0.6
"""A pipe that works for so much of the time is what limits."""

ADVICE = {
    Pipe.MTE2: "read less: larger tiles use each byte more often, smaller types are fewer bytes, "
    "and rows that begin at whole lines of 64 bytes need none twice",
    Pipe.MTE1: "move less from L1: larger tiles use each line in L0 more often, and operands that "
    "are stored as the Cube wants them need no transposing",
    Pipe.CUBE: "nothing but the Cube is left to save: tiles of at least 16 rows and sizes that are "
    "multiples of 16 waste none of its products, and int8 does more of them than bfloat16",
    Pipe.FIXPIPE: "write less: int8 or bfloat16 results, or a longer k for each result",
    Pipe.VECTOR: "fewer or longer vector commands: each costs 8 cycles besides its lines of 16 "
    "elements, a reduction 7 for each row, and narrow rows leave lanes empty",
    Pipe.MTE3: "write less: smaller types, and rows that begin at whole lines",
    Pipe.SCALAR: "fewer instructions for the same work: larger tiles, fewer and longer commands",
}

LATENCY_ADVICE = (
    "nothing is busy for long: commands wait for each other. Give it more work, so that start and "
    "end count less, or tiles small enough that two fit and one loads while the other is worked at"
)

LEVELS = ("GM", "L1", "L0A", "L0B", "L0C", "bias", "UB")

PORTS = {"UB": 4}
"""Ports of a buffer in each direction, if more than one: UB has a bank for each."""

WIDTH, HEIGHT = 60, 14
"""Characters of the roofline picture."""


@dataclass(frozen=True)
class Diagnosis:
    """What limits an operator, and what to change.

    Attributes:
        limiter: the pipe with the most busy cycles.
        share: its busy cycles over all.
        advice: in words.
    """

    limiter: Pipe
    share: float
    advice: str


def diagnosis(timeline: Timeline) -> Diagnosis:
    """Find the limiting pipe."""
    limiter = timeline.limiter
    share = timeline.pipes[limiter].busy / max(1, timeline.core_cycles)
    work = timeline.pipes[limiter].in_work / max(1, timeline.core_cycles)
    limits = share >= BUSY_SHARE or work >= 1.5 * BUSY_SHARE
    return Diagnosis(limiter, share, ADVICE[limiter] if limits else LATENCY_ADVICE)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:5.1f} %" if whole else "    - "


def _beyond(timeline: Timeline) -> str:
    """What a block means for those who wait for its core, if it is too long."""
    if timeline.longest_block <= BLOCK_LIMIT:
        return ""
    return f", beyond the limit of {BLOCK_LIMIT:,}: more urgent kernels may wait so long for a core"


def report(plan: OperatorPlan) -> str:
    """The whole plan, some 50 lines."""
    timeline, chip = plan.timeline, plan.chip
    rate = plan.operations / max(1, timeline.cycles)
    kind = "MACs" if plan.unit != "vector unit" else "vector operations"
    cores = "core" if chip.cores == 1 else "cores"
    lines = [
        f"{plan.name} on {chip.cores} {cores}",
        f"  {plan.tiling}",
        f"  {timeline.cycles:,} cycles from launch to end, {timeline.core_cycles:,} on cores; "
        f"{rate:.1f} {kind} a cycle, {_percent(rate, plan.peak).strip()} of the {plan.unit}'s peak",
        f"  longest block: {timeline.longest_block:,} cycles{_beyond(timeline)}",
        "",
        f"{'pipe':8} {'commands':>9} {'busy':>10} {'':>8} {'stall':>10} {'idle':>10}",
    ]
    found = diagnosis(timeline)
    for pipe, times in timeline.pipes.items():
        if not times.commands:
            continue
        mark = "  <- limits" if pipe is found.limiter else ""
        lines.append(
            f"{pipe.name:8} {times.commands:>9,} {times.busy:>10,} "
            f"{_percent(times.busy, times.total):>8} {times.stall:>10,} {times.idle:>10,}{mark}"
        )
    lines += ["", f"{'level':8} {'read':>12} {'written':>12} {'bytes; of its ports':>26}"]
    for level in LEVELS:
        read, written = timeline.traffic[level, "read"], timeline.traffic[level, "write"]
        if read or written:
            capacity = LINE_BYTES * PORTS.get(level, 1) * timeline.core_cycles
            used = f"{_percent(read, capacity)} {_percent(written, capacity)}"
            lines.append(f"{level:8} {read:>12,} {written:>12,} {used:>26}")
    lines += ["", *roofline(plan).splitlines(), ""]
    lines.append(
        f"Limit: {found.limiter.name}, busy {_percent(found.share, 1).strip()} of the time."
    )
    lines.append(f"To change: {found.advice}.")
    return "\n".join(lines)


def roofline(plan: OperatorPlan) -> str:
    """Operations a cycle over operations for each byte of memory, both logarithmic, as a picture:
    the roofs, and the operator as `O`."""
    chip = plan.chip
    roofs = {
        "int8 Cube": chip.int8_macs * chip.cores,
        "bf16 Cube": chip.bf16_macs * chip.cores,
        "vector unit": chip.vector_operations * chip.cores,
    }
    bandwidth = chip.hbm_bytes_per_cycle
    point = plan.operations / max(1, plan.timeline.cycles)
    low_x = min(-6, int(log2(max(plan.intensity, 1e-6))) - 1)
    high_x = max(9, int(log2(max(plan.intensity, 1e-6))) + 2)
    high_y = log2(max(roofs.values())) + 1
    low_y = min(0.0, log2(max(point, 1e-3)) - 1)

    def column(x: float) -> int:
        return round((x - low_x) / (high_x - low_x) * (WIDTH - 1))

    def row(y: float) -> int:
        return round((high_y - y) / (high_y - low_y) * (HEIGHT - 1))

    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    for at in range(WIDTH):
        slope = low_x + at / (WIDTH - 1) * (high_x - low_x) + log2(bandwidth)
        highest = log2(max(roofs.values()))
        if low_y <= slope <= highest:
            canvas[row(slope)][at] = "/"
        for name, roof in roofs.items():
            if slope >= log2(roof):
                canvas[row(log2(roof))][at] = "=" if name == plan.unit else "-"
    canvas[row(log2(max(point, 1e-3)))][column(log2(max(plan.intensity, 1e-6)))] = "O"
    labels = {row(log2(roof)): f"{roof:>5} {name}" for name, roof in roofs.items()}
    picture = [
        f"  |{''.join(cells)}| {labels.get(number, '')}".rstrip()
        for number, cells in enumerate(canvas)
    ]
    axis = f"  +{'-' * WIDTH}+"
    return "\n".join(
        [
            "operations a cycle (up) over operations a byte of global memory (right)",
            *picture,
            axis,
            f"   2^{low_x}{'':{WIDTH - 8}}2^{high_x}",
            f"  / HBM, {bandwidth:g} bytes a cycle; = the roof of this operator; O it is here: "
            f"{plan.intensity:.2f} a byte, {point:.1f} a cycle",
        ]
    )


def plan_record(plan: OperatorPlan) -> dict[str, object]:
    """The plan as what JSON holds."""
    timeline, found = plan.timeline, diagnosis(plan.timeline)
    return {
        "operator": plan.name,
        "cores": plan.chip.cores,
        "tiling": plan.tiling,
        "blocks": timeline.blocks,
        "cycles": timeline.cycles,
        "core_cycles": timeline.core_cycles,
        "longest_block": timeline.longest_block,
        "unit": plan.unit,
        "operations": plan.operations,
        "operations_per_byte": plan.intensity,
        "share_of_peak": plan.operations / max(1, timeline.cycles) / plan.peak,
        "macs": timeline.macs,
        "limiter": found.limiter.name,
        "limiter_share": found.share,
        "advice": found.advice,
        "pipes": {
            pipe.name: {
                "commands": times.commands,
                "busy": times.busy,
                "stall": times.stall,
                "idle": times.idle,
            }
            for pipe, times in timeline.pipes.items()
        },
        "bytes": {
            level: {
                "read": timeline.traffic[level, "read"],
                "write": timeline.traffic[level, "write"],
            }
            for level in LEVELS
        },
    }
