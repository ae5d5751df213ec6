"""The VECTOR pipe: operations on rows of 32-bit elements in UB."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.core import VECTOR_COMMAND, VECTOR_LANES
from abi.status import Status
from rtl.core.pipe import DONE
from rtl.core.vector.addresses import BlockWalker, Walker
from rtl.core.vector.decode import Shape
from rtl.core.vector.front import WORK, Front
from rtl.core.vector.gather import Gatherer
from rtl.core.vector.lanes import CYCLES, Lanes
from rtl.core.vector.lines import LineReader, LineWriter
from rtl.core.vector.packing import Packer, unpacked
from rtl.core.vector.reduction import TAG, Reduction, Step
from rtl.core.vector.transpose import Transposer
from rtl.memory.port import LINE_BITS

__all__ = ["VectorUnit"]

WORD = LINE_BITS // VECTOR_LANES
LANE_BITS = exact_log2(VECTOR_LANES)


class VectorUnit(wiring.Component):
    """Executes VECTOR commands in order. A command sees all that the ones before it wrote.

    ```
    UB ─► LineReader a ─┬────────────────────────────┐
                        ├─► Transposer, Gatherer ─►──┤
    UB ─► LineReader b ─┼────────────────────────────┼─► Lanes ─► Packer ─► LineWriter ─► UB
    UB ─► LineReader c ─┘                            │     │
                                   Reduction ────────┘ ◄───┘
    ```

    The result may overlap sources if no line is read, in the order of the lines of the result,
    after it has been written; such as a result in place of a source, line by line. Otherwise the
    result is undefined: lines are read ahead.

    TRANSPOSE works on blocks of 16 by 16: of 16 columns it writes those of rows 0 to 15, then of
    16 to 31, and so on, then of the next 16 columns.

    GATHER: a negative number counts back from the row's first line, which must be in UB. Lanes
    beyond `columns` become 0, and their numbers are not looked at. When a number leaves UB, the
    lines before the one with this element have been written.

    Args:
        lines: size of UB, a power of two, at most 32768.

    Members:
        command: stream of VECTOR commands, already checked by the scalar unit.
        done: stream of `DONE`, one per command in order. OK comes when the last line is written.
        stop: 1 bit; forget all commands.
        read, read_line, read_granted, read_data: readers a, b and c of `UnifiedBuffer`.
        write, write_line, write_data, write_granted: a writer of it.
        working: 1 bit; a line is written, or an element gathered.
        idle: 1 bit; no command is held.

    Timing: one line a cycle if the banks allow. The first write of an element-wise command comes
    11 cycles after the command, and 8 after the last write of the command before. Reductions:
    n + 7 cycles for a row of n lines. TRANSPOSE: 32 cycles for 16 lines. GATHER: one element a
    cycle.

    Errors: BAD_COMMAND and BUFFER_OVERFLOW before anything is written; BUFFER_OVERFLOW of GATHER.

    Raises:
        ValueError: `lines` is no power of two from 16 to 32768.
    """

    def __init__(self, *, lines: int) -> None:
        if not 16 <= lines <= 1 << 15 or lines & (lines - 1):
            raise ValueError(f"lines must be a power of two from 16 to 32768, not {lines!r}")
        self._lines = lines
        address = exact_log2(lines)
        super().__init__(
            {
                "command": In(stream.Signature(VECTOR_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "read_data": In(LINE_BITS).array(3),
                "write_data": Out(LINE_BITS),
                "stop": In(1),
                "read": Out(1).array(3),
                "read_line": Out(address).array(3),
                "read_granted": In(1).array(3),
                "write": Out(1),
                "write_line": Out(address),
                "write_granted": In(1),
                "working": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.front = front = Front(lines=self._lines)
        m.submodules.gatherer = gatherer = Gatherer(lines=self._lines)
        m.submodules.transposer = transposer = Transposer()
        m.submodules.reduction = reduction = Reduction()
        m.submodules.lanes = lanes = Lanes()
        m.submodules.packer = packer = Packer()
        m.submodules.writer = writer = LineWriter(lines=self._lines)
        m.submodules.to = to = Walker()
        m.submodules.to_blocks = to_blocks = BlockWalker()
        m.submodules.slots = slots = Walker()
        readers, walkers = [], []
        for number, name in enumerate("abc"):
            m.submodules[f"reader_{name}"] = reader = LineReader(lines=self._lines)
            m.submodules[f"walker_{name}"] = walker = Walker()
            readers.append(reader)
            walkers.append(walker)
            m.d.comb += [
                self.read[number].eq(reader.read),
                self.read_line[number].eq(reader.read_line),
                reader.read_granted.eq(self.read_granted[number]),
                reader.read_data.eq(self.read_data[number]),
            ]
        a, b, c = readers
        wiring.connect(m, wiring.flipped(self.command), front.command)

        # The command that runs.
        work = Signal(WORK, reset_less=True)
        command, plan = work.command, work.plan
        offered = front.work.payload
        start, clear = Signal(), Signal()
        running, failed = Signal(), Signal()
        finished, gather_failed = Signal(), Signal()
        done_count = Signal(2)
        shape = plan.form
        transposes, gathers = shape == Shape.TRANSPOSED, shape == Shape.GATHERED
        m.d.comb += [
            front.work.ready.eq((~running | finished) & ~failed),
            start.eq(front.work.valid & front.work.ready & ~self.stop),
            clear.eq(self.stop | gather_failed),
            front.stop.eq(self.stop),
            gather_failed.eq(
                running & gatherer.failed & gatherer.drained & ~gatherer.out_valid & writer.empty
            ),
            self.idle.eq(front.empty & ~running & ~failed & (done_count == 0)),
        ]
        with m.If(finished | gather_failed):
            m.d.sync += running.eq(0)
        with m.If(gather_failed):
            m.d.sync += failed.eq(1)
        with m.If(start):
            m.d.sync += [running.eq(1), work.eq(offered)]
        self._walk(m, offered, start, clear, walkers, to, to_blocks, slots)
        starts_transpose = start & (offered.plan.form == Shape.TRANSPOSED)
        starts_gather = start & (offered.plan.form == Shape.GATHERED)

        # Sources.
        for reader, walker in zip(readers, walkers, strict=True):
            m.d.comb += [
                reader.wanted.eq(walker.valid),
                reader.line.eq(walker.line),
                walker.next.eq(reader.taken),
                reader.stop.eq(clear),
            ]
        number_words = Mux(work.uses_b, b.data, command.immediate.replicate(VECTOR_LANES))
        m.d.comb += [
            gatherer.start.eq(starts_gather),
            gatherer.stop.eq(clear),
            gatherer.columns.eq(Mux(start, offered.command.columns, command.columns)),
            gatherer.step.eq(command.a_step),
            gatherer.row_valid.eq(walkers[0].valid & gathers),
            gatherer.row_line.eq(walkers[0].line),
            gatherer.numbers_valid.eq(~work.uses_b | b.valid),
            gatherer.numbers.eq(number_words),
            gatherer.taken.eq(a.taken & gathers),
            gatherer.in_valid.eq(a.valid & gathers),
            gatherer.in_data.eq(a.data),
            transposer.start.eq(starts_transpose),
            transposer.stop.eq(clear),
            transposer.rows.eq(Mux(start, offered.command.rows, command.rows)),
            transposer.columns.eq(offered.command.columns),
            transposer.in_valid.eq(a.valid & transposes),
            transposer.in_data.eq(a.data),
        ]
        with m.If(gathers):
            m.d.comb += [
                a.wanted.eq(gatherer.wanted),
                a.line.eq(gatherer.line),
                walkers[0].next.eq(gatherer.row_next),
            ]

        # Slots of the lanes: the tail of a reduction, or the next line.
        tags = [Signal(TAG, name=f"tag{stage}") for stage in range(CYCLES)]
        tag, last_tag = Signal(TAG), tags[-1]
        place, first = Signal(2), Signal()
        ready, line = Signal(), Signal()
        x, y = Signal(LINE_BITS), Signal(LINE_BITS)
        bank = Signal()
        immediate = Signal(LINE_BITS)
        full = Mux(plan.density[1], place == 3, place[0])
        m.d.comb += [
            immediate.eq(command.immediate.replicate(VECTOR_LANES)),
            y.eq(Mux(work.uses_b, b.data, immediate)),
            line.eq(
                slots.valid
                & ready
                & (gathers | ~work.uses_b | b.valid)
                & (~work.uses_c | c.valid)
                & writer.room
                & (~plan.reduces | (~reduction.taken & (~first | reduction.room)))
            ),
            slots.next.eq(line),
            tag.valid.eq(line),
            tag.place.eq(place),
            tag.bank.eq(bank),
            tag.end.eq(slots.row_end),
            b.pop.eq(line & work.uses_b & (command.b_step | slots.row_end)),
            c.pop.eq(line & work.uses_c & (command.c_step | slots.row_end)),
            writer.reserve.eq(
                line & (slots.row_end | ~(plan.reduces | plan.packs) | (plan.packs & full))
            ),
        ]
        with m.Switch(shape):
            with m.Case(Shape.DIRECT):
                m.d.comb += [
                    ready.eq(a.valid),
                    x.eq(a.data),
                    a.pop.eq(line & (command.a_step | slots.row_end)),
                ]
            with m.Case(Shape.UNPACKED):
                m.d.comb += [
                    ready.eq(a.valid),
                    x.eq(unpacked(m, a.data, place, plan.density[1])),
                    a.pop.eq(line & ((command.a_step & full) | slots.row_end)),
                ]
            with m.Case(Shape.TRANSPOSED):
                m.d.comb += [
                    ready.eq(transposer.out_valid),
                    x.eq(transposer.out_data),
                    transposer.out_pop.eq(line),
                    a.pop.eq(transposer.in_pop),
                ]
            with m.Case(Shape.GATHERED):
                m.d.comb += [
                    ready.eq(gatherer.out_valid),
                    x.eq(gatherer.out_data),
                    gatherer.out_pop.eq(line),
                    a.pop.eq(gatherer.in_pop),
                    b.pop.eq(
                        work.uses_b & Mux(command.b_step, gatherer.line_end, gatherer.row_end)
                    ),
                ]
            with m.Case(Shape.IMMEDIATE):
                m.d.comb += [ready.eq(1), x.eq(immediate)]
        with m.If(line):
            m.d.sync += [place.eq(Mux(slots.row_end, 0, place + 1)), first.eq(slots.row_end)]
            with m.If(slots.row_end):
                m.d.sync += bank.eq(~bank)
        with m.If(start):
            m.d.sync += [place.eq(0), first.eq(1), bank.eq(0)]

        # In a reduction, lanes beyond the columns have the identity.
        rest = command.columns[:LANE_BITS]
        outside = Signal(VECTOR_LANES)
        with m.If(slots.row_end & (rest != 0)):
            m.d.comb += outside.eq(Cat(*[rest <= lane for lane in range(VECTOR_LANES - 1)], 1))
        kept = Cat(
            Mux(out, plan.identity, x[WORD * lane : WORD * (lane + 1)])
            for lane, out in enumerate(outside)
        )
        m.d.comb += [
            reduction.start.eq(start),
            reduction.stop.eq(clear),
            reduction.lines.eq(work.lines),
            reduction.identity.eq(plan.identity),
            reduction.line.eq(line & plan.reduces),
            reduction.line_tag.eq(tag),
            reduction.line_first.eq(first),
            reduction.result.eq(lanes.result),
            reduction.tag.eq(last_tag),
            reduction.tag.valid.eq(last_tag.valid & plan.reduces),
            lanes.function.eq(plan.function),
            lanes.x.eq(x),
            lanes.y.eq(y),
            lanes.z.eq(Mux(work.uses_c, c.data, immediate)),
            lanes.enable.eq(line),
        ]
        m.d.sync += [tags[0].eq(tag), *[later.eq(tag) for tag, later in pairwise(tags)]]
        with m.If(plan.reduces):
            m.d.comb += [lanes.x.eq(kept), lanes.y.eq(reduction.line_partial)]
            with m.If(reduction.taken):
                m.d.comb += [
                    lanes.x.eq(reduction.x),
                    lanes.y.eq(reduction.y),
                    lanes.enable.eq(1),
                ]
                m.d.sync += tags[0].eq(reduction.next_tag)
        with m.If(clear):
            m.d.sync += [later.valid.eq(0) for later in tags]

        # Results.
        target = Mux(transposes, to_blocks.line, to.line)
        target_last = Mux(transposes, to_blocks.last, to.last)
        m.d.comb += [
            packer.valid.eq(last_tag.valid & (~plan.reduces | (last_tag.step == Step.BY_1))),
            packer.words.eq(lanes.result),
            packer.packs.eq(plan.packs),
            packer.dense.eq(plan.density[1]),
            packer.place.eq(last_tag.place),
            packer.end.eq(last_tag.end),
            writer.push.eq(packer.push),
            writer.data.eq(packer.line),
            writer.line.eq(target),
            writer.stop.eq(clear),
            self.write.eq(writer.write),
            self.write_line.eq(writer.write_line),
            self.write_data.eq(writer.write_data),
            writer.write_granted.eq(self.write_granted),
            to.next.eq(writer.written),
            to_blocks.next.eq(writer.written),
            finished.eq(writer.written & target_last),
            self.working.eq(writer.written | gatherer.gathered),
        ]
        self._report(m, front, done_count, failed, finished, running)
        with m.If(self.stop):
            m.d.sync += [running.eq(0), failed.eq(0), done_count.eq(0)]
        return m

    def _walk(
        self,
        m: Module,
        work: Value,
        start: Value,
        clear: Value,
        sources: list[Walker],
        to: Walker,
        to_blocks: BlockWalker,
        slots: Walker,
    ) -> None:
        """Starts all walkers for a command."""
        command, plan = work.command, work.plan
        uses = (plan.uses_a, work.uses_b, work.uses_c)
        for walker, name, used in zip(sources, "abc", uses, strict=True):
            m.d.comb += [
                walker.start.eq(start & used),
                walker.first.eq(command[f"{name}_line"]),
                walker.stride.eq(1),
                walker.count.eq(work[f"{name}_lines"]),
                walker.outer_stride.eq(command[f"{name}_pitch"]),
                walker.outer_count.eq(command.rows),
                walker.stop.eq(clear),
            ]
        with m.If(plan.form == Shape.TRANSPOSED):
            # A column of blocks from the first row to the last, then the next one.
            m.d.comb += [
                sources[0].stride.eq(command.a_pitch),
                sources[0].count.eq(command.rows),
                sources[0].outer_stride.eq(command.a_step),
                sources[0].outer_count.eq(work.lines),
            ]
        for walker, lines in ((to, work.target_lines), (slots, work.lines)):
            m.d.comb += [
                walker.start.eq(start),
                walker.first.eq(command.line),
                walker.stride.eq(1),
                walker.count.eq(lines),
                walker.outer_stride.eq(command.pitch),
                walker.outer_count.eq(work.target_rows),
                walker.stop.eq(clear),
            ]
        with m.If(plan.form == Shape.TRANSPOSED):
            m.d.comb += slots.count.eq(work.target_lines)
        m.d.comb += [
            to_blocks.start.eq(start),
            to_blocks.first.eq(command.line),
            to_blocks.pitch.eq(command.pitch),
            to_blocks.rows.eq(command.columns),
            to_blocks.lines.eq(work.target_lines),
        ]

    def _report(
        self,
        m: Module,
        front: Front,
        done_count: Signal,
        failed: Signal,
        finished: Value,
        running: Value,
    ) -> None:
        """Reports commands that ended well before one that failed, and that before the next."""
        well = done_count != 0
        with m.If(well):
            m.d.comb += self.done.valid.eq(1)
        with m.Elif(failed):
            m.d.comb += [
                self.done.valid.eq(1),
                self.done.payload.status.eq(Status.BUFFER_OVERFLOW),
            ]
            with m.If(self.done.ready):
                m.d.sync += failed.eq(0)
        with m.Elif(front.fault & ~running):
            m.d.comb += [
                self.done.valid.eq(1),
                self.done.payload.status.eq(front.status),
                front.reported.eq(self.done.ready),
            ]
        m.d.sync += done_count.eq(done_count + finished - (well & self.done.ready))
