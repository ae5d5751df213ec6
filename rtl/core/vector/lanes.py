"""The lanes of the vector unit: element-wise operations on 16 words."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_LANES
from abi.vector import VectorOperation
from rtl.core.fp.binary32 import MINUS_ZERO, ONE
from rtl.core.fp.fma import LATENCY, FusedMultiplyAdd
from rtl.core.vector.decode import FLOAT_ADDITIONS
from rtl.memory.port import LINE_BITS

__all__ = ["CYCLES", "Lanes"]

V = VectorOperation

WORD = LINE_BITS // VECTOR_LANES

CYCLES = 1 + LATENCY
"""Cycles from operands to result, the operand registers included."""


class Lanes(wiring.Component):
    """Computes `function` of x, y and z in each of 16 lanes.

    Members:
        x, y, z: 512 bits; operands. enable: 1 bit; they enter.
        function: 8 bits; an element-wise `VectorOperation`, stable while anything is under way.
        result: 512 bits.

    Timing: an operation a cycle, its result in the cycle `CYCLES` after `enable` (only).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "x": In(LINE_BITS),
                "y": In(LINE_BITS),
                "z": In(LINE_BITS),
                "result": Out(LINE_BITS),
                "function": In(8),
                "enable": In(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        adds = Signal()
        busy = Signal(LATENCY)
        m.d.comb += adds.eq(self.function.matches(*FLOAT_ADDITIONS))
        m.d.sync += busy.eq(Cat(self.enable, busy)[:LATENCY])
        sums = self._sums(m, self.enable & adds, adds & busy.any())
        others = self._others(m, self.enable & ~adds, busy & (~adds).replicate(LATENCY))
        m.d.comb += self.result.eq(Mux(adds, sums, others))
        return m

    def _sums(self, m: Module, enter: Value, move: Value) -> Value:
        """The fused multiply-adds. The operand that an operation lacks is neutral."""
        a, b, c = (Signal(LINE_BITS, name=f"sum_{name}", reset_less=True) for name in "abc")
        ones, zeros, signs = (
            Cat(Const(word, WORD) for _ in range(VECTOR_LANES))
            for word in (ONE, MINUS_ZERO, 1 << (WORD - 1))
        )
        with m.If(enter):
            m.d.sync += [a.eq(self.x), b.eq(self.y), c.eq(self.z)]
            with m.Switch(self.function):
                with m.Case(V.FADD):
                    m.d.sync += [b.eq(ones), c.eq(self.y)]
                with m.Case(V.FSUB):
                    m.d.sync += [b.eq(ones), c.eq(self.y ^ signs)]
                with m.Case(V.FMUL):
                    m.d.sync += c.eq(zeros)
                with m.Case(V.FNMA):
                    m.d.sync += a.eq(self.x ^ signs)
        results = []
        for number in range(VECTOR_LANES):
            m.submodules[f"sum{number}"] = lane = FusedMultiplyAdd()
            word = slice(WORD * number, WORD * (number + 1))
            m.d.comb += [
                lane.a.eq(a[word]),
                lane.b.eq(b[word]),
                lane.c.eq(c[word]),
                lane.enable.eq(move),
            ]
            results.append(lane.result)
        return Cat(results)

    def _others(self, m: Module, enter: Value, move: Value) -> Value:
        """All other functions, in one stage and then delayed as the sums are."""
        x, y, z = (Signal(LINE_BITS, name=f"other_{name}", reset_less=True) for name in "xyz")
        function = Signal(8)
        m.d.comb += function.eq(self.function)
        with m.If(enter):
            m.d.sync += [x.eq(self.x), y.eq(self.y), z.eq(self.z)]
        computed = []
        for number in range(VECTOR_LANES):
            word = slice(WORD * number, WORD * (number + 1))
            computed.append(_lane(m, number, function, x[word], y[word], z[word]))
        value: Value = Cat(computed)
        for stage in range(LATENCY):
            later = Signal(LINE_BITS, name=f"other_stage{stage}", reset_less=True)
            with m.If(move[stage]):
                m.d.sync += later.eq(value)
            value = later
        return value


def _lane(m: Module, number: int, function: Value, x: Value, y: Value, z: Value) -> Value:
    """One lane of integer, logical and comparing functions, combinational."""
    result = Signal(WORD, name=f"lane{number}")
    less, shift = x.as_signed() < y.as_signed(), y[:5]
    values: dict[VectorOperation, Value] = {
        V.IADD: x + y,
        V.ISUB: x - y,
        V.IMUL: x * y,
        V.IMAX: Mux(less, y, x),
        V.IMIN: Mux(less, x, y),
        V.ILT: less.replicate(WORD),
        V.IEQ: (x == y).replicate(WORD),
        V.SHL: (x << shift)[:WORD],
        V.SHR: x >> shift,
        V.SAR: x.as_signed() >> shift,
        V.AND: x & y,
        V.OR: x | y,
        V.XOR: x ^ y,
        V.COPY: x,
        V.SELECT: (x & z) | (y & ~z),
        V.PACK_INT8: _byte(x),
    }
    with m.Switch(function):
        for operation, value in values.items():
            with m.Case(operation):
                m.d.comb += result.eq(value)
    return result


def _byte(x: Value) -> Value:
    """int32 saturated to int8."""
    fits = (x[7:] == 0) | x[7:].all()
    return Mux(fits, x[:8], Cat((~x[31]).replicate(7), x[31]))
