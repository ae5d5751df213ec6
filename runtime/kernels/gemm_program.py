"""The program of a matrix product: C = A x B + bias, with ReLU and requantisation.

Steps go through C tile by tile, and along k within a tile. Four pipes work at once:

    MTE2     LOAD A, B, bias into a slot of L1       (L1 is a ring of slots)
    MTE1     MOVE them into a half of L0A, L0B, bias
    CUBE     MMAD into a half of L0C                  (a half a C tile)
    FIXPIPE  STORE the tile

Each ring has two flags that count: FULL is set by its producer and awaited by its consumer, FREE
the other way round, from the moment on at which the ring has been filled once. All dependencies
point backwards in program order, so the pipes' queues can never block each other for good.
"""

from dataclasses import dataclass
from enum import IntEnum

from abi.core import CUBE_SIDE, MoveTarget
from runtime.kernels.program import Program
from runtime.kernels.tiling import (
    BufferLines,
    Tiles,
    ceil_to,
    divide_up,
)

__all__ = ["GemmArgument", "GemmPlan", "build_gemm", "commands_of"]


class Flag(IntEnum):
    """Hardware flags of the program."""

    L1_FULL = 0
    L1_FREE = 1
    L0_FULL = 2
    L0_FREE = 3
    C_FULL = 4
    C_FREE = 5
    BIAS_FULL = 6
    BIAS_FREE = 7


class GemmArgument(IntEnum):
    """Base registers of the program."""

    A = 0
    B = 1
    C = 2
    BIAS = 3


@dataclass(frozen=True)
class GemmPlan:
    """What a program computes: an (m, n) block of C over all of k.

    `lda`, `ldb`, `ldc`: bytes from row to row. `requantise`: (multiplier, shift), int8 output, or
    None, int32 output.
    """

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    bias: bool
    relu: bool
    requantise: tuple[int, int] | None
    tiles: Tiles

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of C."""
        return 4 if self.requantise is None else 1


@dataclass(frozen=True)
class _Step:
    """One step: its tile of C (`tile`-th) at row `m`, column `n`, and its chunk of k."""

    index: int
    tile: int
    m: int
    n: int
    k: int
    rows: int
    columns: int
    depth: int
    first: bool
    last: bool


def commands_of(m_steps: int, n_steps: int, k_steps: int, *, bias: bool) -> int:
    """Commands, at most, of a program of that many steps."""
    return m_steps * n_steps * (5 * k_steps + (4 if bias else 2)) + 1


def build_gemm(plan: GemmPlan, buffers: BufferLines) -> bytes:
    """The program of `plan`, whose tiles must fit `buffers`; base registers as GemmArgument."""
    steps = _steps(plan)
    program = Program()
    slots = plan.tiles.slots(buffers)
    tiles = steps[-1].tile + 1
    for step in steps:
        _load(program, plan, step, slots)
        _move(program, plan, step, slots, len(steps), buffers)
        _multiply(program, plan, step, len(steps), buffers)
        if step.last:
            _store(program, plan, step, tiles, buffers)
    return program.finish()


def _steps(plan: GemmPlan) -> list[_Step]:
    tiles = plan.tiles
    found: list[_Step] = []
    tile = 0
    for n in range(0, plan.n, tiles.n):
        for m in range(0, plan.m, tiles.m):
            for k in range(0, plan.k, tiles.k):
                found.append(
                    _Step(
                        index=len(found),
                        tile=tile,
                        m=m,
                        n=n,
                        k=k,
                        rows=min(tiles.m, plan.m - m),
                        columns=min(tiles.n, plan.n - n),
                        depth=min(tiles.k, plan.k - k),
                        first=k == 0,
                        last=k + tiles.k >= plan.k,
                    )
                )
            tile += 1
    return found


def _slot_lines(plan: GemmPlan, step: _Step, slots: int) -> tuple[int, int, int]:
    """First lines of A, B and bias in the step's slot of L1."""
    tiles = plan.tiles
    a = step.index % slots * tiles.slot_lines
    b = a + tiles.m * tiles.a_lines
    return a, b, b + ceil_to(tiles.k, CUBE_SIDE) * tiles.b_lines


