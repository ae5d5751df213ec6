"""A block whose clock stops while it is idle, so that a lost wake-up shows in its tests."""

from typing import Any

from amaranth import DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from rtl.clocking import gated_domain

__all__ = ["Gated"]


class Gated(wiring.Component):
    """Wraps a block with `idle` and `wake`; same members."""

    def __init__(self, block: Any) -> None:
        self._block = block
        super().__init__(block.signature)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        gated_domain(m, "unit", enable=self._block.wake | ~self._block.idle)
        m.submodules.block = DomainRenamer("unit")(self._block)
        connect(m, flipped(self), self._block)
        return m
