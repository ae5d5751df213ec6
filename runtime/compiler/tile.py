"""Tiles: arrays of up to two dimensions in a core's buffers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from abi.address import LINE_BYTES
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Buffer, Line
from runtime.compiler.scalar import Scalar

if TYPE_CHECKING:
    from runtime.compiler.builder import KernelBuilder

__all__ = ["ELEMENT_BYTES", "Tile", "lines_of", "most"]

ELEMENT_BYTES = {"float32": 4, "int32": 4, "bfloat16": 2, "int8": 1}
"""Element types of tiles and pointers."""


def most(name: str, value: Scalar) -> int:
    """The largest value of a size.

    Raises:
        CompileError: it has no useful bound.
    """
    if value.highest >= 1 << 16:
        raise CompileError(
            f"{name} must have an upper bound below 65536, as k.minimum(64, n) has, not {value!r}"
        )
    if value.highest < 1:
        raise CompileError(f"{name} must be at least 1, not {value!r}")
    return value.highest


def lines_of(elements: int, dtype: str) -> int:
    """Lines of a row."""
    return -(-elements * ELEMENT_BYTES[dtype] // LINE_BYTES)


@dataclass(eq=False)
class Tile:
    """A matrix of `rows` by `columns` elements; each row starts on a line of its own.

    Operators work element by element on fp32 or int32 tiles in UB, with tiles of the same shape,
    of one row, of one column, or with numbers.
    """

    builder: "KernelBuilder"
    buffer: Buffer
    dtype: str
    rows: Scalar
    columns: Scalar
    pitch: int
    column: bool = False
    """Whether it has one column, whose element fills its line."""

    @property
    def line(self) -> Line:
        """Its first line."""
        return Line(self.buffer)

    @property
    def shape(self) -> tuple[Scalar, Scalar]:
        """Rows and columns."""
        return self.rows, self.columns

    def __add__(self, other: "Tile | float") -> "Tile":
        return self.builder.add(self, other)

    def __radd__(self, other: float) -> "Tile":
        return self.builder.add(self, other)

    def __sub__(self, other: "Tile | float") -> "Tile":
        return self.builder.subtract(self, other)

    def __rsub__(self, other: float) -> "Tile":
        return self.builder.subtract(other, self)

    def __mul__(self, other: "Tile | float") -> "Tile":
        return self.builder.multiply(self, other)

    def __rmul__(self, other: float) -> "Tile":
        return self.builder.multiply(self, other)

    def __lt__(self, other: "Tile | float") -> "Tile":
        return self.builder.less(self, other)

    def __gt__(self, other: "Tile | float") -> "Tile":
        return self.builder.less(other, self)

    def to(self, dtype: str) -> "Tile":
        """Converted: see `KernelBuilder.convert`."""
        return self.builder.convert(self, dtype)

    def __bool__(self) -> bool:
        raise CompileError("condition must be a scalar, not a tile: use k.where(mask, a, b)")
