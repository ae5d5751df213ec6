"""The arithmetic and logic unit of the scalar unit."""

from enum import IntEnum

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Alu", "AluOperation"]


class AluOperation(IntEnum):
    """What the ALU computes of a and b."""

    ADD = 0
    SUBTRACT = 1
    SHIFT_LEFT = 2
    LESS = 3
    LESS_UNSIGNED = 4
    EQUAL = 5
    XOR = 6
    SHIFT_RIGHT = 7
    SHIFT_RIGHT_SIGNED = 8
    OR = 9
    AND = 10


class Alu(wiring.Component):
    """Computes one word of two; comparisons give 0 or 1, shifts use the low 5 bits of b.

    Members:
        operation: an `AluOperation`.
        a, b: 32 bits.
        sum: 32 bits; a + b, whatever the operation.
        result: 32 bits.

    Timing: combinational.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "operation": In(AluOperation),
                "a": In(32),
                "b": In(32),
                "sum": Out(32),
                "result": Out(32),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        a, b, shift = self.a, self.b, self.b[:5]
        results = {
            AluOperation.ADD: self.sum,
            AluOperation.SUBTRACT: a - b,
            AluOperation.SHIFT_LEFT: a << shift,
            AluOperation.LESS: a.as_signed() < b.as_signed(),
            AluOperation.LESS_UNSIGNED: a < b,
            AluOperation.EQUAL: a == b,
            AluOperation.XOR: a ^ b,
            AluOperation.SHIFT_RIGHT: a >> shift,
            AluOperation.SHIFT_RIGHT_SIGNED: a.as_signed() >> shift,
            AluOperation.OR: a | b,
            AluOperation.AND: a & b,
        }
        m.d.comb += self.sum.eq(a + b)
        with m.Switch(self.operation):
            for operation, result in results.items():
                with m.Case(operation):
                    m.d.comb += self.result.eq(result)
        return m
