"""The firmware port: every register that the device CPU sees, as byte offsets of its port."""

from enum import IntEnum

from abi.address import MAILBOX_SLOTS
from abi.geometry import CORES, DMA_CHANNELS, QUEUES
from abi.record import Field, Owner
from abi.register import Access, Place, Register, RegisterMap
from abi.registers_core import (
    CORE_ARGUMENTS,
    CORE_BLOCK_YZ,
    CORE_BLOCKS,
    CORE_CODE,
    CORE_ENTRY,
    CORE_FAULT_ADDRESS,
    CORE_FAULT_BLOCK,
    CORE_GRID,
    CORE_RETIRED,
    CORE_SIZES,
    CORE_START,
    CORE_STATE,
)
from abi.registers_dma import (
    DMA_DESTINATION,
    DMA_FAULT_ADDRESS,
    DMA_PATTERN,
    DMA_SIZE,
    DMA_SOURCE,
    DMA_START,
    DMA_STATE,
    DMA_STRIDE,
)
from abi.registers_queue import (
    QUEUE_CONSUMED,
    QUEUE_CONTROL,
    QUEUE_DOORBELL,
    QUEUE_FETCHED,
    QUEUE_READ_INDEX_ADDRESS,
    QUEUE_RING,
    QUEUE_STATE,
)

__all__ = [
    "COMPLETION_BASE",
    "COMPLETION_BLOCK",
    "CORE_BASE",
    "CORE_BLOCK",
    "DMA_BASE",
    "DMA_BLOCK",
    "FIRMWARE_BASE",
    "FIRMWARE_BLOCK",
    "FIRMWARE_PORT",
    "FIRMWARE_PORT_ADDRESS_BITS",
    "PACKET_SRAM_BASE",
    "QUEUE_BASE",
    "QUEUE_BLOCK",
    "CompletionOperation",
]

FW, HW, KMD, UMD, NONE = Owner.FW, Owner.HW, Owner.KMD, Owner.UMD, Owner.NONE

FIRMWARE_PORT_ADDRESS_BITS = 20
BLOCK_BYTES = 0x1000
FIRMWARE_BASE = 0x0_0000
QUEUE_BASE = 0x0_1000
DMA_BASE = 0x0_2000
COMPLETION_BASE = 0x0_3000
CORE_BASE = 0x0_4000
PACKET_SRAM_BASE = 0x1_0000
"""Packet SRAM, read only: slot s of queue q lies at + (q * SRAM_SLOTS_PER_QUEUE + s) * 64, and
packet i of a queue in slot i mod SRAM_SLOTS_PER_QUEUE."""

EVENTS = Register(
    "EVENTS",
    Access.W1C,
    "What happened. The event line is high while (EVENTS & EVENT_ENABLE) != 0. Clear first, then "
    "look at the source, so that nothing is lost.",
    Field("doorbell", 1, HW, FW, FW, "A doorbell was rung."),
    Field("fetched", 1, HW, FW, FW, "A packet arrived in packet SRAM."),
    Field("dma", 1, HW, FW, FW, "A DMA channel ended a run."),
    Field("core", 1, HW, FW, FW, "A core ended a block or a scrub."),
    Field("completion", 1, HW, FW, FW, "The completion unit ended an operation."),
    Field("mailbox", 1, HW, FW, FW, "The host published a mailbox request."),
    Field("queue_fault", 1, HW, FW, FW, "A queue faulted: doorbell violation or fetch error."),
    Field("interrupt_fault", 1, HW, FW, FW, "An MSI-X write was answered with an error."),
)
EVENT_ENABLE = Register(
    "EVENT_ENABLE",
    Access.RW,
    "Which events raise the event line.",
    Field("mask", 8, FW, HW, HW, "Bits as in EVENTS."),
)
TIME = Register(
    "TIME", Access.RO, "Device time.", Field("cycles", 64, HW, FW, FW, "Cycles since reset.")
)
FIRMWARE_STATE = Register(
    "FIRMWARE_STATE",
    Access.RW,
    "What the firmware shows to the host (BAR0 FIRMWARE_STATE).",
    Field("phase", 8, FW, KMD, KMD, "See abi.mailbox.FirmwarePhase."),
    Field("abi_major", 8, FW, KMD, KMD, "ABI version that the firmware was built for."),
    Field("abi_minor", 8, FW, KMD, KMD, "ABI version that the firmware was built for."),
    Field("task", 8, FW, KMD, KMD, "What it works at; see abi.mailbox.FirmwareTask."),
    Field("queue", 8, FW, KMD, KMD, "Queue that it works for."),
    Field("code", 24, FW, KMD, KMD, "Detail: packet index or error."),
)
HEARTBEAT = Register(
    "HEARTBEAT",
    Access.RW,
    "The firmware is alive.",
    Field("beats", 64, FW, KMD, KMD, "Grows with each turn of the main loop and each timer tick."),
)
MAILBOX_WORD = Register(
    "MAILBOX_WORD",
    Access.RW,
    "A word of a mailbox message.",
    Field("word", 64, KMD, FW, FW, "Word w of slot s lies at + 64 s + 8 w."),
)
MAILBOX_WORD_READ = Register(
    "MAILBOX_WORD_READ",
    Access.RO,
    "A word of a message from the other side.",
    Field("word", 64, KMD, FW, FW, "Word w of slot s lies at + 64 s + 8 w."),
)
MAILBOX_INDEX = Register(
    "MAILBOX_INDEX",
    Access.RW,
    "A ring index of this side.",
    Field("index", 32, KMD, FW, FW, "Counts messages, without wrapping to the ring's size."),
)
MAILBOX_INDEX_READ = Register(
    "MAILBOX_INDEX_READ",
    Access.RO,
    "A ring index of the other side.",
    Field("index", 32, KMD, FW, FW, "Counts messages, without wrapping to the ring's size."),
)

