"""The Cube pipe: MMAD, int8 matrix products from L0A and L0B, summed up in L0C."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, MMAD_COMMAND
from abi.status import Status
from rtl.core.cube_array import SUM_OFFSET, CubeArray
from rtl.core.pipe import DONE, last_line

__all__ = ["Cube"]

CHUNK_LOG2 = exact_log2(LINE_BYTES // CUBE_SIDE)


class Cube(wiring.Component):
    """Executes MMAD commands, in order: for each n tile, for each k tile, for each row m.

    A tile is 16 x 16 of B. The front takes a command, checks its bounds and loads tiles from L0B
    into the array's shadow tile, one tile ahead; the streamer sends one row of A a cycle through
    the active tile. While the streamer works at a command, the front may hold the next one.

    ```
    issue: read L0A | select 16 bytes, swap tiles | multiply, read L0C | add, write L0C
    ```

    Members:
        command: stream of MMAD commands, already checked by the scalar unit.
        done: stream of `DONE`, one per command in order. OK comes when the last sum is written.
        stop: 1 bit; forget all commands.
        product_xor: 16 bits, error injection, see `CubeArray`.
        a_enable, a_line, a_data: read port of L0A (latency 1); b_...: of L0B.
        c_read, c_read_line, c_data: read port of L0C (latency 1).
        c_write, c_write_line, c_write_data: write port of L0C, whole lines.
        working: 1 bit; a row is issued, 256 MACs.
        idle: 1 bit; no command is held.

    Timing: one row a cycle, without a bubble between tiles of at least 16 rows and between
    commands of at least 18 rows; fewer rows wait for the 16 cycles that the next tile takes to
    load, 18 if it is a command's first. Two rows in direct succession that add to the same line
    of L0C cost a cycle. First issue 19 cycles after the command, done 4 after the last issue.

    Errors: BUFFER_OVERFLOW, before any access.
    """

    def __init__(self, *, l0a_lines: int, l0b_lines: int, l0c_lines: int) -> None:
        self._lines = (l0a_lines, l0b_lines, l0c_lines)
        a, b, c = (exact_log2(lines) for lines in self._lines)
        line = 8 * LINE_BYTES
        super().__init__(
            {
                "command": In(stream.Signature(MMAD_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "product_xor": In(16),
                "a_data": In(line),
                "b_data": In(line),
                "c_data": In(line),
                "c_write_data": Out(line),
                "a_enable": Out(1),
                "a_line": Out(a),
                "b_enable": Out(1),
                "b_line": Out(b),
                "c_read": Out(1),
                "c_read_line": Out(c),
                "c_write": Out(1),
                "c_write_line": Out(c),
                "working": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        a_bits, b_bits, c_bits = (exact_log2(lines) for lines in self._lines)
        m.submodules.array = array = CubeArray()

        # The command in front, and the one that streams.
        front = Signal(MMAD_COMMAND, reset_less=True)
        overflow = Signal()
        k_rows = Signal(20)
        checks = (
            (front.a_line, front.rows, front.a_pitch, (front.k_tiles + 3) >> CHUNK_LOG2),
            (front.b_line, k_rows, front.b_pitch, (front.n_tiles + 3) >> CHUNK_LOG2),
            (front.c_line, front.rows, front.c_pitch, front.n_tiles),
        )
        ends = [last_line(*terms) for terms in checks]
        m.d.comb += [
            k_rows.eq(front.k_tiles * CUBE_SIDE),
            overflow.eq(
                Cat(end >= lines for end, lines in zip(ends, self._lines, strict=True)).any()
            ),
        ]

        offered = Signal()
        taken = Signal()
        take = Signal()
        issue_first = Signal()
        shadow_full = Signal()
        streaming = Signal()
        in_pipeline = Signal()
        done_count = Signal(2)

        b_row = Signal(4)
        b_k = Signal(16, reset_less=True)
        b_n = Signal(16, reset_less=True)
        b_cursor = Signal(b_bits, reset_less=True)
        load = Signal()
        with m.If(take):
            m.d.sync += taken.eq(1)
        with m.If(issue_first):
            m.d.sync += shadow_full.eq(0)
        with m.FSM(name="front_state"):
            with m.State("Empty"):
                m.d.comb += [
                    self.command.ready.eq(1),
                    self.idle.eq(~streaming & ~in_pipeline & (done_count == 0)),
                ]
                with m.If(self.command.valid):
                    m.d.sync += front.eq(self.command.payload)
                    m.next = "Check the bounds"
            with m.State("Check the bounds"):
                m.d.sync += [
                    taken.eq(0),
                    b_row.eq(0),
                    b_k.eq(0),
                    b_n.eq(0),
                    b_cursor.eq(front.b_line),
                ]
                m.next = "Load tiles"
                with m.If(overflow):
                    m.next = "Report a fault"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Load tiles"):
                m.d.comb += [
                    offered.eq(~taken),
                    load.eq((b_row != 0) | ~shadow_full | issue_first),
                ]
                with m.If(load):
                    m.d.sync += [b_row.eq(b_row + 1), b_cursor.eq(b_cursor + front.b_pitch)]
                    with m.If(b_row == CUBE_SIDE - 1):
                        m.d.sync += [shadow_full.eq(1), b_k.eq(b_k + 1)]
                        with m.If(b_k == (front.k_tiles - 1)[:16]):
                            next_n = (b_n + 1)[:16]
                            m.d.sync += [
                                b_k.eq(0),
                                b_n.eq(next_n),
                                b_cursor.eq(front.b_line + (next_n >> CHUNK_LOG2)),
                            ]
                            with m.If(next_n == front.n_tiles):
                                m.next = "Hand over"
                                with m.If(taken | take):
                                    m.next = "Empty"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Hand over"):
                m.d.comb += offered.eq(~taken)
                with m.If(taken | take | self.stop):
                    m.next = "Empty"
            with m.State("Report a fault"):
                report = ~streaming & ~in_pipeline & (done_count == 0)
                m.d.comb += [
                    self.done.valid.eq(report),
                    self.done.payload.status.eq(Mux(report, Status.BUFFER_OVERFLOW, Status.OK)),
                ]
                with m.If((report & self.done.ready) | self.stop):
                    m.next = "Empty"
        m.d.comb += [
            self.b_enable.eq(load),
            self.b_line.eq(b_cursor),
            self.done.payload.address.eq(0),
        ]

        loaded = Signal()
        loaded_row = Signal(4, reset_less=True)
        loaded_chunk = Signal(CHUNK_LOG2, reset_less=True)
        m.d.sync += loaded.eq(load)
        with m.If(load):
            m.d.sync += [loaded_row.eq(b_row), loaded_chunk.eq(b_n)]
        m.d.comb += [
            array.b_valid.eq(loaded),
            array.b_row.eq(loaded_row),
            array.b_chunk.eq(loaded_chunk),
            array.b_line.eq(self.b_data),
        ]

        # The streamer.
        layout = data.StructLayout({"line": 16, "pitch": 16})
        a = Signal(layout, reset_less=True)
        c = Signal(layout, reset_less=True)
        last_row, last_k, last_n = (Signal(16, reset_less=True) for _ in range(3))
        accumulate = Signal(reset_less=True)
        row, k, n = (Signal(16, reset_less=True) for _ in range(3))
        a_base, a_cursor = (Signal(a_bits, reset_less=True) for _ in range(2))
        c_base, c_cursor = (Signal(c_bits, reset_less=True) for _ in range(2))
        issue = Signal()
        hazard = Signal()
        fresh = Signal()
        last_issue = Signal()
        at_row, at_k, at_n = row == last_row, k == last_k, n == last_n
        m.d.comb += [
            fresh.eq((k == 0) & ~accumulate),
            issue.eq(streaming & ((row != 0) | shadow_full) & ~hazard & ~self.stop),
            issue_first.eq(issue & (row == 0)),
            last_issue.eq(issue & at_row & at_k & at_n),
            take.eq(offered & (~streaming | last_issue)),
            self.working.eq(issue),
            self.a_enable.eq(issue),
            self.a_line.eq(a_cursor),
        ]
        with m.If(issue):
            m.d.sync += [
                row.eq(row + 1),
                a_cursor.eq(a_cursor + a.pitch),
                c_cursor.eq(c_cursor + c.pitch),
            ]
            with m.If(at_row):
                next_a = Mux(at_k, a.line, a_base + (k[:CHUNK_LOG2] == 3))[:a_bits]
                next_c = (c_base + at_k)[:c_bits]
                m.d.sync += [
                    row.eq(0),
                    k.eq(Mux(at_k, 0, k + 1)),
                    n.eq(n + at_k),
                    a_base.eq(next_a),
                    a_cursor.eq(next_a),
                    c_base.eq(next_c),
                    c_cursor.eq(next_c),
                ]
            with m.If(last_issue):
                m.d.sync += streaming.eq(0)
        with m.If(take):
            m.d.sync += [
                streaming.eq(1),
                Cat(a.line, a.pitch).eq(Cat(front.a_line, front.a_pitch)),
                Cat(c.line, c.pitch).eq(Cat(front.c_line, front.c_pitch)),
                last_row.eq(front.rows - 1),
                last_k.eq(front.k_tiles - 1),
                last_n.eq(front.n_tiles - 1),
                accumulate.eq(front.accumulate),
                Cat(row, k, n).eq(0),
                a_base.eq(front.a_line),
                a_cursor.eq(front.a_line),
                c_base.eq(front.c_line),
                c_cursor.eq(front.c_line),
            ]

        # The pipeline behind the issue.
        stage = data.StructLayout({"line": c_bits, "chunk": CHUNK_LOG2, "fresh": 1, "last": 1})
        valid = [Signal(name=f"valid{i}") for i in range(1, 4)]
        stages = [Signal(stage, name=f"stage{i}", reset_less=True) for i in range(1, 4)]
        swap = Signal(reset_less=True)
        selecting, multiplying, adding = stages
        m.d.sync += Cat(*valid).eq(Cat(issue, *valid[:2]))
        with m.If(issue):
            m.d.sync += [
                swap.eq(row == 0),
                selecting.line.eq(c_cursor),
                selecting.chunk.eq(k),
                selecting.fresh.eq(fresh),
                selecting.last.eq(at_row & at_k & at_n),
            ]
        m.d.sync += [multiplying.eq(selecting), adding.eq(multiplying)]
        m.d.comb += [
            in_pipeline.eq(Cat(*valid).any()),
            # A row that is read here while the row before it is written would miss that write.
            hazard.eq(valid[0] & (selecting.line == c_cursor) & ~fresh),
            array.a_valid.eq(valid[0]),
            array.a_line.eq(self.a_data),
            array.a_chunk.eq(selecting.chunk),
            array.swap.eq(swap),
            array.product_xor.eq(self.product_xor),
            self.c_read.eq(valid[1] & ~multiplying.fresh),
            self.c_read_line.eq(multiplying.line),
            self.c_write.eq(valid[2]),
            self.c_write_line.eq(adding.line),
        ]
        for j in range(CUBE_SIDE):
            old = Mux(adding.fresh, 0, self.c_data[32 * j : 32 * j + 32])
            new = ((old + array.sums[j])[:32] + C(-SUM_OFFSET % 2**32, 32))[:32]
            m.d.comb += self.c_write_data[32 * j : 32 * j + 32].eq(new)

        with m.If(done_count != 0):
            m.d.comb += self.done.valid.eq(1)
        ended = valid[2] & adding.last
        with m.If(ended & ~((done_count != 0) & self.done.ready)):
            m.d.sync += done_count.eq(done_count + 1)
        with m.Elif(~ended & (done_count != 0) & self.done.ready):
            m.d.sync += done_count.eq(done_count - 1)

        with m.If(self.stop):
            m.d.sync += [
                streaming.eq(0),
                shadow_full.eq(0),
                Cat(*valid).eq(0),
                loaded.eq(0),
                done_count.eq(0),
            ]
        return m
