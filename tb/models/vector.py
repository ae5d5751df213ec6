"""Golden model of the vector unit: executes VECTOR commands bit-exactly on a numpy buffer."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from abi.core import VECTOR_LANES
from abi.status import Status
from abi.vector import REDUCTION_PARTIALS, SOURCES, VectorOperation
from tb.models import fp32

__all__ = ["Geometry", "execute_vector", "geometry"]

Words = NDArray[np.uint32]

V: Final = VectorOperation

_LINES_AT_ONCE: Final = 1 << 15
"""Lines that are computed in one step; bounds the memory that a command takes."""

_DENSITY: Final = {V.UNPACK_INT8: 4, V.UNPACK_BF16: 2, V.PACK_INT8: 4, V.PACK_BF16: 2}
"""Lines of 32-bit elements to a packed line."""


class Geometry:
    """Lines that a command reads and writes.

    Attributes:
        rows, lines: rows, and lines of 32-bit elements in each.
        sources: for a, b and c, `(first, pitch, lines of a row)`, or None if it is not read.
        target: the same of the result; `target_rows` is its number of rows.
    """

    def __init__(self, fields: Mapping[str, int]) -> None:
        operation = VectorOperation(fields["operation"])
        self.rows = fields["rows"]
        self.columns = fields["columns"]
        self.lines = -(-self.columns // VECTOR_LANES)
        packed = -(-self.lines // _DENSITY.get(operation, 1))
        unpacks = operation in (V.UNPACK_INT8, V.UNPACK_BF16)
        self.sources: list[tuple[int, int, int] | None] = []
        for number, name in enumerate("abc"):
            if number >= SOURCES[operation] or fields.get(f"{name}_immediate"):
                self.sources.append(None)
                continue
            lines = packed if unpacks else self.lines
            if not fields[f"{name}_step"] or (operation is V.GATHER and name == "a"):
                lines = 1
            self.sources.append((fields[f"{name}_line"], fields[f"{name}_pitch"], lines))
        self.target_rows = self.rows
        target_lines = self.lines
        if operation in (V.PACK_INT8, V.PACK_BF16):
            target_lines = packed
        elif operation >= V.SUM_FLOAT and operation <= V.MIN_INT:
            target_lines = 1
        elif operation is V.TRANSPOSE:
            self.target_rows = self.columns
            target_lines = -(-self.rows // VECTOR_LANES)
        self.target = (fields["line"], fields["pitch"], target_lines)

    def fits(self, lines: int) -> bool:
        """Whether all of them are below `lines`; of GATHER's a, the first line of each row."""
        spans = [(source, self.rows) for source in self.sources if source is not None]
        for (first, pitch, count), rows in [*spans, (self.target, self.target_rows)]:
            if first + (rows - 1) * pitch + count - 1 >= lines:
                return False
        return True


def geometry(fields: Mapping[str, int]) -> Geometry:
    """The lines that a VECTOR command touches."""
    return Geometry(fields)


def _signed(x: Words) -> NDArray[np.int32]:
    return np.ascontiguousarray(x).view(np.int32)


def _words(x: NDArray[Any]) -> Words:
    return np.ascontiguousarray(x).view(np.uint32)


def _truth(x: NDArray[np.bool_]) -> Words:
    return np.where(x, np.uint32(0xFFFF_FFFF), np.uint32(0))


def _shift(b: Words) -> Words:
    return b & np.uint32(31)


_BINARY: Final[dict[VectorOperation, Callable[[Words, Words], Words]]] = {
    V.FADD: fp32.add,
    V.FSUB: fp32.sub,
    V.FMUL: fp32.mul,
    V.FMAX: fp32.maximum,
    V.FMIN: fp32.minimum,
    V.FLT: lambda a, b: _truth(fp32.less(a, b)),
    V.FLE: lambda a, b: _truth(fp32.less_equal(a, b)),
    V.FEQ: lambda a, b: _truth(fp32.equal(a, b)),
    V.IADD: lambda a, b: a + b,
    V.ISUB: lambda a, b: a - b,
    V.IMUL: lambda a, b: a * b,
    V.IMAX: lambda a, b: _words(np.maximum(_signed(a), _signed(b))),
    V.IMIN: lambda a, b: _words(np.minimum(_signed(a), _signed(b))),
    V.ILT: lambda a, b: _truth(_signed(a) < _signed(b)),
    V.IEQ: lambda a, b: _truth(a == b),
    V.SHL: lambda a, b: a << _shift(b),
    V.SHR: lambda a, b: a >> _shift(b),
    V.SAR: lambda a, b: _words(_signed(a) >> _signed(_shift(b))),
    V.AND: lambda a, b: a & b,
    V.OR: lambda a, b: a | b,
    V.XOR: lambda a, b: a ^ b,
}

