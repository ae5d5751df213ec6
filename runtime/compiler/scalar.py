"""Scalar expressions: int32 values that the scalar unit computes while the kernel runs.

They are built with Python's operators and folded where both sides are known. Each knows bounds,
from which tiles take their sizes: `k.minimum(64, n - i)` is at most 64.
Sums and products are taken not to overflow, as those of signed numbers in C.
"""

from copy import copy
from enum import Enum

from abi.isa import Special
from runtime.compiler.errors import CompileError

__all__ = [
    "HIGHEST",
    "LOWEST",
    "Argument",
    "Binary",
    "Constant",
    "Scalar",
    "ScalarLike",
    "SpecialValue",
    "Variable",
    "ceil_div",
    "maximum",
    "minimum",
    "promised",
    "same",
    "scalar",
]

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1


class Operation(Enum):
    """Operations of the scalar unit that expressions use, by instruction name."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "divu"
    REM = "remu"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "sll"
    SHR = "srl"
    LESS = "slt"


class Scalar:
    """An int32 expression with bounds `lowest` and `highest`, both included."""

    lowest: int = LOWEST
    highest: int = HIGHEST

    def __add__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.ADD, self, scalar(other))

    def __radd__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.ADD, self, scalar(other))

    def __sub__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.SUB, self, scalar(other))

    def __rsub__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.SUB, scalar(other), self)

    def __neg__(self) -> "Scalar":
        return _binary(Operation.SUB, Constant(0), self)

    def __mul__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.MUL, self, scalar(other))

    def __rmul__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.MUL, self, scalar(other))

    def __floordiv__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.DIV, self, scalar(other))

    def __mod__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.REM, self, scalar(other))

    def __and__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.AND, self, scalar(other))

    def __or__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.OR, self, scalar(other))

    def __xor__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.XOR, self, scalar(other))

    def __lshift__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.SHL, self, scalar(other))

    def __rshift__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.SHR, self, scalar(other))

    def __lt__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.LESS, self, scalar(other))

    def __gt__(self, other: "ScalarLike") -> "Scalar":
        return _binary(Operation.LESS, scalar(other), self)

    def __ge__(self, other: "ScalarLike") -> "Scalar":
        return (self < other) ^ 1

    def __le__(self, other: "ScalarLike") -> "Scalar":
        return (self > other) ^ 1

    def is_zero(self) -> "Scalar":
        """1 if it is 0, else 0."""
        # x and -x have the same sign bit, 0, only for 0 (and the least int32).
        return ((self | -self) >> 31) ^ 1

    def __bool__(self) -> bool:
        raise CompileError(
            "condition must be known when the kernel is compiled: use k.when(...) instead of if, "
            f"not {self!r}"
        )


ScalarLike = Scalar | int


class Constant(Scalar):
    """A number that is known at compile time."""

    def __init__(self, value: int) -> None:
        self.value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
        self.lowest = self.highest = self.value

    def __bool__(self) -> bool:
        return self.value != 0

    def __repr__(self) -> str:
        return str(self.value)


class Argument(Scalar):
    """A word of the argument block, at byte `offset`. `floating`: its bits are a float32."""

    def __init__(
        self, name: str, offset: int, *, lowest: int = LOWEST, floating: bool = False
    ) -> None:
        self.name = name
        self.offset = offset
        self.lowest = lowest
        self.floating = floating

    def __repr__(self) -> str:
        return self.name


class SpecialValue(Scalar):
    """What `npu.get` reads."""

    lowest = 0

    def __init__(self, special: Special) -> None:
        self.special = special

    def __repr__(self) -> str:
        return self.special.name.lower()


class Variable(Scalar):
    """A value that changes: a loop's index, a slot number."""

    def __init__(self, name: str, lowest: int = LOWEST, highest: int = HIGHEST) -> None:
        self.name = name
        self.lowest, self.highest = lowest, highest

    def __repr__(self) -> str:
        return self.name


class Binary(Scalar):
    """An operation. `uses` counts the places that read it."""

    def __init__(self, operation: Operation, left: Scalar, right: Scalar) -> None:
        self.operation = operation
        self.left = left
        self.right = right
        self.uses = 0
        self.lowest, self.highest = _bounds(operation, left, right)

    def __repr__(self) -> str:
        return f"{self.operation.value}({self.left!r}, {self.right!r})"


def scalar(value: ScalarLike) -> Scalar:
    """The expression of a number or expression.

    Raises:
        CompileError: it is neither.
    """
    if isinstance(value, Scalar):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise CompileError(f"a scalar must be an integer or an expression, not {value!r}")
    if not LOWEST <= value < 1 << 32:
        raise CompileError(f"a scalar must fit 32 bits, not {value!r}")
    return Constant(value)


def promised(size: Scalar) -> Scalar:
    """The same expression, at least 1 by a kernel's promise, which holds for who asked for it and
    for nobody else: what is loaded in a branch says nothing of a size outside."""
    if size.lowest >= 1 or not isinstance(size, Argument | Binary):
        return size
    held = copy(size)
    held.lowest = 1
    return held


def same(a: Scalar, b: Scalar) -> bool:
    """Whether two expressions are surely equal where both can be read."""
    if a is b:
        return True
    match a, b:
        case Constant(), Constant():
            return a.value == b.value
        case Argument(), Argument():
            return a.offset == b.offset
        case Binary(), Binary():
            return a.operation is b.operation and same(a.left, b.left) and same(a.right, b.right)
    return False


