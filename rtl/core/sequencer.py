"""Fetches, checks and dispatches the commands of a program."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from abi.core import (
    ABSOLUTE,
    COMMAND_BYTES,
    COMMANDS,
    JUMP_COMMAND,
    LOAD_COMMAND,
    MOVE_COMMAND,
    NOP_COMMAND,
    STORE_COMMAND,
    CommandOpcode,
    MoveTarget,
    Pipe,
)
from abi.packet import KERNEL_ARGUMENTS
from abi.status import Status
from rtl.memory.port import LINE_BITS, LINE_NUMBER_BITS, LineError, ReadPort

__all__ = ["CONTROL", "DISPATCH", "QUEUED", "Sequencer"]

COMMAND_BITS = 8 * COMMAND_BYTES
LINES_AHEAD = 8
"""Lines that are fetched or held ahead of the sequencer."""

QUEUED = data.StructLayout({"command": COMMAND_BITS, "index": 32})
"""A command in a pipe's queue, and its index in the program."""

DISPATCH = data.StructLayout({"queued": QUEUED, "pipe": 2})
"""A command for the queue of a pipe."""

CONTROL = data.StructLayout(
    {"address": 64, "index": 32, "wait": 16, "set": 16, "status": 8, "end": 1}
)
"""What the sequencer asks of the scoreboard: a JUMP (end 0) or END (end 1), or, if status is not
0, a fault of the sequencer with its address."""

_AT_LEAST_1 = {
    CommandOpcode.LOAD: ("row_bytes", "rows"),
    CommandOpcode.MOVE: ("row_lines", "rows"),
    CommandOpcode.MMAD: ("rows", "k_tiles", "n_tiles"),
    CommandOpcode.STORE: ("columns", "rows"),
}


def _reserved_mask(opcode: CommandOpcode) -> int:
    record = COMMANDS[opcode]
    return sum(
        ((1 << field.width) - 1) << record.offset_of(name)
        for name, field in record.fields.items()
        if name.startswith("reserved")
    )


