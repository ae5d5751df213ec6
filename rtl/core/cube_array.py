"""The Cube's array: 256 multipliers around a stationary tile of B."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE

__all__ = ["SUM_BITS", "SUM_OFFSET", "CubeArray"]

SUM_BITS = 20
"""Width of a sum in offset binary."""

SUM_OFFSET = 1 << (SUM_BITS - 1)
"""What is added to a sum, so that it is never negative."""

COLUMNS = 3
"""Columns of B that share a multiplier."""

TILE_ROW_BITS = 8 * CUBE_SIDE
CHUNKS = LINE_BYTES // CUBE_SIDE
GROUP_BITS = COLUMNS * SUM_BITS
GROUPS = -(-CUBE_SIDE // COLUMNS)

# The sum of x y over 16 k is that of (x + 128)(y + 128), minus 128 times the sums of x + 128 and of
# y + 128, plus 16 * 128**2.
CORRECTION = CUBE_SIDE * 128 * 128 + SUM_OFFSET


def _chunk(line: Value, chunk: Value) -> Value:
    """The 16 bytes number `chunk` of a line."""
    parts = [line[i * TILE_ROW_BITS : (i + 1) * TILE_ROW_BITS] for i in range(CHUNKS)]
    return Mux(chunk[1], Mux(chunk[0], parts[3], parts[2]), Mux(chunk[0], parts[1], parts[0]))


def _tree(terms: list[Value]) -> Value:
    """Sum as a balanced tree."""
    while len(terms) > 1:
        terms = [terms[i] + terms[i + 1] for i in range(0, len(terms), 2)]
    return terms[0]


def _lanes(value: Value) -> Value:
    """The same value, at most SUM_BITS wide, in every column of a group."""
    return Cat(*[Cat(value, C(0, SUM_BITS - len(value))) for _ in range(COLUMNS)])


class CubeArray(wiring.Component):
    """One row of A (16 int8 along k) times a 16 x 16 int8 tile of B gives 16 sums a cycle.

    The active tile stands still while rows of A stream by; the next one is loaded into a shadow
    tile, row by row, and becomes active in one cycle.

    Operands are held in offset binary (x + 128, an inverted top bit), so that all products are
    unsigned and three columns of B, 20 bits apart, share one 8 x 48 bit multiplier without
    carries between them (a sum of 16 products of 8 bits fits 20 bits). What the offsets add is
    taken off again: 128 times the sum of the row of A, and, per tile, 128 times the sum of each
    column of B, which is gathered while the tile is loaded. This is the zero-point correction of
    quantised matrix products, on the packing of int8 products into wide DSP multipliers.

    Members:
        b_line: 512 bits, a line of L0B.
        b_valid: 1 bit; take a row of the shadow tile; rows come in order from 0.
        b_chunk: 2 bits, which 16 bytes of the line.
        b_row: 4 bits, the row.
        a_line: 512 bits, a line of L0A.
        a_valid: 1 bit; take a row of A.
        a_chunk: 2 bits, which 16 bytes of the line.
        swap: 1 bit, with `a_valid`; the shadow tile becomes active for this row and those after.
        product_xor: 16 bits, XORed into the product of k = 0 and column 0 (error injection).
        sums: 16 sums of 20 bits, each plus `SUM_OFFSET`.

    Timing: `sums` belong to the row that was taken two cycles before, and stay until the next.
    A row of the shadow tile that is taken in the cycle of `swap` belongs to the tile after.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "b_line": In(8 * LINE_BYTES),
                "a_line": In(8 * LINE_BYTES),
                "b_valid": In(1),
                "b_chunk": In(2),
                "b_row": In(4),
                "a_valid": In(1),
                "a_chunk": In(2),
                "swap": In(1),
                "product_xor": In(16),
                "sums": Out(SUM_BITS).array(CUBE_SIDE),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        side = range(CUBE_SIDE)
        columns = [list(side)[i : i + COLUMNS] for i in range(0, CUBE_SIDE, COLUMNS)]

        shadow = [Signal(TILE_ROW_BITS, name=f"shadow{k}", reset_less=True) for k in side]
        shadow_correction = [
            Signal(GROUP_BITS, name=f"shadow_correction{g}", reset_less=True) for g in range(GROUPS)
        ]
        row = Signal(TILE_ROW_BITS)
        m.d.comb += row.eq(_chunk(self.b_line, self.b_chunk) ^ C(0x80, 8).replicate(CUBE_SIDE))
        with m.If(self.b_valid):
            with m.Switch(self.b_row):
                for k in side:
                    with m.Case(k):
                        m.d.sync += shadow[k].eq(row)
            for g, group in enumerate(columns):
                terms = Cat(*[Cat(C(0, 7), row[8 * j : 8 * j + 8], C(0, 5)) for j in group])
                start = C(sum(CORRECTION << SUM_BITS * i for i in range(COLUMNS)), GROUP_BITS)
                before = Mux(self.b_row == 0, start, shadow_correction[g])
                m.d.sync += shadow_correction[g].eq(before - terms)

        a = [Signal(8, name=f"a{k}", reset_less=True) for k in side]
        tile = [
            [
                Signal(SUM_BITS * (len(group) - 1) + 8, name=f"tile{k}_{g}", reset_less=True)
                for g, group in enumerate(columns)
            ]
            for k in side
        ]
        correction = [
            Signal(GROUP_BITS, name=f"correction{g}", reset_less=True) for g in range(GROUPS)
        ]
        computing = Signal()
        m.d.sync += computing.eq(self.a_valid)
        with m.If(self.a_valid):
            chunk = _chunk(self.a_line, self.a_chunk) ^ C(0x80, 8).replicate(CUBE_SIDE)
            m.d.sync += Cat(*a).eq(chunk)
            with m.If(self.swap):
                for g, group in enumerate(columns):
                    m.d.sync += correction[g].eq(shadow_correction[g])
                    for k in side:
                        padded = [Cat(shadow[k][8 * j : 8 * j + 8], C(0, 12)) for j in group]
                        m.d.sync += tile[k][g].eq(Cat(*padded))

        row_term = Signal(GROUP_BITS)
        m.d.comb += row_term.eq(_lanes(Cat(C(0, 7), _tree(list(a)))))
        product = Signal(16)
        injected = Signal(17)
        m.d.comb += [
            product.eq((a[0] ^ 0x80).as_signed() * (tile[0][0][:8] ^ 0x80).as_signed()),
            injected.eq((product ^ self.product_xor).as_signed() - product.as_signed()),
        ]
        sums = [Signal(GROUP_BITS, name=f"sums{g}", reset_less=True) for g in range(GROUPS)]
        with m.If(computing):
            for g in range(GROUPS):
                total = _tree([a[k] * tile[k][g] for k in side])
                fixed = (correction[g] - row_term)[:GROUP_BITS]
                if g == 0:
                    fixed = (fixed + injected.as_signed())[:GROUP_BITS]
                m.d.sync += sums[g].eq(total + fixed)
        for j in side:
            lane = (j % COLUMNS) * SUM_BITS
            m.d.comb += self.sums[j].eq(sums[j // COLUMNS][lane : lane + SUM_BITS])
        return m
