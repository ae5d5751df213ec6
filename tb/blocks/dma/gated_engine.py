"""The engine as the chip builds it: its front and each channel in a gated clock domain."""

from amaranth import Cat, DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from rtl.clocking import gated_domain
from rtl.dma.engine import DmaEngine
from tb.blocks.host.gated import join

__all__ = ["GatedEngine"]


class GatedEngine(wiring.Component):
    """A `DmaEngine`, its members, and one more.

    Members:
        running: Out, 1 + channels bits; whether the front (bit 0) and each channel is clocked.
    """

    def __init__(self) -> None:
        self._engine = DmaEngine(channel_domains=[f"dma{n}" for n in range(4)])
        super().__init__({**dict(self._engine.signature.members.items()), "running": Out(5)})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        engine = self._engine
        front = gated_domain(m, "front", enable=engine.front_active)
        gates = [
            gated_domain(m, f"dma{number}", enable=engine.channel_active[number])
            for number in range(4)
        ]
        m.submodules.engine = DomainRenamer("front")(engine)
        join(m, self, engine, dict(engine.signature.members.items()))
        m.d.comb += self.running.eq(Cat(front.running, *(gate.running for gate in gates)))
        return m
