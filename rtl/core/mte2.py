"""The MTE2 pipe: LOAD, rows of global memory into L1 or UB."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import ADDRESS_BITS
from abi.core import LOAD_COMMAND, Local
from rtl.core.line_walk import LineWalk
from rtl.core.pipe import DONE, ceil_lines
from rtl.core.row_issuer import ROW_FIELDS, RowIssuer
from rtl.memory.port import LINE_BITS, LineError, ReadPort
from rtl.memory.row import OFFSET_BITS
from rtl.memory.row_reader import RowReader

__all__ = ["Mte2"]


def _fill_behind(m: Module, last: Value, fill: Value) -> Value:
    """A line that is `fill` (8 bits) behind byte `last` (6 bits), else 0; in 64-bit words."""
    partial, whole = Signal(64, name="fill_partial"), Signal(64, name="fill_whole")
    m.d.comb += [
        whole.eq(fill.replicate(8)),
        partial.eq(whole & ~(Const(2**64 - 1, 64) >> Cat(Const(0, 3), ~last[:3]))),
    ]
    words: list[Value] = []
    for index in range(LINE_BITS // 64):
        word = Mux(last[3:] == index, partial, 0)
        words.append(Mux(last[3:] < index, whole, word) if index else word)
    return Cat(*words)


class Mte2(wiring.Component):
    """Executes LOAD commands in order.

    The front takes a command, checks it and requests its rows; the back writes the beats that
    arrive to L1 or UB. While the back waits for data, the front may work at the next command.

    Args:
        l1_lines, ub_lines: sizes of the buffers.
        depth: lines in flight.

    Members:
        command: stream of LOAD commands, already checked by the scalar unit, and the value of
            their base register.
        done: stream of `DONE`, one per command in order. OK comes when the last line is written.
        stop: 1 bit; forget all commands, drain what is outstanding; held until `idle`.
        memory: `ReadPort`.
        write, write_line, write_data: write port of L1, whole lines; it always grants.
        ub_write, ub_line, ub_data: write port of UB; ub_granted: 1 bit; it happens in this cycle.
        working: 1 bit; a line is written.
        idle: 1 bit; no command is held, nothing is outstanding.

    Timing: 64 bytes a cycle as far as memory gives them, UB grants and rows are aligned, across
    rows and commands. First request 7 cycles after the command.

    Errors: BUFFER_OVERFLOW and, for rows outside the address space, ADDRESS_FAULT before any
    access, see `RowIssuer`; ADDRESS_FAULT and BUS_ERROR with the line of the first response that
    failed.
    """

    def __init__(self, *, l1_lines: int, ub_lines: int, depth: int = 64) -> None:
        self._l1_lines = l1_lines
        self._ub_lines = ub_lines
        self._depth = depth
        super().__init__(
            {
                "command": In(
                    stream.Signature(
                        data.StructLayout({"command": LOAD_COMMAND, "base": ADDRESS_BITS})
                    )
                ),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "memory": Out(ReadPort()),
                "write_data": Out(LINE_BITS),
                "ub_data": Out(LINE_BITS),
                "write": Out(1),
                "write_line": Out(exact_log2(l1_lines)),
                "ub_write": Out(1),
                "ub_line": Out(exact_log2(ub_lines)),
                "ub_granted": In(1),
                "working": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = RowReader(depth=self._depth)
        m.submodules.issuer = issuer = RowIssuer()
        wiring.connect(m, reader.memory, wiring.flipped(self.memory))
        wiring.connect(m, issuer.row, reader.row)
        wiring.connect(m, issuer.done, wiring.flipped(self.done))

        front = Signal(LOAD_COMMAND, reset_less=True)
        base = Signal(ADDRESS_BITS, reset_less=True)
        to_ub = Signal()
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [front.eq(self.command.payload.command), base.eq(self.command.payload.base)]
        m.d.comb += [
            to_ub.eq(front.target == Local.UB),
            issuer.valid.eq(self.command.valid),
            self.command.ready.eq(issuer.ready),
            issuer.base.eq(base),
            *[getattr(issuer, name).eq(getattr(front, name)) for name in ROW_FIELDS],
            issuer.lines.eq(ceil_lines(front.row_bytes)),
            issuer.buffer_lines.eq(Mux(to_ub, self._ub_lines, self._l1_lines)),
            issuer.stop.eq(self.stop),
            reader.flush.eq(self.stop),
            self.idle.eq(issuer.quiet & reader.idle),
        ]

        walk = LineWalk(m, "walk")
        ub = Signal(reset_less=True)
        tail = Signal(OFFSET_BITS, reset_less=True)
        fill = Signal(8, reset_less=True)
        beat = reader.data
        good = beat.payload.error == LineError.OK
        arrived = issuer.active & beat.valid
        line = Signal(LINE_BITS)
        behind = _fill_behind(m, tail, Mux(beat.payload.last, fill, 0)[:8])
        m.d.comb += [
            # The reader leaves zeros behind a row.
            line.eq(beat.payload.data | behind),
            beat.ready.eq((issuer.active & (~self.ub_write | self.ub_granted)) | self.stop),
            self.write.eq(arrived & good & ~ub),
            self.write_line.eq(walk.line),
            self.write_data.eq(line),
            self.ub_write.eq(arrived & good & ub),
            self.ub_line.eq(walk.line),
            self.ub_data.eq(line),
            self.working.eq(self.write | (self.ub_write & self.ub_granted)),
            issuer.finished.eq(self.working & walk.is_last),
            issuer.failing.eq(arrived & ~good),
            issuer.fault.eq(reader.fault),
            issuer.fault_line.eq(reader.fault_line),
        ]
        with m.If(self.working):
            walk.step()
        with m.If(issuer.take):
            walk.load(
                line=front.line,
                lines=issuer.lines,
                rows=front.rows,
                pitch=front.pitch,
                planes=front.planes,
                plane_pitch=front.plane_pitch,
            )
            m.d.sync += [ub.eq(to_ub), tail.eq(front.row_bytes[:6] - 1), fill.eq(front.fill)]
        return m
