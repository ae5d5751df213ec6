"""Decides when commands start and end: flags, retirement, faults, deadlock, trace."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from abi.core import Pipe
from abi.status import Status
from abi.trace import TRACE_EVENT, TraceCode, TraceSource
from rtl.core.flags import FlagFile
from rtl.core.pipe import DONE
from rtl.core.sequencer import CONTROL

__all__ = ["HEAD", "QUEUE_DEPTH", "SEQUENCER", "Scoreboard"]

QUEUE_DEPTH = 4
"""Commands that wait in front of a pipe, its head included."""

SEQUENCER = 0xFF
"""CORE_STATE.pipe when the sequencer failed."""

IN_FLIGHT = 2
"""Commands that a pipe works at: one at its back, the next at its front."""

HEAD = data.StructLayout({"index": 32, "wait": 16, "set": 16, "nop": 1})
"""The head of a pipe's queue."""

PIPES = len(Pipe)


class Scoreboard(wiring.Component):
    """One event a cycle: a command ends, or a JUMP or END happens, or a command may start.

    A command starts when its flags are there (they are taken then) and its pipe works at less
    than `IN_FLIGHT` commands. A NOP waits until its pipe has nothing left and then ends at once.

    The first fault stops all pipes; so do END and an abort. The core is busy until everything is
    idle. If no event is possible, no pipe works and the sequencer is stuck, nothing can ever
    happen again: FLAG_DEADLOCK, of the lowest pipe that waits.

    Members:
        start: 1 bit, when not busy. abort: 1 bit, at any time.
        program: 64 bits, for the trace.
        control: stream of `CONTROL`.
        dispatch_blocked: 1 bit; the sequencer has a command for a full queue.
        index: 32 bits; the command that the sequencer looks at.
        head, head_valid: `HEAD`, and 1 bit, for each pipe. queued: length of each queue.
        pop: 1 bit for each pipe; the head leaves its queue.
        issue, pipe_ready: valid and ready of each pipe's command, which is the head.
        done: stream of `DONE`, for each pipe.
        units_idle: 1 bit; pipes and sequencer are idle, queues are empty.
        busy: 1 bit; a program runs.
        stop: 1 bit; pipes, queues and sequencer have to drop everything.
        finished: 1 bit for one cycle; a program has ended.
        status, pipe, command, address: 8, 8, 32 and 64 bits; outcome of the last program.
        retired: 64 bits; commands finished since reset.
        holding: 1 bit for each pipe; it has a command, waiting or in work.
        trace: stream of TRACE_EVENT; never waits. trace_dropped: 1 bit; an event was lost.
        idle: 1 bit; not busy and no trace event is left.

    Timing: flags that a command sets let another start 2 cycles after it ended.

    Errors: those of pipes and sequencer, FLAG_OVERFLOW, FLAG_DEADLOCK, ABORTED.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "abort": In(1),
                "program": In(64),
                "control": In(stream.Signature(CONTROL)),
                "dispatch_blocked": In(1),
                "index": In(32),
                "head": In(HEAD).array(PIPES),
                "head_valid": In(1).array(PIPES),
                "queued": In(range(QUEUE_DEPTH + 1)).array(PIPES),
                "pop": Out(1).array(PIPES),
                "issue": Out(1).array(PIPES),
                "pipe_ready": In(1).array(PIPES),
                "done": In(stream.Signature(DONE)).array(PIPES),
                "units_idle": In(1),
                "busy": Out(1),
                "stop": Out(1),
                "finished": Out(1),
                "status": Out(8),
                "pipe": Out(8),
                "command": Out(32),
                "address": Out(64),
                "retired": Out(64),
                "holding": Out(1).array(PIPES),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "trace_dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.flags = flags = FlagFile()
        pipes = range(PIPES)
        running = Signal()
        stopping = Signal()
        m.d.comb += [
            self.busy.eq(running | stopping),
            self.stop.eq(stopping),
            self.idle.eq(~self.busy & ~self.trace.valid),
            flags.clear.eq(self.start),
        ]

        # What each pipe works at: the oldest command and the one after it.
        counts = [Signal(range(IN_FLIGHT + 1), name=f"count{p}") for p in pipes]
        taken = [Signal(name=f"taken{p}") for p in pipes]
        begins = [Signal(name=f"begins{p}") for p in pipes]
        entry = data.StructLayout({"index": 32, "set": 16})
        oldest = [Signal(entry, name=f"oldest{p}", reset_less=True) for p in pipes]
        newest = [Signal(entry, name=f"newest{p}", reset_less=True) for p in pipes]

        ends = Signal()
        fault = Signal(8)
        fault_address = Signal(64)
        culprit = Signal(8)
        culprit_command = Signal(32)
        retire = Signal()
        # An END, or the core's BEGIN: it cannot wait. A pipe's BEGIN comes when there is none.
        span = Signal(TRACE_EVENT)
        span_valid = Signal()

        def end_span(p: int, status: Value) -> None:
            m.d.comb += [
                span_valid.eq(1),
                span.source.eq(TraceSource.PIPE),
                span.instance.eq(p),
                span.code.eq(TraceCode.END),
                span.argument.eq(Cat(status, oldest[p].index)),
            ]

        def core_span(code: TraceCode, argument: Value) -> None:
            m.d.comb += [
                span_valid.eq(1),
                span.source.eq(TraceSource.CORE),
                span.code.eq(code),
                span.argument.eq(argument),
            ]

        def present(wait: Value) -> Value:
            return (wait & ~flags.present) == 0

        nothing_queued = Cat(*[queued != 0 for queued in self.queued]) == 0
        nothing_in_flight = Cat(*counts) == 0
        control = self.control.payload
        allowed = ~control.end | (nothing_queued & nothing_in_flight)
        stuck = self.control.valid | self.dispatch_blocked
        visible = Cat(*[(self.queued[p] == 0) | self.head_valid[p] for p in pipes]).all()
        for p in pipes:
            m.d.comb += [
                self.issue[p].eq(taken[p] & ~stopping),
                self.pop[p].eq(stopping | (taken[p] & self.pipe_ready[p])),
                self.holding[p].eq((self.queued[p] != 0) | (counts[p] != 0)),
            ]
            with m.If(taken[p] & self.pipe_ready[p]):
                m.d.sync += taken[p].eq(0)

        with m.If(~running):
            pass
        with m.Elif(self.abort):
            m.d.comb += [
                fault.eq(Status.ABORTED),
                culprit.eq(SEQUENCER),
                culprit_command.eq(self.index),
            ]
        for p in pipes:
            # A span's END must not overtake its BEGIN.
            with m.Elif(self.done[p].valid & ~begins[p]):
                done = self.done[p].payload
                m.d.comb += [
                    self.done[p].ready.eq(1),
                    culprit.eq(p),
                    culprit_command.eq(oldest[p].index),
                    fault_address.eq(done.address),
                    fault.eq(done.status),
                ]
                m.d.sync += [counts[p].eq(counts[p] - 1), oldest[p].eq(newest[p])]
                with m.If(counts[p] == IN_FLIGHT):
                    m.d.sync += begins[p].eq(1)
                with m.If(done.status == Status.OK):
                    m.d.comb += [retire.eq(1), flags.give.eq(oldest[p].set)]
                end_span(p, done.status)
        with m.Elif(
            self.control.valid & ((control.status != Status.OK) | (present(control.wait) & allowed))
        ):
            m.d.comb += [
                self.control.ready.eq(1),
                culprit.eq(SEQUENCER),
                culprit_command.eq(control.index),
                fault_address.eq(control.address),
                fault.eq(control.status),
            ]
            with m.If(control.status == Status.OK):
                m.d.comb += [
                    retire.eq(1),
                    ends.eq(control.end),
                    flags.take.eq(control.wait),
                    flags.give.eq(control.set),
                ]
        for p in pipes:
            head = self.head[p]
            room = Mux(head.nop, counts[p] == 0, counts[p] != IN_FLIGHT)
            with m.Elif(self.head_valid[p] & ~taken[p] & present(head.wait) & room):
                m.d.comb += [
                    flags.take.eq(head.wait),
                    culprit.eq(p),
                    culprit_command.eq(head.index),
                ]
                with m.If(head.nop):
                    m.d.comb += [self.pop[p].eq(1), retire.eq(1), flags.give.eq(head.set)]
                with m.Else():
                    m.d.sync += [taken[p].eq(1), counts[p].eq(counts[p] + 1)]
                    m.d.sync += Cat(newest[p].index, newest[p].set).eq(Cat(head.index, head.set))
                    with m.If(counts[p] == 0):
                        m.d.sync += begins[p].eq(1)
                        m.d.sync += Cat(oldest[p].index, oldest[p].set).eq(
                            Cat(head.index, head.set)
                        )
        with m.Elif(nothing_in_flight & stuck & visible):
            m.d.comb += [
                fault.eq(Status.FLAG_DEADLOCK),
                culprit.eq(SEQUENCER),
                culprit_command.eq(self.index),
            ]
            for p in reversed(pipes):
                with m.If(self.head_valid[p]):
                    m.d.comb += [culprit.eq(p), culprit_command.eq(self.head[p].index)]

        failing = Signal(8)
        m.d.comb += failing.eq(fault)
        with m.If(retire & flags.overflow):
            m.d.comb += failing.eq(Status.FLAG_OVERFLOW)
        with m.If(running & (failing != Status.OK)):
            m.d.sync += [
                running.eq(0),
                stopping.eq(1),
                self.status.eq(failing),
                self.pipe.eq(culprit),
                self.command.eq(culprit_command),
                self.address.eq(fault_address),
            ]
        with m.Elif(ends):
            m.d.sync += [running.eq(0), stopping.eq(1)]
        with m.If(retire & ~flags.overflow):
            m.d.sync += self.retired.eq(self.retired + 1)

        # Begin and end of the program.
        with m.If(self.start):
            m.d.sync += [
                running.eq(1),
                self.status.eq(Status.OK),
                self.pipe.eq(0),
                self.command.eq(0),
                self.address.eq(0),
            ]
            core_span(TraceCode.BEGIN, self.program[:40])
        m.d.sync += self.finished.eq(0)
        with m.If(stopping):
            m.d.sync += [taken[p].eq(0) for p in pipes]
            with m.If(nothing_in_flight & self.units_idle):
                m.d.sync += [stopping.eq(0), self.finished.eq(1)]
                core_span(TraceCode.END, self.status)
            for p in pipes:
                with m.Elif(counts[p] != 0):
                    m.d.sync += [counts[p].eq(0), begins[p].eq(0)]
                    with m.If(~begins[p]):
                        end_span(p, self.status)

        begin = Signal(TRACE_EVENT)
        begin_valid = Signal()
        m.d.comb += [begin.source.eq(TraceSource.PIPE), begin.code.eq(TraceCode.BEGIN)]
        with m.If(span_valid | ~running):
            pass
        for p in pipes:
            with m.Elif(begins[p]):
                m.d.comb += [
                    begin_valid.eq(1),
                    begin.instance.eq(p),
                    begin.argument.eq(oldest[p].index),
                ]
                m.d.sync += begins[p].eq(0)
        free = ~self.trace.valid | self.trace.ready
        m.d.sync += self.trace_dropped.eq((span_valid | begin_valid) & ~free)
        with m.If(free):
            m.d.sync += [
                self.trace.valid.eq(span_valid | begin_valid),
                self.trace.payload.eq(Mux(span_valid, span, begin)),
            ]
        return m
