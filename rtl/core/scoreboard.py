"""Decides when commands start and end: flags, retirement, faults, deadlock, trace."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from abi.core import FLAGS, PIPES, Pipe
from abi.status import Status
from abi.trace import PIPES_PER_CORE, TRACE_EVENT, TraceCode, TraceSource
from rtl.core.dispatch import FLAG_OPERATION, SCALAR_FAULT
from rtl.core.flags import FlagFile
from rtl.core.pipe import DONE

__all__ = ["HEAD", "IN_FLIGHT", "QUEUE_DEPTH", "Scoreboard"]

QUEUE_DEPTH = 4
"""Commands that wait in front of a pipe, its head included."""

IN_FLIGHT = 2
"""Commands that a pipe works at: one at its back, the next at its front."""

STUCK_CYCLES = 3
"""Cycles without any possible event until that is a deadlock: longer than a signal of the scalar
unit or a queue takes to show what happened last."""

HEAD = data.StructLayout({"wait": FLAGS, "set": FLAGS, "pc": 32, "nop": 1})
"""The head of a pipe's queue."""


class Scoreboard(wiring.Component):
    """One event a cycle: a command ends, the scalar unit's flag operation happens, or a command
    may start.

    A command starts when its flags are there (they are taken then) and its pipe works at less
    than `IN_FLIGHT` commands. A NOP waits until its pipe has nothing left and then ends at once.

    The first fault of a block stops all pipes; so do its exit and an abort. The core is busy until
    everything is idle. If no event is possible, no pipe works and the scalar unit is blocked too,
    nothing can ever happen again: FLAG_DEADLOCK, of the lowest pipe that waits, else of SCALAR.

    Args:
        core: number of the core, for the trace.

    Members:
        start: 1 bit, when not busy. cancel: 1 bit, at any time; end the block with ABORTED.
        block: 40 bits; number of the block, for the trace.
        flag: stream of `FLAG_OPERATION`.
        scalar_fault, scalar_fault_valid: of the scalar unit, until `stop`.
        exited: 1 bit; the scalar unit has ended the block.
        scalar_pc: 32 bits; its instruction. scalar_blocked: 1 bit; it waits for queue or flag,
            or for `drained`.
        dispatch_blocked: 1 bit; it has a command for a full queue.
        head, head_valid: `HEAD`, and 1 bit, for each pipe. queued: length of each queue.
        pop: 1 bit for each pipe; the head leaves its queue.
        issue, pipe_ready: valid and ready of each pipe's command, which is the head.
        done: stream of `DONE`, for each pipe.
        units_idle: 1 bit; pipes and scalar unit are idle, queues are empty.
        drained: 1 bit; all commands that were queued have ended.
        busy: 1 bit; a block runs.
        stop: 1 bit; pipes, queues and scalar unit have to drop everything.
        finished: 1 bit for one cycle; a block has ended.
        fault, fault_valid: `SCALAR_FAULT`; 1 bit for one cycle, at the first fault of a block.
        retired: 64 bits; commands finished since reset.
        holding: 1 bit for each pipe; it has a command, waiting or in work.
        trace: stream of TRACE_EVENT; never waits. trace_dropped: 1 bit; an event was lost.
        idle: 1 bit; not busy and no trace event is left.

    Timing: flags that a command sets let another start 2 cycles after it ended.

    Errors: those of pipes and scalar unit, FLAG_OVERFLOW, FLAG_DEADLOCK, ABORTED.
    """

    def __init__(self, *, core: int = 0) -> None:
        if not 0 <= core < 256 // PIPES_PER_CORE:
            raise ValueError(f"core must be between 0 and 31, not {core!r}")
        self._core = core
        pipes = len(PIPES)
        super().__init__(
            {
                "start": In(1),
                "cancel": In(1),
                "block": In(40),
                "flag": In(stream.Signature(FLAG_OPERATION)),
                "scalar_fault": In(SCALAR_FAULT),
                "scalar_fault_valid": In(1),
                "exited": In(1),
                "scalar_pc": In(32),
                "scalar_blocked": In(1),
                "dispatch_blocked": In(1),
                "head": In(HEAD).array(pipes),
                "head_valid": In(1).array(pipes),
                "queued": In(range(QUEUE_DEPTH + 1)).array(pipes),
                "pop": Out(1).array(pipes),
                "issue": Out(1).array(pipes),
                "pipe_ready": In(1).array(pipes),
                "done": In(stream.Signature(DONE)).array(pipes),
                "units_idle": In(1),
                "drained": Out(1),
                "busy": Out(1),
                "stop": Out(1),
                "finished": Out(1),
                "fault": Out(SCALAR_FAULT),
                "fault_valid": Out(1),
                "retired": Out(64),
                "holding": Out(1).array(pipes),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "trace_dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.flags = flags = FlagFile()
        running = Signal()
        stopping = Signal()
        status = Signal(8, reset_less=True)
        m.d.comb += [
            self.busy.eq(running | stopping),
            self.stop.eq(stopping),
            self.idle.eq(~self.busy & ~self.finished & ~self.trace.valid),
            flags.clear.eq(self.start),
        ]

        # What each pipe works at: the oldest command and the one after it.
        counts = [Signal(range(IN_FLIGHT + 1), name=f"count{p}") for p in PIPES]
        taken = [Signal(name=f"taken{p}") for p in PIPES]
        begins = [Signal(name=f"begins{p}") for p in PIPES]
        entry = data.StructLayout({"set": FLAGS, "pc": 32})
        oldest = [Signal(entry, name=f"oldest{p}", reset_less=True) for p in PIPES]
        newest = [Signal(entry, name=f"newest{p}", reset_less=True) for p in PIPES]

        ends = Signal()
        retire = Signal()
        stuck_for = Signal(range(STUCK_CYCLES + 1))
        fault = self.fault
        # An END, or the core's BEGIN: it cannot wait. A pipe's BEGIN comes when there is none.
        span = Signal(TRACE_EVENT)
        span_valid = Signal()

        def end_span(p: int, outcome: Value) -> None:
            m.d.comb += [
                span_valid.eq(1),
                span.source.eq(TraceSource.PIPE),
                span.instance.eq(self._core * PIPES_PER_CORE + p),
                span.code.eq(TraceCode.END),
                span.argument.eq(Cat(outcome, oldest[p].pc)),
            ]

        def core_span(code: TraceCode, argument: Value) -> None:
            m.d.comb += [
                span_valid.eq(1),
                span.source.eq(TraceSource.CORE),
                span.instance.eq(self._core),
                span.code.eq(code),
                span.argument.eq(argument),
            ]

        nothing_queued = Cat(*[queued != 0 for queued in self.queued]) == 0
        nothing_in_flight = Signal()
        m.d.comb += [
            nothing_in_flight.eq(Cat(*counts) == 0),
            self.drained.eq(nothing_queued & nothing_in_flight),
        ]
        for p in PIPES:
            m.d.comb += [
                self.issue[p].eq(taken[p] & ~stopping),
                self.pop[p].eq(stopping | (taken[p] & self.pipe_ready[p])),
                self.holding[p].eq((self.queued[p] != 0) | (counts[p] != 0)),
            ]
            with m.If(taken[p] & self.pipe_ready[p]):
                m.d.sync += taken[p].eq(0)

        # The event of this cycle.
        operation = self.flag.payload
        one_hot = Signal(FLAGS)
        flag_there = Signal()
        m.d.comb += [
            one_hot.eq(Value.cast(1 << operation.flag)[:FLAGS]),
            flag_there.eq(operation.give | flags.present.bit_select(operation.flag, 1)),
            fault.pipe.eq(Pipe.SCALAR),
            fault.pc.eq(self.scalar_pc),
        ]
        failing = Signal(8)
        m.d.comb += fault.status.eq(failing)
        gives = Signal()
        # A register, since what the scalar unit waits for depends on what happens here.
        blocked = Signal()
        m.d.sync += [stuck_for.eq(0), blocked.eq(self.scalar_blocked)]
        with m.If(~running):
            pass
        with m.Elif(self.cancel):
            m.d.comb += failing.eq(Status.ABORTED)
        for p in PIPES:
            # A span's END must not overtake its BEGIN.
            with m.Elif(self.done[p].valid & ~begins[p]):
                done = self.done[p].payload
                m.d.comb += [
                    self.done[p].ready.eq(1),
                    fault.pipe.eq(p),
                    fault.pc.eq(oldest[p].pc),
                    fault.address.eq(done.address),
                    failing.eq(done.status),
                ]
                m.d.sync += [counts[p].eq(counts[p] - 1), oldest[p].eq(newest[p])]
                with m.If(counts[p] == IN_FLIGHT):
                    m.d.sync += begins[p].eq(1)
                with m.If(done.status == Status.OK):
                    m.d.comb += [retire.eq(1), gives.eq(1), flags.give.eq(oldest[p].set)]
                end_span(p, done.status)
        with m.Elif(self.scalar_fault_valid):
            m.d.comb += [
                Value.cast(fault).eq(Value.cast(self.scalar_fault)),
                failing.eq(self.scalar_fault.status),
            ]
        with m.Elif(self.exited):
            m.d.comb += ends.eq(1)
        with m.Elif(self.flag.valid & flag_there):
            m.d.comb += self.flag.ready.eq(1)
            with m.If(operation.give):
                m.d.comb += [gives.eq(1), flags.give.eq(one_hot)]
            with m.Else():
                m.d.comb += flags.take.eq(one_hot)
        for p in PIPES:
            head = self.head[p]
            room = Mux(head.nop, counts[p] == 0, counts[p] != IN_FLIGHT)
            there = (head.wait & ~flags.present) == 0
            with m.Elif(self.head_valid[p] & ~taken[p] & room & there):
                m.d.comb += [flags.take.eq(head.wait), fault.pipe.eq(p), fault.pc.eq(head.pc)]
                with m.If(head.nop):
                    m.d.comb += [
                        self.pop[p].eq(1),
                        retire.eq(1),
                        gives.eq(1),
                        flags.give.eq(head.set),
                    ]
                with m.Else():
                    new = Cat(head.set, head.pc)
                    m.d.sync += [taken[p].eq(1), counts[p].eq(counts[p] + 1)]
                    m.d.sync += Value.cast(newest[p]).eq(new)
                    with m.If(counts[p] == 0):
                        m.d.sync += [begins[p].eq(1), Value.cast(oldest[p]).eq(new)]
        visible = Cat(*[(self.queued[p] == 0) | self.head_valid[p] for p in PIPES]).all()
        # A flag that is there, or a barrier with nothing before it, lets the scalar unit go on.
        needs = self.flag.valid | self.dispatch_blocked | ~nothing_queued
        with m.Elif(nothing_in_flight & visible & blocked & needs):
            m.d.sync += stuck_for.eq(stuck_for + 1)
            with m.If(stuck_for == STUCK_CYCLES):
                m.d.comb += failing.eq(Status.FLAG_DEADLOCK)
            for p in reversed(PIPES):
                with m.If(self.head_valid[p]):
                    m.d.comb += [fault.pipe.eq(p), fault.pc.eq(self.head[p].pc)]

        overflow = Signal()
        m.d.comb += overflow.eq(gives & flags.overflow)
        with m.If(overflow):
            m.d.comb += fault.status.eq(Status.FLAG_OVERFLOW)
        m.d.comb += self.fault_valid.eq(running & (overflow | (failing != Status.OK)))
        with m.If(self.fault_valid):
            m.d.sync += [running.eq(0), stopping.eq(1), status.eq(fault.status)]
        with m.Elif(ends):
            m.d.sync += [running.eq(0), stopping.eq(1)]
        with m.If(retire & ~overflow):
            m.d.sync += self.retired.eq(self.retired + 1)

        # Begin and end of the block.
        with m.If(self.start):
            m.d.sync += [running.eq(1), status.eq(Status.OK)]
            core_span(TraceCode.BEGIN, self.block)
        m.d.sync += self.finished.eq(0)
        with m.If(stopping):
            m.d.sync += [taken[p].eq(0) for p in PIPES]
            with m.If(nothing_in_flight & self.units_idle):
                m.d.sync += [stopping.eq(0), self.finished.eq(1)]
                core_span(TraceCode.END, status)
            for p in PIPES:
                with m.Elif(counts[p] != 0):
                    m.d.sync += [counts[p].eq(0), begins[p].eq(0)]
                    with m.If(~begins[p]):
                        end_span(p, status)
        self._trace(m, span, span_valid, begins, oldest, running)
        return m

    def _trace(
        self,
        m: Module,
        span: Signal,
        span_valid: Signal,
        begins: list[Signal],
        oldest: list[Signal],
        running: Signal,
    ) -> None:
        """One event a cycle into a register: `span` if there is one, else a BEGIN of a pipe."""
        begin = Signal(TRACE_EVENT)
        begin_valid = Signal()
        m.d.comb += [begin.source.eq(TraceSource.PIPE), begin.code.eq(TraceCode.BEGIN)]
        with m.If(span_valid | ~running):
            pass
        for p in PIPES:
            with m.Elif(begins[p]):
                m.d.comb += [
                    begin_valid.eq(1),
                    begin.instance.eq(self._core * PIPES_PER_CORE + p),
                    begin.argument.eq(oldest[p].pc),
                ]
                m.d.sync += begins[p].eq(0)
        free = ~self.trace.valid | self.trace.ready
        m.d.sync += self.trace_dropped.eq((span_valid | begin_valid) & ~free)
        with m.If(free):
            m.d.sync += [
                self.trace.valid.eq(span_valid | begin_valid),
                self.trace.payload.eq(Mux(span_valid, span, begin)),
            ]
