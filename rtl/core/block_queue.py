"""The core's registers, and the blocks that the firmware asks for: one runs, one more waits."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from abi.register import Place, RegisterMap
from abi.registers_core import (
    CORE_BLOCKS,
    CORE_FAULT_ADDRESS,
    CORE_FAULT_BLOCK,
    CORE_STATE,
    CoreOperation,
)
from abi.registers_firmware import CORE_BLOCK
from abi.status import Status
from rtl.core.dispatch import SCALAR_FAULT
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort

__all__ = ["BLOCK", "CORE_REGISTERS", "BlockQueue"]

CORE_REGISTERS = RegisterMap(
    "Core",
    "One AI core.",
    CORE_BLOCK["code"].stride,
    *(Place(place.name, place.offset, place.register) for place in CORE_BLOCK),
)
"""The registers of one core, at the offsets that they have in its part of CORE_BLOCK."""

BLOCK = data.StructLayout(
    {
        "code": 64,
        "arguments": 64,
        "number": 40,
        "code_bytes": 32,
        "argument_bytes": 32,
        "entry": 32,
        "grid_x": 32,
        "block_x": 32,
        "grid_y": 16,
        "grid_z": 16,
        "block_y": 16,
        "block_z": 16,
    }
)
"""A block and its kernel. `number` is x + GRID_X * (y + GRID_Y * z)."""


class BlockQueue(wiring.Component):
    """Takes the operations of CORE_START and starts blocks in order.

    START takes all settings as they are then, so that registers may be written for the next
    kernel while blocks of the present one run. It is refused while a next block is held, during a
    scrub, and as long as a fault is shown, that is until CORE_CODE is written. SCRUB is refused
    while a block or a scrub runs; operations that do not exist are refused.

    A write of CORE_CODE clears status, fault address and fault block, and the first block
    that is started behind it starts with an empty instruction cache. The first fault stays shown;
    it drops the next block. ABORT drops the next block too, and of an idle core does nothing.

    Members:
        bus: `RegisterPort`, target of `CORE_REGISTERS`.
        block: `BLOCK`; stable from `start` to the end of the block.
        flush: 1 bit for one cycle, before `start`; empty the instruction cache.
        start: 1 bit for one cycle. cancel: 1 bit, until `stop`. scrub: 1 bit for one cycle.
        running: 1 bit; the scoreboard is busy. stop: 1 bit; it ends a block.
        finished: 1 bit for one cycle; a block has ended.
        fault, fault_valid: `SCALAR_FAULT` and 1 bit for one cycle; a block failed.
        scrubbing: 1 bit; a scrub runs. scrubbed: 1 bit for one cycle; it has ended.
        retired: 64 bits; for CORE_RETIRED.
        state, fault_address, fault_block, blocks: as in the registers.
        done: 1 bit for one cycle; a block or a scrub has ended.
        idle: 1 bit; no access, no block, no scrub.

    Timing: a block starts 5 cycles after the pulse of its START, or 4 after the one before ended.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(RegisterPort),
                "block": Out(BLOCK),
                "flush": Out(1),
                "start": Out(1),
                "cancel": Out(1),
                "scrub": Out(1),
                "running": In(1),
                "stop": In(1),
                "finished": In(1),
                "fault": In(SCALAR_FAULT),
                "fault_valid": In(1),
                "scrubbing": In(1),
                "scrubbed": In(1),
                "retired": In(64),
                "state": Out(CORE_STATE),
                "fault_address": Out(CORE_FAULT_ADDRESS),
                "fault_block": Out(CORE_FAULT_BLOCK),
                "blocks": Out(CORE_BLOCKS),
                "done": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.bank = bank = RegisterBank(
            CORE_REGISTERS, sampled=("state", "blocks", "retired")
        )
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)

        held = Signal()
        preparing = Signal(2)
        working = Signal()
        faulty = Signal()
        m.d.comb += [
            working.eq(
                held | preparing.any() | self.start | self.running | self.scrub | self.scrubbing
            ),
            faulty.eq(self.state.status != Status.OK),
            self.state.busy.eq(working),
            self.state.pending.eq(held),
            self.done.eq(self.finished | self.scrubbed),
            self.idle.eq(bank.idle & ~working & ~self.cancel),
            *[
                Value.cast(bank.member(name)).eq(Value.cast(getattr(self, name)))
                for name in ("state", "fault_address", "fault_block", "blocks")
            ],
            bank.member("retired").commands.eq(self.retired),
        ]

        # The bank asks whether to refuse a write of START before it shows its data.
        asked = Signal(8)
        request = self.bus.request
        with m.If(request.valid & request.ready):
            m.d.sync += asked.eq(Mux(request.payload.strobe[0], request.payload.data[:8], 0))
        refuse = bank.member("start", suffix="refuse")
        with m.Switch(asked):
            with m.Case(CoreOperation.ABORT, CoreOperation.DROP):
                m.d.comb += refuse.eq(0)
            with m.Case(CoreOperation.START):
                m.d.comb += refuse.eq(held | faulty | self.scrub | self.scrubbing)
            with m.Case(CoreOperation.SCRUB):
                m.d.comb += refuse.eq(working)
            with m.Default():
                m.d.comb += refuse.eq(1)

        written = bank.member("start", suffix="written")
        given = bank.member("start")
        operation = {kind: written & (given.operation == kind) for kind in CoreOperation}
        # A fault that came behind the bank's question drops it.
        starts = operation[CoreOperation.START] & ~faulty

        # The next block becomes the present one at once, so that a core that was idle can hold
        # another. The number of the block takes two products, one after the other.
        following = Signal(BLOCK, reset_less=True)
        changed, flushes = Signal(), Signal()
        take = Signal()
        block = self.block
        m.d.comb += [
            take.eq(held & ~preparing.any() & ~self.start & ~self.running),
            self.flush.eq(preparing[0] & flushes),
        ]
        m.d.sync += [preparing.eq(Cat(take, preparing[0])), self.start.eq(preparing[1])]
        with m.If(take):
            m.d.sync += [block.eq(following), held.eq(0)]
        with m.If(preparing[0]):
            m.d.sync += [
                block.number.eq(block.block_y + block.grid_y * block.block_z),
                flushes.eq(0),
            ]
        with m.If(preparing[1]):
            m.d.sync += block.number.eq(block.block_x + block.grid_x * block.number[:32])
        sizes, grid = bank.member("sizes"), bank.member("grid")
        yz = bank.member("block_yz")
        with m.If(starts):
            m.d.sync += [
                held.eq(1),
                flushes.eq(flushes | changed),
                changed.eq(0),
                following.code.eq(bank.member("code").address),
                following.arguments.eq(bank.member("arguments").address),
                following.code_bytes.eq(sizes.code_bytes),
                following.argument_bytes.eq(sizes.argument_bytes),
                following.entry.eq(bank.member("entry").offset),
                following.grid_x.eq(grid.x),
                following.grid_y.eq(grid.y),
                following.grid_z.eq(grid.z),
                following.block_x.eq(given.block_x),
                following.block_y.eq(yz.y),
                following.block_z.eq(yz.z),
            ]
        drop = operation[CoreOperation.ABORT] | operation[CoreOperation.DROP]
        with m.If(drop | self.fault_valid):
            m.d.sync += held.eq(0)

        goes_on = take | preparing.any() | self.start | (self.running & ~self.stop)
        with m.If(operation[CoreOperation.ABORT] & goes_on):
            m.d.sync += self.cancel.eq(1)
        with m.Elif(self.stop):
            m.d.sync += self.cancel.eq(0)
        m.d.sync += self.scrub.eq(operation[CoreOperation.SCRUB])

        # Outcome.
        with m.If(self.finished):
            m.d.sync += self.blocks.ended.eq(self.blocks.ended + 1)
        state = self.state
        with m.If(bank.member("code", suffix="written")):
            m.d.sync += [
                changed.eq(1),
                state.status.eq(Status.OK),
                state.pipe.eq(0),
                state.pc.eq(0),
                self.fault_address.address.eq(0),
                Value.cast(self.fault_block).eq(0),
            ]
        with m.If(self.fault_valid & ~faulty):
            m.d.sync += [
                state.status.eq(self.fault.status),
                state.pipe.eq(self.fault.pipe),
                state.pc.eq(self.fault.pc),
                self.fault_address.address.eq(self.fault.address),
                self.fault_block.x.eq(self.block.block_x),
                self.fault_block.y.eq(self.block.block_y),
                self.fault_block.z.eq(self.block.block_z),
            ]
        return m
