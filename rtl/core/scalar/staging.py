"""What the scalar unit has set for the commands to come: words, flags and base registers."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Const, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from abi.address import ADDRESS_BITS
from abi.core import COMMAND_BYTES, FLAGS
from abi.isa import BASE_REGISTERS, WINDOW_REGISTER
from rtl.core.scalar.decoder import Kind

__all__ = ["Staging", "stage_operands"]

WORDS = COMMAND_BYTES // 4
PIPE_BITS = 3


class Staging(wiring.Component):
    """Words 1 to 7 and the wait and set masks of each pipe's next command; base registers.

    Members:
        clear: 1 bit; zero what is of pipe `clear_index`, and base register `clear_index`, 4 bits.
        pipe: 3 bits; the pipe that all of the following is about.
        write: 1 bit; word `index` (3 bits) = `low` (32 bits).
        pair: 1 bit, with `write`; word `index` + 1 = `high` (32 bits).
        wait_for, set_after: 1 bit; add `flag` (5 bits) to the wait or set mask.
        issued: 1 bit; empty both masks.
        words: 224 bits; words 1 to 7. wait, set: 32 bits each.
        write_base: 1 bit; base register `base_index` (4 bits) = `base_value` (48 bits).
        command_base: 4 bits; base: 48 bits; a base register's value.
        window: 48 bits; the value of the window's base register.

    Timing: writes take effect in the next cycle, reads are combinational. One of `clear`,
    `write`, `wait_for`, `set_after`, `issued`, `write_base` at a time.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "clear": In(1),
                "clear_index": In(4),
                "pipe": In(PIPE_BITS),
                "write": In(1),
                "pair": In(1),
                "index": In(3),
                "low": In(32),
                "high": In(32),
                "wait_for": In(1),
                "set_after": In(1),
                "flag": In(range(FLAGS)),
                "issued": In(1),
                "words": Out(32 * (WORDS - 1)),
                "wait": Out(FLAGS),
                "set": Out(FLAGS),
                "write_base": In(1),
                "base_index": In(range(BASE_REGISTERS)),
                "base_value": In(ADDRESS_BITS),
                "command_base": In(range(BASE_REGISTERS)),
                "base": Out(ADDRESS_BITS),
                "window": Out(ADDRESS_BITS),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        place = Mux(self.clear, self.clear_index[:PIPE_BITS], self.pipe)
        words = []
        for i in range(1, WORDS):
            m.submodules[f"word{i}"] = memory = Memory(shape=32, depth=1 << PIPE_BITS, init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            is_high = self.pair & (self.index == i - 1)
            m.d.comb += [
                write.en.eq(self.clear | (self.write & ((self.index == i) | is_high))),
                write.addr.eq(place),
                write.data.eq(Mux(self.clear, 0, Mux(is_high, self.high, self.low))),
                read.addr.eq(self.pipe),
            ]
            words.append(read.data)
        m.d.comb += self.words.eq(Cat(*words))

        flag = Signal(FLAGS)
        m.d.comb += flag.eq(Const(1) << self.flag)
        for name, add, mask in (
            ("wait_masks", self.wait_for, self.wait),
            ("set_masks", self.set_after, self.set),
        ):
            m.submodules[name] = memory = Memory(shape=FLAGS, depth=1 << PIPE_BITS, init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.clear | self.issued | add),
                write.addr.eq(place),
                write.data.eq(Mux(add, read.data | flag, 0)),
                read.addr.eq(self.pipe),
                mask.eq(read.data),
            ]

        m.submodules.bases = memory = Memory(shape=ADDRESS_BITS, depth=BASE_REGISTERS, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        window = Signal(ADDRESS_BITS)
        m.d.comb += [
            write.en.eq(self.clear | self.write_base),
            write.addr.eq(Mux(self.clear, self.clear_index, self.base_index)),
            write.data.eq(Mux(self.clear, 0, self.base_value)),
            read.addr.eq(self.command_base),
            self.base.eq(read.data),
            self.window.eq(window),
        ]
        with m.If(write.en & (write.addr == WINDOW_REGISTER)):
            m.d.sync += window.eq(write.data)
        return m


def stage_operands(
    m: Module,
    staging: Staging,
    *,
    word: Signal,
    kind: Signal,
    a: Signal,
    b: Signal,
    clear_index: Value,
) -> None:
    """Connect an instruction to the staging: an instruction's pipe is in one of three places."""
    with m.Switch(kind):
        with m.Case(Kind.ISSUE):
            m.d.comb += staging.pipe.eq(word[20:23])
        with m.Case(Kind.WAIT, Kind.SET):
            m.d.comb += staging.pipe.eq(word[25:28])
        with m.Default():
            m.d.comb += staging.pipe.eq(word[28:31])
    m.d.comb += [
        staging.pair.eq(kind == Kind.PAIR),
        staging.index.eq(word[25:28]),
        staging.low.eq(a),
        staging.high.eq(b),
        staging.flag.eq(word[20:25]),
        staging.base_index.eq(word[7:11]),
        staging.base_value.eq(Cat(a, b)),
        staging.command_base.eq(a[8:12]),
        staging.clear_index.eq(clear_index),
    ]