_UNARY: Final[dict[VectorOperation, Callable[[Words], Words]]] = {
    V.COPY: lambda a: a,
    V.INT_TO_FLOAT: lambda a: fp32.int_to_float(_signed(a)),
    V.FLOAT_TO_INT: lambda a: _words(fp32.to_int32(a)),
    V.FLOAT_TRUNCATE: lambda a: _words(fp32.to_int32(a, truncate=True)),
}

_REDUCTIONS: Final[dict[VectorOperation, tuple[Callable[[Words, Words], Words], int]]] = {
    V.SUM_FLOAT: (fp32.add, 0x8000_0000),
    V.MAX_FLOAT: (fp32.maximum, 0xFF80_0000),
    V.MIN_FLOAT: (fp32.minimum, 0x7F80_0000),
    V.SUM_INT: (_BINARY[V.IADD], 0),
    V.MAX_INT: (_BINARY[V.IMAX], 0x8000_0000),
    V.MIN_INT: (_BINARY[V.IMIN], 0x7FFF_FFFF),
}


def _reduce(operation: VectorOperation, x: Words, columns: int) -> Words:
    """Reduces `x` (rows, lines, lanes) to (rows, 1, lanes)."""
    combine, identity = _REDUCTIONS[operation]
    rows, lines, lanes = x.shape
    left_out = np.arange(lines * lanes).reshape(lines, lanes) >= columns
    x = np.where(left_out, np.uint32(identity), x)
    partials = np.full((REDUCTION_PARTIALS, rows, lanes), identity, np.uint32)
    for line in range(lines):
        place = line % REDUCTION_PARTIALS
        partials[place] = combine(partials[place], x[:, line])
    total = combine(combine(partials[0], partials[1]), combine(partials[2], partials[3]))
    for distance in (8, 4, 2, 1):
        total = combine(total, np.roll(total, -distance, axis=1))
    return total[:, None, :]


