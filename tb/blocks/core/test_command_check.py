"""The check of commands: against the rules as a function, and against literal cases."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import Timer

from abi.command_rules import broken_rule
from abi.core import COMMANDS, OPCODE_PIPE, CommandOpcode, Pipe
from rtl.core.command_check import CommandCheck
from tb.blocks.core.scalar.random_kernels import random_command
from tb.blocks.harness import parameters, run_block

_SMALL = {
    CommandOpcode.NOP: {},
    CommandOpcode.LOAD: {"row_bytes": 1, "rows": 1, "planes": 1},
    CommandOpcode.SAVE: {"row_bytes": 1, "rows": 1, "planes": 1},
    CommandOpcode.MOVE: {"row_lines": 1, "rows": 1},
    CommandOpcode.IMG2COL: {
        "stride_height": 1,
        "stride_width": 1,
        "pixel_bytes": 1,
        "rows": 1,
        "out_width": 1,
        "kernel_height": 1,
        "kernel_width": 1,
    },
    CommandOpcode.MMAD: {"rows": 1, "k_tiles": 1, "n_tiles": 1},
    CommandOpcode.STORE: {"columns": 1, "rows": 1},
    CommandOpcode.VECTOR: {"columns": 1, "rows": 1},
}
"""The fields that must be at least 1, each with 1; with all others 0 a command is valid."""

_CASES: list[tuple[CommandOpcode, dict[str, int], bool]] = [
    (CommandOpcode.LOAD, {"target": 1}, True),
    (CommandOpcode.LOAD, {"target": 2}, False),
    (CommandOpcode.LOAD, {"target": 3}, False),
    (CommandOpcode.SAVE, {"target": 1}, False),
    (CommandOpcode.SAVE, {"target": 2}, True),
    (CommandOpcode.SAVE, {"target": 3}, False),
    (CommandOpcode.STORE, {"target": 1}, True),
    (CommandOpcode.STORE, {"target": 2}, True),
    (CommandOpcode.STORE, {"target": 3}, False),
    (CommandOpcode.STORE, {"target": 1, "output": 2}, True),
    (CommandOpcode.STORE, {"target": 1, "output": 3}, False),
    (CommandOpcode.STORE, {"target": 1, "shift": 62}, True),
    (CommandOpcode.STORE, {"target": 1, "shift": 63}, False),
    (CommandOpcode.MOVE, {"target": 3}, True),
    (CommandOpcode.MOVE, {"target": 4}, False),
    (CommandOpcode.MOVE, {"target": 15}, False),
    (CommandOpcode.MOVE, {"target": 1, "transpose": 2}, True),
    (CommandOpcode.MOVE, {"target": 0, "transpose": 1}, True),
    (CommandOpcode.MOVE, {"target": 0, "transpose": 3}, False),
    (CommandOpcode.MOVE, {"target": 2, "transpose": 1}, False),
    (CommandOpcode.MOVE, {"target": 3, "transpose": 2}, False),
    (CommandOpcode.IMG2COL, {"target": 1}, True),
    (CommandOpcode.IMG2COL, {"target": 2}, False),
    (CommandOpcode.IMG2COL, {"out_width": 7, "first_column": 6}, True),
    (CommandOpcode.IMG2COL, {"out_width": 7, "first_column": 7}, False),
    (CommandOpcode.MMAD, {"type": 1}, True),
    (CommandOpcode.MMAD, {"type": 2}, False),
    (CommandOpcode.MMAD, {"type": 3}, False),
    (CommandOpcode.VECTOR, {"operation": 0x09}, True),
    (CommandOpcode.VECTOR, {"operation": 0x0A}, False),
    (CommandOpcode.VECTOR, {"operation": 0x51}, True),
    (CommandOpcode.VECTOR, {"operation": 0xFF}, False),
]

_DEFAULTS = {CommandOpcode.STORE: {"target": 1}}


def _command(opcode: CommandOpcode, fields: dict[str, int]) -> int:
    given = {**_SMALL[opcode], **_DEFAULTS.get(opcode, {}), **fields}
    return COMMANDS[opcode].pack({"opcode": int(opcode), **given})


async def _good(dut: Any, pipe: int, command: int) -> bool:
    dut.pipe.value = pipe
    dut.command.value = command
    await Timer(1, unit="ns")
    return bool(int(dut.good.value))


async def _expect(dut: Any, pipe: int, command: int, good: bool) -> None:
    assert await _good(dut, pipe, command) == good, f"{command:#x} on {pipe}"
    assert (broken_rule(pipe, command) is None) == good, broken_rule(pipe, command)


@cocotb.test()
async def literal_cases(dut: Any) -> None:
    for opcode, fields, good in _CASES:
        await _expect(dut, OPCODE_PIPE[opcode], _command(opcode, fields), good)
    for opcode in CommandOpcode:
        command = _command(opcode, {})
        for pipe in range(8):
            right = pipe < 6 if opcode is CommandOpcode.NOP else pipe == OPCODE_PIPE[opcode]
            await _expect(dut, pipe, command, right)
        pipe = OPCODE_PIPE.get(opcode, Pipe.CUBE)
        for name in _SMALL[opcode]:
            await _expect(dut, pipe, _command(opcode, {name: 0}), False)
        for name, field in COMMANDS[opcode].fields.items():
            if name.startswith("reserved"):
                for bit in range(field.width):
                    await _expect(dut, pipe, _command(opcode, {name: 1 << bit}), False)
    for code in range(256):
        for pipe in range(8):
            if code not in tuple(CommandOpcode):
                await _expect(dut, pipe, code, False)


@cocotb.test()
async def random_commands(dut: Any) -> None:
    """Valid ones, and valid ones with some bits flipped."""
    counts = [0, 0]
    for _ in range(parameters()["commands"]):
        opcode = random.choice(tuple(CommandOpcode))
        pipe = OPCODE_PIPE.get(opcode, random.randrange(6))
        command = random_command(opcode)
        for _ in range(random.choice((0, 0, 1, 2))):
            command ^= 1 << random.randrange(256)
        good = broken_rule(pipe, command) is None
        counts[good] += 1
        assert await _good(dut, pipe, command) == good, broken_rule(pipe, command)
    assert min(counts) > parameters()["commands"] // 10


@pytest.mark.parametrize(("sim", "commands"), [("verilator", 6000), ("icarus", 500)])
def test_command_check(sim: str, commands: int) -> None:
    run_block(CommandCheck(), __name__, sim=sim, parameters={"commands": commands})
