"""The units of the chip, put together; and the firmware port's view of them."""

from collections.abc import Callable

from abi.registers_firmware import (
    COMPLETION_BASE,
    CORE_BASE,
    DMA_BASE,
    FIRMWARE_BASE,
    FIRMWARE_BLOCK,
    PACKET_SRAM_BASE,
    QUEUE_BASE,
)
from tb.models.device.clock import EventClock
from tb.models.device.completion import CompletionModel, InterruptModel
from tb.models.device.core import CoreUnit
from tb.models.device.dma import DmaModel
from tb.models.device.memory import DeviceMemory
from tb.models.device.queues import QueueUnit
from tb.models.device.registers import RegisterFile, SlaveError
from tb.models.device.timing import ModelTiming

__all__ = ["Chip"]

BLOCK_BYTES = 0x1000
EVENTS = FIRMWARE_BLOCK["events"].register
EVENT_BITS = {name: 1 << EVENTS.offset_of(name) for name in EVENTS.fields}


class Chip:
    """Everything between the host interface and memory. `arrive(vector)` tells that an MSI-X
    message reached the host, `event_line()` that the firmware's event line may have risen."""

    def __init__(
        self,
        clock: EventClock,
        timing: ModelTiming,
        *,
        host_bytes: int,
        hbm_bytes: int,
        arrive: Callable[[int], None],
        event_line: Callable[[], None],
    ) -> None:
        self.clock = clock
        self._event_line = event_line
        self.memory = DeviceMemory(host_bytes, hbm_bytes)
        self.firmware = RegisterFile(FIRMWARE_BLOCK)
        self.firmware.on_read["time"] = lambda _: clock.now
        self.firmware.on_write["event_enable"] = lambda *_: event_line()
        parts = (clock, self.memory, timing, self.event)
        self.queues = QueueUnit(*parts)
        self.dma = DmaModel(*parts)
        self.core = CoreUnit(*parts)
        self.interrupts = InterruptModel(*parts, arrive)
        self.completion = CompletionModel(*parts, self.interrupts)
        self._blocks = {
            FIRMWARE_BASE: self.firmware,
            QUEUE_BASE: self.queues.registers,
            DMA_BASE: self.dma.registers,
            COMPLETION_BASE: self.completion.registers,
            CORE_BASE: self.core.registers,
        }

    def reset(self) -> None:
        """Everything but memory contents."""
        self.firmware.reset()
        self.memory.reset()
        for unit in (self.queues, self.dma, self.core, self.interrupts, self.completion):
            unit.reset()

    def event(self, name: str) -> None:
        """Set a bit of EVENTS."""
        self.firmware.words["events"][0] |= EVENT_BITS[name]
        self._event_line()

    @property
    def event_pending(self) -> bool:
        """The level of the firmware's event line."""
        words = self.firmware.words
        return bool(words["events"][0] & words["event_enable"][0])

    def firmware_read(self, address: int) -> int:
        """A read on the firmware port.

        Raises:
            SlaveError: nothing there.
        """
        if address >= PACKET_SRAM_BASE:
            return self.queues.read_sram(address - PACKET_SRAM_BASE)
        return self._block(address).read(address % BLOCK_BYTES)

    def firmware_write(self, address: int, value: int) -> None:
        """A write on the firmware port.

        Raises:
            SlaveError: nothing there, read only, or refused.
        """
        self._block(address).write(address % BLOCK_BYTES, value)

    def _block(self, address: int) -> RegisterFile:
        block = self._blocks.get(address & -BLOCK_BYTES)
        if block is None:
            raise SlaveError
        return block
