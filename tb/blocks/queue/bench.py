"""What surrounds the queue unit: rings in host memory, doorbells, the firmware's registers."""

import random
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from abi.address import DOORBELL_PAGE_BYTES, HOST_BASE, PACKET_BYTES, SRAM_SLOTS_PER_QUEUE
from abi.geometry import QUEUES
from abi.registers_firmware import QUEUE_BLOCK
from rtl.memory.port import LineError
from tb.blocks.host.register_agent import Answer, RegisterInitiator
from tb.blocks.memory.agents import LineMemory, ReadTarget, WriteTarget
from tb.blocks.streams import StreamSink, reset_dut

__all__ = ["HOST", "Bench", "Ring"]

HOST = HOST_BASE + 0x10_0000
RING_BYTES = 0x4000
INDICES = HOST + QUEUES * RING_BYTES


class Memory(LineMemory):
    """Host memory that remembers every read index that was published, by queue."""

    def __init__(self) -> None:
        super().__init__({HOST: QUEUES * RING_BYTES + QUEUES * 64})
        self.published: list[list[int]] = [[] for _ in range(QUEUES)]

    def write_line(self, line: int, value: int, strobe: int) -> LineError:
        queue, offset = divmod(line * 64 - INDICES, 64)
        assert (offset, strobe) == (0, 0xFF)
        assert 0 <= queue < QUEUES
        error = super().write_line(line, value, strobe)
        if error is LineError.OK:
            self.published[queue].append(value & 2**64 - 1)
        return error


@dataclass
class Ring:
    """A ring in host memory; `packets` has what was written last for each index."""

    memory: Memory
    queue: int
    depth: int = 2
    packets: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def address(self) -> int:
        return HOST + self.queue * RING_BYTES

    @property
    def read_index(self) -> int:
        return INDICES + self.queue * 64

    def write(self, index: int) -> None:
        """Store a random packet in the slot of `index`."""
        raw = random.randbytes(PACKET_BYTES)
        offset = self.queue * RING_BYTES + index % self.depth * PACKET_BYTES
        self.memory.view(HOST)[offset : offset + PACKET_BYTES] = list(raw)
        self.packets[index] = tuple(
            int.from_bytes(raw[i : i + 8], "little") for i in range(0, PACKET_BYTES, 8)
        )


