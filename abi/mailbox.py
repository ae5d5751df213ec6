"""Messages of the privileged mailbox, between KMD and firmware."""

from enum import IntEnum

from abi.record import Field, Owner, Record, reserved

__all__ = [
    "CREATE_QUEUE",
    "DESTROY_QUEUE",
    "HANDSHAKE",
    "MESSAGES",
    "PING",
    "QUERY_QUEUE",
    "RESET_QUEUE",
    "RESPONSES",
    "RESPONSE_CREATED",
    "RESPONSE_HANDSHAKE",
    "RESPONSE_PLAIN",
    "RESPONSE_QUEUE",
    "FirmwarePhase",
    "FirmwareTask",
    "MessageKind",
    "QueuePhase",
]

KMD, FW, UMD, HW = Owner.KMD, Owner.FW, Owner.UMD, Owner.HW


class MessageKind(IntEnum):
    """What a request asks for; the response repeats it."""

    HANDSHAKE = 1
    PING = 2
    CREATE_QUEUE = 3
    DESTROY_QUEUE = 4
    RESET_QUEUE = 5
    QUERY_QUEUE = 6


class FirmwarePhase(IntEnum):
    """Phase in FIRMWARE_STATE."""

    OFF = 0
    BOOTING = 1
    WAITING_FOR_HANDSHAKE = 2
    RUNNING = 3
    CRASHED = 4


class FirmwareTask(IntEnum):
    """Task in FIRMWARE_STATE."""

    SLEEPING = 0
    MAILBOX = 1
    SCHEDULING = 2
    DISPATCHING = 3
    COMPLETING = 4
    HANDLING_FAULT = 5


class QueuePhase(IntEnum):
    """State of a queue in the firmware."""

    ABSENT = 0
    IDLE = 1
    RUNNING = 2
    WAITING = 3
    FAULTED = 4


_REQUEST = (
    Field("kind", MessageKind, KMD, FW, FW, "What is asked for.", bits=16),
    reserved("reserved_header", 16),
    Field("request_id", 32, KMD, FW, KMD, "Repeated by the response; never used twice."),
)
_RESPONSE = (
    Field("kind", MessageKind, FW, KMD, KMD, "Kind of the request.", bits=16),
    Field("status", 8, FW, KMD, KMD, "Status code."),
    reserved("reserved_header", 8),
    Field("request_id", 32, FW, KMD, KMD, "Request that this answers."),
)

