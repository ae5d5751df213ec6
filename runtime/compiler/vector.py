"""Vector operations of the kernel language, from tiles in UB to new tiles in UB."""

from typing import TYPE_CHECKING, cast

import numpy as np

from abi.core import CommandOpcode, Pipe
from abi.vector import SOURCES, VectorOperation
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Line, Memory
from runtime.compiler.scalar import Argument, Constant, Scalar, ScalarLike, same
from runtime.compiler.tile import ELEMENT_BYTES, Tile

if TYPE_CHECKING:
    from runtime.compiler.builder import KernelBuilder

__all__ = ["Operand", "VectorOperations"]

V = VectorOperation
Operand = Tile | Scalar | float


class VectorOperations:
    """Operations element by element, conversions and reductions.

    An operand is a tile of the same shape, of one row or of one column, a number, or a scalar
    argument. One operand at most may be a number.
    """

    def add(self, a: Operand, b: Operand) -> Tile:
        """a + b; fp32 or int32."""
        return self._arithmetic(V.FADD, V.IADD, a, b, commutes=True)

    def subtract(self, a: Operand, b: Operand) -> Tile:
        """a - b; fp32 or int32."""
        return self._arithmetic(V.FSUB, V.ISUB, a, b)

    def multiply(self, a: Operand, b: Operand) -> Tile:
        """a * b; fp32 or int32 (low word)."""
        return self._arithmetic(V.FMUL, V.IMUL, a, b, commutes=True)

    def largest(self, a: Operand, b: Operand) -> Tile:
        """The larger of each pair; a NaN is left out."""
        return self._arithmetic(V.FMAX, V.IMAX, a, b, commutes=True)

    def smallest(self, a: Operand, b: Operand) -> Tile:
        """The smaller of each pair; a NaN is left out."""
        return self._arithmetic(V.FMIN, V.IMIN, a, b, commutes=True)

    def less(self, a: Operand, b: Operand) -> Tile:
        """A mask (int32): all ones where a < b."""
        return self._arithmetic(V.FLT, V.ILT, a, b, result="int32")

    def equal(self, a: Operand, b: Operand) -> Tile:
        """A mask (int32): all ones where a == b."""
        return self._arithmetic(V.FEQ, V.IEQ, a, b, commutes=True, result="int32")

    def fma(self, a: Tile, b: Operand, c: Operand) -> Tile:
        """a * b + c with one rounding; fp32."""
        return self.operate(V.FMA, [a, b, c], "float32", "float32")

    def fnma(self, a: Tile, b: Operand, c: Operand) -> Tile:
        """c - a * b with one rounding; fp32."""
        return self.operate(V.FNMA, [a, b, c], "float32", "float32")

    def where(self, mask: Tile, a: Tile, b: Operand) -> Tile:
        """a where the mask has ones, else b."""
        return self.operate(V.SELECT, [a, b, mask], a.dtype, a.dtype)

    def bitwise(self, operation: VectorOperation, a: Tile, b: Operand) -> Tile:
        """SHL, SHR, SAR, AND, OR, XOR or an integer operation on the bits of 32-bit tiles; int32
        result."""
        return self.operate(operation, [a, b], "int32", "int32", bits=True)

    def reinterpret(self, tile: Tile, dtype: str) -> Tile:
        """The same bits as another 32-bit type; no operation, the same buffer."""
        return Tile(
            tile.builder, tile.buffer, dtype, tile.rows, tile.columns, tile.pitch, tile.column
        )

    def full(self, like: Tile, value: float, dtype: str = "float32") -> Tile:
        """A tile of the shape of another, filled with a number; float32 or int32."""
        if dtype not in ("float32", "int32"):
            raise CompileError(
                f"dtype must be float32 or int32, to be converted afterwards, not {dtype!r}"
            )
        tile = self._result(like, dtype)
        fields: dict[str, ScalarLike | Line] = {"immediate": self._immediate(value, dtype)}
        self._issue(V.FILL, tile, [], fields)
        return tile

    def copy(self, tile: Tile) -> Tile:
        """A copy in a new tile."""
        target = self._result(tile, tile.dtype)
        self._issue(V.COPY, target, [tile], _words_of(target))
        return target

    def update(self, target: Tile, value: Tile) -> None:
        """Give a tile that was made before, outside of a loop perhaps, a new value. It costs no
        command if the value is that of the operation before, and of use for nothing else."""
        if value.dtype != target.dtype or value.column != target.column:
            raise CompileError(f"value must have the type of {target!r}, not {value!r}")
        self._check_shape(value, target)
        self._issue(V.COPY, target, [value], _words_of(target), updates=True)

    def convert(self, tile: Tile, dtype: str) -> Tile:
        """int8 to int32 or fp32, bfloat16 to and from fp32, int32 to and from fp32 (ties to even,
        saturated), fp32 or int32 to int8 (saturated)."""
        match tile.dtype, dtype:
            case same, other if same == other:
                return tile
            case "int8", "int32":
                return self._repack(V.UNPACK_INT8, tile, "int32")
            case "int8", "float32":
                return self.convert(self.convert(tile, "int32"), "float32")
            case "bfloat16", "float32":
                return self._repack(V.UNPACK_BF16, tile, "float32")
            case "float32", "bfloat16":
                return self._repack(V.PACK_BF16, tile, "bfloat16")
            case "int32", "float32":
                return self.operate(V.INT_TO_FLOAT, [tile], "int32", "float32")
            case "float32", "int32":
                return self.operate(V.FLOAT_TO_INT, [tile], "float32", "int32")
            case "int32", "int8":
                return self._repack(V.PACK_INT8, tile, "int8")
            case "float32", "int8":
                return self.convert(self.convert(tile, "int32"), "int8")
        raise CompileError(f"conversion must be one that exists, not {tile.dtype} to {dtype!r}")

    def row_sum(self, tile: Tile) -> Tile:
        """The sum of each row, as a tile of one column."""
        return self._reduce(V.SUM_FLOAT, V.SUM_INT, tile)

    def row_max(self, tile: Tile) -> Tile:
        """The largest of each row, as a tile of one column."""
        return self._reduce(V.MAX_FLOAT, V.MAX_INT, tile)

    def row_min(self, tile: Tile) -> Tile:
        """The smallest of each row, as a tile of one column."""
        return self._reduce(V.MIN_FLOAT, V.MIN_INT, tile)

    def transpose(self, tile: Tile) -> Tile:
        """Rows become columns; 32-bit elements."""
        self._check(tile, "int32", bits=True)
        result = self._builder.tile(tile.columns, tile.rows, tile.dtype, name="transposed")
        self._issue(V.TRANSPOSE, result, [tile], {}, shape=tile)
        return result

    # What they have in common.

    @property
    def _builder(self) -> "KernelBuilder":
        return cast("KernelBuilder", self)

    def _arithmetic(
        self,
        floating: VectorOperation,
        integer: VectorOperation,
        a: Operand,
        b: Operand,
        *,
        commutes: bool = False,
        result: str | None = None,
    ) -> Tile:
        if not isinstance(a, Tile) and commutes:
            a, b = b, a
        if not isinstance(a, Tile):
            if not isinstance(b, Tile):
                raise CompileError(f"one operand must be a tile, not {a!r} and {b!r}")
            a = self.full(b, cast(float, a), b.dtype)
        dtype = a.dtype
        operation = floating if dtype == "float32" else integer
        return self.operate(operation, [a, b], dtype, result or dtype)

    def operate(
        self,
        operation: VectorOperation,
        operands: "list[Operand] | list[Tile]",
        dtype: str,
        result: str,
        *,
        bits: bool = False,
    ) -> Tile:
        """One operation on operands of `dtype`; the result has the shape of the largest.

        Raises:
            CompileError: an operand has another dtype or shape, or lies elsewhere than in UB.
        """
        tiles = [operand for operand in operands if isinstance(operand, Tile)]
        for tile in tiles:
            if tile.dtype == "int32" and operation is V.SELECT:
                continue
            self._check(tile, dtype, bits=bits)
        # The largest: neither a column nor a row, if there is one.
        shape = min(tiles, key=lambda tile: (tile.column, _one_row(tile)))
        target = self._result(shape, result)
        fields: dict[str, ScalarLike | Line] = {}
        sources: list[Tile] = []
        immediates = 0
        for letter, operand in zip("abc", operands, strict=False):
            if isinstance(operand, Tile):
                self._check_shape(operand, shape)
                sources.append(operand)
                fields |= self._source(letter, operand, shape)
                continue
            immediates += 1
            if letter == "a" or immediates > 1:
                raise CompileError(
                    f"one operand at most, not the first, must be a number, not {operands!r}"
                )
            fields |= {f"{letter}_immediate": 1, "immediate": self._immediate(operand, dtype)}
        self._issue(operation, target, sources, fields, shape=shape, placed=True)
        return target

    @staticmethod
    def _source(letter: str, tile: Tile, shape: Tile) -> dict[str, ScalarLike | Line]:
        row = _one_row(tile) and not _one_row(shape)
        spread = tile.column and not shape.column
        return {
            f"{letter}_line": tile.line,
            f"{letter}_pitch": 0 if row else tile.pitch,
            f"{letter}_step": 0 if spread else 1,
        }

    @staticmethod
    def _check(tile: Tile, dtype: str, *, bits: bool) -> None:
        if tile.buffer.memory is not Memory.UB:
            raise CompileError(f"operand must lie in UB, not {tile.buffer.memory.value!r}")
        if tile.dtype != dtype and not (bits and tile.dtype in ("float32", "int32")):
            raise CompileError(f"operand must have dtype {dtype}, not {tile.dtype!r}")

    @staticmethod
    def _check_shape(tile: Tile, shape: Tile) -> None:
        rows = same(tile.rows, shape.rows) or _one_row(tile)
        columns = tile.column or same(tile.columns, shape.columns)
        if not rows or not columns:
            raise CompileError(
                f"operand must have the shape {shape.shape}, one row or one column, not "
                f"{tile.shape!r}"
            )

    @staticmethod
    def _immediate(value: "Operand", dtype: str) -> ScalarLike:
        if isinstance(value, Scalar):
            floating = isinstance(value, Argument) and value.floating
            if floating != (dtype == "float32"):
                raise CompileError(
                    f"operand must be a number or a float32 argument for float32 tiles, an integer "
                    f"for others, not {value!r} for {dtype}"
                )
            return value
        if isinstance(value, Tile):
            raise CompileError(f"operand must be a number, not {value!r}")
        if dtype == "float32":
            return Constant(int(np.float32(value).view(np.uint32)))
        if value != int(value):
            raise CompileError(f"operand must be an integer for {dtype}, not {value!r}")
        return int(value)

    def _result(self, like: Tile, dtype: str) -> Tile:
        return self._builder.tile(like.rows, like.columns, dtype, column=like.column, name="vector")

    def _repack(self, operation: VectorOperation, tile: Tile, dtype: str) -> Tile:
        if tile.column:
            raise CompileError(f"conversion to {dtype} must not be of a column, not {tile!r}")
        self._check(tile, tile.dtype, bits=False)
        result = self._result(tile, dtype)
        self._issue(operation, result, [tile], {})
        return result

    def _reduce(self, floating: VectorOperation, integer: VectorOperation, tile: Tile) -> Tile:
        operation = floating if tile.dtype == "float32" else integer
        self._check(tile, "int32", bits=True)
        if tile.column:
            return tile
        result = self._builder.tile(tile.rows, 1, tile.dtype, column=True, name="column")
        self._issue(operation, result, [tile], {}, shape=tile)
        return result

    def _issue(
        self,
        operation: VectorOperation,
        result: Tile,
        sources: list[Tile],
        fields: dict[str, ScalarLike | Line],
        *,
        shape: Tile | None = None,
        placed: bool = False,
        updates: bool = False,
    ) -> None:
        size = result if shape is None else shape
        assert placed or len(sources) <= SOURCES[operation]
        command: dict[str, ScalarLike | Line] = {
            "operation": operation,
            "line": result.line,
            "pitch": result.pitch,
            "columns": 16 if size.column else size.columns,
            "rows": size.rows,
            **fields,
        }
        if not placed:
            for letter, tile in zip("abc", sources, strict=False):
                command |= self._source(letter, tile, size)
        self._builder.issue(
            Pipe.VECTOR,
            CommandOpcode.VECTOR,
            command,
            reads=tuple(sources),
            writes=(result,),
            updates=updates,
        )


def _words_of(tile: Tile) -> dict[str, "ScalarLike | Line"]:
    """The columns of a copy: the vector unit moves words of 32 bits, whatever they hold."""
    nbytes = ELEMENT_BYTES[tile.dtype]
    if nbytes == 4 or tile.column:
        return {}
    return {"columns": (tile.columns * nbytes + 3) >> 2}


def _one_row(tile: Tile) -> bool:
    return isinstance(tile.rows, Constant) and tile.rows.value == 1