class Bench:
    """The unit with memories, the host's doorbell writes and the firmware's register accesses.

    Accesses of concurrent tasks to one bus take turns.
    """

    def __init__(self, dut: Any, *, stall: float, trace_stall: float = 0.0) -> None:
        self.dut = dut
        dut.rst.value = 1
        self.memory = Memory()
        self.packets = ReadTarget(dut, "read_port", self.memory, stall=stall)
        self.indices = WriteTarget(dut, "write_port", self.memory, stall=stall)
        self.firmware = RegisterInitiator(dut, "bus", stall=stall)
        self.doorbells = RegisterInitiator(dut, "doorbell_bus", stall=stall)
        self.sram = RegisterInitiator(dut, "packet_bus", stall=stall)
        self.traces = [StreamSink(dut, f"traces__{i}", stall=trace_stall) for i in (0, 1)]
        self.trace_drops = [0, 0]
        self.events = dict.fromkeys(("doorbell", "fetched", "fault"), 0)
        self.rings = [Ring(self.memory, queue) for queue in range(QUEUES)]
        self._locks = {bus: cocotb.triggers.Lock() for bus in ("firmware", "doorbells", "sram")}

    async def start(self) -> None:
        Clock(self.dut.clk, 1, unit="ns").start(start_high=False)
        await reset_dut(self.dut)
        await ClockCycles(self.dut.clk, 2)
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            for name in self.events:
                self.events[name] += int(getattr(self.dut, f"{name}_event").value)
            dropped = int(self.dut.trace_dropped.value)
            for i in (0, 1):
                self.trace_drops[i] += dropped >> i & 1

    async def read(self, name: str, queue: int = 0) -> int:
        """A register of QUEUE_BLOCK."""
        async with self._locks["firmware"]:
            return await self.firmware.read(QUEUE_BLOCK.address(name, queue))

    async def write(self, name: str, queue: int, value: int) -> None:
        """Write a register of QUEUE_BLOCK."""
        async with self._locks["firmware"]:
            await self.firmware.write(QUEUE_BLOCK.address(name, queue), value)

    async def ring(self, queue: int, index: int, *, strobe: int = 0xFF) -> Answer:
        """Write a doorbell."""
        async with self._locks["doorbells"]:
            address = queue * DOORBELL_PAGE_BYTES
            return await self.doorbells.access(address, write=True, data=index, strobe=strobe)

    async def packet(self, queue: int, index: int) -> list[int]:
        """The 8 words of a packet in SRAM."""
        slot = queue * SRAM_SLOTS_PER_QUEUE + index % SRAM_SLOTS_PER_QUEUE
        async with self._locks["sram"]:
            return [await self.sram.read(slot * PACKET_BYTES + 8 * word) for word in range(8)]

    async def check_packet(self, queue: int, index: int) -> None:
        """The packet in SRAM is the one that was written."""
        assert tuple(await self.packet(queue, index)) == self.rings[queue].packets[index]

    async def program(self, queue: int, *, ring: int, read_index: int, depth_log2: int) -> None:
        """Set the registers of a queue and enable it."""
        register = QUEUE_BLOCK["ring"].register
        await self.write("ring", queue, register.pack(address=ring, depth_log2=depth_log2))
        await self.write("read_index_address", queue, read_index)
        await self.write("control", queue, 1)
        # The bound that the unit's contract gives, and two cycles for the register write.
        await ClockCycles(self.dut.clk, 4 + 2 * QUEUES)

    async def enable(self, queue: int, *, depth_log2: int) -> None:
        """Enable a queue over its own ring, which is empty."""
        ring = self.rings[queue]
        ring.depth = 1 << depth_log2
        ring.packets.clear()
        self.memory.published[queue].clear()
        offset = ring.read_index - HOST
        self.memory.view(HOST)[offset : offset + 8] = 0
        await self.program(
            queue, ring=ring.address, read_index=ring.read_index, depth_log2=depth_log2
        )

    async def disable(self, queue: int) -> None:
        """Disable a queue and wait until it is quiet."""
        await self.write("control", queue, 0)
        await self.settled(queue)

    async def settled(self, queue: int) -> None:
        """Wait until the queue has nothing on its way, and nothing to start."""
        for _ in range(300):
            await ClockCycles(self.dut.clk, 8)
            if not (await self.state(queue))["busy"]:
                return
        raise AssertionError(f"queue {queue} is busy for ever")

    async def state(self, queue: int) -> dict[str, int]:
        word = await self.read("state", queue)
        return QUEUE_BLOCK["state"].register.unpack(word)

    async def fault(self, queue: int) -> tuple[int, int]:
        """Status and address of a queue that must be faulted."""
        state = await self.state(queue)
        assert state["fault"] == 1, state
        shown = int(getattr(self.dut, f"states__{queue}").value)
        assert QUEUE_BLOCK["state"].register.unpack(shown) == state
        return state["status"], state["address"]

    async def faulted(self) -> int:
        return await self.read("faulted")

    async def available(self) -> int:
        return await self.read("available")

    async def refused(self) -> int:
        await RisingEdge(self.dut.clk)
        return int(self.dut.refused.value)

    def published(self, queue: int) -> int:
        """The read index in host memory."""
        offset = self.rings[queue].read_index - HOST
        return int.from_bytes(self.memory.view(HOST)[offset : offset + 8].tobytes(), "little")

    def owner(self, line: int) -> int:
        """Queue in whose ring a line lies."""
        return (line * 64 - HOST) // RING_BYTES
