"""An AI core: scalar unit, pipes, buffers, registers."""

from collections.abc import Mapping
from typing import Any

from amaranth import Cat, DomainRenamer, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, NOP_COMMAND, PIPES, CommandOpcode, MoveTarget, Pipe
from abi.registers_core import (
    CORE_BLOCKS,
    CORE_COUNTERS,
    CORE_FAULT_ADDRESS,
    CORE_FAULT_BLOCK,
    CORE_STATE,
)
from abi.trace import TRACE_EVENT
from rtl.core.block_queue import BlockQueue
from rtl.core.counters import CoreCounters
from rtl.core.dispatch import QUEUED
from rtl.core.fixpipe import Fixpipe
from rtl.core.l0c import L0c
from rtl.core.matrix_unit import MatrixUnit
from rtl.core.mte1 import Mte1
from rtl.core.mte2 import Mte2
from rtl.core.mte3 import Mte3
from rtl.core.scalar.unit import ScalarUnit
from rtl.core.scoreboard import QUEUE_DEPTH, Scoreboard
from rtl.core.scrubber import Scrubber
from rtl.core.store_arbiter import StoreArbiter
from rtl.core.unified_buffer import UnifiedBuffer
from rtl.core.vector.unit import VectorUnit
from rtl.host.register_bus import RegisterPort
from rtl.memory.port import ReadPort, WritePort
from rtl.memory.sram import Sram

__all__ = ["UNITS", "AiCore"]

UNITS = (*(pipe.name.lower() for pipe in Pipe), "cube_float")
"""The units of a core that may have a clock of their own: the pipes and the scalar unit."""