WORDS = 8 * MAILBOX_SLOTS

FIRMWARE_BLOCK = RegisterMap(
    "Firmware block",
    "Events, time, state and the mailbox, from the firmware's side.",
    BLOCK_BYTES,
    Place("events", 0x000, EVENTS),
    Place("event_enable", 0x008, EVENT_ENABLE),
    Place("time", 0x010, TIME),
    Place("firmware_state", 0x018, FIRMWARE_STATE),
    Place("heartbeat", 0x020, HEARTBEAT),
    Place("request_write", 0x040, MAILBOX_INDEX_READ),
    Place("request_read", 0x048, MAILBOX_INDEX),
    Place("response_write", 0x050, MAILBOX_INDEX),
    Place("response_read", 0x058, MAILBOX_INDEX_READ),
    Place("request_word", 0x400, MAILBOX_WORD_READ, count=WORDS),
    Place("response_word", 0x600, MAILBOX_WORD, count=WORDS),
)

QUEUE_STRIDE = 0x40
QUEUE_BLOCK = RegisterMap(
    "Queue block",
    "The queues, from the firmware's side.",
    BLOCK_BYTES,
    Place("ring", 0x00, QUEUE_RING, QUEUES, QUEUE_STRIDE),
    Place("read_index_address", 0x08, QUEUE_READ_INDEX_ADDRESS, QUEUES, QUEUE_STRIDE),
    Place("control", 0x10, QUEUE_CONTROL, QUEUES, QUEUE_STRIDE),
    Place("doorbell", 0x18, QUEUE_DOORBELL, QUEUES, QUEUE_STRIDE),
    Place("fetched", 0x20, QUEUE_FETCHED, QUEUES, QUEUE_STRIDE),
    Place("consumed", 0x28, QUEUE_CONSUMED, QUEUES, QUEUE_STRIDE),
    Place("state", 0x30, QUEUE_STATE, QUEUES, QUEUE_STRIDE),
    Place(
        "available",
        0x400,
        Register(
            "QUEUE_AVAILABLE",
            Access.RO,
            "Which queues have packets in SRAM that the firmware has not consumed.",
            Field("mask", QUEUES, HW, FW, FW, "Bit q: queue q."),
        ),
    ),
    Place(
        "faulted",
        0x408,
        Register(
            "QUEUE_FAULTED",
            Access.RO,
            "Which queues have faulted.",
            Field("mask", QUEUES, HW, FW, FW, "Bit q: queue q."),
        ),
    ),
)

CHANNEL_STRIDE = 0x40
DMA_BLOCK = RegisterMap(
    "DMA block",
    "The DMA channels.",
    BLOCK_BYTES,
    Place("source", 0x00, DMA_SOURCE, DMA_CHANNELS, CHANNEL_STRIDE),
    Place("destination", 0x08, DMA_DESTINATION, DMA_CHANNELS, CHANNEL_STRIDE),
    Place("size", 0x10, DMA_SIZE, DMA_CHANNELS, CHANNEL_STRIDE),
    Place("stride", 0x18, DMA_STRIDE, DMA_CHANNELS, CHANNEL_STRIDE),
    Place("pattern", 0x20, DMA_PATTERN, DMA_CHANNELS, CHANNEL_STRIDE),
    Place("start", 0x28, DMA_START, DMA_CHANNELS, CHANNEL_STRIDE),
    Place("state", 0x30, DMA_STATE, DMA_CHANNELS, CHANNEL_STRIDE),
    Place("fault_address", 0x38, DMA_FAULT_ADDRESS, DMA_CHANNELS, CHANNEL_STRIDE),
    Place(
        "busy",
        0x400,
        Register(
            "DMA_BUSY",
            Access.RO,
            "Which channels are busy.",
            Field("mask", DMA_CHANNELS, HW, FW, FW, "Bit c: channel c."),
        ),
    ),
)


