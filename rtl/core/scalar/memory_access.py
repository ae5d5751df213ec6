"""Loads and stores of the scalar unit."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.isa import ARGUMENTS_BASE, CODE_BASE, RAM_BASE, RAM_BYTES, WINDOW_BASE
from abi.status import Status
from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS, LineError, ReadPort, WritePort
from rtl.memory.sram import Sram

__all__ = ["MemoryAccess"]

OFFSET_BITS = exact_log2(LINE_BYTES)
RAM_WORDS = RAM_BYTES // 4
CODE, ARGUMENTS, WINDOW = range(3)

# The regions are told apart by the top four bits of an address.
assert CODE_BASE == 0
assert RAM_BASE == 1 << 28
assert ARGUMENTS_BASE == 2 << 28
assert WINDOW_BASE == 1 << 31
assert RAM_BYTES == 4 * RAM_WORDS == 1 << exact_log2(RAM_BYTES)


class MemoryAccess(wiring.Component):
    """One load or store at a time: the unit's RAM, or a line of global memory.

    Loads of code, arguments and the window go through one line each, which is kept. A store
    through the window ends when it is answered; it drops the window's line if it hits that.

    Members:
        start: 1 bit; begin, with the next four members.
        address: 32 bits; function: 3 bits, as in the instruction: log2 of the size, and bit 2
            for a load that is not sign extended.
        store: 1 bit; store_data: 32 bits, in the low bits.
        done: 1 bit for one cycle; it has ended with `status`.
        load_data: 32 bits, if `done` with OK.
        status, fault_address: 8 and 64 bits.
        waiting: 1 bit; it waits for global memory.
        code, arguments: 64 bits, 64-aligned; code_bytes, argument_bytes: 32 bits.
        window: 48 bits; the device address of the window.
        drop: 1 bit; forget the lines.
        stop: 1 bit; forget the access; what is on its way is drained.
        hold: 1 bit; the read port is in use by others, request nothing.
        scrub: 1 bit for one cycle; zero the RAM. scrubbing: 1 bit; that is going on.
        read_port, write_port: `ReadPort`, `WritePort`.
        busy: 1 bit; a request is made or on its way.

    Timing: `done` in the cycle after `start` for the RAM, a cycle later for a line that is kept.
    A scrub takes a cycle a word.

    Errors: MISALIGNED, ADDRESS_FAULT with the scalar address; MISALIGNED with the device address
    where only that is misaligned; ADDRESS_FAULT, BUS_ERROR with the device address of the line.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "address": In(32),
                "function": In(3),
                "store": In(1),
                "store_data": In(32),
                "done": Out(1),
                "load_data": Out(32),
                "status": Out(8),
                "fault_address": Out(64),
                "waiting": Out(1),
                "code": In(64),
                "code_bytes": In(32),
                "arguments": In(64),
                "argument_bytes": In(32),
                "window": In(ADDRESS_BITS),
                "drop": In(1),
                "stop": In(1),
                "hold": In(1),
                "scrub": In(1),
                "scrubbing": Out(1),
                "read_port": Out(ReadPort()),
                "write_port": Out(WritePort()),
                "busy": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.ram = ram = Sram(width=32, depth=RAM_WORDS)
        m.submodules.lines = lines = Memory(shape=LINE_BITS, depth=4, init=[])
        line_write, line_read = lines.write_port(), lines.read_port(domain="comb")

        address = Signal(32, reset_less=True)
        function = Signal(3, reset_less=True)
        store = Signal(reset_less=True)
        store_data = Signal(32, reset_less=True)
        m.d.comb += [ram.rd_en.eq(self.start & ~self.store), ram.rd_addr.eq(self.address[2:])]
        with m.If(self.start):
            m.d.sync += [
                address.eq(self.address),
                function.eq(self.function),
                store.eq(self.store),
                store_data.eq(self.store_data),
            ]

        # Where the address lies. An aligned access has all of its bytes there if it has the last.
        size = function[:2]
        beyond = Cat(size != 0, size == 2)
        last = address[:28] | beyond
        in_code = (address[28:] == 0) & (last < self.code_bytes)
        in_ram = address[exact_log2(RAM_BYTES) :] == RAM_BASE >> exact_log2(RAM_BYTES)
        argument_offset = Cat(address[:29], address[29:31] - 1)[:31]
        in_window = address[31]
        in_arguments = (
            ~in_window & (address[29:31] != 0) & ((argument_offset | beyond) < self.argument_bytes)
        )
        region = Mux(in_window, WINDOW, Mux(in_arguments, ARGUMENTS, CODE))
        readable = in_window | (~store & (in_arguments | in_code))
        scalar_misaligned = (address[:2] & beyond).any()

        # Its line in global memory.
        device = Signal(64, reset_less=True)
        at = Signal(2, reset_less=True)
        line_number = device[OFFSET_BITS:ADDRESS_BITS]
        device_misaligned = (device[:2] & beyond).any()
        exists = ~device[ADDRESS_BITS:].any()
        kept = [Signal(LINE_NUMBER_BITS, name=f"kept{i}", reset_less=True) for i in range(3)]
        is_kept = Signal(3)
        hit = Signal()
        with m.Switch(at):
            for i in range(3):
                with m.Case(i):
                    m.d.comb += hit.eq(is_kept[i] & (kept[i] == line_number))

        # What is loaded.
        words = Array(line_read.data[32 * i : 32 * i + 32] for i in range(LINE_BITS // 32))
        from_line = Signal(init=1)
        m.d.comb += line_read.addr.eq(at)
        place = Mux(from_line, device[:2], address[:2])
        word = Signal(32)
        m.d.comb += word.eq(
            Mux(from_line, words[device[2:OFFSET_BITS]], ram.rd_data) >> (place << 3)
        )
        signed = ~function[2]
        with m.Switch(size):
            with m.Case(0):
                m.d.comb += self.load_data.eq(Cat(word[:8], (word[7] & signed).replicate(24)))
            with m.Case(1):
                m.d.comb += self.load_data.eq(Cat(word[:16], (word[15] & signed).replicate(16)))
            with m.Default():
                m.d.comb += self.load_data.eq(word)
        stored = Signal(32)
        strobe = Signal(4)
        with m.Switch(size):
            with m.Case(0):
                m.d.comb += [stored.eq(store_data[:8].replicate(4)), strobe.eq(1 << place)]
            with m.Case(1):
                m.d.comb += [stored.eq(store_data[:16].replicate(2)), strobe.eq(3 << place)]
            with m.Default():
                m.d.comb += [stored.eq(store_data), strobe.eq(15)]

        scrubbed = Signal(range(RAM_WORDS))
        m.d.comb += [ram.wr_addr.eq(address[2:]), ram.wr_data.eq(stored), ram.wr_mask.eq(strobe)]
        with m.If(self.scrubbing):
            m.d.comb += [
                ram.wr_en.eq(1),
                ram.wr_addr.eq(scrubbed),
                ram.wr_data.eq(0),
                ram.wr_mask.eq(15),
            ]
            m.d.sync += [
                scrubbed.eq(scrubbed + 1),
                self.scrubbing.eq(scrubbed != RAM_WORDS - 1),
            ]
        with m.Elif(self.scrub):
            m.d.sync += self.scrubbing.eq(1)

        # Requests, and what is on its way.
        read, write = self.read_port, self.write_port
        reading, writing = Signal(), Signal()
        m.d.comb += [
            self.busy.eq(reading | writing),
            read.response.ready.eq(1),
            write.response.ready.eq(1),
            line_write.addr.eq(at),
            line_write.data.eq(read.response.payload.data),
            read.request.payload.line.eq(line_number),
            # The access changes only when this one has been answered.
            write.request.payload.line.eq(line_number),
            write.request.payload.data.eq(stored.replicate(LINE_BITS // 32)),
            write.request.payload.strobe.word_select(device[2:OFFSET_BITS], 4).eq(strobe),
        ]
        with m.If(read.request.ready):
            m.d.sync += read.request.valid.eq(0)
        with m.If(write.request.ready):
            m.d.sync += write.request.valid.eq(0)
        with m.If(read.response.valid):
            m.d.sync += reading.eq(0)
        with m.If(write.response.valid):
            m.d.sync += writing.eq(0)

        line_error = Signal(2)
        with m.FSM():
            with m.State("Ready"), m.If(self.start & ~self.stop):
                m.next = "Find the region"
            with m.State("Find the region"):
                m.d.comb += from_line.eq(0)
                m.next = "Ready"
                with m.If(scalar_misaligned):
                    m.d.comb += [
                        self.done.eq(1),
                        self.status.eq(Status.MISALIGNED),
                        self.fault_address.eq(address),
                    ]
                with m.Elif(in_ram):
                    m.d.comb += self.done.eq(1)
                    with m.If(store & ~self.scrubbing):
                        m.d.comb += ram.wr_en.eq(1)
                with m.Elif(readable):
                    m.next = "Find the line"
                with m.Else():
                    m.d.comb += [
                        self.done.eq(1),
                        self.status.eq(Status.ADDRESS_FAULT),
                        self.fault_address.eq(address),
                    ]
                m.d.sync += at.eq(region)
                with m.If(in_window):
                    m.d.sync += device.eq(self.window + address[:31])
                with m.Elif(in_arguments):
                    m.d.sync += device.eq(self.arguments + argument_offset)
                with m.Else():
                    m.d.sync += device.eq(self.code + address[:28])
                with m.If(self.stop):
                    m.next = "Ready"
            with m.State("Find the line"):
                with m.If(device_misaligned):
                    m.d.comb += [
                        self.done.eq(1),
                        self.status.eq(Status.MISALIGNED),
                        self.fault_address.eq(device),
                    ]
                    m.next = "Ready"
                with m.Elif(~exists):
                    m.d.comb += line_error.eq(LineError.ADDRESS)
                    m.next = "Ready"
                with m.Elif(store):
                    m.d.sync += [
                        write.request.valid.eq(1),
                        writing.eq(1),
                    ]
                    with m.If(hit):
                        m.d.sync += is_kept[WINDOW].eq(0)
                    m.next = "Wait for the answer"
                with m.Elif(hit):
                    m.d.comb += self.done.eq(1)
                    m.next = "Ready"
                with m.Elif(~self.hold):
                    m.d.sync += [
                        read.request.valid.eq(1),
                        reading.eq(1),
                    ]
                    m.next = "Wait for the line"
                with m.Else():
                    m.d.comb += self.waiting.eq(1)
                with m.If(self.stop):
                    # Nothing new is requested.
                    m.d.sync += [
                        read.request.valid.eq(0),
                        write.request.valid.eq(0),
                        reading.eq(0),
                        writing.eq(0),
                    ]
                    m.next = "Ready"
            with m.State("Wait for the line"):
                m.d.comb += self.waiting.eq(1)
                with m.If(read.response.valid):
                    m.next = "Find the line"
                    with m.If(read.response.payload.error == LineError.OK):
                        m.d.comb += line_write.en.eq(1)
                        m.d.sync += is_kept.bit_select(at, 1).eq(1)
                        with m.Switch(at):
                            for i in range(3):
                                with m.Case(i):
                                    m.d.sync += kept[i].eq(line_number)
                    with m.Else():
                        m.d.comb += line_error.eq(read.response.payload.error)
                        m.next = "Ready"
                with m.If(self.stop):
                    m.next = "Ready"
            with m.State("Wait for the answer"):
                m.d.comb += self.waiting.eq(1)
                with m.If(write.response.valid):
                    m.d.comb += [
                        self.done.eq(write.response.payload.error == LineError.OK),
                        line_error.eq(write.response.payload.error),
                    ]
                    m.next = "Ready"
                with m.If(self.stop):
                    m.next = "Ready"
        with m.If(line_error != LineError.OK):
            bus = line_error == LineError.BUS
            m.d.comb += [
                self.done.eq(1),
                self.status.eq(Mux(bus, Status.BUS_ERROR, Status.ADDRESS_FAULT)),
                self.fault_address[OFFSET_BITS:].eq(device[OFFSET_BITS:]),
            ]
        with m.If(self.drop):
            m.d.sync += is_kept.eq(0)
        return m
