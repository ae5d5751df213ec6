"""Hand-made blocks for the estimator: steps of the scalar unit, commands by name."""

from abi.core import COMMANDS, NOP_COMMAND, OPCODE_PIPE, CommandOpcode, Local, Pipe
from abi.vector import VectorOperation
from runtime.planner.chip import Chip
from runtime.planner.scalar import BlockSteps, InstructionCache, Step
from runtime.planner.timeline import Timeline, run_blocks
from runtime.toolchain.events import Event, Exit, Issue

__all__ = ["CHIP", "load", "mmad", "nop", "run", "save", "vector"]

CHIP = Chip(cores=1, launch_cycles=1, dispatch_cycles=1)
"""One core that starts at once."""


def issue(opcode: CommandOpcode, wait: int, give: int, fields: dict[str, int]) -> Issue:
    """The scalar unit issues a command; `wait` and `give` are masks of flags."""
    raw = COMMANDS[opcode].pack_bytes(fields, opcode=opcode)
    return Issue(OPCODE_PIPE[opcode], raw, 0, wait, give, 0)


def nop(pipe: Pipe, *, wait: int = 0, give: int = 0) -> Issue:
    """A NOP."""
    raw = NOP_COMMAND.pack_bytes(opcode=CommandOpcode.NOP)
    return Issue(pipe, raw, 0, wait, give, 0)


def load(nbytes: int, *, rows: int = 1, wait: int = 0, give: int = 0, **fields: int) -> Issue:
    """A LOAD of rows to UB, one behind the other."""
    given = {"target": Local.UB, "planes": 1, "stride": nbytes, "pitch": -(-nbytes // 64), **fields}
    return issue(CommandOpcode.LOAD, wait, give, {**given, "row_bytes": nbytes, "rows": rows})


def save(nbytes: int, *, wait: int = 0, give: int = 0, **fields: int) -> Issue:
    """A SAVE of one row to global memory."""
    given = {"target": Local.MEMORY, "planes": 1, "rows": 1, **fields}
    return issue(CommandOpcode.SAVE, wait, give, {**given, "row_bytes": nbytes})


def vector(columns: int, *, rows: int = 1, wait: int = 0, give: int = 0, **fields: int) -> Issue:
    """A VECTOR command, FADD of two sources unless another is named."""
    steps = {"a_step": 1, "b_step": 1, "operation": VectorOperation.FADD}
    given = {**steps, "columns": columns, "rows": rows, **fields}
    return issue(CommandOpcode.VECTOR, wait, give, given)


def mmad(rows: int, k_tiles: int, n_tiles: int) -> Issue:
    """An MMAD of int8."""
    fields = {"rows": rows, "k_tiles": k_tiles, "n_tiles": n_tiles}
    return issue(CommandOpcode.MMAD, 0, 0, fields)


def run(*events: Event, chip: Chip = CHIP, blocks: int = 1, busy: int = 10) -> Timeline:
    """Run a block of these events and an exit, `busy` cycles of the scalar unit before each."""
    steps = [Step(busy, 0, event) for event in (*events, Exit(0))]

    def source(_number: int, _cache: InstructionCache) -> BlockSteps:
        return BlockSteps(steps, len(steps))

    return run_blocks(chip, blocks, source)