class CompletionOperation(IntEnum):
    """What a write to COMPLETION_START does."""

    SIGNAL = 1
    """Write timestamp and status, then the value, then send the interrupt if asked."""

    LOAD = 2
    """Read value and status of a semaphore."""


_COMPLETION_ADDRESS = Register(
    "COMPLETION_ADDRESS",
    Access.RW,
    "Semaphore of the next operation.",
    Field("address", 64, FW, HW, HW, "Device address, 64-aligned."),
)
_COMPLETION_VALUE = Register(
    "COMPLETION_VALUE",
    Access.RW,
    "Value of the next SIGNAL.",
    Field("value", 64, FW, HW, UMD, "Value to write."),
)
_COMPLETION_STATUS = Register(
    "COMPLETION_STATUS",
    Access.RW,
    "Status of the next SIGNAL.",
    Field("status", 64, FW, HW, UMD, "Status word to write."),
)
_COMPLETION_START = Register(
    "COMPLETION_START",
    Access.WO,
    "Starts an operation; refused with SLVERR while busy.",
    Field("operation", CompletionOperation, FW, HW, HW, "What to do.", bits=8),
    Field("interrupt", 1, FW, HW, HW, "SIGNAL: send an interrupt behind the value."),
    Field("vector", 7, FW, HW, HW, "Its MSI-X vector."),
)
_COMPLETION_STATE = Register(
    "COMPLETION_STATE",
    Access.RO,
    "State and outcome of the last operation.",
    Field("busy", 1, HW, FW, FW, "An operation is on its way."),
    Field("unused", 7, NONE, NONE, NONE, "Reads as zero."),
    Field("status", 8, HW, FW, FW, "Status code of the last operation."),
)
_COMPLETION_LOADED_VALUE = Register(
    "COMPLETION_LOADED_VALUE",
    Access.RO,
    "Value that LOAD read.",
    Field("value", 64, HW, FW, FW, "Value of the semaphore."),
)
_COMPLETION_LOADED_STATUS = Register(
    "COMPLETION_LOADED_STATUS",
    Access.RO,
    "Status that LOAD read.",
    Field("status", 64, HW, FW, FW, "Status word of the semaphore."),
)

COMPLETION_BLOCK = RegisterMap(
    "Completion block",
    "The completion unit.",
    BLOCK_BYTES,
    Place("address", 0x00, _COMPLETION_ADDRESS),
    Place("value", 0x08, _COMPLETION_VALUE),
    Place("status", 0x10, _COMPLETION_STATUS),
    Place("start", 0x18, _COMPLETION_START),
    Place("state", 0x20, _COMPLETION_STATE),
    Place("loaded_value", 0x28, _COMPLETION_LOADED_VALUE),
    Place("loaded_status", 0x30, _COMPLETION_LOADED_STATUS),
)

CORE_STRIDE = 0x100
CORE_BLOCK = RegisterMap(
    "Core block",
    "The AI cores.",
    BLOCK_BYTES,
    Place("code", 0x00, CORE_CODE, CORES, CORE_STRIDE),
    Place("sizes", 0x08, CORE_SIZES, CORES, CORE_STRIDE),
    Place("arguments", 0x10, CORE_ARGUMENTS, CORES, CORE_STRIDE),
    Place("grid", 0x18, CORE_GRID, CORES, CORE_STRIDE),
    Place("entry", 0x20, CORE_ENTRY, CORES, CORE_STRIDE),
    Place("block_yz", 0x28, CORE_BLOCK_YZ, CORES, CORE_STRIDE),
    Place("start", 0x30, CORE_START, CORES, CORE_STRIDE),
    Place("state", 0x38, CORE_STATE, CORES, CORE_STRIDE),
    Place("fault_address", 0x40, CORE_FAULT_ADDRESS, CORES, CORE_STRIDE),
    Place("fault_block", 0x48, CORE_FAULT_BLOCK, CORES, CORE_STRIDE),
    Place("blocks", 0x50, CORE_BLOCKS, CORES, CORE_STRIDE),
    Place("retired", 0x58, CORE_RETIRED, CORES, CORE_STRIDE),
)

FIRMWARE_PORT: dict[int, RegisterMap] = {
    FIRMWARE_BASE: FIRMWARE_BLOCK,
    QUEUE_BASE: QUEUE_BLOCK,
    DMA_BASE: DMA_BLOCK,
    COMPLETION_BASE: COMPLETION_BLOCK,
    CORE_BASE: CORE_BLOCK,
}
"""The blocks of the firmware port, by base address; packet SRAM lies at PACKET_SRAM_BASE."""
