"""The language of kernels: what a function under `@kernel` does with its first argument."""

from collections.abc import Iterator
from contextlib import contextmanager

from abi.core import CommandOpcode, Local, Pipe
from abi.isa import Special
from runtime.compiler import scalar as expressions
from runtime.compiler.errors import CompileError
from runtime.compiler.functions import VectorFunctions
from runtime.compiler.ir import (
    Access,
    Barrier,
    Buffer,
    Command,
    Define,
    Fetch,
    Line,
    Loop,
    Memory,
    Pointer,
    Region,
    When,
)
from runtime.compiler.matrix import MatrixOperations
from runtime.compiler.scalar import (
    HIGHEST,
    Binary,
    Scalar,
    ScalarLike,
    SpecialValue,
    Variable,
    promised,
    same,
    scalar,
)
from runtime.compiler.tile import ELEMENT_BYTES, Tile, lines_of, most

__all__ = ["KernelBuilder"]

Shape = tuple[ScalarLike, ScalarLike]


class KernelBuilder(VectorFunctions, MatrixOperations):
    """Records what a kernel does: loops of the scalar unit, loads, operations on tiles, stores.

    The kernel's function runs once, when it is compiled; numbers that are not known then are
    expressions (`Scalar`). Flags between the pipes, double buffers and places in the core's
    buffers are the compiler's work.

    Sizes of tiles are at least 1 whenever the kernel gets there; numbers do not overflow.

    Attributes: `block_x`, `block_y`, `block_z`, `grid_x`, `grid_y`, `grid_z`: the block's place
    in the grid, and the grid's size.
    """

    def __init__(self) -> None:
        self.root = Region(None, repeats=False)
        self._region = self.root
        self._names: dict[str, int] = {}
        self._defined: dict[Binary, Region] = {}
        self.block_x = SpecialValue(Special.BLOCK_X)
        self.block_y = SpecialValue(Special.BLOCK_Y)
        self.block_z = SpecialValue(Special.BLOCK_Z)
        self.grid_x = SpecialValue(Special.GRID_X)
        self.grid_y = SpecialValue(Special.GRID_Y)
        self.grid_z = SpecialValue(Special.GRID_Z)
        for size in (self.grid_x, self.grid_y, self.grid_z):
            size.lowest = 1

    # Scalars and control.

    def minimum(self, a: ScalarLike, b: ScalarLike) -> Scalar:
        """The smaller of two scalars."""
        return self.define(expressions.minimum(a, b))

    def maximum(self, a: ScalarLike, b: ScalarLike) -> Scalar:
        """The larger of two scalars."""
        return self.define(expressions.maximum(a, b))

    def ceil_div(self, value: ScalarLike, unit: ScalarLike) -> Scalar:
        """A scalar >= 0 divided by one >= 1, rounded up."""
        return self.define(expressions.ceil_div(value, unit))

    def define(self, value: Scalar) -> Scalar:
        """Compute an expression, and what it is made of, here, if it is used more than once."""
        if not isinstance(value, Binary):
            return value
        known = self._defined.get(value)
        if known is None or not self._region.inside(known):
            self.define(value.left)
            self.define(value.right)
            self._defined[value] = self._region
            self._region.nodes.append(Define(value))
        return value

    def range(
        self, start: ScalarLike, stop: ScalarLike | None = None, step: ScalarLike = 1
    ) -> Iterator[Scalar]:
        """A loop on the scalar unit: `for i in k.range(n):` records its body once."""
        if stop is None:
            start, stop = 0, start
        first, end, by = (self.define(scalar(value)) for value in (start, stop, step))
        if by.lowest < 1:
            raise CompileError(f"step must be at least 1, not {step!r}")
        index = Variable("i", first.lowest, max(first.lowest, end.highest - 1))
        loop = Loop(index, first, end, by, Region(self._region, repeats=True))
        with self._inside(loop):
            yield index

    @contextmanager
    def when(self, condition: Scalar) -> Iterator[None]:
        """`with k.when(i < n):` runs its body only if the condition is not 0."""
        node = When(scalar(condition), Region(self._region, repeats=self._region.repeats))
        with self._inside(node):
            yield

    @contextmanager
    def _inside(self, node: Loop | When) -> Iterator[None]:
        outer = self._region
        outer.nodes.append(node)
        self._region = node.body
        try:
            yield
        finally:
            self._region = outer

    def barrier(self) -> None:
        """All loads, operations and stores before it have ended; what they wrote to global memory
        can be loaded."""
        self._region.nodes.append(Barrier())

    def fetch(
        self, pointer: Pointer, offset: ScalarLike, *, lowest: int = 0, highest: int = HIGHEST
    ) -> Scalar:
        """An int32 of global memory, read by the scalar unit: element `offset` of the array.

        Args:
            lowest, highest: bounds that the kernel's caller promises for the value.
        """
        self._check_pointer(pointer)
        if pointer.dtype != "int32":
            raise CompileError(f"{pointer.name} must point to int32, not {pointer.dtype!r}")
        value = Variable("fetched", lowest, highest)
        place = self.define(scalar(offset) * ELEMENT_BYTES["int32"])
        self._region.nodes.append(Fetch(value, pointer, place))
        return value

    # Tiles.

    def tile(
        self,
        rows: ScalarLike,
        columns: ScalarLike,
        dtype: str = "float32",
        *,
        memory: Memory = Memory.UB,
        slots: int = 0,
        column: bool = False,
        name: str = "tile",
    ) -> Tile:
        """An empty tile. `slots`: 0 lets the compiler choose; else a power of two up to 8."""
        if dtype not in ELEMENT_BYTES:
            raise CompileError(f"dtype must be one of {', '.join(ELEMENT_BYTES)}, not {dtype!r}")
        if slots not in (0, 1, 2, 4, 8):
            raise CompileError(f"slots must be 0, 1, 2, 4 or 8, not {slots!r}")
        # The RTL refuses a size of 0.
        height, width = promised(scalar(rows)), promised(scalar(columns))
        pitch = 1 if column else lines_of(most("columns", width), dtype)
        lines = most("rows", height) * pitch
        number = self._names[name] = self._names.get(name, 0) + 1
        buffer = Buffer(f"{name}{number}", memory, lines, self._region)
        if slots:
            buffer.slots, buffer.single = slots, slots == 1
        return Tile(self, buffer, dtype, height, width, pitch, column)

    def issue(
        self,
        pipe: Pipe,
        opcode: CommandOpcode,
        fields: dict[str, "ScalarLike | Line"],
        *,
        reads: tuple[Tile, ...] = (),
        writes: tuple[Tile, ...] = (),
        updates: bool = False,
    ) -> None:
        """Record a command. `updates`: it is the copy of an update, see `forward_updates`."""
        accesses = [Access(tile.buffer, writes=False) for tile in reads]
        accesses += [Access(tile.buffer, writes=True) for tile in writes]
        origin = f"{opcode.name} of {', '.join(t.buffer.name for t in (*writes, *reads))}"
        for value in fields.values():
            if isinstance(value, Binary):
                self.define(value)
        command = Command(pipe, opcode, fields, tuple(accesses), origin, updates=updates)
        self._region.nodes.append(command)

    def _check_pointer(self, pointer: Pointer) -> None:
        if not isinstance(pointer, Pointer):
            raise CompileError(f"pointer must be an argument declared with *, not {pointer!r}")

    def _rows(
        self,
        pointer: Pointer,
        offset: ScalarLike,
        tile: Tile,
        target: Local,
        columns: ScalarLike,
        stride: ScalarLike,
    ) -> "dict[str, ScalarLike | Line]":
        """Fields of a LOAD or SAVE of a tile's rows: `columns` elements each, in global memory
        `stride` elements apart."""
        size = ELEMENT_BYTES[pointer.dtype]
        return {
            "base": pointer.base,
            "target": target,
            "offset": scalar(offset) * size,
            "line": tile.line,
            "pitch": tile.pitch,
            "row_bytes": scalar(columns) * size,
            "rows": tile.rows,
            "stride": scalar(stride) * size,
            "planes": 1,
        }

    def load(
        self,
        pointer: Pointer,
        offset: ScalarLike,
        shape: "ScalarLike | Shape",
        *,
        stride: ScalarLike = 0,
        planes: ScalarLike = 1,
        plane_stride: ScalarLike = 0,
        memory: Memory = Memory.UB,
        slots: int = 0,
    ) -> Tile:
        """A tile from global memory: `shape` is columns, or (rows, columns).

        Args:
            pointer: the argument that points to the array.
            offset: elements from there to the first one.
            shape: sizes, each at least 1 when the kernel runs, with upper bounds known.
            stride: elements from a row to the next.
            planes, plane_stride: so many times these rows, one behind the other in the tile, and
                elements from the first row of one to that of the next.
            memory: UB, or L1 for the Cube.
        """
        self._check_pointer(pointer)
        rows, columns = shape if isinstance(shape, tuple) else (1, shape)
        height = scalar(rows) * planes
        one_plane = same(scalar(planes), scalar(1))
        tile = self.tile(height, columns, pointer.dtype, memory=memory, slots=slots, name="load")
        local = Local.UB if memory is Memory.UB else Local.L1
        fields = self._rows(pointer, offset, tile, local, tile.columns, stride)
        if not one_plane:
            fields |= {
                "rows": rows,
                "planes": planes,
                "plane_pitch": scalar(rows) * tile.pitch,
                "plane_stride": scalar(plane_stride) * ELEMENT_BYTES[pointer.dtype],
            }
        self.issue(Pipe.MTE2, CommandOpcode.LOAD, fields, writes=(tile,))
        return tile

    def store(
        self, pointer: Pointer, offset: ScalarLike, tile: Tile, *, stride: ScalarLike = 0
    ) -> None:
        """Write a tile of UB to global memory, of the pointer's element type.

        Raises:
            CompileError: the tile lies elsewhere, or has another element type.
        """
        self._check_pointer(pointer)
        if tile.buffer.memory is not Memory.UB:
            raise CompileError(f"tile must lie in UB, not {tile.buffer.memory.value!r}")
        if tile.dtype != pointer.dtype:
            raise CompileError(
                f"tile must have the dtype {pointer.dtype} of {pointer.name}, not {tile.dtype!r}"
            )
        self.issue(
            Pipe.MTE3,
            CommandOpcode.SAVE,
            self._rows(pointer, offset, tile, Local.MEMORY, tile.columns, stride),
            reads=(tile,),
        )

    def store_column(self, pointer: Pointer, offset: ScalarLike, tile: Tile) -> None:
        """Write a tile of one column as consecutive elements: one of each row."""
        self._check_pointer(pointer)
        if not tile.column or tile.dtype != pointer.dtype:
            raise CompileError(f"tile must be a column of {pointer.dtype}, not {tile!r}")
        self.issue(
            Pipe.MTE3,
            CommandOpcode.SAVE,
            self._rows(pointer, offset, tile, Local.MEMORY, 1, 1),
            reads=(tile,),
        )
