"""The rows of a strided transfer, one by one."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from abi.address import ADDRESS_BITS
from rtl.memory.row import ROW, ROW_BYTES_BITS

__all__ = ["RowGenerator"]


class RowGenerator(wiring.Component):
    """Gives the rows of one side of a transfer, and stops at one that leaves the address space.

    Rows are counted, never multiplied: `rows * nbytes` may be anything up to 2^64.

    Members:
        load: In, 1 bit; begin with row 0 at `first`.
        first: In, 48 bits; address of row 0, sampled with `load`.
        rows: In, 32 bits; number of rows, sampled with `load`; 0: none.
        nbytes: In, 32 bits; length of a row, at least 1; stable while rows are left.
        stride: In, 32 bits, signed; bytes from one row to the next; stable while rows are left.
        enable: In, 1 bit; offer rows. When it falls, an offered row is withdrawn.
        row: Out; stream of `ROW`.
        left: Out, 32 bits; rows that were not taken.
        bad: Out, 1 bit; the next row begins or ends outside the 48-bit address space, below zero
            included; it is not offered.
        bad_address: Out, 64 bits; then, the address of its first byte outside; negative ones in
            two's complement.

    Timing: one row a cycle; the first is offered in the cycle after `load`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "load": In(1),
                "first": In(ADDRESS_BITS),
                "rows": In(32),
                "nbytes": In(ROW_BYTES_BITS),
                "stride": In(signed(32)),
                "enable": In(1),
                "row": Out(stream.Signature(ROW)),
                "left": Out(32),
                "bad": Out(1),
                "bad_address": Out(64),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        # One bit more than an address: a stride is shorter than half the space, and the first
        # row outside is the last that is looked at, so the top bit tells.
        address = Signal(ADDRESS_BITS + 1, reset_less=True)
        begins_outside = address[ADDRESS_BITS]
        last = Signal(ADDRESS_BITS + 1)
        negative = begins_outside & address[ADDRESS_BITS - 1]
        m.d.comb += [
            last.eq(address[:ADDRESS_BITS] + (self.nbytes - 1)[:ROW_BYTES_BITS]),
            self.bad.eq((self.left != 0) & (begins_outside | last[ADDRESS_BITS])),
            self.bad_address.eq(
                Mux(
                    begins_outside,
                    Cat(address, negative.replicate(63 - ADDRESS_BITS)),
                    1 << ADDRESS_BITS,
                )
            ),
            self.row.valid.eq(self.enable & (self.left != 0) & ~self.bad),
            self.row.payload.address.eq(address[:ADDRESS_BITS]),
            self.row.payload.nbytes.eq(self.nbytes),
        ]
        with m.If(self.load):
            m.d.sync += [address.eq(self.first), self.left.eq(self.rows)]
        with m.Elif(self.row.valid & self.row.ready):
            m.d.sync += [address.eq(address + self.stride), self.left.eq(self.left - 1)]
        return m
