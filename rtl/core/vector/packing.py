"""Elements of 8 and 16 bits, which lie more densely than the lanes' words."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.core import VECTOR_LANES
from rtl.memory.port import LINE_BITS

__all__ = ["Packer", "unpacked"]

WORD = LINE_BITS // VECTOR_LANES


def unpacked(m: Module, line: Value, place: Value, dense: Value) -> Value:
    """Words of the 16 elements at `place` of a packed line.

    Args:
        line: 512 bits.
        place: 2 bits.
        dense: 1 bit; 1: 64 int8, else 32 bf16.
    """
    halves, quarter = Signal(LINE_BITS // 2), Signal(LINE_BITS // 4)
    m.d.comb += [
        halves.eq(line.word_select(place[0], LINE_BITS // 2)),
        quarter.eq(line.word_select(place, LINE_BITS // 4)),
    ]
    words = []
    for lane in range(VECTOR_LANES):
        byte = quarter[8 * lane : 8 * lane + 8]
        half = halves[16 * lane : 16 * lane + 16]
        words.append(Mux(dense, Cat(byte, byte[7].replicate(WORD - 8)), Cat(Const(0, 16), half)))
    return Cat(words)


class Packer(wiring.Component):
    """Puts the low parts of the lanes' words together, or lets words through.

    Members:
        valid, words: 1 bit and 512 bits; words of 16 lanes.
        packs, dense: 1 bit each; pack, and to bytes instead of halves.
        place, end: 2 bits and 1 bit; number of the words in their row (mod 4), and whether they
            are the last of it.
        push, line: 1 bit and 512 bits; a line is complete. Parts without words are 0.

    Timing: combinational from the last words of a line.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "words": In(LINE_BITS),
                "line": Out(LINE_BITS),
                "valid": In(1),
                "packs": In(1),
                "dense": In(1),
                "place": In(2),
                "end": In(1),
                "push": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        held = Signal(LINE_BITS, reset_less=True)
        packed = Signal(LINE_BITS)
        lanes = [self.words[WORD * lane :][:WORD] for lane in range(VECTOR_LANES)]
        for dense, bits in ((1, 8), (0, 16)):
            part = Cat(word[:bits] for word in lanes)
            size = len(part)
            for number in range(LINE_BITS // size):
                place = self.place if dense else self.place[0]
                with m.If((self.dense == dense) & (place == number)):
                    m.d.comb += packed.eq(Cat(held[: size * number], part))
        full = Mux(self.dense, self.place == 3, self.place[0])
        m.d.comb += [
            self.push.eq(self.valid & (~self.packs | self.end | full)),
            self.line.eq(Mux(self.packs, packed, self.words)),
        ]
        with m.If(self.valid & self.packs):
            m.d.sync += held.eq(packed)
        return m
