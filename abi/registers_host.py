"""BAR0: the privileged registers, which only the KMD reaches."""

from abi.address import HBM_BASE, MAILBOX_SLOTS
from abi.geometry import CORES, DMA_CHANNELS, QUEUES, VECTORS
from abi.record import Field, Owner
from abi.register import Access, Place, Register, RegisterMap
from abi.registers_core import (
    CORE_BLOCKS,
    CORE_COUNTERS,
    CORE_FAULT_ADDRESS,
    CORE_FAULT_BLOCK,
    CORE_FAULT_INJECTION,
    CORE_RETIRED,
    CORE_STATE,
)
from abi.registers_dma import DMA_BYTES, DMA_CYCLES, DMA_STATE
from abi.registers_firmware import (
    FIRMWARE_STATE,
    HEARTBEAT,
    MAILBOX_INDEX,
    MAILBOX_INDEX_READ,
    MAILBOX_WORD,
    MAILBOX_WORD_READ,
    TIME,
)
from abi.registers_queue import QUEUE_CONSUMED, QUEUE_DOORBELL, QUEUE_FETCHED, QUEUE_STATE

__all__ = ["BAR0", "BAR0_BYTES", "DEVICE_MAGIC"]

KMD, HW, FW, NONE = Owner.KMD, Owner.HW, Owner.FW, Owner.NONE

BAR0_BYTES = 0x4000
DEVICE_MAGIC = 0x474E5055

IDENTITY = Register(
    "IDENTITY",
    Access.RO,
    "What this device is.",
    Field("magic", 32, HW, KMD, KMD, "DEVICE_MAGIC.", reset=DEVICE_MAGIC),
    Field("abi_major", 8, HW, KMD, KMD, "ABI version of the hardware."),
    Field("abi_minor", 8, HW, KMD, KMD, "ABI version of the hardware."),
)
CAPABILITIES = Register(
    "CAPABILITIES",
    Access.RO,
    "How much of everything there is.",
    Field("queues", 8, HW, KMD, KMD, "User queues."),
    Field("dma_channels", 8, HW, KMD, KMD, "DMA channels."),
    Field("cores", 8, HW, KMD, KMD, "AI cores."),
    Field("vectors", 8, HW, KMD, KMD, "MSI-X vectors."),
)
MEMORY = Register(
    "MEMORY",
    Access.RO,
    "Device memory.",
    Field("hbm_bytes", 64, HW, KMD, KMD, f"Bytes of HBM, from device address {HBM_BASE:#x}."),
)
CORE_BUFFERS = Register(
    "CORE_BUFFERS",
    Access.RO,
    "On-chip buffers of a core, in lines of 64 bytes.",
    Field("l1_lines", 16, HW, KMD, KMD, "L1."),
    Field("l0a_lines", 16, HW, KMD, KMD, "L0A."),
    Field("l0b_lines", 16, HW, KMD, KMD, "L0B."),
    Field("l0c_lines", 16, HW, KMD, KMD, "L0C (16 int32 a line)."),
)
CORE_BUFFERS_2 = Register(
    "CORE_BUFFERS_2",
    Access.RO,
    "More buffers and the Cube of a core.",
    Field("bias_lines", 16, HW, KMD, KMD, "Bias buffer: lines of 16 int32."),
    Field("ub_lines", 16, HW, KMD, KMD, "UB: lines of 16 elements of the vector unit."),
    Field("bf16_depth", 8, HW, KMD, KMD, "bf16 products that a Cube output gains in a cycle."),
    Field("unused", 24, NONE, NONE, NONE, "Reads as zero."),
)
CONTROL = Register(
    "CONTROL",
    Access.RW,
    "Reset and firmware.",
    Field("firmware_run", 1, KMD, HW, HW, "1: the firmware CPU runs; 0: it is held in reset."),
    Field("trace_enable", 1, KMD, HW, HW, "1: trace events leave the chip.", reset=1),
)
RESET = Register(
    "RESET",
    Access.WO,
    "A write of 1 resets the chip in order: new requests to the host link "
    "stop, outstanding ones drain (bounded), then everything but config space is reset.",
    Field("reset", 1, KMD, HW, HW, "1: reset."),
)
RESET_STATE = Register(
    "RESET_STATE",
    Access.RO,
    "Progress of the reset.",
    Field("busy", 1, HW, KMD, KMD, "A reset is on its way."),
    Field("drained", 1, HW, KMD, KMD, "The last reset found all host transactions finished."),
    Field("unused", 6, NONE, NONE, NONE, "Reads as zero."),
    Field("generation", 32, HW, KMD, KMD, "Resets so far."),
)
HOST_WINDOW = Register(
    "HOST_WINDOW",
    Access.RW,
    "Host memory that the device may reach; empty after reset.",
    Field("base", 32, KMD, HW, HW, "First page (bus address / 4096)."),
    Field("limit", 32, KMD, HW, HW, "First page behind the window."),
)
COUNTER = Register(
    "COUNTER",
    Access.RO,
    "A performance counter.",
    Field("count", 64, HW, KMD, KMD, "Since reset."),
)
VECTOR_ADDRESS = Register(
    "VECTOR_ADDRESS",
    Access.RW,
    "MSI-X table: where the message goes.",
    Field("address", 48, KMD, HW, HW, "Bus address of the message."),
)
VECTOR_DATA = Register(
    "VECTOR_DATA",
    Access.RW,
    "MSI-X table: the message and its mask.",
    Field("data", 32, KMD, HW, HW, "Data of the message."),
    Field("masked", 1, KMD, HW, HW, "1: a message waits as pending until unmasked.", reset=1),
)
VECTOR_PENDING = Register(
    "VECTOR_PENDING",
    Access.RO,
    "Vectors with a message that is not yet sent.",
    Field("mask", VECTORS, HW, KMD, KMD, "Bit v: vector v."),
)
VECTOR_SENT = Register(
    "VECTOR_SENT",
    Access.RO,
    "Messages that the vector has sent since reset.",
    Field("count", 64, HW, KMD, KMD, "Behind their write response."),
)

