"""A DMA channel between two memory agents, for its tests."""

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from abi.status import Status
from rtl.dma.descriptor import COMMAND
from tb.blocks.dma.transfers import Image, Transfer, image_of, make_memory
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import StreamSource, reset_dut

__all__ = ["ChannelBench", "put_descriptor"]


def put_descriptor(memory: LineMemory, address: int, word: int) -> None:
    """Write a descriptor to memory."""
    error = memory.write_line(address // 64, word, (1 << 64) - 1)
    assert not error


class ChannelBench:
    """Starts runs and checks what every run has to keep."""

    def __init__(
        self,
        dut: Any,
        *,
        latency: int | tuple[int, int] = (1, 20),
        stall: float = 0.0,
        edges: bool = False,
    ) -> None:
        self.dut = dut
        dut.rst.value, dut.stop.value = 1, 0
        self.memory = make_memory(edges)
        self.read = ReadTarget(dut, "read", self.memory, latency=latency, stall=stall)
        self.write = WriteTarget(dut, "write", self.memory, latency=latency, stall=stall)
        self.start_stream = StreamSource(dut, "start", layout=COMMAND)
        self.pulses = 0
        self.busy_cycles = 0

    async def reset(self) -> None:
        """Start the clock."""
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.pulses += int(self.dut.done.value)
            busy = int(self.dut.busy.value)
            self.busy_cycles += busy
            assert not (busy and self.dut.idle.value), "idle while busy"

    def set_stall(self, read: float, write: float) -> None:
        """Chance per cycle of a stall of each side."""
        self.read.stall, self.write.stall = read, write

    def command(self, descriptor: int, chain: bool = False) -> None:
        """Queue a start."""
        self.start_stream.send({"descriptor": descriptor, "chain": int(chain)})

    def chain(self, address: int) -> None:
        """Queue the start of a chain; the other fields of its descriptor do not count."""
        self.command(Transfer(destination=1, row_bytes=0).descriptor(next=address, magic=0), True)

    async def finish(self, cycles: int = 30000) -> Status:
        """Wait for the end of a run: its status. Nothing may be outstanding then."""
        for _ in range(cycles):
            await RisingEdge(self.dut.clk)
            if self.dut.done.value:
                break
        else:
            raise AssertionError(f"no end after {cycles} cycles")
        assert not self.dut.busy.value
        assert self.read.outstanding == self.write.outstanding == 0
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        assert self.dut.idle.value, "not idle after a run"
        assert not self.dut.read__request__valid.value
        assert not self.dut.write__request__valid.value
        return Status(int(self.dut.status.value))

    async def run(self, transfer: Transfer) -> Status:
        """One transfer, by registers."""
        self.command(transfer.descriptor())
        return await self.finish()

    @property
    def fault_address(self) -> int:
        return int(self.dut.fault_address.value)

    @property
    def finished(self) -> int:
        """Descriptors of the last run."""
        return int(self.dut.descriptor.value)

    def assert_equal(self, image: Image) -> None:
        """All of memory is as in `image`."""
        for base, array in image.items():
            different = (self.memory.view(base) != array).nonzero()[0]
            assert not len(different), (
                f"{len(different)} bytes differ from {base + different[0]:#x}"
            )

    def assert_partly(self, before: Image, transfer: Transfer) -> None:
        """Every byte is the old one or, in the destination, the new one."""
        after = {base: array.copy() for base, array in before.items()}
        transfer.perform(after)
        for base, array in image_of(self.memory).items():
            assert ((array == before[base]) | (array == after[base])).all()
