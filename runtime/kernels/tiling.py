"""How work is cut: sizes rounded up, blocks of a grid, and the MACs of padded tiles."""

from dataclasses import dataclass

from abi.core import BLOCK_LIMIT, CUBE_SIDE
from runtime.arguments import check_integer

__all__ = ["BLOCKS_PER_CORE", "LONGEST_BLOCK", "Work", "ceil_to", "divide_up", "padded_macs"]

BLOCKS_PER_CORE = 2
"""Blocks of an operation for each core: another kernel may have the core between them."""

LONGEST_BLOCK = BLOCK_LIMIT * 4 // 5
"""Cycles that a block is to take by estimate. The rest of `BLOCK_LIMIT` is for what an estimate
does not know: other users of the memory, a cold instruction cache."""


def divide_up(value: int, unit: int) -> int:
    """`value` / `unit`, rounded up."""
    return -(-value // unit)


@dataclass(frozen=True)
class Work:
    """What the blocks of a grid share: pieces that any block may take.

    Attributes:
        pieces: how many.
        piece_cycles: the most that one takes, alone on a core.
    """

    pieces: int
    piece_cycles: int

    def blocks(self, cores: int) -> int:
        """Blocks of the grid, 1 at least: `BLOCKS_PER_CORE`, or as many more as keep each within
        `LONGEST_BLOCK`. A block takes a piece at least, however long that is."""
        most = max(1, LONGEST_BLOCK // self.piece_cycles)
        blocks = max(BLOCKS_PER_CORE * cores, ceil_to(divide_up(self.pieces, most), cores))
        return max(1, min(self.pieces, blocks))


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
