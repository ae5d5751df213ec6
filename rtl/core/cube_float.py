"""The bfloat16 half of the Cube pipe: MMAD with fp32 sums."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, MMAD_COMMAND
from abi.status import Status
from rtl.core.fp.fma import LATENCY
from rtl.core.fp.lane import FmaLane
from rtl.core.pipe import DONE, last_line

__all__ = ["FloatCube"]

ELEMENT_BITS = 16
PER_LINE = 8 * LINE_BYTES // ELEMENT_BITS
WORD_BITS = 32
C_LATENCY = 2
"""Cycles from the issue of a row to its line of L0C at the first stage."""


class FloatCube(wiring.Component):
    """Executes MMAD commands of type BF16: for each n tile, `depth` rows of B at a time, each
    row m: `depth` fused multiply-adds in a chain for each of 16 columns, in order of k.

    ```
    issue: read L0A | read L0C, select `depth` elements | FMA, k | FMA, k + 1 | ... | write L0C
    ```

    Rows of B for the next pass are loaded while a pass streams; each stage of the chain takes its
    row of B when the first row of the pass reaches it.

    Args:
        depth: products that each sum gains in a cycle: 1, 2, 4, 8 or 16.

    Members:
        command, done, stop, working, idle, and the ports of L0A, L0B and L0C: as in `Cube`;
        `working` stands for 16 * depth MACs.

    Timing: a row a cycle as long as a pass has at least as many rows as the chain has cycles
    (3 * depth + 3); shorter passes wait for their sums. An n tile begins when the one before has
    ended, as does a command.

    Errors: BUFFER_OVERFLOW, before any access.

    Raises:
        ValueError: `depth` is none of these.
    """

    def __init__(self, *, l0a_lines: int, l0b_lines: int, l0c_lines: int, depth: int = 4) -> None:
        if depth not in (1, 2, 4, 8, 16):
            raise ValueError(f"depth must be 1, 2, 4, 8 or 16, not {depth!r}")
        self._lines = (l0a_lines, l0b_lines, l0c_lines)
        self._depth = depth
        a, b, c = (exact_log2(lines) for lines in self._lines)
        line = 8 * LINE_BYTES
        super().__init__(
            {
                "command": In(stream.Signature(MMAD_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
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
        depth = self._depth
        groups_log2 = exact_log2(PER_LINE // depth)
        a_bits, b_bits, c_bits = (exact_log2(lines) for lines in self._lines)

        front = Signal(MMAD_COMMAND, reset_less=True)
        k_rows = Signal(20)
        overflow = Signal()
        checks = (
            (front.a_line, front.rows, front.a_pitch, (front.k_tiles + 1) >> 1),
            (front.b_line, k_rows, front.b_pitch, (front.n_tiles + 1) >> 1),
            (front.c_line, front.rows, front.c_pitch, front.n_tiles),
        )
        ends = [last_line(*terms) for terms in checks]
        m.d.comb += [
            k_rows.eq(front.k_tiles * CUBE_SIDE),
            overflow.eq(
                Cat(end >= lines for end, lines in zip(ends, self._lines, strict=True)).any()
            ),
        ]

        passes = Signal(20, reset_less=True)
        n = Signal(16, reset_less=True)
        row = Signal(16, reset_less=True)
        group = Signal(20, reset_less=True)
        a_base, a_cursor = (Signal(a_bits, reset_less=True) for _ in range(2))
        b_cursor = Signal(b_bits, reset_less=True)
        c_base, c_cursor = (Signal(c_bits, reset_less=True) for _ in range(2))
        loads_left = Signal(20, reset_less=True)
        b_count = Signal(range(depth + 1))
        waiting = Signal()  # Rows of B that no pass has taken yet.
        swapping = Signal()  # A pass has not yet brought its rows of B to the last stage.
        quiet = Signal()
        issue = Signal()
        load = Signal()

        alone = Signal()
        m.d.comb += alone.eq((front.c_pitch == 0) & (front.rows != 1))
        enough = front.rows >= LATENCY * depth + C_LATENCY + 1
        first = row == 0
        with m.FSM():
            with m.State("Empty"):
                m.d.comb += [self.command.ready.eq(1), self.idle.eq(1)]
                with m.If(self.command.valid):
                    m.d.sync += front.eq(self.command.payload)
                    m.next = "Check the bounds"
            with m.State("Check the bounds"):
                m.d.sync += [
                    n.eq(0),
                    passes.eq(front.k_tiles * (CUBE_SIDE // depth)),
                    c_base.eq(front.c_line),
                ]
                m.next = "Begin a tile"
                with m.If(overflow):
                    m.next = "Report a fault"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Begin a tile"):
                m.d.sync += [
                    row.eq(0),
                    group.eq(0),
                    a_base.eq(front.a_line),
                    a_cursor.eq(front.a_line),
                    b_cursor.eq(front.b_line + (n >> 1)),
                    c_cursor.eq(c_base),
                    loads_left.eq(passes),
                    b_count.eq(0),
                ]
                m.next = "Stream rows"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Stream rows"):
                held = first & (~waiting | swapping | ((group != 0) & ~enough & ~quiet))
                m.d.comb += [
                    load.eq((loads_left != 0) & ~waiting & ~swapping & (b_count != depth)),
                    issue.eq(~held & ~(alone & ~quiet) & ~self.stop),
                ]
                with m.If(load):
                    m.d.sync += [b_cursor.eq(b_cursor + front.b_pitch), b_count.eq(b_count + 1)]
                with m.If(issue):
                    m.d.sync += [
                        row.eq(row + 1),
                        a_cursor.eq(a_cursor + front.a_pitch),
                        c_cursor.eq(c_cursor + front.c_pitch),
                    ]
                    with m.If(row == (front.rows - 1)[:16]):
                        last_of_line = group[:groups_log2].all()
                        next_a = (a_base + last_of_line)[:a_bits]
                        m.d.sync += [
                            row.eq(0),
                            group.eq(group + 1),
                            a_base.eq(next_a),
                            a_cursor.eq(next_a),
                            c_cursor.eq(c_base),
                        ]
                        with m.If(group == (passes - 1)[:20]):
                            m.next = "Drain"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Drain"):
                with m.If(quiet):
                    m.d.sync += [n.eq(n + 1), c_base.eq(c_base + 1)]
                    m.next = "Begin a tile"
                    with m.If(n == (front.n_tiles - 1)[:16]):
                        m.next = "Report the end"
                with m.If(self.stop):
                    m.next = "Empty"
            with m.State("Report the end"):
                m.d.comb += [
                    self.done.valid.eq(1),
                    self.done.payload.status.eq(Status.OK),
                ]
                with m.If(self.done.ready | self.stop):
                    m.next = "Empty"
            with m.State("Report a fault"):
                m.d.comb += [
                    self.done.valid.eq(1),
                    self.done.payload.status.eq(Status.BUFFER_OVERFLOW),
                ]
                with m.If(self.done.ready | self.stop):
                    m.next = "Empty"
        m.d.comb += [
            self.done.payload.address.eq(0),
            self.a_enable.eq(issue),
            self.a_line.eq(a_cursor),
            self.b_enable.eq(load),
            self.b_line.eq(b_cursor),
            self.working.eq(issue),
        ]

        # Rows of B: `depth` of them, 16 columns each, for the pass that comes.
        loaded = Signal()
        loaded_row = Signal(range(depth), reset_less=True)
        half = n[0]
        half_bits = ELEMENT_BITS * CUBE_SIDE
        next_b = [Signal(half_bits, name=f"next_b{j}", reset_less=True) for j in range(depth)]
        m.d.sync += loaded.eq(load)
        with m.If(load):
            m.d.sync += loaded_row.eq(b_count)
        with m.If(loaded):
            picked = Mux(half, self.b_data[half_bits:], self.b_data[:half_bits])
            with m.Switch(loaded_row):
                for j in range(depth):
                    with m.Case(j):
                        m.d.sync += next_b[j].eq(picked)
            with m.If(loaded_row == depth - 1):
                m.d.sync += [waiting.eq(1), loads_left.eq(loads_left - 1)]
        with m.If(issue & first):
            m.d.sync += [waiting.eq(0), swapping.eq(1), b_count.eq(0)]

        # The pipeline. Every stage moves each cycle; `valid` says which hold a row.
        length = C_LATENCY + LATENCY * depth
        valid = Signal(length)
        swap = Signal(length)
        lines = [Signal(c_bits, name=f"line{i}", reset_less=True) for i in range(length)]
        fresh = [Signal(name=f"fresh{i}", reset_less=True) for i in range(C_LATENCY)]
        place = Signal(groups_log2, reset_less=True)
        m.d.sync += [valid.eq(Cat(issue, valid[:-1])), swap.eq(Cat(issue & first, swap[:-1]))]
        with m.If(issue):
            m.d.sync += place.eq(group)
        busy = Signal()
        m.d.comb += [busy.eq(issue | valid.any()), quiet.eq(~valid.any())]
        with m.If(busy):
            m.d.sync += [
                lines[0].eq(c_cursor),
                *[lines[i].eq(lines[i - 1]) for i in range(1, length)],
                fresh[0].eq((group == 0) & ~front.accumulate),
                *[fresh[i].eq(fresh[i - 1]) for i in range(1, C_LATENCY)],
            ]
        m.d.comb += [
            self.c_read.eq(valid[0] & ~fresh[0]),
            self.c_read_line.eq(lines[0]),
            self.c_write.eq(valid[-1]),
            self.c_write_line.eq(lines[-1]),
        ]

        chunk_bits = ELEMENT_BITS * depth
        chunks = [
            self.a_data[i * chunk_bits : (i + 1) * chunk_bits] for i in range(PER_LINE // depth)
        ]
        chosen = Signal(chunk_bits, reset_less=True)
        with m.If(valid[0]), m.Switch(place):
            for i, chunk in enumerate(chunks):
                with m.Case(i):
                    m.d.sync += chosen.eq(chunk)
        sums = [
            Mux(fresh[1], Const(0, WORD_BITS), self.c_data[WORD_BITS * j : WORD_BITS * (j + 1)])
            for j in range(CUBE_SIDE)
        ]
        zero = Const(0, WORD_BITS - ELEMENT_BITS)
        for stage in range(depth):
            # The stage's operands are there in the cycle `arrival` of the pipeline.
            arrival = C_LATENCY - 1 + LATENCY * stage
            element = chosen[ELEMENT_BITS * stage : ELEMENT_BITS * (stage + 1)]
            for step in range(LATENCY * stage):
                later = Signal(ELEMENT_BITS, name=f"a{stage}_{step}", reset_less=True)
                with m.If(busy):
                    m.d.sync += later.eq(element)
                element = later
            active = Signal(half_bits, name=f"b{stage}", reset_less=True)
            row_of_b = Signal(half_bits, name=f"row_of_b{stage}")
            m.d.comb += row_of_b.eq(Mux(swap[arrival], next_b[stage], active))
            with m.If(swap[arrival]):
                m.d.sync += active.eq(next_b[stage])
                if stage == depth - 1:
                    m.d.sync += swapping.eq(0)
            results = []
            for j in range(CUBE_SIDE):
                lane = FmaLane()
                m.submodules[f"lane{stage}_{j}"] = lane
                m.d.comb += [
                    lane.enable.eq(busy),
                    lane.a.eq(Cat(zero, element)),
                    lane.b.eq(Cat(zero, row_of_b[ELEMENT_BITS * j : ELEMENT_BITS * (j + 1)])),
                    lane.c.eq(sums[j]),
                ]
                results.append(lane.result)
            sums = results
        m.d.comb += self.c_write_data.eq(Cat(sums))

        with m.If(self.stop):
            m.d.sync += [
                valid.eq(0),
                swap.eq(0),
                loaded.eq(0),
                waiting.eq(0),
                swapping.eq(0),
                b_count.eq(0),
            ]
        return m
