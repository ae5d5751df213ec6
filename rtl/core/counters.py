"""What the core counts."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, Pipe
from abi.registers_core import CORE_COUNTERS

__all__ = ["CoreCounters"]


class CoreCounters(wiring.Component):
    """The counters of `CORE_COUNTERS`, since reset.

    Each cycle of a running program is a busy cycle of a pipe if it works, else a stall cycle if
    it holds a command, else an idle cycle.

    Members:
        running: 1 bit; a program runs.
        working, holding: 1 bit each for each pipe. The Cube works at one row of 256 MACs.
        line_read: 1 bit; a line of a LOAD arrived.
        written: 7 bits; bytes of STOREs that were written.
        <name>: 64 bits, for each counter.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "running": In(1),
                "working": In(1).array(len(Pipe)),
                "holding": In(1).array(len(Pipe)),
                "line_read": In(1),
                "written": In(7),
                **{name: Out(64) for name in CORE_COUNTERS},
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        rows = Signal(64 - 8)
        lines = Signal(64 - 6)
        m.d.comb += [
            self.core_macs.eq(rows * CUBE_SIDE**2),
            self.core_read_bytes.eq(lines * LINE_BYTES),
        ]
        m.d.sync += self.core_write_bytes.eq(self.core_write_bytes + self.written)
        with m.If(self.line_read):
            m.d.sync += lines.eq(lines + 1)
        with m.If(self.running):
            m.d.sync += self.core_cycles.eq(self.core_cycles + 1)
            with m.If(self.working[Pipe.CUBE]):
                m.d.sync += rows.eq(rows + 1)
            for pipe in Pipe:
                counts = {
                    kind: getattr(self, f"{pipe.name.lower()}_{kind}")
                    for kind in ("busy", "stall", "idle")
                }
                with m.If(self.working[pipe]):
                    m.d.sync += counts["busy"].eq(counts["busy"] + 1)
                with m.Elif(self.holding[pipe]):
                    m.d.sync += counts["stall"].eq(counts["stall"] + 1)
                with m.Else():
                    m.d.sync += counts["idle"].eq(counts["idle"] + 1)
        return m
