"""The unified buffer (UB), which the vector unit works on."""

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from rtl.host.round_robin import RoundRobin
from rtl.memory.port import LINE_BITS
from rtl.memory.sram import Sram

__all__ = ["BANKS", "READERS", "WRITERS", "UnifiedBuffer"]

BANKS = 4
"""Line n lies in bank n mod 4, so that consecutive lines can be accessed at the same time."""

READERS = ("VECTOR a", "VECTOR b", "VECTOR c", "MTE3")
"""Who reads, by port number."""

WRITERS = ("VECTOR", "MTE2", "FIXPIPE")
"""Who writes, by port number."""

BANK_BITS = exact_log2(BANKS)


class UnifiedBuffer(wiring.Component):
    """Lines of 512 bits in four interleaved banks, each with one read and one write port.

    In each cycle, a bank serves one of the readers and one of the writers that want it, in turns.
    A request that is not granted has to be repeated or may be withdrawn.

    Args:
        lines: size, a power of two of at least 8.

    Members:
        read, read_line: 1 bit each, and the line; for each of `READERS`.
        read_granted: 1 bit each; the line is read in this cycle. Combinational of all reads.
        read_data: 512 bits each; the line of a granted read, in the next cycle only.
        write, write_line, write_data: 1 bit, the line and 512 bits, for each of `WRITERS`.
        write_granted: 1 bit each; it is written in this cycle. Combinational of all writes.

    Timing: read latency 1 cycle. A line that is read in the cycle in which it is written gives its
    old contents. Nothing changes in a cycle without requests.

    Raises:
        ValueError: `lines` is no power of two of at least 8.
    """

    def __init__(self, *, lines: int) -> None:
        if lines < 2 * BANKS or lines & (lines - 1):
            raise ValueError(f"lines must be a power of two of at least 8, not {lines!r}")
        self._lines = lines
        address = exact_log2(lines)
        super().__init__(
            {
                "write_data": In(LINE_BITS).array(len(WRITERS)),
                "read_data": Out(LINE_BITS).array(len(READERS)),
                "read": In(1).array(len(READERS)),
                "read_line": In(address).array(len(READERS)),
                "read_granted": Out(1).array(len(READERS)),
                "write": In(1).array(len(WRITERS)),
                "write_line": In(address).array(len(WRITERS)),
                "write_granted": Out(1).array(len(WRITERS)),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        banks = []
        reads, writes = [], []
        for number in range(BANKS):
            bank = Sram(width=LINE_BITS, depth=self._lines // BANKS, granule=LINE_BITS)
            m.submodules[f"bank{number}"] = bank
            banks.append(bank)
            reader, granted = self._arbitrate(m, number, "read", self.read, self.read_line)
            reads.append(granted)
            m.d.comb += [
                bank.rd_en.eq(granted.any()),
                bank.rd_addr.eq(Array(self.read_line)[reader] >> BANK_BITS),
            ]
            writer, granted = self._arbitrate(m, number, "write", self.write, self.write_line)
            writes.append(granted)
            m.d.comb += [
                bank.wr_en.eq(granted.any()),
                bank.wr_addr.eq(Array([*self.write_line, Const(0)])[writer] >> BANK_BITS),
                bank.wr_data.eq(
                    Mux(writer[1], self.write_data[2], Mux(writer[0], *self.write_data[1::-1]))
                ),
                bank.wr_mask.eq(1),
            ]
        for port in range(len(WRITERS)):
            m.d.comb += self.write_granted[port].eq(Cat(*[bits[port] for bits in writes]).any())
        for port in range(len(READERS)):
            m.d.comb += self.read_granted[port].eq(Cat(*[bits[port] for bits in reads]).any())
            source = Signal(BANK_BITS, name=f"source{port}", reset_less=True)
            with m.If(self.read[port]):
                m.d.sync += source.eq(self.read_line[port][:BANK_BITS])
            m.d.comb += self.read_data[port].eq(Array([bank.rd_data for bank in banks])[source])
        return m

    def _arbitrate(
        self, m: Module, bank: int, what: str, wants: list[Value], lines: list[Value]
    ) -> tuple[Value, Value]:
        """Number of the port that the bank serves, and 1 bit for each port: it is served."""
        m.submodules[f"{what}_turn{bank}"] = turn = RoundRobin(width=4)
        last = Signal(2, name=f"{what}_last{bank}")
        granted = Signal(4, name=f"{what}_granted{bank}")
        asks = [want & (line[:BANK_BITS] == bank) for want, line in zip(wants, lines, strict=True)]
        m.d.comb += [
            turn.requests.eq(Cat(*asks)),
            turn.last.eq(last),
            granted.eq(Mux(turn.valid, Const(1, 4) << turn.choice, 0)),
        ]
        with m.If(turn.valid):
            m.d.sync += last.eq(turn.choice)
        return turn.choice, granted