class AiCore(wiring.Component):
    """Runs blocks of kernels.

    ```
    bus ─► BlockQueue ─► ScalarUnit ─► 6 queues ─► Scoreboard ─┬─► MTE2 : memory ─► L1 UB
                                                    (flags)    ├─► MTE1 : L1 ─► L0A L0B L0C bias
                                                               ├─► Cube : L0A x L0B ─► L0C
                                                               ├─► FIXPIPE : L0C ─► memory UB
                                                               ├─► VECTOR : UB ─► UB
                                                               └─► MTE3 : UB ─► memory L1
    ```

    L0A, L0B and the bias buffer have one read and one write port each; L1 too, which MTE2 and
    MTE3 share, MTE2 first; L0C has two halves, see `L0c`; UB has four banks, see `UnifiedBuffer`.

    Args:
        core: number of the core.
        l1_lines, l0a_lines, l0b_lines, l0c_lines, bias_lines, ub_lines: sizes, powers of two.
        bf16_depth: see `FloatCube`.
        cache_lines: instruction cache of the scalar unit.
        depth: lines in flight of LOADs, of STOREs and of SAVEs.
        domains: clock domain of units, by their names in `UNITS`; a unit that is not named is in
            `sync`. Such a domain must be `sync` with edges left out while `active` of the unit is
            0. Queues, buffers, scoreboard and registers are in `sync`.

    Members:
        bus: `RegisterPort`, target of the core's part of CORE_BLOCK.
        read_port: `ReadPort`; instructions and data of the scalar unit.
        load_port: `ReadPort`; LOADs. store_port: `WritePort`; STOREs, SAVEs and the scalar unit.
        done: 1 bit for one cycle; a block or a scrub has ended.
        state, fault_address, fault_block, blocks, retired: as in the registers.
        counters: all of CORE_COUNTERS, 64 bits each. CORE_READ_BYTES counts LOADs,
            CORE_WRITE_BYTES STOREs and SAVEs.
        product_xor: 16 bits; error injection into the Cube.
        trace: stream of TRACE_EVENT, sources CORE and PIPE, see `abi.trace`.
        trace_dropped: 1 bit; an event was lost because the one before was not taken.
        active: 1 bit for each of `UNITS`; it needs its clock at the next edge.
        idle: 1 bit; no block runs, nothing is outstanding.

    Timing: MMAD, see `Cube`. From the pulse of START to the first instruction: the 32 cycles in
    which the scalar unit sets its registers; a launch's first block waits, besides, until the
    instruction cache is empty, a cycle for each line.

    Raises:
        ValueError: a size is no power of two of at least 4, or `domains` names no unit.
    """

    def __init__(
        self,
        *,
        core: int = 0,
        l1_lines: int = 4096,
        l0a_lines: int = 512,
        l0b_lines: int = 512,
        l0c_lines: int = 1024,
        bias_lines: int = 64,
        ub_lines: int = 2048,
        bf16_depth: int = 4,
        cache_lines: int = 128,
        depth: int = 64,
        domains: Mapping[str, str] | None = None,
    ) -> None:
        sizes = {
            "l1_lines": l1_lines,
            "l0a_lines": l0a_lines,
            "l0b_lines": l0b_lines,
            "l0c_lines": l0c_lines,
            "bias_lines": bias_lines,
            "ub_lines": ub_lines,
        }
        for name, lines in sizes.items():
            if not 4 <= lines <= 65536 or lines & (lines - 1):
                raise ValueError(f"{name} must be a power of two from 4 to 65536, not {lines!r}")
        for unit in domains or {}:
            if unit not in UNITS:
                raise ValueError(f"domains must name units of {UNITS}, not {unit!r}")
        self._core = core
        self._sizes = sizes
        self._depth = depth
        self._bf16_depth = bf16_depth
        self._cache_lines = cache_lines
        self._domains = {unit: (domains or {}).get(unit, "sync") for unit in UNITS}
        super().__init__(
            {
                "bus": In(RegisterPort),
                "read_port": Out(ReadPort()),
                "load_port": Out(ReadPort()),
                "store_port": Out(WritePort()),
                "done": Out(1),
                "state": Out(CORE_STATE),
                "fault_address": Out(CORE_FAULT_ADDRESS),
                "fault_block": Out(CORE_FAULT_BLOCK),
                "blocks": Out(CORE_BLOCKS),
                "retired": Out(64),
                "counters": Out(wiring.Signature({name: Out(64) for name in CORE_COUNTERS})),
                "product_xor": In(16),
                "trace": Out(stream.Signature(TRACE_EVENT)),
                "trace_dropped": Out(1),
                "active": Out(wiring.Signature({unit: Out(1) for unit in UNITS})),
                "idle": Out(1),
            }
        )

    def _add(self, m: Module, name: str, unit: Any) -> Any:
        """A unit in its own clock domain."""
        domain = self._domains[name]
        m.submodules[name] = unit if domain == "sync" else DomainRenamer(domain)(unit)
        return unit

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        sizes, depth = self._sizes, self._depth
        targets = {
            MoveTarget.L0A: sizes["l0a_lines"],
            MoveTarget.L0B: sizes["l0b_lines"],
            MoveTarget.L0C: sizes["l0c_lines"],
            MoveTarget.BIAS: sizes["bias_lines"],
        }
        of = {name: sizes[name] for name in sizes}
        l1, ub, l0c, bias = of["l1_lines"], of["ub_lines"], of["l0c_lines"], of["bias_lines"]
        pipes: dict[Pipe, Any] = {
            Pipe.MTE2: Mte2(l1_lines=l1, ub_lines=ub, depth=depth),
            Pipe.MTE1: Mte1(l1_lines=l1, target_lines=targets),
            Pipe.CUBE: MatrixUnit(
                l0a_lines=of["l0a_lines"],
                l0b_lines=of["l0b_lines"],
                l0c_lines=l0c,
                bf16_depth=self._bf16_depth,
                float_domain=self._domains["cube_float"],
            ),
            Pipe.FIXPIPE: Fixpipe(l0c_lines=l0c, bias_lines=bias, ub_lines=ub, depth=depth),
            Pipe.VECTOR: VectorUnit(lines=ub),
            Pipe.MTE3: Mte3(ub_lines=ub, l1_lines=l1, depth=depth),
        }
        for pipe, unit in pipes.items():
            self._add(m, pipe.name.lower(), unit)
        scalar = self._add(m, "scalar", ScalarUnit(core=self._core, cache_lines=self._cache_lines))
        cube, fixpipe, mte3 = pipes[Pipe.CUBE], pipes[Pipe.FIXPIPE], pipes[Pipe.MTE3]
        m.d.comb += cube.product_xor.eq(self.product_xor)
        m.submodules.scrubber = scrubber = Scrubber(lines=max(sizes.values()))
        self._connect_buffers(m, pipes, scrubber)

        wiring.connect(m, scalar.read_port, wiring.flipped(self.read_port))
        wiring.connect(m, pipes[Pipe.MTE2].memory, wiring.flipped(self.load_port))
        m.submodules.stores = stores = StoreArbiter(classes=[0, 1, 1])
        for i, port in enumerate((scalar.write_port, fixpipe.memory, mte3.memory)):
            wiring.connect(m, port, stores.ports[i])
        wiring.connect(m, stores.memory, wiring.flipped(self.store_port))

        m.submodules.blocks_queue = blocks = BlockQueue()
        m.submodules.scoreboard = board = Scoreboard(core=self._core)
        wiring.connect(m, wiring.flipped(self.bus), blocks.bus)
        wiring.connect(m, board.trace, wiring.flipped(self.trace))
        wiring.connect(m, scalar.flag, board.flag)
        m.d.comb += [
            board.start.eq(blocks.start),
            board.cancel.eq(blocks.cancel),
            board.block.eq(blocks.block.number),
            blocks.running.eq(board.busy),
            blocks.stop.eq(board.stop),
            blocks.finished.eq(board.finished),
            blocks.fault.eq(board.fault),
            blocks.fault_valid.eq(board.fault_valid),
            blocks.retired.eq(board.retired),
            scrubber.start.eq(blocks.scrub),
            scrubber.others.eq(scalar.scrubbing),
            blocks.scrubbing.eq(scrubber.busy),
            blocks.scrubbed.eq(scrubber.finished),
            self.state.eq(blocks.state),
            self.fault_address.eq(blocks.fault_address),
            self.fault_block.eq(blocks.fault_block),
            self.blocks.eq(blocks.blocks),
            self.retired.eq(board.retired),
            self.done.eq(blocks.done),
            self.trace_dropped.eq(board.trace_dropped),
        ]

        m.submodules.counters = counters = CoreCounters()
        m.d.comb += [
            scalar.start.eq(blocks.start),
            scalar.stop.eq(board.stop),
            scalar.flush.eq(blocks.flush),
            scalar.scrub.eq(blocks.scrub),
            *[
                getattr(scalar, name).eq(blocks.block[name])
                for name in blocks.block.shape().members
                if name != "number"
            ],
            scalar.cycles.eq(counters.core_cycles[:32]),
            scalar.drained.eq(board.drained),
            board.scalar_fault.eq(scalar.fault),
            board.scalar_fault_valid.eq(scalar.fault_valid),
            board.exited.eq(scalar.exited),
            board.scalar_pc.eq(scalar.pc),
            board.scalar_blocked.eq(scalar.blocked),
            self.active.scalar.eq(scalar.active),
            counters.working[Pipe.SCALAR].eq(scalar.executing),
            counters.holding[Pipe.SCALAR].eq(~scalar.exited & ~board.stop),
            counters.retired.eq(scalar.retired),
        ]
        levels = self._queues(m, pipes, scalar, board, counters)
        m.d.comb += [
            board.dispatch_blocked.eq(scalar.dispatch.valid & ~scalar.dispatch.ready),
            board.units_idle.eq(
                Cat(*[unit.idle for unit in pipes.values()]).all()
                & scalar.idle
                & stores.idle
                & (Cat(*levels) == 0)
            ),
            counters.running.eq(board.busy),
            counters.line_read.eq(self.load_port.response.valid & self.load_port.response.ready),
            counters.written.eq(fixpipe.acknowledged + mte3.acknowledged),
            counters.macs.eq(
                Mux(cube.float_working, CUBE_SIDE * self._bf16_depth, CUBE_SIDE * CUBE_SIDE)
            ),
            self.active.cube_float.eq(cube.float_active | board.stop),
            *[getattr(self.counters, name).eq(getattr(counters, name)) for name in CORE_COUNTERS],
            self.idle.eq(board.idle & blocks.idle & ~scrubber.finished),
        ]
        return m

    def _queues(
        self, m: Module, pipes: dict[Pipe, Any], scalar: Any, board: Any, counters: Any
    ) -> list[Value]:
        """A queue in front of each pipe; gives their levels."""
        levels: list[Value] = []
        dispatch = scalar.dispatch
        for pipe in PIPES:
            unit = pipes[pipe]
            queue = SyncFIFOBuffered(width=QUEUED.size, depth=QUEUE_DEPTH)
            m.submodules[f"{pipe.name.lower()}_queue"] = queue
            levels.append(queue.level)
            head = data.View(QUEUED, queue.r_data)
            mine = dispatch.payload.pipe == pipe
            with m.If(mine):
                m.d.comb += dispatch.ready.eq(queue.w_rdy & ~board.stop)
            command = unit.command
            m.d.comb += [
                queue.w_en.eq(dispatch.valid & mine & ~board.stop),
                queue.w_data.eq(Value.cast(dispatch.payload)[: QUEUED.size]),
                queue.r_en.eq(board.pop[pipe]),
                board.head_valid[pipe].eq(queue.r_rdy),
                board.head[pipe].pc.eq(head.pc),
                board.head[pipe].wait.eq(head.wait),
                board.head[pipe].set.eq(head.set),
                board.head[pipe].nop.eq(
                    data.View(NOP_COMMAND, head.command).opcode == CommandOpcode.NOP
                ),
                board.queued[pipe].eq(queue.level),
                command.valid.eq(board.issue[pipe]),
                # The base register's value, for those that have one.
                Value.cast(command.payload).eq(Cat(head.command, head.base)),
                board.pipe_ready[pipe].eq(command.ready),
                unit.stop.eq(board.stop),
                getattr(self.active, pipe.name.lower()).eq(~unit.idle | command.valid),
                counters.working[pipe].eq(unit.working),
                counters.holding[pipe].eq(board.holding[pipe]),
            ]
            wiring.connect(m, unit.done, board.done[pipe])
        return levels

    def _connect_buffers(self, m: Module, pipes: dict[Pipe, Any], scrubber: Scrubber) -> None:
        mte1, mte2, mte3 = pipes[Pipe.MTE1], pipes[Pipe.MTE2], pipes[Pipe.MTE3]
        cube, fixpipe, vector = pipes[Pipe.CUBE], pipes[Pipe.FIXPIPE], pipes[Pipe.VECTOR]

        def sram(name: str) -> Sram:
            # Whole lines only: one granule.
            bits = 8 * LINE_BYTES
            buffer = Sram(width=bits, depth=self._sizes[f"{name}_lines"], granule=bits)
            m.submodules[name] = buffer
            return buffer

        def scrub(name: str) -> Signal:
            """1: the scrubber's line is one of this buffer."""
            chosen = Signal(name=f"scrub_{name}")
            above = scrubber.line >> (self._sizes[f"{name}_lines"].bit_length() - 1)
            m.d.comb += chosen.eq(scrubber.write & (above == 0))
            return chosen

        # Where nobody writes, the data is zero: what a scrub writes.
        l1, l0a, l0b, bias = (sram(name) for name in ("l1", "l0a", "l0b", "bias"))
        m.d.comb += [
            l1.wr_en.eq(mte2.write | mte3.l1_write | scrub("l1")),
            l1.wr_addr.eq(scrubber.line),
            l1.wr_mask.eq(1),
            mte3.l1_granted.eq(~mte2.write),
            l1.rd_en.eq(mte1.read),
            l1.rd_addr.eq(mte1.read_line),
            mte1.read_data.eq(l1.rd_data),
        ]
        with m.If(mte2.write):
            m.d.comb += [l1.wr_addr.eq(mte2.write_line), l1.wr_data.eq(mte2.write_data)]
        with m.Elif(mte3.l1_write):
            m.d.comb += [l1.wr_addr.eq(mte3.l1_line), l1.wr_data.eq(mte3.l1_data)]
        for target, name, buffer in (
            (MoveTarget.L0A, "l0a", l0a),
            (MoveTarget.L0B, "l0b", l0b),
            (MoveTarget.BIAS, "bias", bias),
        ):
            m.d.comb += [
                buffer.wr_en.eq(mte1.write[target] | scrub(name)),
                buffer.wr_addr.eq(scrubber.line),
                buffer.wr_mask.eq(1),
            ]
            with m.If(mte1.write[target]):
                m.d.comb += [buffer.wr_addr.eq(mte1.write_line), buffer.wr_data.eq(mte1.write_data)]

        m.submodules.l0c = l0c = L0c(lines=self._sizes["l0c_lines"])
        m.d.comb += [
            l0c.fill.eq(mte1.write[MoveTarget.L0C] | scrub("l0c")),
            l0c.fill_line.eq(scrubber.line),
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
        with m.If(mte1.write[MoveTarget.L0C]):
            m.d.comb += [l0c.fill_line.eq(mte1.write_line), l0c.fill_data.eq(mte1.write_data)]

        m.submodules.ub = ub = UnifiedBuffer(lines=self._sizes["ub_lines"])
        for i in range(3):
            m.d.comb += [
                ub.read[i].eq(vector.read[i]),
                ub.read_line[i].eq(vector.read_line[i]),
                vector.read_granted[i].eq(ub.read_granted[i]),
                vector.read_data[i].eq(ub.read_data[i]),
            ]
        m.d.comb += [
            ub.read[3].eq(mte3.ub_read),
            ub.read_line[3].eq(mte3.ub_line),
            mte3.ub_granted.eq(ub.read_granted[3]),
            mte3.ub_data.eq(ub.read_data[3]),
            ub.write[0].eq(vector.write | scrub("ub")),
            ub.write_line[0].eq(scrubber.line),
            vector.write_granted.eq(ub.write_granted[0]),
        ]
        with m.If(vector.write):
            m.d.comb += [
                ub.write_line[0].eq(vector.write_line),
                ub.write_data[0].eq(vector.write_data),
            ]
        for i, unit in ((1, mte2), (2, fixpipe)):
            m.d.comb += [
                ub.write[i].eq(unit.ub_write),
                ub.write_line[i].eq(unit.ub_line),
                ub.write_data[i].eq(unit.ub_data),
                unit.ub_granted.eq(ub.write_granted[i]),
            ]
