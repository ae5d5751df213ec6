"""The kernel of a matrix product: C = A x B + bias, with ReLU and requantisation.

Each block of the grid makes a group of whole tiles of C. It steps through them tile by tile, and
along k within a tile. Four pipes work at once:

    MTE2     LOAD A, B, bias into a slot of L1       (L1 is a ring of slots)
    MTE1     MOVE them into a half of L0A, L0B, bias
    CUBE     MMAD into a half of L0C                  (a half a C tile)
    FIXPIPE  STORE the tile

Each ring has two flags that count: FULL is set by its producer and awaited by its consumer, FREE
the other way round. The scalar unit primes FREE with the size of the ring; what is left of it at
the end of the block is forgotten. All dependencies point backwards in program order, so the
pipes' queues can never block each other for good.
"""

from dataclasses import dataclass
from enum import IntEnum

from abi.core import CUBE_SIDE, CommandOpcode, Local, MoveTarget, Pipe, StoreOutput
from abi.isa import Special
from runtime.compiler.allocate import CoreBuffers
from runtime.kernels.emitter import Emitter
from runtime.kernels.tiling import Tiles, ceil_to, divide_up

__all__ = ["GemmArgument", "GemmPlan", "build_gemm"]


class Flag(IntEnum):
    """Hardware flags of the kernel."""

    L1_FULL = 0
    L1_FREE = 1
    L0_FULL = 2
    L0_FREE = 3
    C_FULL = 4
    C_FREE = 5
    BIAS_FULL = 6
    BIAS_FREE = 7


class GemmArgument(IntEnum):
    """Pointers in the argument block, and base registers."""

    A = 0
    B = 1
    C = 2
    BIAS = 3