def _clamped(low: int, high: int) -> tuple[int, int]:
    """Bounds of a sum or product: a kernel's numbers must not overflow."""
    return max(low, LOWEST), min(high, HIGHEST)


def _bounds(operation: Operation, left: Scalar, right: Scalar) -> tuple[int, int]:
    a, b, c, d = left.lowest, left.highest, right.lowest, right.highest
    natural = a >= 0 and c >= 0
    match operation:
        case Operation.ADD:
            return _clamped(a + c, b + d)
        case Operation.SUB:
            return _clamped(a - d, b - c)
        case Operation.MUL:
            products = (a * c, a * d, b * c, b * d)
            return _clamped(min(products), max(products))
        case Operation.DIV if natural and c > 0:
            return a // d, b // c
        case Operation.REM if natural and c > 0:
            return 0, min(b, d - 1)
        case Operation.AND if c >= 0:
            return 0, d
        case Operation.AND if a >= 0:
            return 0, b
        case Operation.OR | Operation.XOR if natural:
            return 0, (1 << max(b.bit_length(), d.bit_length())) - 1
        case Operation.SHL if natural and d < 32:
            return _clamped(a << c, b << d)
        case Operation.SHR if natural:
            return a >> min(d, 31), b >> min(c, 31)
        case Operation.SHR if c == d and c > 0:
            return 0, ((1 << 32) - 1) >> c
        case Operation.LESS:
            return 0, 1
    return LOWEST, HIGHEST


_FOLD = {
    Operation.ADD: lambda a, b: a + b,
    Operation.SUB: lambda a, b: a - b,
    Operation.MUL: lambda a, b: a * b,
    Operation.AND: lambda a, b: a & b,
    Operation.OR: lambda a, b: a | b,
    Operation.XOR: lambda a, b: a ^ b,
    Operation.SHL: lambda a, b: a << (b & 31),
    Operation.SHR: lambda a, b: (a % (1 << 32)) >> (b & 31),
    Operation.LESS: lambda a, b: int(a < b),
}


def _binary(operation: Operation, left: Scalar, right: Scalar) -> Scalar:
    if operation in (Operation.DIV, Operation.REM):
        if left.lowest < 0 or right.lowest < 1:
            raise CompileError(
                f"division must be of a number >= 0 by one >= 1, not {left!r} by {right!r}"
            )
        if isinstance(left, Constant) and isinstance(right, Constant):
            quotient, rest = divmod(left.value, right.value)
            return Constant(quotient if operation is Operation.DIV else rest)
    elif isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(_FOLD[operation](left.value, right.value))
    commutes = operation in (
        Operation.ADD, Operation.MUL, Operation.AND, Operation.OR, Operation.XOR,
    )  # fmt: skip
    if commutes and isinstance(left, Constant):
        left, right = right, left
    if isinstance(right, Constant):
        value = right.value
        neutral = {
            Operation.MUL: 1, Operation.DIV: 1, Operation.AND: -1,
        }.get(operation, 0)  # fmt: skip
        if value == neutral and operation not in (Operation.LESS, Operation.REM):
            return left
        if value == 0 and operation in (Operation.MUL, Operation.AND):
            return right
        power = value > 0 and value & (value - 1) == 0
        shift = Constant(value.bit_length() - 1) if power else None
        if shift is not None and operation is Operation.MUL:
            return Binary(Operation.SHL, left, shift)
        if shift is not None and operation is Operation.DIV:
            return Binary(Operation.SHR, left, shift)
        if shift is not None and operation is Operation.REM:
            return _binary(Operation.AND, left, Constant(value - 1))
        if (
            operation in (Operation.ADD, Operation.XOR)
            and isinstance(left, Binary)
            and left.operation is operation
            and isinstance(left.right, Constant)
        ):
            both = _FOLD[operation](left.right.value, value)
            return _binary(operation, left.left, Constant(both))
    return Binary(operation, left, right)


def minimum(a: ScalarLike, b: ScalarLike) -> Scalar:
    """The smaller of two, signed."""
    return _choose(scalar(a), scalar(b), smaller=True)


def maximum(a: ScalarLike, b: ScalarLike) -> Scalar:
    """The larger of two, signed."""
    return _choose(scalar(a), scalar(b), smaller=False)


def _choose(a: Scalar, b: Scalar, *, smaller: bool) -> Scalar:
    if a.highest <= b.lowest:
        return a if smaller else b
    if b.highest <= a.lowest:
        return b if smaller else a
    # b ^ ((a ^ b) & -(a < b)), without a branch.
    first = a < b if smaller else b < a
    chosen = b ^ ((a ^ b) & -first)
    assert isinstance(chosen, Binary)
    if smaller:
        chosen.lowest, chosen.highest = min(a.lowest, b.lowest), min(a.highest, b.highest)
    else:
        chosen.lowest, chosen.highest = max(a.lowest, b.lowest), max(a.highest, b.highest)
    return chosen


def ceil_div(value: ScalarLike, unit: ScalarLike) -> Scalar:
    """`value` / `unit`, rounded up; value >= 0, unit >= 1."""
    return (scalar(value) + (scalar(unit) - 1)) // unit
