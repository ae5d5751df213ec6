"""What the core counts."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from abi.core import Pipe
from abi.registers_core import CORE_COUNTERS

__all__ = ["CoreCounters"]


class CoreCounters(wiring.Component):
    """The counters of `CORE_COUNTERS`, since reset.

    Each cycle of a running block is a busy cycle of a pipe or the scalar unit if it works, else a
    stall cycle if it holds a command, else an idle cycle.

    Members:
        running: 1 bit; a block runs.
        working, holding: 1 bit each for each pipe, the scalar unit included.
        retired: 1 bit; an instruction ended.
        macs: 10 bits; what the Cube did in this cycle.
        line_read: 1 bit; a line of a LOAD arrived.
        written: 8 bits; bytes of STOREs and SAVEs that were written.
        <name>: 64 bits, for each counter.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "running": In(1),
                "working": In(1).array(len(Pipe)),
                "holding": In(1).array(len(Pipe)),
                "retired": In(1),
                "macs": In(10),
                "line_read": In(1),
                "written": In(8),
                **{name: Out(64) for name in CORE_COUNTERS},
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        lines = Signal(64 - exact_log2(LINE_BYTES))
        m.d.comb += self.core_read_bytes.eq(lines * LINE_BYTES)
        with m.If(self.written != 0):
            m.d.sync += self.core_write_bytes.eq(self.core_write_bytes + self.written)
        with m.If(self.line_read):
            m.d.sync += lines.eq(lines + 1)
        with m.If(self.running):
            m.d.sync += self.core_cycles.eq(self.core_cycles + 1)
            with m.If(self.working[Pipe.CUBE]):
                m.d.sync += self.core_macs.eq(self.core_macs + self.macs)
            with m.If(self.retired):
                m.d.sync += self.core_instructions.eq(self.core_instructions + 1)
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
