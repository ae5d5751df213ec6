"""Host memory: an AXI4 subordinate in front of the host's DRAM, and the catcher of interrupts."""

from amaranth import Assert, Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from abi.address import ADDRESS_BITS, LINE_BYTES, MSI_BUS_ADDRESS
from rtl.memory.axi import Burst, Response
from rtl.memory.delay import Delay
from rtl.memory.host_link import HOST_AXI

__all__ = ["HostMemory"]

BEAT_BITS = HOST_AXI.data_width
BEAT_BYTES = BEAT_BITS // 8
BEAT_SHIFT = BEAT_BYTES.bit_length() - 1
LINE_NUMBER_BITS = ADDRESS_BITS - LINE_BYTES.bit_length() + 1

BURST = data.StructLayout(
    {"beat": ADDRESS_BITS - BEAT_SHIFT, "len": 8, "id": HOST_AXI.id_width, "bad": 1}
)
"""A burst that waits: number of its first beat (address / 32), beats - 1, and whether it is one
that this memory refuses."""

ANSWER = data.StructLayout({"id": HOST_AXI.id_width, "resp": 2})


class HostMemory(wiring.Component):
    """Host DRAM behind AXI4, with latency, stalls and faults that a test chooses.

    The lines are an instance `dram` of `host_dram` (host_dram.sv). Bursts are INCR, 32 bytes a
    beat; any other is answered with SLVERR. A line is read at its first beat in a burst, and
    written at its last, so no access within one burst tears a line.

    Args:
        lines: size in lines of 64 bytes, from bus address 0.
        latency: cycles from taking a read address to the first beat, and from taking the last
            beat of a write to its response; at least 2.

    Members:
        axi: In; `HOST_AXI`.
        stall_level: 4 bits; each channel stalls in this many of 16 cycles, and so many of 16
            bursts wait up to 31 cycles longer. 0: never.
        stall_seed: 32 bits; begins the random sequence, taken while `stall_level` is 0.
        fault: In; `slverr_enable` (1 bit): lines that overlap bus addresses `slverr_base` up to
            `slverr_limit` (48 bits each, in bytes) answer SLVERR and are not written.
        msi: Out; `valid` (1 bit, a pulse of a cycle) and `vector` (5 bits): a message was
            written to `MSI_BUS_ADDRESS`.
        idle: 1 bit; no transaction is unfinished.

    Timing: one beat a cycle in each direction without stalls.

    Errors: DECERR beyond the last line. Of a write burst, the worst of its lines counts.

    Source of the random sequence: G. Marsaglia, "Xorshift RNGs", 2003 (13, 17, 5).

    Raises:
        ValueError: a parameter is out of range.
    """

    def __init__(self, *, lines: int, latency: int = 64) -> None:
        if not 1 <= lines <= 1 << LINE_NUMBER_BITS:
            raise ValueError(f"lines must be from 1 to 2**{LINE_NUMBER_BITS}, not {lines!r}")
        if latency < 2:
            raise ValueError(f"latency must be at least 2 cycles, not {latency!r}")
        self.lines = lines
        self.latency = latency
        fault = {
            "slverr_base": Out(ADDRESS_BITS),
            "slverr_limit": Out(ADDRESS_BITS),
            "slverr_enable": Out(1),
        }
        super().__init__(
            {
                "axi": In(HOST_AXI),
                "stall_level": In(4),
                "stall_seed": In(32),
                "fault": In(wiring.Signature(fault)),
                "msi": Out(wiring.Signature({"valid": Out(1), "vector": Out(5)})),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        address = max(1, ceil_log2(self.lines))
        self._dram_read = {"en": Signal(), "line": Signal(address), "data": Signal(2 * BEAT_BITS)}
        self._dram_write = {
            "en": Signal(),
            "line": Signal(address),
            "data": Signal(2 * BEAT_BITS),
            "strb": Signal(2 * BEAT_BYTES),
        }
        m.submodules.dram = Instance(
            "host_dram",
            p_LINES=self.lines,
            i_clk=ClockSignal(),
            i_rd_en=self._dram_read["en"],
            i_rd_line=self._dram_read["line"],
            o_rd_data=self._dram_read["data"],
            i_wr_en=self._dram_write["en"],
            i_wr_line=self._dram_write["line"],
            i_wr_data=self._dram_write["data"],
            i_wr_strb=self._dram_write["strb"],
        )
        random = Signal(32, init=1)
        left = Signal(32)
        right = Signal(32)
        m.d.comb += [left.eq(random ^ (random << 13)), right.eq(left ^ (left >> 17))]
        with m.If(self.stall_level == 0):
            m.d.sync += random.eq(Mux(self.stall_seed == 0, 1, self.stall_seed))
        with m.Else():
            m.d.sync += random.eq(right ^ (right << 5))
        self._random = random
        m.d.comb += self.idle.eq(self._reads(m) & self._writes(m))
        return m

    def _stall(self, slot: int) -> Value:
        """Whether the random bits of this cycle stall channel `slot`."""
        return self._random[4 * slot : 4 * slot + 4] < self.stall_level

    def _pause(self, m: Module, name: str, slot: int, burst_ends: Value) -> Value:
        """Whether a burst waits longer than the latency; drawn when the one before it ends."""
        pause = Signal(5, name=f"{name}_pause")
        with m.If(burst_ends & self._stall(slot)):
            m.d.sync += pause.eq(self._random[27:32])
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        return pause != 0

    def _response(self, line: Value, bad: Value, known: Value) -> Value:
        """The answer to an access of a line; `known` says that it is no memory, but exists."""
        base = line << (LINE_BYTES.bit_length() - 1)
        faulty = self.fault.slverr_enable & (base < self.fault.slverr_limit)
        faulty &= base + LINE_BYTES > self.fault.slverr_base
        missing = (line >= self.lines) & ~known
        return Mux(bad | faulty, Response.SLVERR, Mux(missing, Response.DECERR, Response.OKAY))

    def _bursts(self, m: Module, prefix: str, room: Value, stalled: Value) -> SyncFIFO:
        """The queue behind an address channel."""
        channel = {
            name: getattr(self.axi, f"{prefix}{name}")
            for name in ("id", "addr", "len", "size", "burst", "valid", "ready")
        }
        queue = SyncFIFO(width=BURST.size, depth=self.latency + 16)
        m.submodules[f"{prefix}_queue"] = queue
        burst = Signal(BURST, name=f"{prefix}_burst")
        m.d.comb += [
            burst.beat.eq(channel["addr"] >> BEAT_SHIFT),
            burst.len.eq(channel["len"]),
            burst.id.eq(channel["id"]),
            burst.bad.eq((channel["size"] != BEAT_SHIFT) | (channel["burst"] != Burst.INCR)),
            channel["ready"].eq(queue.w_rdy & room & ~stalled),
            queue.w_en.eq(channel["valid"] & channel["ready"]),
            queue.w_data.eq(burst),
        ]
        return queue

    def _reads(self, m: Module) -> Value:
        axi = self.axi
        m.submodules.read_delay = delay = Delay(cycles=self.latency - 1, most=self.latency + 16)
        queue = self._bursts(m, "ar", delay.room, self._stall(0))
        burst = data.View(BURST, queue.r_data)
        done = Signal(8, name="read_beats")
        beat = Signal.like(burst.beat, name="read_beat")
        line, last, step = Signal(LINE_NUMBER_BITS), Signal(), Signal()
        valid, answer = Signal(name="rvalid"), Signal(2, name="rresp", reset_less=True)
        half = Signal(name="read_half", reset_less=True)
        pausing = self._pause(m, "read", 1, step & last)
        m.d.comb += [
            delay.push.eq(queue.w_en),
            beat.eq(burst.beat + done),
            line.eq(beat[1:]),
            last.eq(done == burst.len),
            step.eq(delay.due & (~valid | axi.rready) & ~pausing & ~self._stall(2)),
            delay.pop.eq(step & last),
            queue.r_en.eq(step & last),
            self._dram_read["en"].eq(step & ((done == 0) | ~beat[0]) & (line < self.lines)),
            self._dram_read["line"].eq(line),
            axi.rvalid.eq(valid),
            axi.rresp.eq(answer),
            axi.rdata.eq(self._dram_read["data"].word_select(half, BEAT_BITS)),
        ]
        with m.If(axi.rready):
            m.d.sync += valid.eq(0)
        with m.If(step):
            m.d.sync += [
                valid.eq(1),
                half.eq(beat[0]),
                answer.eq(self._response(line, burst.bad, Const(0))),
                axi.rlast.eq(last),
                axi.rid.eq(burst.id),
                done.eq(Mux(last, 0, done + 1)),
            ]
        return delay.empty & ~valid

    def _writes(self, m: Module) -> Value:
        axi, dram = self.axi, self._dram_write
        m.submodules.write_delay = delay = Delay(cycles=self.latency - 1, most=self.latency + 16)
        queue = self._bursts(m, "aw", Const(1), self._stall(3))
        burst = data.View(BURST, queue.r_data)
        done = Signal(8, name="write_beats")
        beat = Signal.like(burst.beat, name="write_beat")
        line = Signal(LINE_NUMBER_BITS, name="write_line")
        last, step, commit, message = Signal(), Signal(), Signal(), Signal()
        low = Signal(BEAT_BITS, name="write_low", reset_less=True)
        low_strobe = Signal(BEAT_BYTES, name="write_low_strobe")
        answer, worst, sofar = Signal(2), Signal(2), Signal(2)
        upper = beat[0]
        # A message is the four bytes of its vector's number, at the start of the line.
        whole = axi.wstrb == 0xF
        m.d.comb += [
            axi.wready.eq(queue.r_rdy & delay.room & ~self._stall(4)),
            step.eq(axi.wvalid & axi.wready),
            beat.eq(burst.beat + done),
            line.eq(beat[1:]),
            last.eq(done == burst.len),
            commit.eq(step & (upper | last)),
            message.eq(line == MSI_BUS_ADDRESS // LINE_BYTES),
            answer.eq(
                self._response(
                    line, burst.bad | (message & axi.wstrb.any() & (~whole | upper)), message
                )
            ),
            # SLVERR and DECERR are the two largest codes.
            worst.eq(Mux(answer > sofar, answer, sofar)),
            dram["en"].eq(commit & (answer == Response.OKAY) & ~message),
            dram["line"].eq(line),
            dram["data"].eq(Cat(Mux(upper, low, axi.wdata), axi.wdata)),
            dram["strb"].eq(Cat(Mux(upper, low_strobe, axi.wstrb), Mux(upper, axi.wstrb, 0))),
            queue.r_en.eq(step & last),
            delay.push.eq(step & last),
        ]
        m.d.sync += self.msi.valid.eq(step & message & axi.wstrb.any() & (answer == Response.OKAY))
        with m.If(step):
            m.d.sync += [
                done.eq(Mux(last, 0, done + 1)),
                sofar.eq(Mux(last, Response.OKAY, worst)),
                low_strobe.eq(Mux(upper | last, 0, axi.wstrb)),
                Assert(axi.wlast == last, "WLAST is not at the last beat of its burst"),
            ]
            with m.If(~upper):
                m.d.sync += low.eq(axi.wdata)
            with m.If(message & axi.wstrb.any()):
                m.d.sync += self.msi.vector.eq(axi.wdata[:5])

        answers = SyncFIFO(width=ANSWER.size, depth=self.latency + 16)
        m.submodules.answers = answers
        pushed, popped = Signal(ANSWER), data.View(ANSWER, answers.r_data)
        valid, give = Signal(name="bvalid"), Signal()
        pausing = self._pause(m, "write", 5, give)
        m.d.comb += [
            pushed.id.eq(burst.id),
            pushed.resp.eq(worst),
            answers.w_en.eq(step & last),
            answers.w_data.eq(pushed),
            give.eq(delay.due & (~valid | axi.bready) & ~pausing),
            delay.pop.eq(give),
            answers.r_en.eq(give),
            axi.bvalid.eq(valid),
        ]
        with m.If(axi.bready):
            m.d.sync += valid.eq(0)
        with m.If(give):
            m.d.sync += [valid.eq(1), axi.bid.eq(popped.id), axi.bresp.eq(popped.resp)]
        return ~queue.r_rdy & delay.empty & ~valid & ~self.msi.valid
