"""Checks a command against the rules of `abi.command_rules`."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth import Cat, Module, Signal
from amaranth.hdl import Const, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from abi.command_rules import ALLOWED, AT_LEAST_1, BELOW, ONLY_WITH
from abi.core import COMMANDS, OPCODE_PIPE, CommandOpcode, Pipe
from rtl.core.dispatch import COMMAND_BITS

__all__ = ["CommandCheck"]


class CommandCheck(wiring.Component):
    """Says whether a command is valid for its pipe.

    Members:
        command: 256 bits.
        pipe: 3 bits.
        good: 1 bit; the command breaks no rule.

    Timing: combinational.
    """

    def __init__(self) -> None:
        super().__init__({"command": In(COMMAND_BITS), "pipe": In(3), "good": Out(1)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        bad = Signal()
        m.d.comb += bad.eq(1)
        with m.Switch(self.command[:8]):
            for opcode in CommandOpcode:
                with m.Case(opcode):
                    m.d.comb += bad.eq(self._bad(opcode))
        m.d.comb += self.good.eq(~bad & (self.pipe < Pipe.SCALAR))
        return m

    def _bad(self, opcode: CommandOpcode) -> Value:
        """Whether a command with this opcode breaks a rule."""
        record = COMMANDS[opcode]
        command = data.View(record, self.command)
        reserved = [command[name] for name in record.fields if name.startswith("reserved")]
        broken: list[Value] = [Cat(*reserved).any()]
        if opcode is not CommandOpcode.NOP:
            broken.append(self.pipe != OPCODE_PIPE[opcode])
        broken += [command[name] == 0 for name in AT_LEAST_1.get(opcode, ())]
        for name, values in ALLOWED.get(opcode, {}).items():
            broken.append(~_is_one_of(command[name], values))
        broken += [command[low] >= command[high] for low, high in BELOW.get(opcode, ())]
        for rule in ONLY_WITH.get(opcode, ()):
            broken.append(command[rule.field].any() & ~_is_one_of(command[rule.other], rule.values))
        return reduce(or_, broken)


def _is_one_of(field: Value, values: Sequence[int]) -> Value:
    """Whether a field has one of some values: whether it lies in one of their runs."""
    inside: Value = Const(0)
    ordered = sorted(int(value) for value in values)
    for first in (value for value in ordered if value - 1 not in ordered):
        last = first
        while last + 1 in ordered:
            last += 1
        inside |= (field >= first) & (field <= last)
    return inside
