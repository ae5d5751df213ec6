"""The scalar unit with a memory beside it, so that whole programs run without Python."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.core.dispatch import SCALAR_FAULT
from rtl.core.scalar.unit import ScalarUnit
from rtl.memory.port import LINE_BITS
from rtl.memory.sram import Sram

__all__ = ["MEMORY_LINES", "ProgramMachine"]

MEMORY_LINES = 2048


class ProgramMachine(wiring.Component):
    """Global memory is `MEMORY_LINES` lines, which repeat; it answers 2 cycles after a request.

    Members:
        start, code, code_bytes, exited, fault, fault_valid: of the `ScalarUnit`.
        instructions: 32 bits; instructions that ended since reset.
        write, line, write_data: fill the memory, while no program runs.
        read_data: the line `line`, in the next cycle, while no program runs.
    """

    def __init__(self) -> None:
        self._unit = ScalarUnit(cache_lines=32)
        super().__init__(
            {
                "start": In(1),
                "code": In(64),
                "code_bytes": In(32),
                "exited": Out(1),
                "fault": Out(SCALAR_FAULT),
                "fault_valid": Out(1),
                "instructions": Out(32),
                "write": In(1),
                "line": In(range(MEMORY_LINES)),
                "write_data": In(LINE_BITS),
                "read_data": Out(LINE_BITS),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self._unit
        m.submodules.memory = memory = Sram(width=LINE_BITS, depth=MEMORY_LINES)
        read, write = unit.read_port, unit.write_port
        taken = read.request.valid & ~read.response.valid
        written = write.request.valid & ~write.response.valid
        # Top inputs are registered: they change after the clock edge.
        start, fill = Signal(), Signal()
        line, data = Signal(range(MEMORY_LINES)), Signal(LINE_BITS)
        m.d.sync += [
            start.eq(self.start),
            fill.eq(self.write),
            line.eq(self.line),
            data.eq(self.write_data),
            read.response.valid.eq(taken),
            write.response.valid.eq(written),
        ]
        request = write.request.payload
        m.d.comb += [
            unit.start.eq(start),
            unit.code.eq(self.code),
            unit.code_bytes.eq(self.code_bytes),
            unit.flush.eq(start),
            unit.drained.eq(1),
            unit.dispatch.ready.eq(1),
            unit.flag.ready.eq(1),
            self.exited.eq(unit.exited),
            self.fault.eq(unit.fault),
            self.fault_valid.eq(unit.fault_valid),
            read.request.ready.eq(~read.response.valid),
            read.response.payload.data.eq(memory.rd_data),
            write.request.ready.eq(~write.response.valid),
            memory.rd_en.eq(taken | unit.idle),
            memory.rd_addr.eq(Mux(unit.idle, line, read.request.payload.line)),
            memory.wr_en.eq(written | fill),
            memory.wr_addr.eq(Mux(fill, line, request.line)),
            memory.wr_data.eq(Mux(fill, data, request.data)),
            memory.wr_mask.eq(Mux(fill, (1 << LINE_BITS // 8) - 1, request.strobe)),
            self.read_data.eq(memory.rd_data),
        ]
        m.d.sync += self.instructions.eq(self.instructions + unit.retired)
        return m
