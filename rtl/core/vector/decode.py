"""What the parts of the vector unit do for each operation."""

from enum import IntEnum

from amaranth import Module, Signal
from amaranth.hdl import Value
from amaranth.lib import data

from abi.vector import SOURCES, VectorOperation

__all__ = ["PLAN", "Shape", "decode"]

V = VectorOperation


class Shape(IntEnum):
    """Where the lanes' first operand comes from."""

    DIRECT = 0
    """Lines of a."""

    UNPACKED = 1
    """Parts of lines of a, widened."""

    TRANSPOSED = 2
    """Columns of blocks of a."""

    GATHERED = 3
    """Elements of a that b chooses."""

    IMMEDIATE = 4
    """The immediate."""


PLAN = data.StructLayout(
    {
        "identity": 32,
        "function": 8,
        "form": 3,
        "density": 2,
        "packs": 1,
        "reduces": 1,
        "uses_a": 1,
        "uses_b": 1,
        "uses_c": 1,
        "known": 1,
    }
)
"""`function`: the element-wise `VectorOperation` of the lanes. `density`: log2 of the lines of
elements to a packed line. `packs`: the result is packed. `uses_b`: for GATHER too. `known`: there
is such an operation."""

_SHAPES = {
    V.UNPACK_INT8: Shape.UNPACKED,
    V.UNPACK_BF16: Shape.UNPACKED,
    V.TRANSPOSE: Shape.TRANSPOSED,
    V.GATHER: Shape.GATHERED,
    V.FILL: Shape.IMMEDIATE,
}

_DENSITIES = {V.UNPACK_INT8: 2, V.PACK_INT8: 2, V.UNPACK_BF16: 1, V.PACK_BF16: 1}

_REDUCTIONS = {
    V.SUM_FLOAT: (V.FADD, 0x8000_0000),
    V.MAX_FLOAT: (V.FMAX, 0xFF80_0000),
    V.MIN_FLOAT: (V.FMIN, 0x7F80_0000),
    V.SUM_INT: (V.IADD, 0),
    V.MAX_INT: (V.IMAX, 0x8000_0000),
    V.MIN_INT: (V.IMIN, 0x7FFF_FFFF),
}


def _function(operation: VectorOperation) -> VectorOperation:
    if operation in _REDUCTIONS:
        return _REDUCTIONS[operation][0]
    return V.COPY if operation in _SHAPES else operation


def _plan(operation: VectorOperation) -> dict[str, int]:
    return {
        "identity": _REDUCTIONS.get(operation, (operation, 0))[1],
        "function": _function(operation),
        "form": _SHAPES.get(operation, Shape.DIRECT),
        "density": _DENSITIES.get(operation, 0),
        "packs": operation in (V.PACK_INT8, V.PACK_BF16),
        "reduces": operation in _REDUCTIONS,
        "uses_a": SOURCES[operation] > 0,
        "uses_b": SOURCES[operation] > 1,
        "uses_c": SOURCES[operation] > 2,
        "known": True,
    }


def decode(m: Module, operation: Value) -> data.View:
    """The `PLAN` of an operation, combinational."""
    plan = Signal(PLAN)
    with m.Switch(operation):
        for known in VectorOperation:
            with m.Case(known):
                m.d.comb += [plan[name].eq(value) for name, value in _plan(known).items()]
    return plan
