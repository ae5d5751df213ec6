"""Rows: contiguous byte ranges, and how they lie across lines and packed beats."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from abi.address import ADDRESS_BITS, LINE_BYTES
from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS

__all__ = [
    "OFFSET_BITS",
    "ROW",
    "ROW_BEAT",
    "ROW_BYTES_BITS",
    "ROW_DATA",
    "ROW_DONE",
    "RowSpan",
    "bytes_below",
    "funnel",
    "keep_bytes",
    "validate_depth",
]

OFFSET_BITS = ADDRESS_BITS - LINE_NUMBER_BITS
"""Bits of an address within its line."""

ROW_BYTES_BITS = 32
"""Width of a row's length."""

ROW = data.StructLayout({"address": ADDRESS_BITS, "nbytes": ROW_BYTES_BITS})
"""A contiguous byte range: device address of its first byte, and its length, at least 1."""

ROW_BEAT = data.StructLayout({"data": LINE_BITS, "error": 2, "last": 1})
"""64 bytes of a row, its first byte in bits 0 to 7 of the first beat; the bytes of the last beat
beyond the row are zero. `error` is the worst `LineError` of the lines behind the beat."""

ROW_DATA = data.StructLayout({"data": LINE_BITS})
"""64 bytes of a row to be written, packed as in `ROW_BEAT`; what lies beyond it is ignored."""

ROW_DONE = data.StructLayout({"error": 2, "line": LINE_NUMBER_BITS})
"""All writes of a row are answered: error and number of its first failing line."""

_LINE_COUNT_BITS = ROW_BYTES_BITS - OFFSET_BITS + 1
_ONES = (1 << 64) - 1


def validate_depth(depth: int) -> None:
    """Check the number of lines that a reader or writer has in flight.

    Raises:
        ValueError: `depth` is no power of two of at least 2.
    """
    if depth < 2 or depth & (depth - 1):
        raise ValueError(f"depth must be a power of two of at least 2, not {depth!r}")


class RowSpan:
    """The row that a reader or writer works at, line by line, in registers.

    A row of `nbytes` bytes has B = ceil(nbytes / 64) beats and lies in B or B + 1 lines.

    Attributes:
        active: 1 bit; there is a line left.
        line: 42 bits; the present line.
        shift: 6 bits; offset of the row's first byte in its first line.
        tail: 6 bits; valid bytes of the last beat, minus one.
        extra: 1 bit; the row lies in one line more than it has beats.
        is_last_line, is_last_beat: 1 bit each; the present line is the row's last, or the one
            with the number of the last beat.
    """

    def __init__(self) -> None:
        self.active = Signal()
        self.line = Signal(LINE_NUMBER_BITS, reset_less=True)
        self.left = Signal(_LINE_COUNT_BITS, reset_less=True)
        self.shift = Signal(OFFSET_BITS, reset_less=True)
        self.tail = Signal(OFFSET_BITS, reset_less=True)
        self.extra = Signal(reset_less=True)
        self.is_last_line = Signal()
        self.is_last_beat = Signal()

    def elaborate_into(self, m: Module) -> None:
        """Drive the flags."""
        m.d.comb += [
            self.is_last_line.eq(self.left == 1),
            self.is_last_beat.eq(Mux(self.extra, self.left == 2, self.is_last_line)),
        ]

    def load(self, m: Module, row: data.View) -> None:
        """Take a row; to be called in the branch where it is accepted."""
        shift = row.address[:OFFSET_BITS]
        beats = row.nbytes + (LINE_BYTES - 1)
        lines = beats + shift
        m.d.sync += [
            self.active.eq(1),
            self.line.eq(row.address[OFFSET_BITS:]),
            self.left.eq(lines[OFFSET_BITS:]),
            self.shift.eq(shift),
            self.tail.eq(row.nbytes[:OFFSET_BITS] - 1),
            # The two counts differ by at most one.
            self.extra.eq(lines[OFFSET_BITS] ^ beats[OFFSET_BITS]),
        ]

    def step(self, m: Module) -> None:
        """Go on to the next line; to be called in the branch where the present one is issued."""
        m.d.sync += [
            self.active.eq(~self.is_last_line),
            self.line.eq(self.line + 1),
            self.left.eq(self.left - 1),
        ]


def funnel(m: Module, pair: Value, nbytes: Value) -> Signal:
    """64 bytes from byte `nbytes` (6 bits) of a value of 127 bytes on.

    Six levels of multiplexers, each only as wide as those behind it need: it simulates faster than
    a variable shift, and needs no byte mask as a rotation would.
    """
    value = Signal(2 * LINE_BITS - 8, name="funnel_pair")
    m.d.comb += value.eq(pair)
    for level in reversed(range(OFFSET_BITS)):
        step = 8 << level
        width = LINE_BITS - 8 + step
        # A signal for each level: Amaranth would emit a shared expression once for each use.
        narrower = Signal(width, name=f"funnel_{level}")
        m.d.comb += narrower.eq(Mux(nbytes[level], value[step : step + width], value[:width]))
        value = narrower
    return value


def bytes_below(count: Value) -> Value:
    """Byte mask of a line, 64 bits: bytes 0 to `count` - 1; `count` is 7 bits, at most 64."""
    return Const(_ONES, LINE_BYTES) >> (LINE_BYTES - count)[: OFFSET_BITS + 1]


def keep_bytes(m: Module, line: Value, last: Value) -> Value:
    """A line whose bytes beyond number `last` (6 bits) are zero.

    In 64-bit words: whole words are kept or dropped, one word is masked.
    """
    partial = Signal(64, name="partial_word")
    m.d.comb += partial.eq(Const(_ONES, 64) >> Cat(Const(0, 3), ~last[:3]))
    words: list[Value] = []
    for index in range(LINE_BITS // 64):
        word = line[64 * index : 64 * index + 64]
        kept = Mux(last[3:] == index, word & partial, 0)
        # No comparison that is always false, which linters complain of.
        words.append(Mux(last[3:] > index, word, kept) if index < 7 else kept)
    return Cat(words)
