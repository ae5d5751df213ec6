"""The scalar unit: runs a kernel's program and issues commands to the pipes."""

from collections.abc import Iterator
from contextlib import contextmanager

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.core import Pipe
from abi.geometry import CORES
from abi.isa import ARGUMENTS_BASE, RAM_BASE, RAM_BYTES, Special
from abi.status import Status
from rtl.core.command_check import CommandCheck
from rtl.core.dispatch import DISPATCH, FLAG_OPERATION, SCALAR_FAULT
from rtl.core.scalar.alu import Alu, AluOperation
from rtl.core.scalar.decoder import Decoder, Kind
from rtl.core.scalar.divider import Divider
from rtl.core.scalar.instruction_cache import InstructionCache
from rtl.core.scalar.memory_access import MemoryAccess
from rtl.core.scalar.multiplier import Multiplier
from rtl.core.scalar.staging import Staging, stage_operands
from rtl.memory.port import LineError, ReadPort, WritePort

__all__ = ["ScalarUnit"]

REGISTERS = 32
AT_START = {2: RAM_BASE + RAM_BYTES, 10: ARGUMENTS_BASE}
"""Registers that are not zero when a block starts."""

OFFSET_BITS = exact_log2(LINE_BYTES)
CODE_BITS = exact_log2(RAM_BASE)


