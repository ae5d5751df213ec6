"""A fixed latency for a pipeline that waits as requests, not as data."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Delay"]


class Delay(wiring.Component):
    """Counts requests that have waited a fixed time: one bit a cycle is delayed, never data.

    Args:
        cycles: from `push` to the cycle in which `due` counts it, at least 1.
        most: requests that may be inside, whether due or not.

    Members:
        push: 1 bit; a request enters; only while `room`.
        pop: 1 bit; a due request leaves; only while `due`.
        due: 1 bit; a request has waited long enough.
        room: 1 bit; there are fewer than `most`.
        empty: 1 bit; there is none.

    Raises:
        ValueError: a parameter is below 1.
    """

    def __init__(self, *, cycles: int, most: int) -> None:
        if cycles < 1:
            raise ValueError(f"cycles must be at least 1, not {cycles!r}")
        if most < 1:
            raise ValueError(f"most must be at least 1, not {most!r}")
        self.cycles = cycles
        self.most = most
        super().__init__(
            {"push": In(1), "pop": In(1), "due": Out(1), "room": Out(1), "empty": Out(1)}
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        inside = Signal(range(self.most + 1))
        waited = Signal(range(self.most + 1))
        matures: Value = self.push
        if self.cycles > 1:
            line = Signal(self.cycles - 1)
            m.d.sync += line.eq(Cat(self.push, line))
            matures = line[-1]
        with m.If(self.push != self.pop):
            m.d.sync += inside.eq(Mux(self.push, inside + 1, inside - 1))
        with m.If(matures != self.pop):
            m.d.sync += waited.eq(Mux(matures, waited + 1, waited - 1))
        m.d.comb += [
            self.due.eq(waited != 0),
            self.room.eq(inside != self.most),
            self.empty.eq(inside == 0),
        ]
        return m
