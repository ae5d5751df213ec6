"""An AI core: sequencer, pipes, buffers, registers."""

from collections.abc import Mapping

from amaranth import Cat, DomainRenamer, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from abi.core import NOP_COMMAND, CommandOpcode, MoveTarget, Pipe
from abi.packet import KERNEL_ARGUMENTS
from abi.registers_core import CORE_COUNTERS, CORE_FAULT_ADDRESS, CORE_STATE
from abi.registers_firmware import CORE_BLOCK
from abi.trace import TRACE_EVENT
from rtl.core.counters import CoreCounters
from rtl.core.cube import Cube
from rtl.core.fixpipe import Fixpipe
from rtl.core.l0c import L0c
from rtl.core.mte1 import Mte1
from rtl.core.mte2 import Mte2
from rtl.core.scoreboard import QUEUE_DEPTH, Scoreboard
from rtl.core.sequencer import QUEUED, Sequencer
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort
from rtl.memory.port import ReadPort, WritePort
from rtl.memory.sram import Sram

__all__ = ["AiCore"]

OPCODE_OF = {
    Pipe.MTE2: CommandOpcode.LOAD,
    Pipe.MTE1: CommandOpcode.MOVE,
    Pipe.CUBE: CommandOpcode.MMAD,
    Pipe.FIXPIPE: CommandOpcode.STORE,
}


