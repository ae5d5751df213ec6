"""Operations of the vector unit.

Elements are 32 bits: fp32 (IEEE 754 binary32, round to nearest even, subnormals kept, every NaN
result is 0x7FC00000) or int32 (two's complement, wraps). A row of `columns` elements takes
ceil(columns / 16) lines; lanes of its last line beyond `columns` are computed and written too,
but reductions leave them out. Elements of other sizes are packed more densely, see each operation.
"""

from enum import IntEnum

__all__ = ["CANONICAL_NAN", "REDUCTION_PARTIALS", "SOURCES", "VectorOperation"]

CANONICAL_NAN = 0x7FC0_0000
"""Every NaN that an operation makes."""

REDUCTION_PARTIALS = 4
"""Partial results of a reduction in each lane: line i of a row goes to partial i mod 4, in order;
then (p0 + p1) + (p2 + p3), then the lanes in pairs (l and l + 8, l + 4, l + 2, l + 1). A partial
that no line reached, or a lane beyond `columns`, has the identity: -0.0, -inf, +inf, 0, or the
least or largest int32. So the largest of a row of NaNs is -inf."""


class VectorOperation(IntEnum):
    """dst = operation(a, b, c)."""

    FADD = 0x00
    """a + b"""
    FSUB = 0x01
    """a - b"""
    FMUL = 0x02
    """a * b"""
    FMA = 0x03
    """a * b + c, one rounding"""
    FMAX = 0x04
    """larger of a and b; a NaN is left out (IEEE 754-2019 maximumNumber), -0 < +0"""
    FMIN = 0x05
    """smaller of a and b; a NaN is left out (minimumNumber)"""
    FLT = 0x06
    """a < b ? all ones : 0"""
    FLE = 0x07
    """a <= b ? all ones : 0"""
    FEQ = 0x08
    """a == b ? all ones : 0"""
    FNMA = 0x09
    """c - a * b, one rounding"""

    IADD = 0x10
    """a + b"""
    ISUB = 0x11
    """a - b"""
    IMUL = 0x12
    """low word of a * b"""
    IMAX = 0x13
    """larger of a and b, signed"""
    IMIN = 0x14
    """smaller of a and b, signed"""
    ILT = 0x15
    """a < b, signed ? all ones : 0"""
    IEQ = 0x16
    """a == b ? all ones : 0"""
    SHL = 0x17
    """a << (b & 31)"""
    SHR = 0x18
    """a >> (b & 31), unsigned"""
    SAR = 0x19
    """a >> (b & 31), signed"""
    AND = 0x1A
    """a & b"""
    OR = 0x1B
    """a | b"""
    XOR = 0x1C
    """a ^ b"""

    COPY = 0x20
    """a"""
    FILL = 0x21
    """the immediate"""
    SELECT = 0x22
    """bits of a where c has ones, else of b"""
    INT_TO_FLOAT = 0x23
    """int32 to fp32, rounded to nearest even"""
    FLOAT_TO_INT = 0x24
    """fp32 to int32, rounded to nearest even, saturated; NaN gives 0"""
    FLOAT_TRUNCATE = 0x25
    """fp32 to int32, towards zero, saturated; NaN gives 0"""

    UNPACK_INT8 = 0x30
    """a: 64 int8 a line, dst: int32. Line i of a gives lines 4 i to 4 i + 3."""
    PACK_INT8 = 0x31
    """a: int32, dst: 64 int8 a line, saturated. Lines that the last line of dst has no source
    for are zero."""
    UNPACK_BF16 = 0x32
    """a: 32 bf16 a line, dst: fp32. Line i of a gives lines 2 i and 2 i + 1."""
    PACK_BF16 = 0x33
    """a: fp32, dst: 32 bf16 a line, rounded to nearest even."""

    SUM_FLOAT = 0x40
    """Sum of each row, in all lanes of one line; see `REDUCTION_PARTIALS`."""
    MAX_FLOAT = 0x41
    """Largest of each row (FMAX), likewise"""
    MIN_FLOAT = 0x42
    """Smallest of each row (FMIN), likewise"""
    SUM_INT = 0x43
    """Sum of each row, int32, likewise"""
    MAX_INT = 0x44
    """Largest of each row, int32, likewise"""
    MIN_INT = 0x45
    """Smallest of each row, int32, likewise"""

    TRANSPOSE = 0x50
    """The rows of a are a matrix, dst gets element (r, c) as element r of row c (at
    line + c * pitch): `columns` rows of ceil(rows / 16) lines. What is left of a row's last
    line becomes zero."""
    GATHER = 0x51
    """b: int32 element numbers. Element i of a row of dst is element b[i] of that row of a (its
    first line on, 16 elements a line; negative numbers count back). A number that leaves UB is
    BUFFER_OVERFLOW; lines before it are written. Lanes beyond `columns` become 0."""


SOURCES: dict[VectorOperation, int] = {
    operation: (
        3
        if operation in (VectorOperation.FMA, VectorOperation.FNMA, VectorOperation.SELECT)
        else 2
        if operation < VectorOperation.COPY or operation is VectorOperation.GATHER
        else 0
        if operation is VectorOperation.FILL
        else 1
    )
    for operation in VectorOperation
}
"""Sources that each operation reads: a, then b, then c."""