HANDSHAKE = Record(
    "HANDSHAKE request",
    "First message; nothing else is served before it.",
    *_REQUEST,
    Field("abi_major", 8, KMD, FW, FW, "ABI version of the driver."),
    Field("abi_minor", 8, KMD, FW, FW, "ABI version of the driver."),
    reserved("reserved", 432),
    bits=512,
)
RESPONSE_HANDSHAKE = Record(
    "HANDSHAKE response",
    "VERSION_MISMATCH names the firmware's version.",
    *_RESPONSE,
    Field("abi_major", 8, FW, KMD, KMD, "ABI version of the firmware."),
    Field("abi_minor", 8, FW, KMD, KMD, "ABI version of the firmware."),
    Field("queues", 8, FW, KMD, KMD, "Queues that the firmware serves."),
    reserved("reserved", 424),
    bits=512,
)
PING = Record(
    "PING request",
    "Asks whether the mailbox server is alive.",
    *_REQUEST,
    reserved("reserved", 448),
    bits=512,
)
CREATE_QUEUE = Record(
    "CREATE_QUEUE request",
    "Makes a queue over a ring in host memory.",
    *_REQUEST,
    Field("queue", 8, KMD, FW, FW, "Number of the queue."),
    Field("depth_log2", 8, KMD, FW, HW, "The ring has 2**depth_log2 slots (1 to 16)."),
    Field("priority", 8, KMD, FW, FW, "Band, 0 (first) to 3."),
    Field("vector", 8, KMD, FW, HW, "MSI-X vector of its completions."),
    Field("pasid", 20, KMD, FW, HW, "Address space; never taken from a packet."),
    reserved("reserved_word", 12),
    Field("ring", 64, KMD, FW, HW, "Device address of slot 0, 64-aligned."),
    Field("read_index", 64, KMD, FW, HW, "Device address of the published read index, 64-aligned."),
    Field("task_timeout", 64, KMD, FW, FW, "Absolute cap of one task, in cycles."),
    Field("block_timeout", 64, KMD, FW, FW, "Cycles in which a block must end a command."),
    reserved("reserved", 128),
    bits=512,
)
RESPONSE_CREATED = Record(
    "CREATE_QUEUE response",
    "The queue accepts doorbells.",
    *_RESPONSE,
    reserved("reserved", 448),
    bits=512,
)
_QUEUE_REQUEST = (
    *_REQUEST,
    Field("queue", 8, KMD, FW, FW, "Number of the queue."),
    reserved("reserved", 440),
)
DESTROY_QUEUE = Record(
    "DESTROY_QUEUE request",
    "Ends a queue: running work is aborted and drained, the rest discarded and counted.",
    *_QUEUE_REQUEST,
    bits=512,
)
RESET_QUEUE = Record(
    "RESET_QUEUE request",
    "Clears a queue's fault once all packets before the doorbell are accounted for.",
    *_QUEUE_REQUEST,
    bits=512,
)
QUERY_QUEUE = Record(
    "QUERY_QUEUE request", "State and first fault of a queue.", *_QUEUE_REQUEST, bits=512
)
RESPONSE_QUEUE = Record(
    "QUEUE response",
    "State of a queue; answers QUERY_QUEUE, RESET_QUEUE and DESTROY_QUEUE.",
    *_RESPONSE,
    Field("phase", QueuePhase, FW, KMD, KMD, "State.", bits=8),
    Field("queue", 8, FW, KMD, KMD, "Number of the queue."),
    Field("opcode", 8, FW, KMD, KMD, "Opcode of the packet that failed or runs."),
    Field("pipe", 8, FW, KMD, UMD, "Core faults: pipe that failed."),
    Field("detail", 32, FW, KMD, UMD, "Core faults: PC; else index of the failed descriptor."),
    Field("completed", 64, FW, KMD, KMD, "Packets finished, with or without success."),
    Field("discarded", 32, FW, KMD, KMD, "Packets skipped after a fault or at the end."),
    Field("block", 32, FW, KMD, UMD, "Core faults: number of the block in the grid."),
    Field("status_word", 64, FW, KMD, UMD, "First fault as a status word; 0: none."),
    Field("fault_packet", 64, FW, KMD, UMD, "Ring index of the packet that failed."),
    Field("fault_address", 64, FW, KMD, UMD, "Device address of the fault, or 0."),
    Field("running", 64, FW, KMD, KMD, "Ring index of the packet at the head."),
    bits=512,
)
RESPONSE_PLAIN = Record(
    "Plain response",
    "Answers PING and refused requests.",
    *_RESPONSE,
    reserved("reserved", 448),
    bits=512,
)

MESSAGES: dict[MessageKind, Record] = {
    MessageKind.HANDSHAKE: HANDSHAKE,
    MessageKind.PING: PING,
    MessageKind.CREATE_QUEUE: CREATE_QUEUE,
    MessageKind.DESTROY_QUEUE: DESTROY_QUEUE,
    MessageKind.RESET_QUEUE: RESET_QUEUE,
    MessageKind.QUERY_QUEUE: QUERY_QUEUE,
}
RESPONSES: dict[MessageKind, Record] = {
    MessageKind.HANDSHAKE: RESPONSE_HANDSHAKE,
    MessageKind.PING: RESPONSE_PLAIN,
    MessageKind.CREATE_QUEUE: RESPONSE_CREATED,
    MessageKind.DESTROY_QUEUE: RESPONSE_QUEUE,
    MessageKind.RESET_QUEUE: RESPONSE_QUEUE,
    MessageKind.QUERY_QUEUE: RESPONSE_QUEUE,
}
