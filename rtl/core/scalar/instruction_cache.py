"""The instruction cache of the scalar unit."""

from amaranth import Array, C, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS, LineError, ReadPort
from rtl.memory.sram import Sram

__all__ = ["InstructionCache"]

OFFSET_BITS = exact_log2(LINE_BYTES)
CODE_LINE_BITS = 32 - OFFSET_BITS


class InstructionCache(wiring.Component):
    """Direct mapped; the line after the one that is executed is fetched ahead.

    Members:
        look_up: 1 bit; from the next cycle on, look for the instruction at `next_pc`.
        next_pc: 32 bits, 4-aligned.
        wanted: 1 bit; if it is not here, fetch its line.
        word, hit: 32 bits and 1 bit; the instruction is here.
        error: a `LineError`; its line could not be fetched.
        fault_line: 58 bits; number of the line that could not be fetched, 42 bits if it exists.
        flush: 1 bit; forget all lines, also one that is on its way. emptying: 1 bit; that is
            going on, a line a cycle.
        code: 64 bits, code_bytes: 32 bits; where the code lies. Changes only with `flush`.
        memory: `ReadPort`.
        busy: 1 bit; a line is requested or on its way.

    Timing: `hit` in the cycle after `look_up` if the line is here, else 4 cycles after its
    request's answer. One line is on its way at a time.

    Raises:
        ValueError: `lines` is not a power of two from 2 on.
    """

    def __init__(self, *, lines: int) -> None:
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"lines must be a power of two, at least 2, not {lines!r}")
        self._lines = lines
        super().__init__(
            {
                "look_up": In(1),
                "next_pc": In(32),
                "wanted": In(1),
                "word": Out(32),
                "hit": Out(1),
                "error": Out(2),
                "fault_line": Out(64 - OFFSET_BITS),
                "flush": In(1),
                "emptying": Out(1),
                "code": In(64),
                "code_bytes": In(32),
                "memory": Out(ReadPort()),
                "busy": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        index_bits = exact_log2(self._lines)
        tag_bits = CODE_LINE_BITS - index_bits
        m.submodules.sram = sram = Sram(width=LINE_BITS, depth=self._lines, granule=LINE_BITS)
        # A tag, and a bit that says whether it is one.
        m.submodules.tags = tags = Memory(shape=tag_bits + 1, depth=self._lines, init=[])
        tag_write = tags.write_port()
        tag_read, ahead_read = tags.read_port(domain="comb"), tags.read_port(domain="comb")
        to_empty = Signal(range(self._lines + 1), init=self._lines)
        m.d.comb += self.emptying.eq(to_empty != 0)

        # `held`: the SRAM's output is line `held_line`; `looking`: it is the one of `at`'s index.
        at = Signal(32, reset_less=True)
        held = Signal()
        held_line = Signal(CODE_LINE_BITS, reset_less=True)
        looking = Signal()
        line, next_line = at[OFFSET_BITS:], self.next_pc[OFFSET_BITS:]
        ahead = Signal(CODE_LINE_BITS)
        present, ahead_present = Signal(), Signal()
        m.d.comb += [
            ahead.eq(line + 1),
            tag_read.addr.eq(line[:index_bits]),
            ahead_read.addr.eq(ahead[:index_bits]),
            present.eq((tag_read.data == Cat(line[index_bits:], 1)) & ~self.emptying),
            ahead_present.eq(ahead_read.data == Cat(ahead[index_bits:], 1)),
            self.hit.eq(held | (looking & present)),
        ]
        words = Array(sram.rd_data[32 * i : 32 * i + 32] for i in range(LINE_BITS // 32))
        m.d.comb += self.word.eq(words[at[2:OFFSET_BITS]])

        filling = Signal()
        demanded = Signal(reset_less=True)
        stale = Signal(reset_less=True)
        fill_line = Signal(CODE_LINE_BITS, reset_less=True)
        fetch, fetch_ahead = Signal(), Signal()
        request, response = self.memory.request, self.memory.response

        # A line that is written in this cycle is read in the next one.
        with m.If(looking):
            m.d.sync += looking.eq(0)
            with m.If(present):
                m.d.sync += [held.eq(1), held_line.eq(line)]
                m.d.comb += fetch_ahead.eq(
                    ~filling & ~ahead_present & (Cat(C(0, OFFSET_BITS), ahead) < self.code_bytes)
                )
        with m.Elif(self.wanted & ~held & ~filling & ~self.emptying & (self.error == LineError.OK)):
            with m.If(present):
                m.d.comb += [sram.rd_en.eq(1), sram.rd_addr.eq(line)]
                m.d.sync += looking.eq(1)
            with m.Else():
                m.d.comb += fetch.eq(1)
        with m.If(self.look_up):
            m.d.sync += [at.eq(self.next_pc), self.error.eq(LineError.OK)]
            with m.If(~held | (held_line != next_line)):
                m.d.comb += [sram.rd_en.eq(1), sram.rd_addr.eq(next_line)]
                m.d.sync += [held.eq(0), looking.eq(~sram.wr_en)]

        # Fetch a line.
        asked = Signal(CODE_LINE_BITS)
        device_line = Signal(64 - OFFSET_BITS)
        exists = Signal()
        m.d.comb += [
            asked.eq(Mux(fetch, line, ahead)),
            device_line.eq(self.code[OFFSET_BITS:] + asked),
            exists.eq(~device_line[LINE_NUMBER_BITS:].any()),
            self.busy.eq(filling),
            response.ready.eq(1),
        ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If((fetch | fetch_ahead) & ~self.flush):
            m.d.sync += self.fault_line.eq(device_line)
            with m.If(exists):
                m.d.sync += [
                    request.valid.eq(1),
                    request.payload.line.eq(device_line),
                    filling.eq(1),
                    demanded.eq(fetch),
                    stale.eq(0),
                    fill_line.eq(asked),
                ]
            with m.Elif(fetch):
                m.d.sync += self.error.eq(LineError.ADDRESS)
        fill_index = fill_line[:index_bits]
        m.d.comb += [
            sram.wr_addr.eq(fill_index),
            sram.wr_data.eq(response.payload.data),
            sram.wr_mask.eq(1),
            tag_write.addr.eq(fill_index),
            tag_write.data.eq(Cat(fill_line[index_bits:], 1)),
        ]
        with m.If(filling & response.valid):
            m.d.sync += filling.eq(0)
            with m.If(~stale & ~self.flush):
                with m.If(response.payload.error == LineError.OK):
                    m.d.comb += [sram.wr_en.eq(1), tag_write.en.eq(1)]
                with m.Elif(demanded):
                    m.d.sync += self.error.eq(response.payload.error)
        with m.If(self.emptying):
            m.d.comb += [
                tag_write.en.eq(1),
                tag_write.addr.eq((to_empty - 1)[:index_bits]),
                tag_write.data.eq(0),
            ]
            m.d.sync += to_empty.eq(to_empty - 1)
        with m.If(self.flush):
            m.d.sync += [to_empty.eq(self._lines), held.eq(0), looking.eq(0), stale.eq(1)]
        return m
