"""Addresses of the rows of a LOAD or STORE."""

from amaranth import Array, Cat, Module, Mux, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.core import ABSOLUTE
from abi.packet import KERNEL_ARGUMENTS
from rtl.memory.row import ROW

__all__ = ["ROW_BYTES_BITS", "RowIssuer"]

ROW_BYTES_BITS = 18
"""Width of a row's length: 65535 int32."""

OFFSET_BITS = exact_log2(LINE_BYTES)


class RowIssuer(wiring.Component):
    """Checks that all rows of a command lie in the address space, then issues them one by one.

    Members:
        arguments: base registers, 64 bits each.
        argument, offset, stride, rows, row_bytes: fields of the command, stable from `start` until
            `finished` is 1 again.
        start: 1 bit, while `finished`.
        checked: 1 bit, for one cycle, 3 cycles after `start`: `bad` is valid.
        bad: 1 bit; the first or last row leaves the address space. No row is issued.
        address: 64 bits; the line of that row.
        row: stream of `ROW`.
        finished: 1 bit; no row is left.
        stop: 1 bit; forget the rows that are left.

    Timing: one row a cycle, the first 4 cycles after `start`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "arguments": In(64).array(KERNEL_ARGUMENTS),
                "argument": In(8),
                "offset": In(ADDRESS_BITS),
                "stride": In(signed(32)),
                "rows": In(16),
                "row_bytes": In(ROW_BYTES_BITS),
                "start": In(1),
                "stop": In(1),
                "checked": Out(1),
                "bad": Out(1),
                "address": Out(64),
                "row": Out(stream.Signature(ROW)),
                "finished": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        # Wide enough for any sum of a base, an offset and 65535 strides.
        first = Signal(signed(52), reset_less=True)
        last = Signal(signed(53), reset_less=True)
        span = Signal(signed(49), reset_less=True)
        base = Signal(64, reset_less=True)
        absolute = Signal()
        chosen = Signal(64)
        left = Signal(16, reset_less=True)
        m.d.comb += [
            absolute.eq(self.argument == ABSOLUTE),
            chosen.eq(
                Mux(absolute, 0, Array(list(self.arguments))[self.argument[:3]]),
            ),
        ]

        def leaves(address: Value) -> Value:
            end = (address + self.row_bytes).as_signed()
            return (address < 0) | (end > 1 << ADDRESS_BITS)

        with m.FSM():
            with m.State("Idle"):
                m.d.comb += self.finished.eq(1)
                m.d.sync += base.eq(chosen)
                with m.If(self.start):
                    m.next = "Add the offset"
            with m.State("Add the offset"):
                offset = Cat(self.offset, self.offset[-1] & ~absolute).as_signed()
                rows_after = (self.rows - 1)[:16]
                m.d.sync += [
                    first.eq(base[:ADDRESS_BITS] + offset),
                    span.eq(rows_after * self.stride),
                ]
                m.next = "Add the span"
            with m.State("Add the span"):
                m.d.sync += last.eq(first + span)
                m.next = "Check"
            with m.State("Check"):
                high = base[ADDRESS_BITS:].any()
                failing = Mux(leaves(first), first, last)
                line = Cat(failing, failing[-1].replicate(64 - len(failing)))
                m.d.comb += [
                    self.checked.eq(1),
                    self.bad.eq(high | leaves(first) | leaves(last)),
                    self.address[OFFSET_BITS:].eq(Mux(high, base, line)[OFFSET_BITS:]),
                ]
                m.d.sync += left.eq(self.rows)
                m.next = "Issue"
                with m.If(self.bad | self.stop):
                    m.next = "Idle"
            with m.State("Issue"):
                m.d.comb += self.row.valid.eq(1)
                with m.If(self.row.ready):
                    m.d.sync += [first.eq(first + self.stride), left.eq(left - 1)]
                    with m.If(left == 1):
                        m.next = "Idle"
                with m.If(self.stop):
                    m.next = "Idle"
        m.d.comb += [
            self.row.payload.address.eq(first),
            self.row.payload.nbytes.eq(self.row_bytes),
        ]
        return m
