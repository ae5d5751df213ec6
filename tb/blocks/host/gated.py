"""Blocks under a clock gate, so that a lost wake-up shows in their tests."""

from collections.abc import Collection, Mapping
from typing import Any

from amaranth import DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Member, Out, connect, flipped

from rtl.clocking import gated_domain

__all__ = ["Gated", "join"]


def join(m: Module, outer: Any, inner: Any, members: Mapping[str, Member]) -> None:
    """Connect members of a component inside to those of the same name of the one around it."""
    for name, member in members.items():
        pair = (getattr(outer, name), getattr(inner, name))
        elements = zip(*pair, strict=True) if member.dimensions else [pair]
        for outside, inside in elements:
            if member.is_signature:
                connect(m, flipped(outside), inside)
            elif member.flow is Out:
                m.d.comb += outside.eq(inside)
            else:
                m.d.comb += inside.eq(outside)


class Gated(wiring.Component):
    """Wraps a block with `idle` and `wake`; same members, whose clock stops while it is idle.

    Args:
        block: the block.
        gated: False: it just wraps.
        renamed: names of ports that are Verilog keywords; they get a `_` behind them.
    """

    def __init__(self, block: Any, *, gated: bool = True, renamed: Collection[str] = ()) -> None:
        self._block = block
        self._gated = gated
        self._renamed = renamed
        members = dict(block.signature.members.items())
        for name in renamed:
            members[f"{name}_"] = members.pop(name)
        super().__init__(members)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        block = self._block
        if self._gated:
            gated_domain(m, "unit", enable=block.wake | ~block.idle)
            m.submodules.block = DomainRenamer("unit")(block)
        else:
            m.submodules.block = block
        members = block.signature.members
        join(m, self, block, {n: member for n, member in members.items() if n not in self._renamed})
        for name in self._renamed:
            m.d.comb += getattr(block, name).eq(getattr(self, f"{name}_"))
        return m