def _pack(operation: VectorOperation, x: Words) -> Words:
    """Packs `x` (rows, lines, lanes)."""
    rows, lines, lanes = x.shape
    density = _DENSITY[operation]
    narrow: NDArray[Any]
    if operation is V.PACK_INT8:
        narrow = np.clip(_signed(x), -128, 127).astype(np.int8)
    else:
        narrow = fp32.to_bfloat16(x)
    packed = np.zeros((rows, -(-lines // density) * density, lanes), narrow.dtype)
    packed[:, :lines] = narrow
    return packed.view(np.uint32).reshape(rows, -1, lanes)


def _unpack(operation: VectorOperation, x: Words, lines: int) -> Words:
    """Unpacks `x` (rows, packed lines, lanes) to (rows, lines, lanes)."""
    rows, _, lanes = x.shape
    if operation is V.UNPACK_INT8:
        wide = _words(np.ascontiguousarray(x).view(np.int8).astype(np.int32))
    else:
        wide = fp32.bfloat16_to_float(np.ascontiguousarray(x).view(np.uint16))
    return wide.reshape(rows, -1, lanes)[:, :lines]


class _Execution:
    """One command on `ub`, (lines, 16) words."""

    def __init__(self, ub: Words, fields: Mapping[str, int]) -> None:
        self.ub = ub
        self.fields = fields
        self.operation = VectorOperation(fields["operation"])
        self.shape = Geometry(fields)

    def _operand(self, number: int, rows: NDArray[np.int64]) -> Words:
        """Source `number` of the given rows: (rows, lines of a row or 1, lanes)."""
        source = self.shape.sources[number]
        if source is None:
            return np.full((len(rows), 1, VECTOR_LANES), self.fields["immediate"], np.uint32)
        first, pitch, lines = source
        return self.ub[first + rows[:, None] * pitch + np.arange(lines)]

    def _compute(self, rows: NDArray[np.int64]) -> Words:
        operation, lines = self.operation, self.shape.lines
        if operation is V.FILL:
            result = np.full((1, 1, VECTOR_LANES), self.fields["immediate"], np.uint32)
            return np.broadcast_to(result, (len(rows), lines, VECTOR_LANES))
        whole = (len(rows), lines, VECTOR_LANES)
        a = self._operand(0, rows)
        if operation in (V.UNPACK_INT8, V.UNPACK_BF16):
            packed = -(-lines // _DENSITY[operation])
            a = np.broadcast_to(a, (len(rows), packed, VECTOR_LANES))
            return _unpack(operation, a, lines)
        a = np.broadcast_to(a, whole)
        if operation in _UNARY:
            return _UNARY[operation](a)
        if operation in _REDUCTIONS:
            return _reduce(operation, a, self.fields["columns"])
        if operation in (V.PACK_INT8, V.PACK_BF16):
            return _pack(operation, a)
        b = np.broadcast_to(self._operand(1, rows), whole)
        if operation in _BINARY:
            return _BINARY[operation](a, b)
        c = np.broadcast_to(self._operand(2, rows), whole)
        if operation is V.SELECT:
            return (a & c) | (b & ~c)
        if operation is V.FNMA:
            a = a ^ np.uint32(0x8000_0000)
        return fp32.fma(a, b, c)

    def run(self) -> Status:
        if not self.shape.fits(len(self.ub)):
            return Status.BUFFER_OVERFLOW
        if self.operation is V.TRANSPOSE:
            return self._transpose()
        step = max(1, _LINES_AT_ONCE // self.shape.lines)
        first, pitch, count = self.shape.target
        for start in range(0, self.shape.rows, step):
            rows = np.arange(start, min(start + step, self.shape.rows))
            if self.operation is V.GATHER:
                if self._gather(rows) is not Status.OK:
                    return Status.BUFFER_OVERFLOW
                continue
            result = self._compute(rows)
            self.ub[first + rows[:, None] * pitch + np.arange(count)] = result
        return Status.OK

    def _transpose(self) -> Status:
        """Sixteen columns at a time; of those, sixteen rows at a time."""
        shape = self.shape
        assert shape.sources[0] is not None
        first, pitch, lines = shape.sources[0]
        to, to_pitch, to_lines = shape.target
        for column in range(0, shape.columns, VECTOR_LANES):
            block = column // VECTOR_LANES if lines > 1 else 0
            taken = min(VECTOR_LANES, shape.columns - column)
            padded = np.zeros((to_lines * VECTOR_LANES, VECTOR_LANES), np.uint32)
            padded[: shape.rows] = self.ub[first + np.arange(shape.rows) * pitch + block]
            result = padded.reshape(to_lines, VECTOR_LANES, VECTOR_LANES).transpose(0, 2, 1)
            places = to + (column + np.arange(taken)) * to_pitch + np.arange(to_lines)[:, None]
            self.ub[places] = result[:, :taken]
        return Status.OK

    def _gather(self, rows: NDArray[np.int64]) -> Status:
        shape = self.shape
        assert shape.sources[0] is not None
        first, pitch, _ = shape.sources[0]
        to, to_pitch, _ = shape.target
        whole = (len(rows), shape.lines, VECTOR_LANES)
        numbers = np.broadcast_to(self._operand(1, rows), whole).view(np.int32).astype(np.int64)
        steps = numbers >> 4 if self.fields["a_step"] else np.zeros_like(numbers)
        lines = first + rows[:, None, None] * pitch + steps
        column = np.arange(shape.lines * VECTOR_LANES).reshape(1, shape.lines, VECTOR_LANES)
        counts = np.broadcast_to(column < shape.columns, whole)
        outside = counts & ((lines < 0) | (lines >= len(self.ub)))
        bad = np.flatnonzero(outside.any(axis=2).reshape(-1))
        good = int(bad[0]) if bad.size else len(rows) * shape.lines
        inside = np.where(counts & ~outside, lines, 0)
        values = np.where(counts, self.ub[inside, numbers & 15], 0).reshape(-1, VECTOR_LANES)
        places = (to + rows[:, None] * to_pitch + np.arange(shape.lines)).reshape(-1)
        self.ub[places[:good]] = values[:good]
        return Status.BUFFER_OVERFLOW if bad.size else Status.OK


def execute_vector(ub: NDArray[np.uint8], fields: Mapping[str, int]) -> Status:
    """Execute one VECTOR command.

    Sources are read before the result is written, which is what the unit does as long as no line
    is read, in the order of the lines of the result, after it has been written; a command that
    breaks this has no defined result.

    GATHER: a negative number counts back from the row's first line, which has to lie in UB. Lanes
    beyond `columns` become zero, their numbers are not looked at. The lines before the first one
    with a number that leaves UB are written.

    Args:
        ub: the buffer, (lines, 64) bytes, contiguous; written in place.
        fields: those of `VECTOR_COMMAND`, all of them.

    Returns:
        OK; BUFFER_OVERFLOW, with UB as it was but for GATHER; BAD_COMMAND if there is no such
        operation.
    """
    if fields["operation"] not in set(VectorOperation):
        return Status.BAD_COMMAND
    with np.errstate(over="ignore"):
        return _Execution(ub.view(np.uint32), fields).run()
