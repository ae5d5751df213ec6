"""Transposes matrices of bytes or halves from L1, block by block."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from abi.core import MOVE_COMMAND, Transpose
from rtl.memory.port import LINE_BITS

__all__ = ["Transposer"]

BYTE_BITS = 6
"""Bits of the number of a byte in a line."""


def _rotated(line: Value, nbytes: Value) -> Value:
    """Byte `nbytes` (6 bits) of a line becomes byte 0."""
    return (Cat(line, line) >> Cat(Const(0, 3), nbytes))[:LINE_BITS]


class Transposer(wiring.Component):
    """Executes MOVE commands that transpose.

    A block is one line of each of 64 rows (32, if elements are halves). It lies in 64 banks of 64
    bytes, byte c of row r in bank (c + r) mod 64 at r, so that a row or a column takes one cycle:
    the diagonal storage of matrix transposition memories.

    ```
    L1 line ─► rotate by row ─► banks ─► rotate by column ─► zero what is behind the rows ─► write
    ```

    Members:
        command: a MOVE command, stable from `start` until `busy` is 0.
        start: 1 bit; begin.
        read, read_line, read_data: read port of L1 (latency 1).
        write, write_line, write_data: what to write; granted: 1 bit; it happens in this cycle.
        finished: 1 bit; the last line is written in this cycle.
        busy: 1 bit; it works at a command.
        stop: 1 bit; forget the command; held until `busy` is 0.

    Timing: a block of R rows takes R + 3 cycles to load and 64 or 32 to write.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(MOVE_COMMAND),
                "read_data": In(LINE_BITS),
                "write_data": Out(LINE_BITS),
                "start": In(1),
                "read": Out(1),
                "read_line": Out(16),
                "write": Out(1),
                "write_line": Out(16),
                "granted": In(1),
                "finished": Out(1),
                "busy": Out(1),
                "stop": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        command = self.command
        halves = command.transpose == Transpose.HALVES
        side = Mux(halves, LINE_BYTES // 2, LINE_BYTES)

        group_source, group_line = (Signal(16, reset_less=True) for _ in range(2))
        rows_left, lines_left = (Signal(16, reset_less=True) for _ in range(2))
        block_source = Signal(16, reset_less=True)
        block_rows = Signal(BYTE_BITS + 1)
        source = Signal(16, reset_less=True)
        line = Signal(16, reset_less=True)
        index = Signal(BYTE_BITS + 1, reset_less=True)
        loading, storing = Signal(), Signal()
        advance = Signal()
        m.d.comb += [
            block_rows.eq(Mux(rows_left > side, side, rows_left)),
            self.read.eq(loading),
            self.read_line.eq(source),
        ]

        # Loading: read, take the line, rotate it, write it to the banks.
        arrives, rotates, stores = Signal(), Signal(), Signal()
        rows = [Signal(BYTE_BITS, name=f"row{i}", reset_less=True) for i in range(3)]
        taken = Signal(LINE_BITS, reset_less=True)
        turned = Signal(LINE_BITS, reset_less=True)
        m.d.sync += [
            arrives.eq(loading & ~self.stop),
            rotates.eq(arrives & ~self.stop),
            stores.eq(rotates & ~self.stop),
        ]
        with m.If(loading):
            m.d.sync += rows[0].eq(index)
        with m.If(arrives):
            m.d.sync += [taken.eq(self.read_data), rows[1].eq(rows[0])]
        with m.If(rotates):
            amount = Mux(halves, rows[1] << 1, rows[1])[:BYTE_BITS]
            m.d.sync += [turned.eq(_rotated(taken, (-amount)[:BYTE_BITS])), rows[2].eq(rows[1])]

        # Storing: read the banks, rotate, hold until it is granted.
        column = Signal(BYTE_BITS, reset_less=True)
        fetched, held = Signal(), Signal()
        fetched_line = Signal(16, reset_less=True)
        fetch = Signal()
        last_fetch, fetched_last, held_last = Signal(), Signal(), Signal()
        banks = []
        for b in range(LINE_BYTES):
            m.submodules[f"bank{b}"] = bank = Memory(shape=8, depth=LINE_BYTES, init=[])
            write, read = bank.write_port(), bank.read_port()
            # Column c of bank b belongs to row b - c; halves have pairs of banks.
            row = Mux(halves, (b // 2 - index)[:5], (b - index)[:BYTE_BITS])
            m.d.comb += [
                write.en.eq(stores),
                write.addr.eq(rows[2]),
                write.data.eq(turned[8 * b : 8 * b + 8]),
                read.en.eq(fetch),
                read.addr.eq(row),
            ]
            banks.append(read.data)
        m.d.comb += [
            advance.eq(~held | self.granted),
            fetch.eq(storing & (~fetched | advance)),
            self.write.eq(held),
            self.finished.eq(held & self.granted & held_last),
        ]
        with m.If(fetch):
            m.d.sync += [
                column.eq(index),
                fetched.eq(1),
                fetched_line.eq(line),
                fetched_last.eq(last_fetch),
            ]
        with m.Elif(advance):
            m.d.sync += fetched.eq(0)
        with m.If(advance):
            m.d.sync += held.eq(fetched)
            with m.If(fetched):
                amount = Mux(halves, column << 1, column)[:BYTE_BITS]
                valid_bytes = Mux(halves, block_rows << 1, block_rows)[: BYTE_BITS + 1]
                kept = Const(2**LINE_BITS - 1, LINE_BITS) >> Cat(
                    Const(0, 3), (LINE_BYTES - valid_bytes)[: BYTE_BITS + 1]
                )
                m.d.sync += [
                    self.write_data.eq(_rotated(Cat(*banks), amount) & kept),
                    self.write_line.eq(fetched_line),
                    held_last.eq(fetched_last),
                ]

        with m.FSM() as machine:
            with m.State("Idle"):
                m.d.sync += [
                    group_source.eq(command.source),
                    block_source.eq(command.source),
                    group_line.eq(command.line),
                    line.eq(command.line),
                    rows_left.eq(command.rows),
                    lines_left.eq(command.row_lines),
                    source.eq(command.source),
                    index.eq(0),
                ]
                with m.If(self.start & ~self.stop):
                    m.next = "Load rows"
            with m.State("Load rows"):
                m.d.comb += loading.eq(1)
                m.d.sync += [source.eq(source + command.source_pitch), index.eq(index + 1)]
                with m.If(index == block_rows - 1):
                    m.d.sync += index.eq(0)
                    m.next = "Wait for the banks"
                with m.If(self.stop):
                    m.next = "Idle"
            with m.State("Wait for the banks"):
                with m.If(~arrives & ~rotates & ~stores):
                    m.next = "Write columns"
                with m.If(self.stop):
                    m.next = "Idle"
            with m.State("Write columns"):
                m.d.comb += [
                    storing.eq(1),
                    last_fetch.eq((index == side - 1) & (lines_left == 1) & (rows_left <= side)),
                ]
                with m.If(fetch):
                    m.d.sync += [line.eq(line + command.pitch), index.eq(index + 1)]
                    with m.If(index == side - 1):
                        m.d.sync += index.eq(0)
                        m.next = "Wait for the writes"
                with m.If(self.stop):
                    m.next = "Idle"
            with m.State("Wait for the writes"):
                with m.If(~fetched & ~held):
                    m.d.sync += [
                        lines_left.eq(lines_left - 1),
                        block_source.eq(block_source + 1),
                        source.eq(block_source + 1),
                    ]
                    m.next = "Load rows"
                    with m.If(lines_left == 1):
                        next_source = (
                            group_source
                            + Mux(halves, command.source_pitch << 5, command.source_pitch << 6)
                        )[:16]
                        m.d.sync += [
                            rows_left.eq(rows_left - side),
                            lines_left.eq(command.row_lines),
                            group_source.eq(next_source),
                            block_source.eq(next_source),
                            source.eq(next_source),
                            group_line.eq(group_line + 1),
                            line.eq(group_line + 1),
                        ]
                        with m.If(rows_left <= side):
                            m.next = "Idle"
                with m.If(self.stop):
                    m.next = "Idle"
        m.d.comb += self.busy.eq(~machine.ongoing("Idle"))
        with m.If(self.stop):
            m.d.sync += [fetched.eq(0), held.eq(0)]
        return m