@dataclass(frozen=True)
class GemmPlan:
    """What a kernel computes: (m, n) C from (m, k) A and (k, n) B.

    `lda`, `ldb`, `ldc`: bytes from row to row. `requantise`: (multiplier, shift), int8 output, or
    None, int32 output. `group_m`, `group_n`: rows and columns of C of a block, multiples of the
    tile unless they cover all of C.
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
    group_m: int
    group_n: int

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of C."""
        return 4 if self.requantise is None else 1

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along m, along n, and 1."""
        return divide_up(self.m, self.group_m), divide_up(self.n, self.group_n), 1


# Where things are while the loops run.
M, M_END, N, N_END, K = "s0", "s1", "s2", "s3", "s4"
SLOT_A, SLOT_B = "s5", "s6"
"""Lines of A and B in the slot of L1, with their pitch in the upper half."""
HALF_A, HALF_B, HALF_C = "s7", "s8", "s9"
"""Lines in L0A, L0B, L0C, with their pitch in the upper half."""
SLOTS_LEFT, HALF_BIAS = "s10", "s11"
ROWS, COLUMNS, DEPTH = "a1", "a2", "a3"
A_ROW, B_OFFSET, M_START = "a4", "a5", "a6"
"""Bytes: offset of the tile's first row of A, and of the chunk in B; the group's first row."""


class _Gemm:
    def __init__(self, plan: GemmPlan, buffers: CoreBuffers) -> None:
        self.plan = plan
        self.buffers = buffers
        self.asm = Emitter()
        tiles = plan.tiles
        self.slots = tiles.slots(buffers)
        self.k_steps = divide_up(plan.k, tiles.k)
        self.last_k = (self.k_steps - 1) * tiles.k
        self.first_b = tiles.m * tiles.a_lines
        self.bias_lines_on = ceil_to(tiles.k, CUBE_SIDE) * tiles.b_lines

    def build(self) -> bytes:
        asm, plan, tiles = self.asm, self.plan, self.plan.tiles
        self._prologue()
        asm.label("n_loop")
        self._rest(COLUMNS, N_END, N, tiles.n)
        asm.mv(M, M_START)
        asm.label("m_loop")
        self._rest(ROWS, M_END, M, tiles.m)
        asm.li("t0", plan.lda)
        asm.emit("mul", A_ROW, M, "t0")
        asm.li(K, 0)
        asm.mv(B_OFFSET, N)
        asm.label("k_loop")
        asm.li(DEPTH, plan.k)
        asm.emit("sub", DEPTH, DEPTH, K)
        asm.li("t0", tiles.k)
        asm.cap(DEPTH, DEPTH, "t0")
        self._load()
        self._move()
        self._multiply()
        self._advance()
        self._store()
        asm.add_constant(M, M, tiles.m)
        asm.emit("blt", M, M_END, "m_loop")
        asm.add_constant(N, N, tiles.n)
        asm.emit("blt", N, N_END, "n_loop")
        asm.emit("npu.exit")
        return asm.assemble()

    def _rest(self, rd: str, end: str, at: str, most: int) -> None:
        """rd = what is left up to `end`, at most a tile."""
        self.asm.emit("sub", rd, end, at)
        self.asm.li("t0", most)
        self.asm.cap(rd, rd, "t0")

    def _prologue(self) -> None:
        asm, plan, tiles = self.asm, self.plan, self.plan.tiles
        asm.bases(4 if plan.bias else 3)
        asm.span(M_START, M_END, Special.BLOCK_X, plan.group_m, plan.m)
        asm.span(N, N_END, Special.BLOCK_Y, plan.group_n, plan.n)
        asm.prime([(Flag.L1_FREE, self.slots), (Flag.L0_FREE, 2), (Flag.C_FREE, 2)])
        if plan.bias:
            asm.prime([(Flag.BIAS_FREE, 2)])
        # Loads have one plane; the words that no command changes are zero.
        asm.li("t0", 1)
        asm.emit("npu.word", Pipe.MTE2, 5, "t0")
        self._first_slot()
        asm.li(HALF_A, tiles.a_lines << 16)
        asm.li(HALF_B, tiles.b_lines << 16)
        asm.li(HALF_C, tiles.c_lines << 16)
        asm.li(HALF_BIAS, 0)

    def _first_slot(self) -> None:
        tiles = self.plan.tiles
        self.asm.li(SLOT_A, tiles.a_lines << 16)
        self.asm.li(SLOT_B, self.first_b | tiles.b_lines << 16)
        self.asm.li(SLOTS_LEFT, self.slots)

    def _load(self) -> None:
        asm, plan = self.asm, self.plan
        load, mte2 = CommandOpcode.LOAD, Pipe.MTE2
        asm.emit("add", "t0", A_ROW, K)
        asm.emit("npu.pair", mte2, 1, "t0", SLOT_A)
        asm.halves("t0", DEPTH, ROWS)
        asm.li("t1", plan.lda)
        asm.emit("npu.pair", mte2, 3, "t0", "t1")
        asm.issue(load, base=GemmArgument.A, target=Local.L1, wait=[Flag.L1_FREE])
        if plan.bias:
            asm.bnez(K, "no_bias_load")
            asm.emit("slli", "t0", N, 2)
            asm.add_constant("t1", SLOT_B, self.bias_lines_on)
            asm.emit("npu.pair", mte2, 1, "t0", "t1")
            asm.emit("slli", "t0", COLUMNS, 2)
            self._one_row("t0")
            asm.emit("npu.pair", mte2, 3, "t0", "zero")
            asm.issue(load, base=GemmArgument.BIAS, target=Local.L1)
            asm.label("no_bias_load")
        self._pad()
        asm.emit("npu.pair", mte2, 1, B_OFFSET, SLOT_B)
        asm.halves("t0", COLUMNS, DEPTH)
        asm.li("t1", plan.ldb)
        asm.emit("npu.pair", mte2, 3, "t0", "t1")
        asm.issue(load, base=GemmArgument.B, target=Local.L1, give=[Flag.L1_FULL])

    def _pad(self) -> None:
        """The Cube multiplies rows of B behind the last one by zeros of A; a row of B is there so
        that they are well-defined."""
        asm, plan = self.asm, self.plan
        depth = plan.k - self.last_k
        padding = -depth % CUBE_SIDE
        if not padding:
            return
        asm.li("t0", self.last_k)
        asm.emit("bne", K, "t0", "no_padding")
        asm.add_constant("t0", SLOT_B, depth * plan.tiles.b_lines)
        asm.emit("npu.pair", Pipe.MTE2, 1, B_OFFSET, "t0")
        asm.li("t0", padding << 16)
        asm.emit("or", "t0", "t0", COLUMNS)
        asm.emit("npu.pair", Pipe.MTE2, 3, "t0", "zero")
        asm.issue(CommandOpcode.LOAD, base=GemmArgument.B, target=Local.L1)
        asm.label("no_padding")

    def _one_row(self, rd: str) -> None:
        """rd |= 1 << 16."""
        self.asm.emit("lui", "t2", 1 << 4)
        self.asm.emit("or", rd, rd, "t2")

    def _move(self) -> None:
        asm, tiles = self.asm, self.plan.tiles
        move, mte1 = CommandOpcode.MOVE, Pipe.MTE1
        asm.emit("npu.pair", mte1, 1, SLOT_A, HALF_A)
        asm.emit("slli", "t0", ROWS, 16)
        asm.add_constant("t0", "t0", tiles.a_lines)
        asm.emit("npu.word", mte1, 3, "t0")
        asm.issue(move, target=MoveTarget.L0A, wait=[Flag.L1_FULL, Flag.L0_FREE])
        asm.emit("npu.pair", mte1, 1, SLOT_B, HALF_B)
        asm.emit("addi", "t0", DEPTH, CUBE_SIDE - 1)
        asm.emit("andi", "t0", "t0", -CUBE_SIDE)
        asm.emit("slli", "t0", "t0", 16)
        asm.add_constant("t0", "t0", tiles.b_lines)
        asm.emit("npu.word", mte1, 3, "t0")
        if not self.plan.bias:
            asm.issue(move, target=MoveTarget.L0B, give=[Flag.L0_FULL, Flag.L1_FREE])
            return
        asm.beqz(K, "slot_in_use")
        asm.emit("npu.set", mte1, Flag.L1_FREE)
        asm.label("slot_in_use")
        asm.issue(move, target=MoveTarget.L0B, give=[Flag.L0_FULL])
        asm.bnez(K, "no_bias_move")
        asm.add_constant("t0", SLOT_B, self.bias_lines_on)
        asm.emit("npu.pair", mte1, 1, "t0", HALF_BIAS)
        self._blocks("t0", COLUMNS)
        self._one_row("t0")
        asm.emit("npu.word", mte1, 3, "t0")
        asm.issue(
            move,
            target=MoveTarget.BIAS,
            wait=[Flag.BIAS_FREE],
            give=[Flag.BIAS_FULL, Flag.L1_FREE],
        )
        asm.label("no_bias_move")

    def _blocks(self, rd: str, rs: str) -> None:
        """rd = rs / 16, rounded up."""
        self.asm.emit("addi", rd, rs, CUBE_SIDE - 1)
        self.asm.emit("srli", rd, rd, 4)

    def _multiply(self) -> None:
        asm, cube = self.asm, Pipe.CUBE
        asm.emit("npu.pair", cube, 1, HALF_A, HALF_B)
        self._blocks("t1", DEPTH)
        asm.halves("t0", ROWS, "t1")
        asm.emit("npu.pair", cube, 3, HALF_C, "t0")
        self._blocks("t0", COLUMNS)
        asm.emit("npu.word", cube, 5, "t0")
        asm.bnez(K, "same_tile")
        asm.emit("npu.wait", cube, Flag.C_FREE)
        asm.label("same_tile")
        asm.li("t0", self.last_k)
        asm.emit("blt", K, "t0", "more_to_add")
        asm.emit("npu.set", cube, Flag.C_FULL)
        asm.label("more_to_add")
        # The first chunk of a tile does not accumulate.
        asm.emit("sltu", "t0", "zero", K)
        asm.emit("slli", "t0", "t0", 8)
        asm.emit("ori", "t0", "t0", CommandOpcode.MMAD)
        asm.issue_from("t0", CommandOpcode.MMAD, wait=[Flag.L0_FULL], give=[Flag.L0_FREE])

    def _advance(self) -> None:
        """On to the next chunk, and the next place in each ring."""
        asm, plan, tiles = self.asm, self.plan, self.plan.tiles
        asm.add_constant(SLOT_A, SLOT_A, tiles.slot_lines)
        asm.add_constant(SLOT_B, SLOT_B, tiles.slot_lines)
        asm.emit("addi", SLOTS_LEFT, SLOTS_LEFT, -1)
        asm.bnez(SLOTS_LEFT, "same_round")
        self._first_slot()
        asm.label("same_round")
        asm.toggle(HALF_A, self.buffers.l0a // 2)
        asm.toggle(HALF_B, self.buffers.l0b // 2)
        asm.add_constant(K, K, tiles.k)
        asm.add_constant(B_OFFSET, B_OFFSET, tiles.k * plan.ldb)
        asm.li("t0", plan.k)
        asm.emit("blt", K, "t0", "k_loop")

    def _store(self) -> None:
        asm, plan, fixpipe = self.asm, self.plan, Pipe.FIXPIPE
        multiplier, shift = plan.requantise or (0, 0)
        asm.li("t1", plan.ldc)
        asm.emit("mul", "t0", M, "t1")
        if plan.element_bytes == 1:
            asm.emit("add", "t0", "t0", N)
        else:
            asm.emit("slli", "t2", N, 2)
            asm.emit("add", "t0", "t0", "t2")
        asm.emit("npu.pair", fixpipe, 1, "t0", HALF_C)
        asm.halves("t0", COLUMNS, ROWS)
        asm.emit("npu.pair", fixpipe, 3, "t0", "t1")
        asm.li("t0", shift << 16)
        asm.emit("or", "t0", "t0", HALF_BIAS)
        asm.li("t1", multiplier)
        asm.emit("npu.pair", fixpipe, 5, "t0", "t1")
        asm.issue(
            CommandOpcode.STORE,
            base=GemmArgument.C,
            target=Local.MEMORY,
            output=StoreOutput.WORD if plan.requantise is None else StoreOutput.INT8,
            bias=int(plan.bias),
            relu=int(plan.relu),
            wait=[Flag.C_FULL, *([Flag.BIAS_FULL] if plan.bias else [])],
            give=[Flag.C_FREE, *([Flag.BIAS_FREE] if plan.bias else [])],
        )
        asm.toggle(HALF_C, self.buffers.l0c // 2)
        asm.toggle(HALF_BIAS, self.buffers.bias // 2)


def build_gemm(plan: GemmPlan, buffers: CoreBuffers) -> bytes:
    """The code of `plan`, whose tiles must fit `buffers`; arguments as GemmArgument."""
    return _Gemm(plan, buffers).build()
