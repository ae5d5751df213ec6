"""Lines on their way from and to UB: queues in front of its ports."""

from amaranth import Module, Signal
from amaranth.hdl import Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from rtl.memory.port import LINE_BITS

__all__ = ["DEPTH", "LineReader", "LineWriter"]

DEPTH = 8
"""Lines of a queue: enough that three readers of the same banks settle one behind the other."""


class _Ring:
    """A queue of `DEPTH` lines whose head is seen combinationally."""

    def __init__(self, m: Module, *, push: Value, data: Value, pop: Value, stop: Value) -> None:
        m.submodules.lines = lines = memory.Memory(shape=LINE_BITS, depth=DEPTH, init=[])
        write, read = lines.write_port(), lines.read_port(domain="comb")
        tail, head = (Signal(range(DEPTH), name=name) for name in ("tail", "head"))
        level = Signal(range(DEPTH + 1))
        self.filled = level != 0
        self.head = read.data
        m.d.comb += [
            write.en.eq(push),
            write.addr.eq(tail),
            write.data.eq(data),
            read.addr.eq(head),
        ]
        with m.If(push):
            m.d.sync += tail.eq(tail + 1)
        with m.If(pop):
            m.d.sync += head.eq(head + 1)
        with m.If(push != pop):
            m.d.sync += level.eq(level + push - pop)
        with m.If(stop):
            m.d.sync += [tail.eq(0), head.eq(0), level.eq(0)]


class LineReader(wiring.Component):
    """Reads lines of UB in order, ahead of their use.

    Args:
        lines: size of UB.

    Members:
        wanted, line: 1 bit and 16 bits; the next line to read. taken: 1 bit; it is read now.
        read, read_line, read_granted, read_data: port of `UnifiedBuffer`.
        valid, data: 1 bit, and 512 bits; the oldest line that was read.
        pop: 1 bit, while `valid`; give the next one.
        empty: 1 bit; nothing is held or under way.
        stop: 1 bit; forget all lines.

    Timing: `valid` 2 cycles after `taken`; one line a cycle.
    """

    def __init__(self, *, lines: int) -> None:
        self._address = exact_log2(lines)
        super().__init__(
            {
                "read_data": In(LINE_BITS),
                "data": Out(LINE_BITS),
                "wanted": In(1),
                "line": In(16),
                "taken": Out(1),
                "read": Out(1),
                "read_line": Out(self._address),
                "read_granted": In(1),
                "valid": Out(1),
                "pop": In(1),
                "empty": Out(1),
                "stop": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        arriving = Signal()
        used = Signal(range(DEPTH + 1))
        ring = _Ring(m, push=arriving, data=self.read_data, pop=self.pop, stop=self.stop)
        m.d.comb += [
            self.read.eq(self.wanted & (used != DEPTH)),
            self.read_line.eq(self.line[: self._address]),
            self.taken.eq(self.read & self.read_granted),
            self.valid.eq(ring.filled),
            self.data.eq(ring.head),
            self.empty.eq(used == 0),
        ]
        m.d.sync += arriving.eq(self.taken & ~self.stop)
        with m.If(self.taken != self.pop):
            m.d.sync += used.eq(used + self.taken - self.pop)
        with m.If(self.stop):
            m.d.sync += used.eq(0)
        return m


class LineWriter(wiring.Component):
    """Writes lines to UB in order. Every line has its place reserved before it is made.

    Args:
        lines: size of UB.

    Members:
        reserve: 1 bit, while `room`; a line is going to come.
        push, data: 1 bit and 512 bits; it has come.
        line: 16 bits; where the oldest line goes.
        write, write_line, write_data, write_granted: port of `UnifiedBuffer`.
        written: 1 bit; the oldest line is written now.
        room: 1 bit; there is a place. empty: 1 bit; all places are free.
        stop: 1 bit; forget all lines.

    Timing: a line is written in the cycle after `push` at the earliest; one line a cycle.
    """

    def __init__(self, *, lines: int) -> None:
        self._address = exact_log2(lines)
        super().__init__(
            {
                "data": In(LINE_BITS),
                "write_data": Out(LINE_BITS),
                "reserve": In(1),
                "room": Out(1),
                "empty": Out(1),
                "push": In(1),
                "line": In(16),
                "write": Out(1),
                "write_line": Out(self._address),
                "write_granted": In(1),
                "written": Out(1),
                "stop": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        reserved = Signal(range(DEPTH + 1))
        ring = _Ring(m, push=self.push, data=self.data, pop=self.written, stop=self.stop)
        m.d.comb += [
            self.room.eq(reserved != DEPTH),
            self.empty.eq(reserved == 0),
            self.write.eq(ring.filled),
            self.write_line.eq(self.line[: self._address]),
            self.write_data.eq(ring.head),
            self.written.eq(self.write & self.write_granted),
        ]
        with m.If(self.reserve != self.written):
            m.d.sync += reserved.eq(reserved + self.reserve - self.written)
        with m.If(self.stop):
            m.d.sync += reserved.eq(0)
        return m