class Sequencer(wiring.Component):
    """Walks through a program, two commands of 32 bytes to a line, lines fetched ahead.

    Members:
        start: 1 bit; begin at command 0 of the program at `program` (device address, 64 bits)
            of `length` commands (32 bits); both stay until the end.
        stop: 1 bit; fetch and dispatch nothing more; held until `idle`.
        program_port: `ReadPort`.
        dispatch: stream of `DISPATCH`.
        control: stream of `CONTROL`; the scoreboard takes a JUMP or END when its flags and, for
            END, the pipes allow it. After END or a fault nothing follows.
        index: 32 bits; the command that is being looked at.
        idle: 1 bit; nothing is outstanding, no program is walked through.

    Timing: one command a cycle while its line is there; a JUMP costs the latency of a fetch.

    Errors (as a control item): BAD_COMMAND for an unknown opcode, a reserved bit, a field out of
    range, and for running past the length; MISALIGNED and ADDRESS_FAULT for the program's
    address; ADDRESS_FAULT and BUS_ERROR for a line that is needed and could not be fetched.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "program": In(64),
                "length": In(32),
                "program_port": Out(ReadPort()),
                "dispatch": Out(stream.Signature(DISPATCH)),
                "control": Out(stream.Signature(CONTROL)),
                "index": Out(32),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        shape = data.StructLayout({"data": LINE_BITS, "error": 2})
        m.submodules.lines = lines = Memory(shape=shape, depth=LINES_AHEAD, init=[])
        line_write, line_read = lines.write_port(), lines.read_port(domain="comb")
        request, response = self.program_port.request, self.program_port.response

        # Fetch ahead. `reserved` counts the lines outstanding and held, `stale` the outstanding
        # ones that a JUMP made useless.
        walking = Signal()
        base = Signal(LINE_NUMBER_BITS, reset_less=True)
        fetch_line = Signal(32, reset_less=True)
        end_line = Signal(32, reset_less=True)
        outstanding = Signal(range(LINES_AHEAD + 1))
        held = Signal(range(LINES_AHEAD + 1))
        stale = Signal(range(LINES_AHEAD + 1))
        write_slot = Signal(range(LINES_AHEAD))
        read_slot = Signal(range(LINES_AHEAD))
        requested, arrived, consumed, jump = Signal(), Signal(), Signal(), Signal()
        target = Signal(32)
        room = (outstanding + held) < LINES_AHEAD
        fetch = Signal()
        keep = Signal()
        m.d.comb += [
            fetch.eq(
                walking
                & ~self.stop
                & ~jump
                & room
                & (fetch_line != end_line)
                & (~request.valid | request.ready)
            ),
            requested.eq(fetch),
            arrived.eq(response.valid),
            response.ready.eq(1),
            keep.eq(arrived & (stale == 0) & ~jump & walking),
            line_write.en.eq(keep),
            line_write.addr.eq(write_slot),
            line_write.data.data.eq(response.payload.data),
            line_write.data.error.eq(response.payload.error),
            line_read.addr.eq(read_slot),
        ]
        with m.If(fetch):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.line.eq(base + fetch_line),
                fetch_line.eq(fetch_line + 1),
            ]
        with m.Elif(request.ready):
            m.d.sync += request.valid.eq(0)
        m.d.sync += [
            outstanding.eq(outstanding + requested - arrived),
            held.eq(held + keep - consumed),
            write_slot.eq(write_slot + keep),
            read_slot.eq(read_slot + consumed),
        ]
        with m.If(arrived & (stale != 0)):
            m.d.sync += stale.eq(stale - 1)
        with m.If(jump):
            m.d.sync += [
                stale.eq(outstanding - arrived),
                held.eq(0),
                read_slot.eq(write_slot),
                fetch_line.eq(target >> 1),
            ]
            with m.If((target >> 1) > end_line):
                # Nothing to fetch there: the command is past the length.
                m.d.sync += fetch_line.eq(end_line)

        # Take the next command out of its line.
        next_index = Signal(32, reset_less=True)
        looking = Signal()
        looked_at = Signal(COMMAND_BITS, reset_less=True)
        index = Signal(32, reset_less=True)
        line_error = Signal(2, reset_less=True)
        past_end = Signal(reset_less=True)
        bad_program = Signal(8, reset_less=True)
        done = Signal()
        load = Signal()
        past = next_index >= self.length
        m.d.comb += [
            load.eq(
                walking
                & ~self.stop
                & ~jump
                & (past | (held != 0))
                & (~looking | (done & self.dispatch.valid))
            ),
            consumed.eq(load & ~past & next_index[0]),
        ]
        with m.If(done):
            m.d.sync += looking.eq(0)
        with m.If(load):
            line = line_read.data.data
            m.d.sync += [
                looking.eq(1),
                looked_at.eq(Mux(next_index[0], line[COMMAND_BITS:], line[:COMMAND_BITS])),
                line_error.eq(Mux(past, LineError.OK, line_read.data.error)),
                past_end.eq(past),
                index.eq(next_index),
                next_index.eq(next_index + 1),
            ]
        with m.If(jump):
            m.d.sync += next_index.eq(target)

        # Look at it.
        opcode = looked_at[:8]
        pipe = Signal(2)
        valid_command = Signal()
        is_control = Signal()
        with m.Switch(opcode):
            for code in CommandOpcode:
                with m.Case(code):
                    m.d.comb += valid_command.eq(~self._bad(looked_at, code))
        nop = data.View(NOP_COMMAND, looked_at)
        with m.Switch(opcode):
            with m.Case(CommandOpcode.LOAD):
                m.d.comb += pipe.eq(Pipe.MTE2)
            with m.Case(CommandOpcode.MOVE):
                m.d.comb += pipe.eq(Pipe.MTE1)
            with m.Case(CommandOpcode.MMAD):
                m.d.comb += pipe.eq(Pipe.CUBE)
            with m.Case(CommandOpcode.STORE):
                m.d.comb += pipe.eq(Pipe.FIXPIPE)
            with m.Case(CommandOpcode.NOP):
                m.d.comb += pipe.eq(nop.pipe)
            with m.Case(CommandOpcode.JUMP, CommandOpcode.END):
                m.d.comb += is_control.eq(1)

        status = Signal(8)
        address = Signal(64)
        shift = LINE_BYTES.bit_length() - 1
        with m.If(bad_program != Status.OK):
            m.d.comb += [status.eq(bad_program), address.eq(self.program)]
        with m.Elif(line_error != LineError.OK):
            bus = line_error == LineError.BUS
            m.d.comb += [
                status.eq(Mux(bus, Status.BUS_ERROR, Status.ADDRESS_FAULT)),
                address.eq(Cat(C(0, shift), (base + (index >> 1))[:LINE_NUMBER_BITS])),
            ]
        with m.Elif(past_end | ~valid_command):
            m.d.comb += status.eq(Status.BAD_COMMAND)
        faulty = status != Status.OK
        control, dispatch = self.control, self.dispatch
        m.d.comb += [
            dispatch.valid.eq(looking & ~faulty & ~is_control),
            dispatch.payload.queued.command.eq(looked_at),
            dispatch.payload.queued.index.eq(index),
            dispatch.payload.pipe.eq(pipe),
            control.valid.eq(looking & (faulty | is_control)),
            control.payload.address.eq(address),
            control.payload.index.eq(index),
            control.payload.status.eq(status),
            control.payload.wait.eq(nop.wait),
            control.payload.set.eq(nop.set),
            control.payload.end.eq(opcode == CommandOpcode.END),
            done.eq((dispatch.valid & dispatch.ready) | (control.valid & control.ready)),
            target.eq(data.View(JUMP_COMMAND, looked_at).target),
            jump.eq(control.valid & control.ready & ~faulty & (opcode == CommandOpcode.JUMP)),
            self.index.eq(index),
            self.idle.eq(~walking & (outstanding == 0) & ~request.valid),
        ]
        with m.If(control.valid & control.ready & ~jump):
            m.d.sync += walking.eq(0)

        with m.If(self.start):
            last_line = (self.program >> shift) + (((self.length - 1)[:32]) >> 1)
            m.d.sync += [
                walking.eq(1),
                looking.eq(0),
                base.eq(self.program >> shift),
                fetch_line.eq(0),
                end_line.eq((self.length + 1) >> 1),
                next_index.eq(0),
                index.eq(0),
                bad_program.eq(Status.OK),
                line_error.eq(LineError.OK),
                held.eq(0),
                read_slot.eq(write_slot),
            ]
            misaligned = self.program[:shift] != 0
            high = last_line[LINE_NUMBER_BITS:].any()
            with m.If(misaligned | high):
                m.d.sync += [
                    bad_program.eq(Mux(misaligned, Status.MISALIGNED, Status.ADDRESS_FAULT)),
                    end_line.eq(0),
                    looking.eq(1),
                    # The control item has no flags.
                    looked_at.eq(0),
                    past_end.eq(0),
                ]
        with m.If(self.stop):
            m.d.sync += [walking.eq(0), looking.eq(0)]
        return m

    @staticmethod
    def _bad(raw: Value, opcode: CommandOpcode) -> Value:
        """Whether a command with this opcode breaks a rule."""
        command = data.View(COMMANDS[opcode], raw)
        bad = (raw & C(_reserved_mask(opcode), COMMAND_BITS)).any()
        for name in _AT_LEAST_1.get(opcode, ()):
            bad |= command[name] == 0
        match opcode:
            case CommandOpcode.NOP:
                bad |= data.View(NOP_COMMAND, raw).pipe >= len(Pipe)
            case CommandOpcode.END:
                bad |= data.View(NOP_COMMAND, raw).pipe != 0
            case CommandOpcode.MOVE:
                bad |= data.View(MOVE_COMMAND, raw).target >= len(MoveTarget)
            case CommandOpcode.LOAD | CommandOpcode.STORE:
                layout = LOAD_COMMAND if opcode is CommandOpcode.LOAD else STORE_COMMAND
                argument = data.View(layout, raw).argument
                bad |= (argument >= KERNEL_ARGUMENTS) & (argument != ABSOLUTE)
                if opcode is CommandOpcode.STORE:
                    bad |= data.View(STORE_COMMAND, raw).shift > 62
        return bad
