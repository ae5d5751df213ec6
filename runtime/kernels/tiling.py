"""How work is cut: sizes rounded up, blocks of a grid, and the MACs of padded tiles."""

from abi.core import CUBE_SIDE
from runtime.arguments import check_integer

__all__ = ["BLOCKS_PER_CORE", "LONGEST_BLOCK", "ceil_to", "divide_up", "padded_macs"]

BLOCKS_PER_CORE = 2
"""Blocks of an operation for each core: another kernel may have the core between them."""

LONGEST_BLOCK = 200_000
"""Cycles of a block: a better band waits for its end."""


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
