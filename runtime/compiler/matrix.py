"""Matrix operations of the kernel language: products on the Cube, and what becomes of the sums."""

from typing import TYPE_CHECKING, Protocol, cast

from abi.address import LINE_BYTES
from abi.core import (
    CUBE_SIDE,
    CommandOpcode,
    Local,
    MmadType,
    MoveTarget,
    Pipe,
    StoreOutput,
    Transpose,
)
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Line, Memory, Pointer
from runtime.compiler.scalar import Constant, Scalar, ScalarLike, ceil_div, scalar
from runtime.compiler.tile import ELEMENT_BYTES, Tile

if TYPE_CHECKING:
    from runtime.compiler.builder import KernelBuilder

__all__ = ["MatrixOperations"]

SUMS = {"int8": "int32", "bfloat16": "float32"}
"""Element type of the sums for each operand type of the Cube."""

_TYPES = {"int8": MmadType.INT8, "bfloat16": MmadType.BF16}
_OUTPUTS = {
    ("int32", "int32"): StoreOutput.WORD,
    ("float32", "float32"): StoreOutput.WORD,
    ("int32", "int8"): StoreOutput.INT8,
    ("float32", "bfloat16"): StoreOutput.BF16,
}


class Window(Protocol):
    """Sizes of a window that slides over an image, as `unfold` needs them."""

    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def kernel_height(self) -> int: ...
    @property
    def kernel_width(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def padding(self) -> int: ...
    @property
    def out_width(self) -> int: ...


class MatrixOperations:
    """Operations of MTE1, the Cube and FIXPIPE."""

    @property
    def _kernel(self) -> "KernelBuilder":
        return cast("KernelBuilder", self)

    def accumulator(self, rows: ScalarLike, columns: ScalarLike, dtype: str = "int32") -> Tile:
        """A tile of sums in L0C, int32 or fp32. Make it outside of the loop over k."""
        if dtype not in SUMS.values():
            raise CompileError(f"dtype of sums must be int32 or float32, not {dtype!r}")
        return self._kernel.tile(rows, columns, dtype, memory=Memory.L0C, name="sums")

    def dot(
        self,
        sums: Tile,
        a: Tile,
        b: Tile,
        *,
        first: ScalarLike = 0,
        transpose_a: bool = False,
        transpose_b: bool = False,
    ) -> None:
        """sums += a @ b on the Cube; a (rows, k) and b (k, columns) lie in L1.

        Args:
            first: 1 (or a condition) to start from zero instead of adding.
            transpose_a, transpose_b: the tile holds the transposed matrix.

        Raises:
            CompileError: element types, sizes or places do not fit together.
        """
        for name, tile in (("a", a), ("b", b)):
            if tile.buffer.memory is not Memory.L1:
                raise CompileError(f"{name} must lie in L1, not {tile.buffer.memory.value!r}")
        if a.dtype != b.dtype or SUMS.get(a.dtype) != sums.dtype:
            raise CompileError(
                f"a and b must be int8 with int32 sums or bfloat16 with float32 sums, not "
                f"{a.dtype}, {b.dtype} and {sums.dtype!r}"
            )
        depth = a.rows if transpose_a else a.columns
        left = self.move(a, Memory.L0A, transpose=transpose_a)
        right = self.move(b, Memory.L0B, transpose=transpose_b, rows=_padded(depth))
        self._pad(right, depth)
        self.multiply_accumulate(sums, left, right, depth, first=first)

    def move(
        self,
        tile: Tile,
        memory: Memory,
        *,
        transpose: bool = False,
        rows: Scalar | None = None,
    ) -> Tile:
        """A copy of an L1 tile in L0A or L0B, transposed if asked for; `rows`: room for so many."""
        target = {
            Memory.L0A: MoveTarget.L0A,
            Memory.L0B: MoveTarget.L0B,
            Memory.BIAS: MoveTarget.BIAS,
            Memory.L0C: MoveTarget.L0C,
        }.get(memory)
        if target is None:
            raise CompileError(f"memory must be L0A, L0B, L0C or BIAS, not {memory!r}")
        k = self._kernel
        per_line = LINE_BYTES // ELEMENT_BYTES[tile.dtype]
        height, width = tile.rows if rows is None else rows, tile.columns
        if transpose:
            # Whole blocks are written, rows beyond the matrix too.
            height, width = ceil_div(tile.columns, per_line) * per_line, tile.rows
        result = k.tile(height, width, tile.dtype, memory=memory, name="operand")
        many = not transpose and tile.rows.highest > 1
        kind = Transpose.NONE
        if transpose:
            kind = Transpose.BYTES if tile.dtype == "int8" else Transpose.HALVES
        k.issue(
            Pipe.MTE1,
            CommandOpcode.MOVE,
            {
                "target": target,
                "transpose": kind,
                "source": tile.line,
                "source_pitch": tile.pitch,
                "line": result.line,
                "pitch": result.pitch,
                # A destination has room for whole tiles; of several rows, lines that hold nothing
                # are copied too, which keeps the number known.
                "row_lines": tile.pitch if many else ceil_div(tile.columns, per_line),
                "rows": tile.rows,
            },
            reads=(tile,),
            writes=(result,),
        )
        return result

    def unfold(
        self,
        picture: Tile,
        window: Window,
        first: ScalarLike,
        count: ScalarLike,
        *,
        top: ScalarLike = 0,
        rows: ScalarLike | None = None,
    ) -> Tile:
        """Windows of an image in L1 as rows of a matrix in L0A: `count` windows, from number
        `first` on, row by row of the result. The picture's rows are image rows, its columns
        all channels of all pixels of a row.

        Args:
            top, rows: only these rows of each window, all of them if not given.
        """
        k = self._kernel
        size = ELEMENT_BYTES[picture.dtype]
        kernel_rows = scalar(window.kernel_height if rows is None else rows)
        depth = kernel_rows * (window.kernel_width * window.channels)
        left = k.tile(count, depth, picture.dtype, memory=Memory.L0A, name="windows")
        start = k.define(scalar(first))
        # Rows of the padding above the image, or of the image above the first row of a window.
        above = k.maximum(scalar(window.padding) - top, 0)
        skipped = k.minimum(k.maximum(scalar(top) - window.padding, 0), window.height)
        k.issue(
            Pipe.MTE1,
            CommandOpcode.IMG2COL,
            {
                "target": MoveTarget.L0A,
                "stride_height": window.stride,
                "stride_width": window.stride,
                "source": Line(picture.buffer, skipped * picture.pitch),
                "source_pitch": picture.pitch,
                "line": left.line,
                "pitch": left.pitch,
                "pixel_bytes": window.channels * size,
                "rows": left.rows,
                "height": window.height - skipped,
                "width": window.width,
                "out_width": window.out_width,
                "kernel_height": kernel_rows,
                "kernel_width": window.kernel_width,
                "pad_top": above,
                "pad_left": window.padding,
                "first_row": start // window.out_width,
                "first_column": start % window.out_width,
            },
            reads=(picture,),
            writes=(left,),
        )
        return left

    def padded(self, depth: ScalarLike) -> Scalar:
        """Rows of B that the Cube reads for a depth."""
        return _padded(scalar(depth))

    def _pad(self, right: Tile, depth: Scalar) -> None:
        """Zero rows of B from `depth` to the next multiple of 16: what lies there might be a NaN,
        and the Cube multiplies it by the zeros of A. Integers need it not."""
        if right.dtype == "int8":
            return
        if isinstance(depth, Constant) and depth.value % CUBE_SIDE == 0:
            return
        k = self._kernel
        missing = k.define((-depth) & (CUBE_SIDE - 1))
        with k.when(missing):
            # Windows that lie outside of an empty image are zeros.
            k.issue(
                Pipe.MTE1,
                CommandOpcode.IMG2COL,
                {
                    "target": MoveTarget.L0B,
                    "stride_height": 1,
                    "stride_width": 1,
                    "source": 0,
                    "line": Line(right.buffer, depth * right.pitch),
                    "pitch": right.pitch,
                    "pixel_bytes": right.pitch * LINE_BYTES,
                    "rows": missing,
                    "out_width": 1,
                    "kernel_height": 1,
                    "kernel_width": 1,
                },
                writes=(right,),
            )

    def multiply_accumulate(
        self,
        sums: Tile,
        left: Tile,
        right: Tile,
        depth: ScalarLike,
        *,
        first: ScalarLike = 0,
        line: ScalarLike = 0,
    ) -> None:
        """One command of the Cube on tiles in L0A and L0B; see `dot`. `line`: of each row of the
        left tile, the line in which the depth begins."""
        k = self._kernel
        steps = ceil_div(depth, CUBE_SIDE)
        k.issue(
            Pipe.CUBE,
            CommandOpcode.MMAD,
            {
                "accumulate": scalar(first) ^ 1 if isinstance(first, Scalar) else 1 - int(first),
                "type": _TYPES[left.dtype],
                "a_line": Line(left.buffer, line),
                "a_pitch": left.pitch,
                "b_line": right.line,
                "b_pitch": right.pitch,
                "c_line": sums.line,
                "c_pitch": sums.pitch,
                "rows": sums.rows,
                "k_tiles": steps,
                "n_tiles": ceil_div(sums.columns, CUBE_SIDE),
            },
            reads=(left, right, sums),
            writes=(sums,),
        )

    def load_bias(self, pointer: Pointer, offset: ScalarLike, columns: ScalarLike) -> Tile:
        """A row of int32 in the bias buffer, for `store_sums`."""
        k = self._kernel
        return self.move(k.load(pointer, offset, columns, memory=Memory.L1), Memory.BIAS)

    def store_sums(
        self,
        pointer: Pointer,
        offset: ScalarLike,
        sums: Tile,
        *,
        stride: ScalarLike = 0,
        bias: Tile | None = None,
        relu: bool = False,
        multiplier: ScalarLike = 0,
        shift: ScalarLike = 0,
    ) -> None:
        """Write sums to global memory, as the pointer's element type: as they are, int32
        requantised to int8 with `multiplier` and `shift`, or fp32 rounded to bfloat16."""
        size = ELEMENT_BYTES[pointer.dtype]
        fields: dict[str, ScalarLike | Line] = {
            "base": pointer.base,
            "target": Local.MEMORY,
            "offset": scalar(offset) * size,
            "stride": scalar(stride) * size,
        }
        self._fixpipe(pointer.dtype, sums, fields, (), bias, relu, multiplier, shift)

    def sums_to_tile(
        self,
        sums: Tile,
        dtype: str | None = None,
        *,
        bias: Tile | None = None,
        relu: bool = False,
        multiplier: ScalarLike = 0,
        shift: ScalarLike = 0,
    ) -> Tile:
        """The sums as a tile in UB, converted as `store_sums` does."""
        wanted = dtype or sums.dtype
        tile = self._kernel.tile(sums.rows, sums.columns, wanted, name="sums_in_ub")
        fields: dict[str, ScalarLike | Line] = {
            "target": Local.UB,
            "offset": tile.line,
            "stride": tile.pitch,
        }
        self._fixpipe(wanted, sums, fields, (tile,), bias, relu, multiplier, shift)
        return tile

    def _fixpipe(
        self,
        dtype: str,
        sums: Tile,
        fields: dict[str, ScalarLike | Line],
        writes: tuple[Tile, ...],
        bias: Tile | None,
        relu: bool,
        multiplier: ScalarLike,
        shift: ScalarLike,
    ) -> None:
        output = _OUTPUTS.get((sums.dtype, dtype))
        if output is None:
            raise CompileError(f"sums of {sums.dtype} must not be written as {dtype!r}")
        if bias is not None and sums.dtype != "int32":
            raise CompileError(f"bias must go with int32 sums, not {sums.dtype!r}")
        if bias is not None:
            fields |= {"bias": 1, "bias_line": bias.line}
        if output is StoreOutput.INT8:
            fields |= {"multiplier": multiplier, "shift": shift}
        self._kernel.issue(
            Pipe.FIXPIPE,
            CommandOpcode.STORE,
            {
                "output": output,
                "relu": int(relu),
                "c_line": sums.line,
                "c_pitch": sums.pitch,
                "columns": sums.columns,
                "rows": sums.rows,
                **fields,
            },
            reads=(sums,) if bias is None else (sums, bias),
            writes=writes,
        )


def _padded(depth: Scalar) -> Scalar:
    """Rows of B that the Cube reads."""
    return ceil_div(depth, CUBE_SIDE) * CUBE_SIDE
