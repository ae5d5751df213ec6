"""The order of a reset."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ResetController"]


class ResetController(wiring.Component):
    """Resets the chip in order: quiesce the host link, drain, isolate, reset, release.

    1. `quiesce`: the link takes no new request; until it is quiet, or `drain_cycles` have passed.
    2. `isolate`: register accesses to blocks are answered with an error.
    3. `chip_reset` (and `isolate`): everything but this block's domain is reset.
    4. `isolate` alone: domains that take their reset through a register come out of it.

    It survives the resets that it makes, so `drained` and `generation` tell about them.

    Args:
        drain_cycles: bound of step 1, at least 8.
        phase_cycles: length of each of the steps 2 to 4, at least 4.

    Members:
        start: in, 1 cycle; ignored while busy.
        link_quiet: in; no transaction of the host link is outstanding.
        busy: out; steps 1 to 4.
        drained: out; step 1 of the last reset saw the link quiet.
        generation: 32 bits out; resets so far.
        quiesce, isolate, chip_reset: out.
        idle: not busy; a function of registers.

    Timing: a reset takes at most drain_cycles + 3 * phase_cycles + 2 cycles.

    Raises:
        ValueError: a length is too small.
    """

    def __init__(self, *, drain_cycles: int = 4096, phase_cycles: int = 8) -> None:
        if drain_cycles < 8:
            raise ValueError(f"drain_cycles must be at least 8, not {drain_cycles!r}")
        if phase_cycles < 4:
            raise ValueError(f"phase_cycles must be at least 4, not {phase_cycles!r}")
        self.drain_cycles = drain_cycles
        self.phase_cycles = phase_cycles
        super().__init__(
            {
                "start": In(1),
                "link_quiet": In(1),
                "busy": Out(1),
                "drained": Out(1),
                "generation": Out(32),
                "quiesce": Out(1),
                "isolate": Out(1),
                "chip_reset": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        left = Signal(range(max(self.drain_cycles, self.phase_cycles) + 1))
        # What the link accepted just before it was quiesced must have shown up as outstanding.
        settled = Signal(range(4))
        m.d.comb += [self.quiesce.eq(self.busy), self.idle.eq(~self.busy)]
        m.d.sync += left.eq(left - 1)
        with m.FSM():
            with m.State("waiting for a start"):
                m.d.sync += [left.eq(self.drain_cycles), settled.eq(0)]
                with m.If(self.start):
                    m.d.sync += [self.busy.eq(1), self.drained.eq(0)]
                    m.next = "draining the host link"
            with m.State("draining the host link"):
                with m.If(settled != 3):
                    m.d.sync += settled.eq(settled + 1)
                with m.Elif(self.link_quiet | (left == 0)):
                    m.d.sync += [
                        self.drained.eq(self.link_quiet),
                        self.isolate.eq(1),
                        left.eq(self.phase_cycles - 1),
                    ]
                    m.next = "isolating"
            with m.State("isolating"), m.If(left == 0):
                m.d.sync += [self.chip_reset.eq(1), left.eq(self.phase_cycles - 1)]
                m.next = "holding reset"
            with m.State("holding reset"), m.If(left == 0):
                m.d.sync += [
                    self.chip_reset.eq(0),
                    self.generation.eq(self.generation + 1),
                    left.eq(self.phase_cycles - 1),
                ]
                m.next = "releasing"
            with m.State("releasing"), m.If(left == 0):
                m.d.sync += [self.isolate.eq(0), self.busy.eq(0)]
                m.next = "waiting for a start"
        return m