class AiCore(wiring.Component):
    """Runs programs of core commands.

    ```
    program_port ─► Sequencer ─► 4 queues ─► Scoreboard (flags) ─┬─► MTE2 ─► L1 ◄─ load_port
                                                                 ├─► MTE1 : L1 ─► L0A L0B L0C bias
                                                                 ├─► Cube : L0A x L0B ─► L0C
                                                                 └─► FIXPIPE : L0C ─► store_port
    ```

    L1, L0A, L0B and the bias buffer have one read and one write port each; L0C has two halves,
    see `L0c`.

    Args:
        l1_lines, l0a_lines, l0b_lines, l0c_lines, bias_lines: sizes, powers of two.
        depth: lines in flight of LOADs and of STOREs.
        domains: clock domain of each pipe; a pipe that is not named is in `sync`. Such a domain
            must be `sync` with edges left out while `pipe_active` of its pipe is 0. Queues,
            buffers, scoreboard and registers are in `sync`.

    Members:
        bus: `RegisterPort`, target of CORE_BLOCK.
        program_port, load_port: `ReadPort`. store_port: `WritePort`.
        done: 1 bit for one cycle; a program has ended.
        state, fault_address, retired: as in the registers.
        counters: all of CORE_COUNTERS, 64 bits each.
        product_xor: 16 bits; error injection into the Cube.
        trace: stream of TRACE_EVENT. Source CORE: BEGIN (program address) and END (status) of a
            program. Source PIPE, instance: `Pipe`: BEGIN (index) and END (status, then index from
            bit 8) of a command; spans of a pipe do not overlap. NOPs have none.
        trace_dropped: 1 bit; an event was lost because the one before was not taken.
        pipe_active: 1 bit for each pipe; it needs its clock at the next edge.
        idle: 1 bit; no program runs, nothing is outstanding.

    Timing: MMAD, see `Cube`: 256 MACs a cycle. From the write of START to the first command in
    its pipe: the latency of a fetch and 8 cycles.

    Raises:
        ValueError: a size is no power of two of at least 4, or `domains` names no pipe.
    """

    def __init__(
        self,
        *,
        l1_lines: int = 4096,
        l0a_lines: int = 512,
        l0b_lines: int = 512,
        l0c_lines: int = 1024,
        bias_lines: int = 64,
        depth: int = 64,
        domains: Mapping[Pipe, str] | None = None,
    ) -> None:
        sizes = {
            "l1_lines": l1_lines,
            "l0a_lines": l0a_lines,
            "l0b_lines": l0b_lines,
            "l0c_lines": l0c_lines,
            "bias_lines": bias_lines,
        }
        for name, lines in sizes.items():
            if not 4 <= lines <= 65536 or lines & (lines - 1):
                raise ValueError(f"{name} must be a power of two from 4 to 65536, not {lines!r}")
        for pipe in domains or {}:
            if pipe not in list(Pipe):
                raise ValueError(f"domains must name pipes, not {pipe!r}")
        self._sizes = sizes
        self._depth = depth
        self._domains = {pipe: (domains or {}).get(pipe, "sync") for pipe in Pipe}
        super().__init__(
            {
                "bus": In(RegisterPort),
                "program_port": Out(ReadPort()),
                "load_port": Out(ReadPort()),
                "store_port": Out(WritePort()),
                "done": Out(1),
                "state": Out(CORE_STATE),
                "fault_address": Out(CORE_FAULT_ADDRESS),
                "retired": Out(64),
                "counters": Out(wiring.Signature({name: Out(64) for name in CORE_COUNTERS})),
                "product_xor": In(16),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "trace_dropped": Out(1),
                "pipe_active": Out(1).array(len(Pipe)),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        sizes, depth = self._sizes, self._depth
        targets = {
            MoveTarget.L0A: sizes["l0a_lines"],
            MoveTarget.L0B: sizes["l0b_lines"],
            MoveTarget.L0C: sizes["l0c_lines"],
            MoveTarget.BIAS: sizes["bias_lines"],
        }
        mte2 = Mte2(l1_lines=sizes["l1_lines"], depth=depth)
        mte1 = Mte1(l1_lines=sizes["l1_lines"], target_lines=targets)
        cube = Cube(**{name: sizes[name] for name in ("l0a_lines", "l0b_lines", "l0c_lines")})
        fixpipe = Fixpipe(l0c_lines=sizes["l0c_lines"], bias_lines=sizes["bias_lines"], depth=depth)
        pipes: dict[Pipe, Mte2 | Mte1 | Cube | Fixpipe] = {
            Pipe.MTE2: mte2,
            Pipe.MTE1: mte1,
            Pipe.CUBE: cube,
            Pipe.FIXPIPE: fixpipe,
        }
        for pipe, unit in pipes.items():
            domain = self._domains[pipe]
            m.submodules[pipe.name.lower()] = (
                unit if domain == "sync" else DomainRenamer(domain)(unit)
            )
        self._connect_buffers(m, mte2, mte1, cube, fixpipe)
        wiring.connect(m, mte2.memory, wiring.flipped(self.load_port))
        wiring.connect(m, fixpipe.memory, wiring.flipped(self.store_port))
        m.d.comb += cube.product_xor.eq(self.product_xor)

        # Registers.
        m.submodules.bank = bank = RegisterBank(CORE_BLOCK, sampled=("retired",))
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        arguments = [bank.member(f"argument{i}") for i in range(KERNEL_ARGUMENTS)]
        for unit in (mte2, fixpipe):
            m.d.comb += [to.eq(of.value) for to, of in zip(unit.arguments, arguments, strict=True)]

        m.submodules.scoreboard = board = Scoreboard()
        m.submodules.sequencer = sequencer = Sequencer()
        wiring.connect(m, sequencer.program_port, wiring.flipped(self.program_port))
        wiring.connect(m, sequencer.control, board.control)
        wiring.connect(m, board.trace, wiring.flipped(self.trace))

        # The bank asks whether to refuse a write of START before it shows its data.
        starts = Signal()
        request = self.bus.request
        with m.If(request.valid & request.ready):
            m.d.sync += starts.eq(request.payload.data[0])
        start_register = bank.member("start")
        written = bank.member("start", suffix="written")
        m.d.comb += [
            bank.member("start", suffix="refuse").eq(starts & (board.busy | board.start)),
            board.start.eq(written & start_register.start & ~board.busy),
            board.abort.eq(written & ~start_register.start),
            board.program.eq(bank.member("program").address),
            board.index.eq(sequencer.index),
            sequencer.start.eq(board.start),
            sequencer.stop.eq(board.stop),
            sequencer.program.eq(bank.member("program").address),
            sequencer.length.eq(bank.member("length").commands),
            self.state.busy.eq(board.busy),
            self.state.status.eq(board.status),
            self.state.pipe.eq(board.pipe),
            self.state.command.eq(board.command),
            self.state.unused.eq(0),
            self.fault_address.address.eq(board.address),
            self.retired.eq(board.retired),
            self.done.eq(board.finished),
            self.trace_dropped.eq(board.trace_dropped),
            Value.cast(bank.member("state")).eq(self.state),
            Value.cast(bank.member("fault_address")).eq(self.fault_address),
            bank.member("retired").commands.eq(board.retired),
        ]

        # Queues.
        m.submodules.counters = counters = CoreCounters()
        levels = []
        dispatch = sequencer.dispatch
        for pipe, unit in pipes.items():
            queue = SyncFIFOBuffered(width=QUEUED.size, depth=QUEUE_DEPTH)
            m.submodules[f"{pipe.name.lower()}_queue"] = queue
            levels.append(queue.level)
            head = data.View(QUEUED, queue.r_data)
            nop = data.View(NOP_COMMAND, head.command)
            chosen = dispatch.valid & (dispatch.payload.pipe == pipe)
            with m.If(dispatch.payload.pipe == pipe):
                m.d.comb += dispatch.ready.eq(queue.w_rdy & ~board.stop)
            unit_stop, command = unit.stop, unit.command
            m.d.comb += [
                queue.w_en.eq(chosen & ~board.stop),
                queue.w_data.eq(dispatch.payload.queued),
                queue.r_en.eq(board.pop[pipe]),
                board.head_valid[pipe].eq(queue.r_rdy),
                board.head[pipe].index.eq(head.index),
                board.head[pipe].wait.eq(nop.wait),
                board.head[pipe].set.eq(nop.set),
                board.head[pipe].nop.eq(nop.opcode == CommandOpcode.NOP),
                board.queued[pipe].eq(queue.level),
                command.valid.eq(board.issue[pipe]),
                Value.cast(command.payload).eq(head.command),
                board.pipe_ready[pipe].eq(command.ready),
                unit_stop.eq(board.stop),
                self.pipe_active[pipe].eq(~unit.idle | command.valid),
                counters.working[pipe].eq(unit.working),
                counters.holding[pipe].eq(board.holding[pipe]),
            ]
            wiring.connect(m, unit.done, board.done[pipe])
        m.d.comb += [
            board.dispatch_blocked.eq(dispatch.valid & ~dispatch.ready),
            board.units_idle.eq(
                Cat(*[unit.idle for unit in pipes.values()]).all()
                & sequencer.idle
                & (Cat(*levels) == 0)
            ),
            counters.running.eq(board.busy),
            counters.line_read.eq(self.load_port.response.valid & self.load_port.response.ready),
            counters.written.eq(fixpipe.acknowledged),
            *[getattr(self.counters, name).eq(getattr(counters, name)) for name in CORE_COUNTERS],
            self.idle.eq(board.idle & bank.idle & ~written),
        ]
        return m

    def _connect_buffers(
        self, m: Module, mte2: Mte2, mte1: Mte1, cube: Cube, fixpipe: Fixpipe
    ) -> None:
        def sram(name: str) -> Sram:
            # Whole lines only: one granule.
            bits = 8 * LINE_BYTES
            buffer = Sram(width=bits, depth=self._sizes[f"{name}_lines"], granule=bits)
            m.submodules[name] = buffer
            return buffer

        l1, l0a, l0b, bias = (sram(name) for name in ("l1", "l0a", "l0b", "bias"))
        m.submodules.l0c = l0c = L0c(lines=self._sizes["l0c_lines"])
        m.d.comb += [
            l1.wr_en.eq(mte2.write),
            l1.wr_addr.eq(mte2.write_line),
            l1.wr_data.eq(mte2.write_data),
            l1.wr_mask.eq(1),
            l1.rd_en.eq(mte1.read),
            l1.rd_addr.eq(mte1.read_line),
            mte1.read_data.eq(l1.rd_data),
        ]
        for target, buffer in ((MoveTarget.L0A, l0a), (MoveTarget.L0B, l0b)):
            m.d.comb += self._fill(mte1, target, buffer)
        m.d.comb += self._fill(mte1, MoveTarget.BIAS, bias)
        m.d.comb += [
            l0c.fill.eq(mte1.write[MoveTarget.L0C]),
            l0c.fill_line.eq(mte1.write_line),
            l0c.fill_data.eq(mte1.write_data),
            mte1.granted.eq(~mte1.write[MoveTarget.L0C] | l0c.fill_granted),
            l0a.rd_en.eq(cube.a_enable),
            l0a.rd_addr.eq(cube.a_line),
            cube.a_data.eq(l0a.rd_data),
            l0b.rd_en.eq(cube.b_enable),
            l0b.rd_addr.eq(cube.b_line),
            cube.b_data.eq(l0b.rd_data),
            l0c.cube_read.eq(cube.c_read),
            l0c.cube_read_line.eq(cube.c_read_line),
            cube.c_data.eq(l0c.cube_data),
            l0c.cube_write.eq(cube.c_write),
            l0c.cube_write_line.eq(cube.c_write_line),
            l0c.cube_write_data.eq(cube.c_write_data),
            l0c.drain.eq(fixpipe.read),
            l0c.drain_line.eq(fixpipe.read_line),
            fixpipe.read_granted.eq(l0c.drain_granted),
            fixpipe.read_data.eq(l0c.drain_data),
            bias.rd_en.eq(fixpipe.bias_read),
            bias.rd_addr.eq(fixpipe.bias_line),
            fixpipe.bias_data.eq(bias.rd_data),
        ]

    @staticmethod
    def _fill(mte1: Mte1, target: MoveTarget, buffer: Sram) -> list[Value]:
        return [
            buffer.wr_en.eq(mte1.write[target]),
            buffer.wr_addr.eq(mte1.write_line),
            buffer.wr_data.eq(mte1.write_data),
            buffer.wr_mask.eq(1),
        ]