WORDS = 8 * MAILBOX_SLOTS

BAR0 = RegisterMap(
    "BAR0",
    "Privileged registers of the host.",
    BAR0_BYTES,
    Place("identity", 0x000, IDENTITY),
    Place("capabilities", 0x008, CAPABILITIES),
    Place("memory", 0x010, MEMORY),
    Place("core_buffers", 0x018, CORE_BUFFERS),
    Place("core_buffers_2", 0x020, CORE_BUFFERS_2),
    Place("time", 0x028, TIME),
    Place("control", 0x030, CONTROL),
    Place("reset", 0x038, RESET),
    Place("reset_state", 0x040, RESET_STATE),
    Place("host_window", 0x048, HOST_WINDOW),
    Place(
        "firmware_state",
        0x050,
        Register(
            "FIRMWARE_STATE_READ",
            Access.RO,
            FIRMWARE_STATE.meaning,
            *FIRMWARE_STATE.fields.values(),
        ),
    ),
    Place(
        "heartbeat",
        0x058,
        Register("HEARTBEAT_READ", Access.RO, HEARTBEAT.meaning, *HEARTBEAT.fields.values()),
    ),
    Place(
        "doorbell_refused",
        0x060,
        Register(
            "DOORBELL_REFUSED",
            Access.RO,
            "Doorbell writes that were answered with SLVERR.",
            Field("count", 64, HW, KMD, KMD, "Since reset."),
        ),
    ),
    Place("vector_pending", 0x068, VECTOR_PENDING),
    Place("request_write", 0x080, MAILBOX_INDEX),
    Place("request_read", 0x088, MAILBOX_INDEX_READ),
    Place("response_write", 0x090, MAILBOX_INDEX_READ),
    Place("response_read", 0x098, MAILBOX_INDEX),
    Place("link_read_bytes", 0x0C0, COUNTER),
    Place("link_write_bytes", 0x0C8, COUNTER),
    Place("hbm_read_bytes", 0x0D0, COUNTER),
    Place("hbm_write_bytes", 0x0D8, COUNTER),
    Place("trace_dropped", 0x0E0, COUNTER),
    Place("vector_address", 0x200, VECTOR_ADDRESS, VECTORS),
    Place("vector_data", 0x300, VECTOR_DATA, VECTORS),
    Place("request_word", 0x400, MAILBOX_WORD, WORDS),
    Place("response_word", 0x600, MAILBOX_WORD_READ, WORDS),
    Place("vector_sent", 0x800, VECTOR_SENT, VECTORS),
    Place("queue_doorbell", 0x1000, QUEUE_DOORBELL, QUEUES, 0x40),
    Place("queue_fetched", 0x1008, QUEUE_FETCHED, QUEUES, 0x40),
    Place(
        "queue_consumed",
        0x1010,
        Register(
            "QUEUE_CONSUMED_READ",
            Access.RO,
            QUEUE_CONSUMED.meaning,
            *QUEUE_CONSUMED.fields.values(),
        ),
        QUEUES,
        0x40,
    ),
    Place("queue_state", 0x1018, QUEUE_STATE, QUEUES, 0x40),
    Place("dma_state", 0x2000, DMA_STATE, DMA_CHANNELS, 0x40),
    Place("dma_bytes", 0x2008, DMA_BYTES, DMA_CHANNELS, 0x40),
    Place("dma_cycles", 0x2010, DMA_CYCLES, DMA_CHANNELS, 0x40),
    Place("core_state", 0x3000, CORE_STATE, CORES, 0x200),
    Place("core_fault_address", 0x3008, CORE_FAULT_ADDRESS, CORES, 0x200),
    Place("core_retired", 0x3010, CORE_RETIRED, CORES, 0x200),
    Place("core_fault_injection", 0x3018, CORE_FAULT_INJECTION, CORES, 0x200),
    Place("core_fault_block", 0x3020, CORE_FAULT_BLOCK, CORES, 0x200),
    Place("core_blocks", 0x3028, CORE_BLOCKS, CORES, 0x200),
    *(
        Place(name, 0x3040 + 8 * i, register, CORES, 0x200)
        for i, (name, register) in enumerate(CORE_COUNTERS.items())
    ),
)
