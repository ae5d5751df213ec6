"""Takes VECTOR commands, decodes them and checks their bounds."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_COMMAND, VECTOR_LANES
from abi.status import Status
from rtl.core.pipe import last_line
from rtl.core.vector.decode import PLAN, Shape, decode

__all__ = ["WORK", "Front"]

WORK = data.StructLayout(
    {
        "command": VECTOR_COMMAND,
        "plan": PLAN,
        "lines": 16,
        "a_lines": 16,
        "b_lines": 16,
        "c_lines": 16,
        "target_rows": 16,
        "target_lines": 16,
        "uses_b": 1,
        "uses_c": 1,
    }
)
"""A command that may begin. `lines`: lines of a row of elements; those of a row that are read of
each source, and written; rows that are written."""

LANE_BITS = (VECTOR_LANES - 1).bit_length()


class Front(wiring.Component):
    """Holds one command, until it is handed over or its fault has been reported.

    Args:
        lines: size of UB.

    Members:
        command: stream of VECTOR commands.
        work: stream of `WORK`.
        fault: 1 bit; the command cannot begin; status: 8 bits, why. reported: 1 bit; go on.
        stop: 1 bit; forget the command.
        empty: 1 bit; there is none.

    Timing: `work` or `fault` 3 cycles after the command.
    """

    def __init__(self, *, lines: int) -> None:
        self._lines = lines
        super().__init__(
            {
                "command": In(stream.Signature(VECTOR_COMMAND)),
                "work": Out(stream.Signature(WORK)),
                "status": Out(8),
                "fault": Out(1),
                "reported": In(1),
                "stop": In(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        command = Signal(VECTOR_COMMAND, reset_less=True)
        work = Signal(WORK, reset_less=True)
        plan = decode(m, command.operation)
        overflow = Signal()
        m.d.comb += [self.work.payload.eq(work), self.work.payload.command.eq(command)]

        # First the lines of rows, then the last line of each matrix.
        lines, packed, groups = Signal(13), Signal(13), Signal(13)
        round_up = VECTOR_LANES - 1
        m.d.comb += [
            lines.eq((command.columns + round_up) >> LANE_BITS),
            groups.eq((command.rows + round_up) >> LANE_BITS),
            packed.eq((lines + ((1 << plan.density)[:3] - 1)[:2]) >> plan.density),
        ]
        transposes = plan.form == Shape.TRANSPOSED
        a_lines = Mux(plan.form == Shape.UNPACKED, packed, lines)
        a_steps = command.a_step & (plan.form != Shape.GATHERED)
        ends = {
            name: Signal(34, name=f"{name}_end", reset_less=True) for name in ("a", "b", "c", "to")
        }

        with m.FSM():
            with m.State("Empty"):
                m.d.comb += [self.command.ready.eq(1), self.empty.eq(1)]
                with m.If(self.command.valid):
                    m.d.sync += command.eq(self.command.payload)
                    m.next = "Decode"
            with m.State("Decode"):
                m.d.sync += [
                    work.plan.eq(plan),
                    work.lines.eq(lines),
                    work.a_lines.eq(Mux(a_steps, a_lines, 1)),
                    work.b_lines.eq(Mux(command.b_step, lines, 1)),
                    work.c_lines.eq(Mux(command.c_step, lines, 1)),
                    work.target_rows.eq(Mux(transposes, command.columns, command.rows)),
                    work.target_lines.eq(
                        Mux(
                            plan.reduces,
                            1,
                            Mux(transposes, groups, Mux(plan.packs, packed, lines)),
                        )
                    ),
                    work.uses_b.eq(plan.uses_b & ~command.b_immediate),
                    work.uses_c.eq(plan.uses_c & ~command.c_immediate),
                ]
                m.next = "Find the ends"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Find the ends"):
                rows = command.rows
                m.d.sync += [
                    ends["a"].eq(last_line(command.a_line, rows, command.a_pitch, work.a_lines)),
                    ends["b"].eq(last_line(command.b_line, rows, command.b_pitch, work.b_lines)),
                    ends["c"].eq(last_line(command.c_line, rows, command.c_pitch, work.c_lines)),
                    ends["to"].eq(
                        last_line(command.line, work.target_rows, command.pitch, work.target_lines)
                    ),
                ]
                m.next = "Hand over"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Hand over"):
                m.d.comb += [
                    self.fault.eq(~work.plan.known | overflow),
                    self.work.valid.eq(~self.fault),
                ]
                with m.If(self.work.valid & self.work.ready | self.reported | self.stop):
                    m.next = "Empty"
        m.d.comb += [
            overflow.eq(
                (work.plan.uses_a & (ends["a"] >= self._lines))
                | (work.uses_b & (ends["b"] >= self._lines))
                | (work.uses_c & (ends["c"] >= self._lines))
                | (ends["to"] >= self._lines)
            ),
            self.status.eq(Mux(work.plan.known, Status.BUFFER_OVERFLOW, Status.BAD_COMMAND)),
        ]
        return m
