"""Tiles of a matrix product: how much of A, B and C lies in a core's buffers at a time."""

from dataclasses import dataclass
from functools import lru_cache

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, FLAG_MAXIMUM
from runtime.arguments import check_integer
from runtime.compiler.allocate import CoreBuffers

__all__ = [
    "BLOCKS_PER_CORE",
    "LONGEST_BLOCK",
    "Tiles",
    "ceil_to",
    "choose_tiles",
    "divide_up",
    "estimate_cycles",
    "padded_macs",
    "share_out",
]

C_COLUMNS = 16
"""int32 columns of a line of L0C and of the bias buffer."""

ENOUGH_ROWS = 64
"""Rows of A that a tile of B is used for, so that loading B takes a fraction of the time."""

WIDE = 128
"""From so many columns on, blocks begin at whole lines of B."""

BLOCKS_PER_CORE = 2
"""Blocks of an operation for each core: another kernel may have the core between them."""

LONGEST_BLOCK = 200_000
"""Cycles of a block: a better band waits for its end."""

MEMORY_LATENCY = 100
"""Cycles from a LOAD's first request to its first line, for the estimate."""


def divide_up(value: int, unit: int) -> int:
    """`value` / `unit`, rounded up."""
    return -(-value // unit)


def ceil_to(value: int, unit: int) -> int:
    """The smallest multiple of `unit` that is at least `value`."""
    return divide_up(value, unit) * unit


def padded_macs(m: int, n: int, k: int) -> int:
    """MACs that the Cube counts for an (m, k) x (k, n) product: it works in 16 x 16 tiles of B.

    Raises:
        InvalidArgumentError: a size is no integer of at least 1.
    """
    for name, size in (("m", m), ("n", n), ("k", k)):
        check_integer(name, size, 1)
    return m * ceil_to(n, CUBE_SIDE) * ceil_to(k, CUBE_SIDE)


@dataclass(frozen=True)
class Tiles:
    """Sizes of a step: C tile of (m, n), accumulated over chunks of k.

    A's tile takes m rows of `a_lines`, B's k rows of `b_lines`, C's m rows of `c_lines`.
    """

    m: int
    n: int
    k: int

    @property
    def a_lines(self) -> int:
        """Lines of a row of A: 64 values of k each."""
        return divide_up(self.k, LINE_BYTES)

    @property
    def b_lines(self) -> int:
        """Lines of a row of B: 64 columns each."""
        return divide_up(self.n, LINE_BYTES)

    @property
    def c_lines(self) -> int:
        """Lines of a row of C and of the bias: 16 columns each."""
        return divide_up(self.n, C_COLUMNS)

    @property
    def slot_lines(self) -> int:
        """Lines of L1 that a step takes: A, B (rows up to a multiple of 16) and bias."""
        return self.m * self.a_lines + ceil_to(self.k, CUBE_SIDE) * self.b_lines + self.c_lines

    def slots(self, buffers: CoreBuffers) -> int:
        """Steps whose operands fit in L1 at a time; a flag counts them."""
        return min(FLAG_MAXIMUM, buffers.l1 // self.slot_lines)

    def fits(self, buffers: CoreBuffers) -> bool:
        """Whether two steps fit in each buffer, so that one loads while the other computes."""
        return (
            self.m * self.a_lines <= buffers.l0a // 2
            and ceil_to(self.k, CUBE_SIDE) * self.b_lines <= buffers.l0b // 2
            and self.m * self.c_lines <= buffers.l0c // 2
            and self.c_lines <= buffers.bias // 2
            and self.slots(buffers) >= 2
        )


def estimate_cycles(m: int, n: int, k: int, tiles: Tiles, *, int8_output: bool) -> int:
    """Rough cycles of a product: the slowest pipe, and what does not overlap."""
    tm, tn, tk = min(m, tiles.m), min(n, tiles.n), min(k, tiles.k)
    m_steps, n_steps, k_steps = divide_up(m, tm), divide_up(n, tn), divide_up(k, tk)
    steps = m_steps * n_steps * k_steps
    blocks = divide_up(n, CUBE_SIDE) * divide_up(k, CUBE_SIDE)
    # The Cube takes a row a cycle, but at least 16 cycles, in which the next tile of B loads.
    passes = m // tm * max(tm, CUBE_SIDE) + (max(m % tm, CUBE_SIDE) if m % tm else 0)
    cube = blocks * passes + 2 * steps
    a_row = divide_up(tk + LINE_BYTES - 1, LINE_BYTES) if k % LINE_BYTES else tiles.a_lines
    b_row = divide_up(tn + LINE_BYTES - 1, LINE_BYTES) if n % LINE_BYTES else tiles.b_lines
    load = steps * (tm * a_row + tk * b_row + MEMORY_LATENCY // 4)
    move = steps * (tm * tiles.a_lines + tk * tiles.b_lines + 8)
    c_row = divide_up(tn * (1 if int8_output else 4), LINE_BYTES)
    store = m_steps * n_steps * tm * max(c_row, tiles.c_lines)
    first = tm * a_row + tk * b_row
    last = tm * tiles.c_lines
    return max(cube, load, move, store) + first + last + 4 * MEMORY_LATENCY


@lru_cache(maxsize=1024)
def share_out(
    m: int, n: int, k: int, buffers: CoreBuffers, cores: int, *, int8_output: bool
) -> tuple[Tiles, int, int]:
    """Tiles, and the rows and columns of C that a block makes: about one block for each core, or
    more if they would run for long.

    Raises:
        ValueError: the buffers do not even hold the smallest tiles.
    """
    best: tuple[int, Tiles, int, int] | None = None
    for along_m in range(1, cores + 1):
        along_n = cores // along_m
        if m < along_m or divide_up(n, CUBE_SIDE) < along_n:
            continue
        rows = divide_up(m, along_m)
        columns = ceil_to(divide_up(n, along_n), LINE_BYTES if n >= WIDE else CUBE_SIDE)
        tiles = choose_tiles(rows, columns, k, buffers, int8_output=int8_output)
        # Whole tiles: the next block goes on where the last one ends.
        rows, columns = ceil_to(rows, tiles.m), ceil_to(columns, tiles.n)
        cycles = estimate_cycles(min(m, rows), min(n, columns), k, tiles, int8_output=int8_output)
        if best is None or cycles < best[0]:
            best = (cycles, tiles, rows, columns)
    if best is None:
        tiles = choose_tiles(m, n, k, buffers, int8_output=int8_output)
        rows, columns = ceil_to(m, tiles.m), ceil_to(n, tiles.n)
        cycles = estimate_cycles(m, n, k, tiles, int8_output=int8_output)
        best = (cycles, tiles, rows, columns)
    cycles, tiles, rows, columns = best
    while cycles > LONGEST_BLOCK and rows > tiles.m:
        rows = ceil_to(divide_up(rows, 2), tiles.m)
        cycles = divide_up(cycles, 2)
    while cycles > LONGEST_BLOCK and columns > tiles.n:
        columns = ceil_to(divide_up(columns, 2), tiles.n)
        cycles = divide_up(cycles, 2)
    return tiles, rows, columns


def choose_tiles(m: int, n: int, k: int, buffers: CoreBuffers, *, int8_output: bool) -> Tiles:
    """The tiles with the smallest estimate, among those with enough rows if there are any.

    Raises:
        ValueError: the buffers do not even hold the smallest tiles.
    """
    candidates = [
        tiles
        for tm in _sizes(m, 1, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
        for tn in _sizes(n, CUBE_SIDE, (16, 32, 64, 128, 256, 512))
        for tk in _sizes(k, CUBE_SIDE, (64, 128, 256, 512, 1024, 2048, 4096))
        if (tiles := Tiles(tm, tn, tk)).fits(buffers)
    ]
    if not candidates:
        raise ValueError(f"buffers must hold two 1 x 16 x 64 tiles, not {buffers!r}")
    return min(
        candidates,
        key=lambda tiles: (
            tiles.m < min(m, ENOUGH_ROWS),
            estimate_cycles(m, n, k, tiles, int8_output=int8_output),
        ),
    )


def _sizes(extent: int, unit: int, candidates: tuple[int, ...]) -> list[int]:
    """Candidates below `extent`, and `extent` itself, rounded up, if it is not too large."""
    whole = [ceil_to(extent, unit)] if extent <= candidates[-1] else []
    return [size for size in candidates if size < extent] + whole
