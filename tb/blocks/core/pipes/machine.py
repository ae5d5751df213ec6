"""The pipes that move data, with their buffers, as one block under test."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from abi.address import ADDRESS_BITS
from abi.core import COMMAND_BYTES, MoveTarget
from rtl.core.fixpipe import Fixpipe
from rtl.core.mte1 import Mte1
from rtl.core.mte2 import Mte2
from rtl.core.mte3 import Mte3
from rtl.core.pipe import DONE
from rtl.memory.port import ReadPort, WritePort
from rtl.memory.sram import Sram

__all__ = ["ALLOWED", "BUFFERS", "PIPE_NAMES", "PipesMachine"]

BUFFERS = {"l1": 128, "l0a": 64, "l0b": 128, "l0c": 64, "bias": 16, "ub": 128}
"""Lines of each buffer; its place is its number at the host's port."""

PIPE_NAMES = ("mte1", "mte2", "mte3", "fixpipe")

ALLOWED = ("mte2_ub", "fixpipe_ub", "mte3_ub", "mte3_l1", "fixpipe_l0c", "mte1_write")
"""What `allowed` lets pass, from bit 0 on."""


class PipesMachine(wiring.Component):
    """Four pipes that share six buffers.

    Members, for each pipe: `<pipe>_command` (256 bits of command, then 48 bits of base but for
    mte1), `<pipe>_done`, `<pipe>_working`, `<pipe>_idle`; `load`, `store`, `save`: memory ports;
    `stop`; `allowed`: see `ALLOWED`; `acknowledged`: 8 bits, of both that write memory.
    While `host` is 1, `host_write`, `host_buffer`, `host_line`, `host_data` write a line and
    `host_read` is the line of the cycle before.
    """

    def __init__(self) -> None:
        members: dict[str, wiring.Member] = {
            "host_data": In(512),
            "host_read": Out(512),
            "load": Out(ReadPort()),
            "store": Out(WritePort()),
            "save": Out(WritePort()),
            "host": In(1),
            "host_write": In(1),
            "host_buffer": In(3),
            "host_line": In(8),
            "stop": In(1),
            "allowed": In(len(ALLOWED)),
            "acknowledged": Out(8),
        }
        for name in PIPE_NAMES:
            bits = 8 * COMMAND_BYTES + (0 if name == "mte1" else ADDRESS_BITS)
            members |= {
                f"{name}_command": In(stream.Signature(bits)),
                f"{name}_done": Out(stream.Signature(DONE)),
                f"{name}_working": Out(1),
                f"{name}_idle": Out(1),
            }
        super().__init__(members)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        lines = {f"{name}_lines": count for name, count in BUFFERS.items()}
        targets = {
            target: BUFFERS[name]
            for target, name in zip(MoveTarget, ("l0a", "l0b", "l0c", "bias"), strict=True)
        }

        def some(*names: str) -> dict[str, int]:
            return {f"{name}_lines": lines[f"{name}_lines"] for name in names}

        mte1 = Mte1(target_lines=targets, **some("l1"))
        mte2 = Mte2(depth=16, **some("l1", "ub"))
        mte3 = Mte3(depth=16, **some("l1", "ub"))
        fixpipe = Fixpipe(depth=16, **some("l0c", "bias", "ub"))
        pipes: list[Mte1 | Mte2 | Mte3 | Fixpipe] = [mte1, mte2, mte3, fixpipe]
        for name, pipe in zip(PIPE_NAMES, pipes, strict=True):
            m.submodules[name] = pipe
            command = getattr(self, f"{name}_command")
            m.d.comb += [
                pipe.stop.eq(self.stop),
                pipe.command.valid.eq(command.valid),
                Value.cast(pipe.command.payload).eq(command.payload),
                command.ready.eq(pipe.command.ready),
                getattr(self, f"{name}_working").eq(pipe.working),
                getattr(self, f"{name}_idle").eq(pipe.idle),
            ]
            wiring.connect(m, wiring.flipped(getattr(self, f"{name}_done")), pipe.done)
        wiring.connect(m, mte2.memory, wiring.flipped(self.load))
        wiring.connect(m, fixpipe.memory, wiring.flipped(self.store))
        wiring.connect(m, mte3.memory, wiring.flipped(self.save))
        m.d.comb += self.acknowledged.eq(fixpipe.acknowledged + mte3.acknowledged)

        allowed = dict(zip(ALLOWED, self.allowed, strict=True))
        fill = mte1.write & allowed["mte1_write"].replicate(len(mte1.write))
        m.d.comb += [
            mte1.granted.eq(allowed["mte1_write"]),
            mte2.ub_granted.eq(allowed["mte2_ub"]),
            fixpipe.ub_granted.eq(allowed["fixpipe_ub"] & ~(mte2.ub_write & mte2.ub_granted)),
            mte3.ub_granted.eq(allowed["mte3_ub"]),
            mte3.l1_granted.eq(allowed["mte3_l1"] & ~mte2.write),
            fixpipe.read_granted.eq(allowed["fixpipe_l0c"]),
        ]
        mte2_ub = mte2.ub_write & mte2.ub_granted
        reads: dict[str, tuple[Value, Value]] = {
            "l1": (mte1.read, mte1.read_line),
            "l0c": (fixpipe.read & fixpipe.read_granted, fixpipe.read_line),
            "bias": (fixpipe.bias_read, fixpipe.bias_line),
            "ub": (mte3.ub_read & mte3.ub_granted, mte3.ub_line),
        }
        writes: dict[str, tuple[Value, Value, Value]] = {
            "l1": (
                mte2.write | (mte3.l1_write & mte3.l1_granted),
                Mux(mte2.write, mte2.write_line, mte3.l1_line),
                Mux(mte2.write, mte2.write_data, mte3.l1_data),
            ),
            "ub": (
                mte2_ub | (fixpipe.ub_write & fixpipe.ub_granted),
                Mux(mte2_ub, mte2.ub_line, fixpipe.ub_line),
                Mux(mte2_ub, mte2.ub_data, fixpipe.ub_data),
            ),
        }
        for target, name in enumerate(("l0a", "l0b", "l0c", "bias")):
            writes[name] = (fill[target], mte1.write_line, mte1.write_data)
        out: dict[str, Value] = {}
        chosen = Signal(3)
        m.d.sync += chosen.eq(self.host_buffer)
        for number, (name, depth) in enumerate(BUFFERS.items()):
            sram = Sram(width=512, depth=depth, granule=512)
            m.submodules[name] = sram
            read, read_line = reads.get(name, (Cat(0), Cat(0)))
            write, line, data = writes[name]
            host_write = self.host_write & (self.host_buffer == number)
            m.d.comb += [
                sram.rd_en.eq(read | self.host),
                sram.rd_addr.eq(Mux(self.host, self.host_line, read_line)),
                sram.wr_en.eq(Mux(self.host, host_write, write)),
                sram.wr_addr.eq(Mux(self.host, self.host_line, line)),
                sram.wr_data.eq(Mux(self.host, self.host_data, data)),
                sram.wr_mask.eq(1),
            ]
            with m.If(chosen == number):
                m.d.comb += self.host_read.eq(sram.rd_data)
            # Where a line is there for one cycle only, it is something else after it.
            fresh = Signal(name=f"{name}_fresh")
            m.d.sync += fresh.eq(read)
            out[name] = Mux(fresh, sram.rd_data, ~sram.rd_data)
        m.d.comb += [
            mte1.read_data.eq(m.submodules["l1"].rd_data),
            fixpipe.bias_data.eq(out["bias"]),
            fixpipe.read_data.eq(out["l0c"]),
            mte3.ub_data.eq(out["ub"]),
        ]
        return m