def _load(program: Program, plan: GemmPlan, step: _Step, slots: int) -> None:
    a, b, bias = _slot_lines(plan, step, slots)
    program.load(
        argument=GemmArgument.A,
        offset=step.m * plan.lda + step.k,
        line=a,
        row_bytes=step.depth,
        rows=step.rows,
        stride=plan.lda if step.rows > 1 else 0,
        pitch=plan.tiles.a_lines,
        wait=[Flag.L1_FREE] if step.index >= slots else [],
    )
    if plan.bias and step.first:
        program.load(
            argument=GemmArgument.BIAS, offset=4 * step.n, line=bias, row_bytes=4 * step.columns
        )
    padding = -step.depth % CUBE_SIDE
    if padding:
        # The Cube multiplies these rows by zeros of A; a row of B is there so that they are
        # well-defined.
        program.load(
            argument=GemmArgument.B,
            offset=step.k * plan.ldb + step.n,
            line=b + step.depth * plan.tiles.b_lines,
            row_bytes=step.columns,
            rows=padding,
            pitch=plan.tiles.b_lines,
        )
    program.load(
        argument=GemmArgument.B,
        offset=step.k * plan.ldb + step.n,
        line=b,
        row_bytes=step.columns,
        rows=step.depth,
        stride=plan.ldb if step.depth > 1 else 0,
        pitch=plan.tiles.b_lines,
        set_=[Flag.L1_FULL],
    )


def _move(
    program: Program,
    plan: GemmPlan,
    step: _Step,
    slots: int,
    steps: int,
    buffers: BufferLines,
) -> None:
    a, b, bias = _slot_lines(plan, step, slots)
    a_lines, b_lines = plan.tiles.a_lines, plan.tiles.b_lines
    half = step.index % 2
    program.move(
        MoveTarget.L0A,
        source=a,
        source_pitch=a_lines,
        line=half * (buffers.l0a // 2),
        pitch=a_lines,
        row_lines=a_lines,
        rows=step.rows,
        wait=[Flag.L1_FULL, *([Flag.L0_FREE] if step.index >= 2 else [])],
    )
    slot_free = [Flag.L1_FREE] if step.index + slots < steps else []
    with_bias = plan.bias and step.first
    program.move(
        MoveTarget.L0B,
        source=b,
        source_pitch=b_lines,
        line=half * (buffers.l0b // 2),
        pitch=b_lines,
        row_lines=b_lines,
        rows=ceil_to(step.depth, CUBE_SIDE),
        set_=[Flag.L0_FULL, *([] if with_bias else slot_free)],
    )
    if with_bias:
        program.move(
            MoveTarget.BIAS,
            source=bias,
            line=step.tile % 2 * (buffers.bias // 2),
            row_lines=divide_up(4 * step.columns, 64),
            wait=[Flag.BIAS_FREE] if step.tile >= 2 else [],
            set_=[Flag.BIAS_FULL, *slot_free],
        )


def _multiply(
    program: Program, plan: GemmPlan, step: _Step, steps: int, buffers: BufferLines
) -> None:
    half = step.index % 2
    program.mmad(
        accumulate=not step.first,
        a_line=half * (buffers.l0a // 2),
        a_pitch=plan.tiles.a_lines,
        b_line=half * (buffers.l0b // 2),
        b_pitch=plan.tiles.b_lines,
        c_line=step.tile % 2 * (buffers.l0c // 2),
        c_pitch=plan.tiles.c_lines,
        rows=step.rows,
        k_tiles=divide_up(step.depth, CUBE_SIDE),
        n_tiles=divide_up(step.columns, CUBE_SIDE),
        wait=[Flag.L0_FULL, *([Flag.C_FREE] if step.first and step.tile >= 2 else [])],
        set_=[
            *([Flag.L0_FREE] if step.index + 2 < steps else []),
            *([Flag.C_FULL] if step.last else []),
        ],
    )


def _store(program: Program, plan: GemmPlan, step: _Step, tiles: int, buffers: BufferLines) -> None:
    half = step.tile % 2
    again = step.tile + 2 < tiles
    program.store(
        argument=GemmArgument.C,
        offset=step.m * plan.ldc + step.n * plan.element_bytes,
        columns=step.columns,
        rows=step.rows,
        stride=plan.ldc if step.rows > 1 else 0,
        c_line=half * (buffers.l0c // 2),
        c_pitch=plan.tiles.c_lines,
        bias_line=half * (buffers.bias // 2) if plan.bias else None,
        relu=plan.relu,
        requantise=plan.requantise,
        wait=[Flag.C_FULL, *([Flag.BIAS_FULL] if plan.bias else [])],
        set_=[
            *([Flag.C_FREE] if again else []),
            *([Flag.BIAS_FREE] if again and plan.bias else []),
        ],
    )
