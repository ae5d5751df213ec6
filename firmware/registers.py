"""Named access to the registers of the firmware port, derived from the contract's maps."""

from abi.address import PACKET_BYTES, SRAM_SLOTS_PER_QUEUE
from abi.register import RegisterMap
from abi.registers_firmware import (
    COMPLETION_BASE,
    COMPLETION_BLOCK,
    CORE_BASE,
    CORE_BLOCK,
    DMA_BASE,
    DMA_BLOCK,
    FIRMWARE_BASE,
    FIRMWARE_BLOCK,
    PACKET_SRAM_BASE,
    QUEUE_BASE,
    QUEUE_BLOCK,
)
from firmware.port import FirmwarePort

__all__ = ["EVENT", "Block", "Registers"]

EVENT = {
    name: 1 << FIRMWARE_BLOCK["events"].register.offset_of(name)
    for name in FIRMWARE_BLOCK["events"].register.fields
}
"""Bit masks of EVENTS, by field."""

WORD_BYTES = 8


class Block:
    """The registers of one block, by the names of its map."""

    def __init__(self, port: FirmwarePort, base: int, register_map: RegisterMap) -> None:
        self._port = port
        self._places = {
            place.name: (base + place.offset, place.stride, place.register)
            for place in register_map
        }

    def read(self, name: str, index: int = 0) -> int:
        """The word of a register."""
        offset, stride, _ = self._places[name]
        return self._port.read(offset + index * stride)

    def write(self, name: str, value: int, index: int = 0) -> None:
        """Write the word of a register."""
        offset, stride, _ = self._places[name]
        self._port.write(offset + index * stride, value)

    def fields(self, name: str, index: int = 0) -> dict[str, int]:
        """The fields of a register, with one read."""
        return self._places[name][2].unpack(self.read(name, index))

    def write_fields(self, name: str, index: int = 0, /, **values: int) -> None:
        """Write a register by its fields; those not named take their reset values."""
        self.write(name, self._places[name][2].pack(values), index)


class Registers:
    """All blocks of the firmware port."""

    def __init__(self, port: FirmwarePort) -> None:
        self._port = port
        self.firmware = Block(port, FIRMWARE_BASE, FIRMWARE_BLOCK)
        self.queue = Block(port, QUEUE_BASE, QUEUE_BLOCK)
        self.dma = Block(port, DMA_BASE, DMA_BLOCK)
        self.completion = Block(port, COMPLETION_BASE, COMPLETION_BLOCK)
        self.core = Block(port, CORE_BASE, CORE_BLOCK)

    def packet_word(self, queue: int, index: int, word: int) -> int:
        """Word `word` of packet `index` of a queue, from packet SRAM."""
        slot = queue * SRAM_SLOTS_PER_QUEUE + index % SRAM_SLOTS_PER_QUEUE
        return self._port.read(PACKET_SRAM_BASE + slot * PACKET_BYTES + word * WORD_BYTES)