class ScalarUnit(wiring.Component):
    """RV32IM in order, one instruction at a time, and the npu.* instructions of `abi.isa`.

    ```
    instruction cache ─► decoder, registers ─► ALU, multiplier, divider ─► registers
        │                                   ├─► memory access: RAM, lines of global memory
        └─ read_port ◄──────────────────────┤
                                            └─► staging ─► command check ─► dispatch
    ```

    Args:
        core: what `Special.CORE` reads.
        cache_lines: lines of the instruction cache, a power of two.

    Members:
        start: 1 bit, when idle; run a block from `entry` on.
        stop: 1 bit; drop everything and drain what is outstanding; held until `idle`.
        flush: 1 bit; empty the instruction cache.
        scrub: 1 bit for one cycle, when no block runs; zero the RAM. scrubbing: 1 bit; it does.
        code, arguments: 64 bits, device addresses. code_bytes, argument_bytes, entry, grid_x,
            block_x: 32 bits. grid_y, grid_z, block_y, block_z: 16 bits. Stable while it runs.
        cycles: 32 bits; what `Special.CYCLES` reads.
        read_port, write_port: `ReadPort`, `WritePort`.
        dispatch: stream of `DISPATCH`; commands that were checked.
        flag: stream of `FLAG_OPERATION`; the unit's own npu.wait and npu.set.
        drained: 1 bit; all queues are empty, all pipes idle.
        exited: 1 bit; the block has ended; until `start` or `stop`.
        fault, fault_valid: `SCALAR_FAULT` and 1 bit; the program failed; until `stop`.
        pc: 32 bits; the present instruction.
        blocked: 1 bit; it waits for a queue, a flag or `drained`.
        executing: 1 bit; it works, and does not wait for those or for global memory.
        retired: 1 bit; an instruction ended in this cycle.
        idle: 1 bit; no block runs and nothing is outstanding.
        active: 1 bit; it needs its clock at the next edge: not while idle, nor while it is blocked
            with nothing outstanding.

    Timing: the first instruction is looked up 32 cycles after `start`. 2 cycles an instruction;
    3 for the RAM, multiplication, and npu.issue; 4 for a line of global memory that is kept; 35
    for division. A line of code that is missing costs the latency of memory and 5 cycles.

    Errors (as a fault): ILLEGAL_INSTRUCTION, BREAKPOINT; MISALIGNED with the scalar address of a
    load, store or jump, or the device address; ADDRESS_FAULT with the scalar address of what no
    region has, or the device address of a line; or, for an npu.base beyond 48 bits, its value;
    BUS_ERROR with the device address of a line; BAD_COMMAND with its pipe.

    Raises:
        ValueError: `core` or `cache_lines` is out of range.
    """

    def __init__(self, *, core: int = 0, cache_lines: int = 128) -> None:
        if not 0 <= core < CORES:
            raise ValueError(f"core must be from 0 to {CORES - 1}, not {core!r}")
        self._core = core
        self._cache = InstructionCache(lines=cache_lines)
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "flush": In(1),
                "scrub": In(1),
                "scrubbing": Out(1),
                "code": In(64),
                "code_bytes": In(32),
                "arguments": In(64),
                "argument_bytes": In(32),
                "entry": In(32),
                "grid_x": In(32),
                "grid_y": In(16),
                "grid_z": In(16),
                "block_x": In(32),
                "block_y": In(16),
                "block_z": In(16),
                "cycles": In(32),
                "read_port": Out(ReadPort()),
                "write_port": Out(WritePort()),
                "dispatch": Out(stream.Signature(DISPATCH)),
                "flag": Out(stream.Signature(FLAG_OPERATION)),
                "drained": In(1),
                "exited": Out(1),
                "fault": Out(SCALAR_FAULT),
                "fault_valid": Out(1),
                "pc": Out(32),
                "blocked": Out(1),
                "executing": Out(1),
                "retired": Out(1),
                "idle": Out(1),
                "active": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.cache = cache = self._cache
        m.submodules.decoder = decoder = Decoder()
        m.submodules.alu = alu = Alu()
        m.submodules.multiplier = multiplier = Multiplier()
        m.submodules.divider = divider = Divider()
        m.submodules.access = access = MemoryAccess()
        m.submodules.staging = staging = Staging()
        m.submodules.check = check = CommandCheck()
        m.submodules.registers = registers = Memory(shape=32, depth=REGISTERS, init=[])
        write = registers.write_port()
        read_1, read_2 = registers.read_port(domain="comb"), registers.read_port(domain="comb")
        self._share_read_port(m, cache, access)

        # The present instruction, from Decode on.
        pc = self.pc
        word = Signal(32, reset_less=True)
        kind = Signal(Kind, reset_less=True)
        operation = Signal(AluOperation, reset_less=True)
        a = Signal(32, reset_less=True)
        b = Signal(32, reset_less=True)
        rs2 = Signal(32, reset_less=True)
        target = Signal(32, reset_less=True)
        function, rd = word[12:15], word[7:12]

        # What a state makes of it.
        result = Signal(32)
        write_result, advance, misaligned = Signal(), Signal(), Signal()
        following = Signal(32)
        next_pc = Signal(32)
        trap = Signal(8)
        trap_address = Signal(64)
        trap_pipe = Signal(8, init=Pipe.SCALAR)
        clearing = Signal()
        cleared = Signal(range(REGISTERS))
        m.d.comb += [
            following.eq(pc + 4),
            next_pc.eq(following),
            write.en.eq(clearing | (write_result & (rd != 0))),
            write.addr.eq(Mux(clearing, cleared, rd)),
            write.data.eq(result),
            read_1.addr.eq(cache.word[15:20]),
            read_2.addr.eq(cache.word[20:25]),
            decoder.word.eq(cache.word),
            alu.operation.eq(operation),
            alu.a.eq(a),
            alu.b.eq(b),
            multiplier.a.eq(a),
            multiplier.b.eq(b),
            multiplier.a_signed.eq(function != 3),
            multiplier.b_signed.eq(~function[1]),
            divider.a.eq(a),
            divider.b.eq(b),
            divider.is_signed.eq(~function[0]),
            cache.flush.eq(self.flush),
            cache.code.eq(self.code),
            cache.code_bytes.eq(self.code_bytes),
            cache.next_pc.eq(next_pc),
            access.address.eq(alu.sum),
            access.function.eq(function),
            access.store_data.eq(rs2),
            access.code.eq(self.code),
            access.code_bytes.eq(self.code_bytes),
            access.arguments.eq(self.arguments),
            access.argument_bytes.eq(self.argument_bytes),
            access.window.eq(staging.window),
            access.stop.eq(self.stop),
            access.scrub.eq(self.scrub),
            self.scrubbing.eq(access.scrubbing),
        ]
        stage_operands(m, staging, word=word, kind=kind, a=a, b=b, clear_index=cleared[:4])

        # A command that is issued; words 1 to 7 were staged.
        item = self.dispatch.payload
        m.d.comb += [
            check.command.eq(item.command),
            check.pipe.eq(item.pipe),
            item.command.eq(Cat(a, staging.words)),
            item.base.eq(staging.base),
            item.wait.eq(staging.wait),
            item.set.eq(staging.set),
            item.pc.eq(pc),
            item.pipe.eq(word[20:23]),
            self.flag.payload.flag.eq(word[20:25]),
            self.flag.payload.give.eq(kind == Kind.SET),
        ]

        block = Signal(32, reset_less=True)
        special = self._special(m, word[20:24], block)

        @contextmanager
        def state(name: str) -> Iterator[None]:
            """A state that `stop` ends."""
            with m.State(name):
                yield
                with m.If(self.stop):
                    m.next = "Idle"

        def finish() -> None:
            """End the instruction."""
            m.d.comb += advance.eq(1)
            m.next = "Decode"

        running = Signal()
        outstanding = cache.busy | cache.emptying | access.busy | self.scrubbing
        called = self.start | self.stop | self.flush | self.scrub
        m.d.comb += [
            self.idle.eq(~running & ~outstanding),
            self.active.eq((running & ~self.blocked) | outstanding | called),
        ]
        with m.FSM():
            with m.State("Idle"), m.If(self.start & ~self.stop):
                m.d.sync += [running.eq(1), self.exited.eq(0), pc.eq(self.entry), cleared.eq(0)]
                m.next = "Clear the registers"
            with state("Clear the registers"):
                m.d.comb += [self.executing.eq(1), clearing.eq(1), access.drop.eq(1)]
                m.d.comb += [staging.clear.eq(1), next_pc.eq(pc)]
                m.d.sync += cleared.eq(cleared + 1)
                with m.Switch(cleared):
                    for register, value in AT_START.items():
                        with m.Case(register):
                            m.d.comb += result.eq(value)
                # Meanwhile, number the block.
                with m.Switch(cleared):
                    with m.Case(0):
                        m.d.sync += [a.eq(self.grid_y), b.eq(self.block_z)]
                    with m.Case(1, 3):
                        m.d.comb += multiplier.start.eq(1)
                    with m.Case(2):
                        m.d.sync += [a.eq(multiplier.low + self.block_y), b.eq(self.grid_x)]
                    with m.Case(4):
                        m.d.sync += block.eq(multiplier.low + self.block_x)
                with m.If(cleared == REGISTERS - 1):
                    m.d.comb += cache.look_up.eq(1)
                    m.next = "Decode"
                    for address, bits in (
                        (self.arguments, OFFSET_BITS),
                        (self.code, OFFSET_BITS),
                        (self.entry, 2),
                    ):
                        with m.If(address[:bits].any()):
                            m.d.comb += [trap.eq(Status.MISALIGNED), trap_address.eq(address)]
                            m.next = "Faulted"
            with state("Decode"):
                m.d.sync += [
                    word.eq(cache.word),
                    kind.eq(decoder.kind),
                    operation.eq(decoder.operation),
                    a.eq(Mux(decoder.from_zero, 0, read_1.data)),
                    b.eq(Mux(decoder.use_immediate, decoder.immediate, read_2.data)),
                    rs2.eq(read_2.data),
                    target.eq(pc + decoder.immediate),
                ]
                outside = (pc[2:] >= self.code_bytes[2:]) | pc[CODE_BITS:].any()
                with m.If(outside):
                    m.d.comb += [trap.eq(Status.ADDRESS_FAULT), trap_address.eq(pc)]
                    m.next = "Faulted"
                with m.Elif(cache.error != LineError.OK):
                    bus = cache.error == LineError.BUS
                    m.d.comb += [
                        trap.eq(Mux(bus, Status.BUS_ERROR, Status.ADDRESS_FAULT)),
                        trap_address[OFFSET_BITS:].eq(cache.fault_line),
                    ]
                    m.next = "Faulted"
                with m.Else():
                    m.d.comb += cache.wanted.eq(~self.stop)
                    with m.If(cache.hit):
                        m.d.comb += self.executing.eq(1)
                        m.next = "Execute"
            with state("Execute"):
                m.d.comb += self.executing.eq(1)
                with m.Switch(kind):
                    with m.Case(Kind.COMPUTE):
                        m.d.comb += [result.eq(alu.result), write_result.eq(1)]
                        finish()
                    with m.Case(Kind.ADDRESS):
                        m.d.comb += [result.eq(target), write_result.eq(1)]
                        finish()
                    with m.Case(Kind.BRANCH):
                        with m.If(alu.result[0] ^ function[0]):
                            m.d.comb += [next_pc.eq(target), misaligned.eq(target[1])]
                        finish()
                    with m.Case(Kind.JUMP, Kind.JUMP_REGISTER):
                        is_jump = kind == Kind.JUMP
                        m.d.comb += [
                            next_pc.eq(Mux(is_jump, target, Cat(0, alu.sum[1:]))),
                            misaligned.eq(next_pc[1]),
                            result.eq(following),
                            write_result.eq(~misaligned),
                        ]
                        finish()
                    with m.Case(Kind.LOAD, Kind.STORE):
                        m.d.comb += [access.start.eq(1), access.store.eq(kind == Kind.STORE)]
                        m.next = "Access memory"
                    with m.Case(Kind.MULTIPLY):
                        m.d.comb += multiplier.start.eq(1)
                        m.next = "Finish the product"
                    with m.Case(Kind.DIVIDE):
                        m.d.comb += divider.start.eq(1)
                        m.next = "Divide"
                    with m.Case(Kind.FENCE):
                        m.d.comb += access.drop.eq(1)
                        finish()
                    with m.Case(Kind.GET):
                        m.d.comb += [result.eq(special), write_result.eq(1)]
                        finish()
                    with m.Case(Kind.WORD, Kind.PAIR):
                        m.d.comb += staging.write.eq(1)
                        finish()
                    with m.Case(Kind.BASE):
                        with m.If(rs2[ADDRESS_BITS - 32 :].any()):
                            m.d.comb += [
                                trap.eq(Status.ADDRESS_FAULT),
                                trap_address.eq(Cat(a, rs2)),
                            ]
                            m.next = "Faulted"
                        with m.Else():
                            m.d.comb += staging.write_base.eq(1)
                            finish()
                    with m.Case(Kind.WAIT, Kind.SET):
                        with m.If(word[25:28] == Pipe.SCALAR):
                            m.next = "Pass a flag"
                        with m.Else():
                            m.d.comb += [
                                staging.wait_for.eq(kind == Kind.WAIT),
                                staging.set_after.eq(kind == Kind.SET),
                            ]
                            finish()
                    with m.Case(Kind.ISSUE):
                        m.next = "Issue the command"
                    with m.Case(Kind.BARRIER, Kind.EXIT):
                        m.next = "Wait for the pipes"
                    with m.Default():
                        is_break = kind == Kind.BREAK
                        m.d.comb += trap.eq(
                            Mux(is_break, Status.BREAKPOINT, Status.ILLEGAL_INSTRUCTION)
                        )
                        m.next = "Faulted"
                with m.If(misaligned):
                    m.d.comb += [trap.eq(Status.MISALIGNED), trap_address.eq(next_pc)]
                    m.next = "Faulted"
            with state("Access memory"):
                m.d.comb += [
                    self.executing.eq(~access.waiting),
                    result.eq(access.load_data),
                ]
                with m.If(access.done):
                    with m.If(access.status == Status.OK):
                        m.d.comb += write_result.eq(kind == Kind.LOAD)
                        finish()
                    with m.Else():
                        m.d.comb += [
                            trap.eq(access.status),
                            trap_address.eq(access.fault_address),
                        ]
                        m.next = "Faulted"
            with state("Finish the product"):
                m.d.comb += [
                    self.executing.eq(1),
                    result.eq(Mux(function == 0, multiplier.low, multiplier.high)),
                    write_result.eq(1),
                ]
                finish()
            with state("Divide"):
                m.d.comb += [
                    self.executing.eq(1),
                    result.eq(Mux(function[1], divider.remainder, divider.quotient)),
                ]
                with m.If(divider.done):
                    m.d.comb += write_result.eq(1)
                    finish()
            with state("Issue the command"):
                with m.If(check.good):
                    m.d.comb += [
                        self.dispatch.valid.eq(1),
                        self.executing.eq(self.dispatch.ready),
                        self.blocked.eq(~self.dispatch.ready),
                    ]
                    with m.If(self.dispatch.ready):
                        m.d.comb += staging.issued.eq(1)
                        finish()
                with m.Else():
                    m.d.comb += [trap.eq(Status.BAD_COMMAND), trap_pipe.eq(item.pipe)]
                    m.next = "Faulted"
            with state("Pass a flag"):
                m.d.comb += [
                    self.flag.valid.eq(1),
                    self.executing.eq(self.flag.ready),
                    self.blocked.eq(~self.flag.ready),
                ]
                with m.If(self.flag.ready):
                    finish()
            with state("Wait for the pipes"):
                m.d.comb += [
                    self.executing.eq(self.drained),
                    self.blocked.eq(~self.drained),
                    access.drop.eq(1),
                ]
                with m.If(self.drained):
                    finish()
                    with m.If(kind == Kind.EXIT):
                        m.d.comb += next_pc.eq(pc)
                        m.d.sync += [running.eq(0), self.exited.eq(1)]
                        m.next = "Idle"
            with state("Faulted"):
                pass

        with m.If(advance & (trap == Status.OK)):
            m.d.comb += [self.retired.eq(1), cache.look_up.eq(1)]
            m.d.sync += pc.eq(next_pc)
        with m.If(trap != Status.OK):
            m.d.sync += [
                self.fault_valid.eq(1),
                self.fault.address.eq(trap_address),
                self.fault.pc.eq(pc),
                self.fault.status.eq(trap),
                self.fault.pipe.eq(trap_pipe),
            ]
        with m.If(self.stop):
            m.d.sync += [running.eq(0), self.exited.eq(0), self.fault_valid.eq(0)]
        return m

    def _share_read_port(self, m: Module, cache: InstructionCache, access: MemoryAccess) -> None:
        """One of both uses the read port at a time.

        The cache begins a request only while an instruction is decoded, and data is accessed
        only after that; so `hold` is enough to keep them apart.
        """
        mine, fetch, load = self.read_port, cache.memory, access.read_port
        m.d.comb += [
            access.hold.eq(cache.busy),
            mine.request.valid.eq(fetch.request.valid | load.request.valid),
            mine.request.payload.eq(Mux(cache.busy, fetch.request.payload, load.request.payload)),
            fetch.request.ready.eq(mine.request.ready),
            load.request.ready.eq(mine.request.ready),
            mine.response.ready.eq(1),
            fetch.response.payload.eq(mine.response.payload),
            load.response.payload.eq(mine.response.payload),
            fetch.response.valid.eq(mine.response.valid & cache.busy),
            load.response.valid.eq(mine.response.valid & ~cache.busy),
        ]
        wiring.connect(m, access.write_port, wiring.flipped(self.write_port))

    def _special(self, m: Module, number: Value, block: Signal) -> Value:
        """What npu.get reads."""
        value = Signal(32)
        values: dict[Special, Value | int] = {
            Special.BLOCK: block,
            Special.BLOCK_X: self.block_x,
            Special.BLOCK_Y: self.block_y,
            Special.BLOCK_Z: self.block_z,
            Special.GRID_X: self.grid_x,
            Special.GRID_Y: self.grid_y,
            Special.GRID_Z: self.grid_z,
            Special.CORE: self._core,
            Special.CORES: CORES,
            Special.CYCLES: self.cycles,
            Special.ARGUMENT_BYTES: self.argument_bytes,
        }
        with m.Switch(number):
            for special in Special:
                with m.Case(special):
                    m.d.comb += value.eq(values[special])
        return value
