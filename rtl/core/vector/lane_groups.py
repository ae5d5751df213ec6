"""Groups of functions of the vector unit's lanes, all with the latency of the longest."""

from typing import ClassVar

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_LANES
from abi.vector import VectorOperation
from rtl.core.fp import compare, convert
from rtl.core.fp.binary32 import MINUS_ZERO, ONE
from rtl.core.fp.fma import LATENCY
from rtl.core.fp.lane import FmaLane
from rtl.memory.port import LINE_BITS

__all__ = ["STAGES", "Comparisons", "Conversions", "Group", "Integers", "Sums"]

V = VectorOperation

WORD = LINE_BITS // VECTOR_LANES

STAGES = LATENCY
"""Cycles with `move` from operand registers to result."""


def _word(value: Value, lane: int) -> Value:
    return value[WORD * lane : WORD * (lane + 1)]


def _every(word: int) -> Value:
    return Cat(Const(word, WORD) for _ in range(VECTOR_LANES))


class Group(wiring.Component):
    """Lanes for some functions.

    Members:
        x, y, z: 512 bits; operands. enter: 1 bit; take them into the operand registers.
        move: 1 bit; every stage moves on by one.
        function: 8 bits; one of `FUNCTIONS`, stable.
        result: 512 bits; `STAGES` cycles with `move` after the operands were taken.
    """

    FUNCTIONS: ClassVar[tuple[VectorOperation, ...]] = ()

    def __init__(self) -> None:
        super().__init__(
            {
                "x": In(LINE_BITS),
                "y": In(LINE_BITS),
                "z": In(LINE_BITS),
                "result": Out(LINE_BITS),
                "function": In(8),
                "enter": In(1),
                "move": In(1),
            }
        )

    def _operands(self, m: Module, names: str) -> list[Value]:
        """The operand registers of x and so on."""
        taken = []
        for name in names:
            register = Signal(LINE_BITS, name=f"taken_{name}", reset_less=True)
            with m.If(self.enter):
                m.d.sync += register.eq(getattr(self, name))
            taken.append(register)
        return taken

    def _delay(self, m: Module, value: Value, stages: int) -> None:
        """Gives `value` after further stages as the result."""
        for stage in range(stages):
            later = Signal(LINE_BITS, name=f"stage{stage}", reset_less=True)
            with m.If(self.move):
                m.d.sync += later.eq(value)
            value = later
        m.d.comb += self.result.eq(value)


class Sums(Group):
    """Fused multiply-adds; an operand that a function lacks is neutral."""

    FUNCTIONS = (V.FADD, V.FSUB, V.FMUL, V.FMA, V.FNMA)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        a, b, c = (Signal(LINE_BITS, name=name, reset_less=True) for name in "abc")
        signs = _every(1 << (WORD - 1))
        with m.If(self.enter):
            m.d.sync += [a.eq(self.x), b.eq(self.y), c.eq(self.z)]
            with m.Switch(self.function):
                with m.Case(V.FADD):
                    m.d.sync += [b.eq(_every(ONE)), c.eq(self.y)]
                with m.Case(V.FSUB):
                    m.d.sync += [b.eq(_every(ONE)), c.eq(self.y ^ signs)]
                with m.Case(V.FMUL):
                    m.d.sync += c.eq(_every(MINUS_ZERO))
                with m.Case(V.FNMA):
                    m.d.sync += a.eq(self.x ^ signs)
        results = []
        for number in range(VECTOR_LANES):
            m.submodules[f"lane{number}"] = lane = FmaLane()
            m.d.comb += [
                lane.a.eq(_word(a, number)),
                lane.b.eq(_word(b, number)),
                lane.c.eq(_word(c, number)),
                lane.enable.eq(self.move),
            ]
            results.append(lane.result)
        m.d.comb += self.result.eq(Cat(results))
        return m


class Integers(Group):
    """Integer and logical functions, and moves."""

    FUNCTIONS = (
        V.IADD,
        V.ISUB,
        V.IMUL,
        V.IMAX,
        V.IMIN,
        V.ILT,
        V.IEQ,
        V.SHL,
        V.SHR,
        V.SAR,
        V.AND,
        V.OR,
        V.XOR,
        V.COPY,
        V.SELECT,
        V.PACK_INT8,
    )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        x, y, z = self._operands(m, "xyz")
        results = [
            self._lane(m, lane, _word(x, lane), _word(y, lane), _word(z, lane))
            for lane in range(VECTOR_LANES)
        ]
        self._delay(m, Cat(results), STAGES)
        return m

    def _lane(self, m: Module, number: int, x: Value, y: Value, z: Value) -> Value:
        result = Signal(WORD, name=f"lane{number}")
        less, shift = x.as_signed() < y.as_signed(), y[:5]
        fits = (x[7:] == 0) | x[7:].all()
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
            V.PACK_INT8: Mux(fits, x[:8], Cat((~x[31]).replicate(7), x[31])),
        }
        with m.Switch(self.function):
            for operation, value in values.items():
                with m.Case(operation):
                    m.d.comb += result.eq(value)
        return result


class Comparisons(Group):
    """Comparisons and extremes of floats."""

    FUNCTIONS = (V.FMAX, V.FMIN, V.FLT, V.FLE, V.FEQ)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        x, y = self._operands(m, "xy")
        results = []
        for number in range(VECTOR_LANES):
            m.submodules[f"lane{number}"] = lane = compare.Comparison()
            result = Signal(WORD, name=f"result{number}")
            m.d.comb += [
                lane.a.eq(_word(x, number)),
                lane.b.eq(_word(y, number)),
                lane.minimum.eq(self.function == V.FMIN),
                lane.enable.eq(self.move),
                result.eq(lane.extremum),
            ]
            truths = {V.FLT: lane.less, V.FLE: lane.less_equal, V.FEQ: lane.equal}
            with m.Switch(self.function):
                for operation, truth in truths.items():
                    with m.Case(operation):
                        m.d.comb += result.eq(truth.replicate(WORD))
            results.append(result)
        self._delay(m, Cat(results), STAGES - compare.LATENCY)
        return m


class Conversions(Group):
    """Conversions between floats, bfloat16 and integers."""

    FUNCTIONS = (V.INT_TO_FLOAT, V.FLOAT_TO_INT, V.FLOAT_TRUNCATE, V.PACK_BF16)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        (x,) = self._operands(m, "x")
        results = []
        for number in range(VECTOR_LANES):
            to_float = convert.IntToFloat()
            to_int = convert.FloatToInt()
            to_half = convert.FloatToBfloat16()
            result = Signal(WORD, name=f"result{number}")
            for name, lane in (("float", to_float), ("int", to_int), ("half", to_half)):
                m.submodules[f"to_{name}{number}"] = lane
                m.d.comb += [lane.value.eq(_word(x, number)), lane.enable.eq(self.move)]
            m.d.comb += [
                to_int.truncate.eq(self.function == V.FLOAT_TRUNCATE),
                to_int.narrow.eq(0),
                result.eq(to_int.result),
            ]
            with m.Switch(self.function):
                with m.Case(V.INT_TO_FLOAT):
                    m.d.comb += result.eq(to_float.result)
                with m.Case(V.PACK_BF16):
                    m.d.comb += result.eq(to_half.result)
            results.append(result)
        self._delay(m, Cat(results), STAGES - convert.LATENCY)
        return m
