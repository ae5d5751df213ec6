"""The unified buffer: data, grants, fairness, full rate of all ports on different banks."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from rtl.core.unified_buffer import BANKS, READERS, WRITERS, UnifiedBuffer
from rtl.memory.sram import Sram
from tb.blocks.harness import run_block
from tb.blocks.streams import reset_dut

LINES = 32


class Ports:
    """All ports of UB; checks every grant and every line that is read."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.memory = [0] * LINES
        self.expected: dict[int, int] = {}

    def _get(self, name: str, port: int) -> int:
        return int(getattr(self.dut, f"{name}__{port}").value)

    def _set(self, name: str, port: int, value: int) -> None:
        getattr(self.dut, f"{name}__{port}").value = value

    async def start(self) -> None:
        for kind, count in (("read", len(READERS)), ("write", len(WRITERS))):
            for port in range(count):
                self._set(kind, port, 0)
                self._set(f"{kind}_line", port, 0)
                if kind == "write":
                    self._set("write_data", port, 0)
        self.dut.rst.value = 1
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        # Memories keep their contents from test to test.
        for line in range(LINES):
            await self.cycle({}, {0: (line, random.getrandbits(512))})

    async def cycle(
        self, reads: dict[int, int], writes: dict[int, tuple[int, int]]
    ) -> tuple[set[int], set[int]]:
        """Request lines for one cycle; the ports that were granted."""
        for port in range(len(READERS)):
            self._set("read", port, int(port in reads))
            self._set("read_line", port, reads.get(port, random.randrange(LINES)))
        for port in range(len(WRITERS)):
            line, data = writes.get(port, (random.randrange(LINES), random.getrandbits(512)))
            self._set("write", port, int(port in writes))
            self._set("write_line", port, line)
            self._set("write_data", port, data)
        await ReadOnly()
        for port, data in self.expected.items():
            assert self._get("read_data", port) == data
        read = {port for port in range(len(READERS)) if self._get("read_granted", port)}
        written = {port for port in range(len(WRITERS)) if self._get("write_granted", port)}
        for granted, wanted in (
            (read, reads),
            (written, {port: line for port, (line, _) in writes.items()}),
        ):
            assert granted <= wanted.keys()
            # Each bank that is wanted serves exactly one.
            banks = sorted(wanted[port] % BANKS for port in granted)
            assert banks == sorted({line % BANKS for line in wanted.values()})
        self.expected = {port: self.memory[reads[port]] for port in read}
        for port in written:
            self.memory[writes[port][0]] = writes[port][1]
        await RisingEdge(self.dut.clk)
        return read, written


@cocotb.test()
async def random_accesses(dut: Any) -> None:
    ports = Ports(dut)
    await ports.start()
    for chance in (0.2, 0.7, 1.0):
        for _ in range(300):
            reads = {
                port: random.randrange(LINES)
                for port in range(len(READERS))
                if random.random() < chance
            }
            writes = {
                port: (random.randrange(LINES), random.getrandbits(512))
                for port in range(len(WRITERS))
                if random.random() < chance
            }
            await ports.cycle(reads, writes)


@cocotb.test()
async def fair(dut: Any) -> None:
    """Ports that want one bank all the time take turns."""
    ports = Ports(dut)
    await ports.start()
    reads, writes = [0] * len(READERS), [0] * len(WRITERS)
    for _ in range(24):
        read, written = await ports.cycle(
            {port: 4 * port + 1 for port in range(len(READERS))},
            {port: (4 * port + 2, random.getrandbits(512)) for port in range(len(WRITERS))},
        )
        for port in read:
            reads[port] += 1
        for port in written:
            writes[port] += 1
    assert reads == [6] * len(READERS)
    assert writes == [8] * len(WRITERS)


@cocotb.test()
async def parallel(dut: Any) -> None:
    """Ports on different banks do not hinder one another."""
    ports = Ports(dut)
    await ports.start()
    for turn in range(40):
        read, written = await ports.cycle(
            {port: (turn + port) % LINES for port in range(len(READERS))},
            {port: ((turn + port) % LINES, random.getrandbits(512)) for port in range(3)},
        )
        assert len(read) == len(READERS)
        assert len(written) == len(WRITERS)


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_unified_buffer(sim: str) -> None:
    run_block(UnifiedBuffer(lines=LINES), __name__, sim=sim, sources=[Sram.SOURCE])


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("lines", [4, 12, 0])
def test_sizes(lines: int) -> None:
    with pytest.raises(ValueError, match="lines must be a power of two"):
        UnifiedBuffer(lines=lines)
