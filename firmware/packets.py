"""Checks of packets: every field that user mode could forge, on the copy in packet SRAM.

Nothing is read twice and nothing is read from host memory, so there is no gap between the time
of the check and the time of the use.
"""

from collections.abc import Callable

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.packet import PACKETS, PacketOpcode
from abi.status import Status
from firmware.state import Packet, Resource

__all__ = ["RESOURCE_OF", "PacketError", "read_packet"]

RESOURCE_OF = {
    PacketOpcode.NOP: Resource.PROCESSOR,
    PacketOpcode.COPY: Resource.DMA,
    PacketOpcode.FILL: Resource.DMA,
    PacketOpcode.CHAIN: Resource.DMA,
    PacketOpcode.WAIT: Resource.COMPLETION,
    PacketOpcode.SIGNAL: Resource.COMPLETION,
    PacketOpcode.KERNEL: Resource.CORE,
}
"""The engine that each opcode needs."""

AT_LEAST_1 = ("row_bytes", "rows", "grid_x", "grid_y", "grid_z")
LINE_ALIGNED = ("descriptor", "semaphore", "code")
INSTRUCTION_BYTES = 4
BLOCK_LIMIT = 1 << 32
"""A grid has fewer blocks than this: their numbers have 32 bits."""

PACKET_WORDS = 8
OPCODES = {int(opcode): opcode for opcode in PacketOpcode}


class PacketError(Exception):
    """A packet was refused. Attributes: `status`, and the raw `opcode`."""

    def __init__(self, status: Status, opcode: int) -> None:
        super().__init__(f"{status.name}, opcode {opcode:#x}")
        self.status = status
        self.opcode = opcode


def read_packet(
    read_word: Callable[[int], int], index: int, *, only: PacketOpcode | None = None
) -> Packet | None:
    """Read a packet word by word and check it.

    Args:
        read_word: word 0 to 7 of the packet; each costs a bus access and is read at most once.
        index: the packet's ring index.
        only: a poisoned queue wants one opcode; others are skipped after their header (None).

    Raises:
        PacketError: a field is wrong.
    """
    header = read_word(0)
    opcode, sequence = header & 0xFF, header >> 32
    # A slot with another sequence number is stale, so nothing else in it means anything.
    if sequence != index & 0xFFFF_FFFF:
        raise PacketError(Status.BAD_SEQUENCE, opcode)
    if opcode not in OPCODES:
        raise PacketError(Status.BAD_OPCODE, opcode)
    known = OPCODES[opcode]
    if only is not None and known is not only:
        return None
    raw = header
    for word in range(1, PACKET_WORDS):
        raw |= read_word(word) << (64 * word)
    fields = PACKETS[known].unpack(raw)
    for name, value in fields.items():
        if name.startswith("reserved"):
            if value:
                raise PacketError(Status.BAD_FIELD, opcode)
        elif name in AT_LEAST_1 and not value:
            raise PacketError(Status.BAD_FIELD, opcode)
    for name in LINE_ALIGNED:
        if fields.get(name, 0) % LINE_BYTES:
            raise PacketError(Status.MISALIGNED, opcode)
    if known is PacketOpcode.KERNEL:
        status = _check_kernel(fields)
        if status:
            raise PacketError(status, opcode)
    return Packet(index, known, fields)


def _check_kernel(fields: dict[str, int]) -> Status:
    """The fields of a KERNEL packet; whether its memory answers only an access tells."""
    code_bytes, entry = fields["code_bytes"], fields["entry"]
    blocks = fields["grid_x"] * fields["grid_y"] * fields["grid_z"]
    if code_bytes % INSTRUCTION_BYTES or entry >= code_bytes or blocks >= BLOCK_LIMIT:
        return Status.BAD_FIELD
    if entry % INSTRUCTION_BYTES:
        return Status.MISALIGNED
    ranges = [(fields["code"], code_bytes)]
    if fields["argument_bytes"]:
        if fields["arguments"] % LINE_BYTES:
            return Status.MISALIGNED
        ranges.append((fields["arguments"], fields["argument_bytes"]))
    if any(address + nbytes > 1 << ADDRESS_BITS for address, nbytes in ranges):
        return Status.ADDRESS_FAULT
    return Status.OK
