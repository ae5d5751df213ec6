"""The check of a descriptor, made on the copy that the channel acts on."""

from amaranth import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.descriptor import DESCRIPTOR, DESCRIPTOR_MAGIC, DescriptorOpcode
from abi.status import Status

__all__ = ["COMMAND", "DescriptorCheck"]

COMMAND = data.StructLayout({"descriptor": DESCRIPTOR, "chain": 1})
"""What a channel is started with: a descriptor to perform, or, with `chain`, one of which only
`next` counts: the address of the first descriptor of a chain."""

_RESERVED = [name for name in DESCRIPTOR.fields if name.startswith("reserved")]


class DescriptorCheck(wiring.Component):
    """Says what is wrong with a descriptor; combinational.

    BAD_DESCRIPTOR at `location`: magic, opcode, a reserved bit, no bytes or no rows, `next` not
    aligned to a line, a source given for FILL. ADDRESS_FAULT at the address itself: `source`,
    `destination` or `next` beyond 48 bits. Whether there is memory, the access itself shows.

    Members:
        descriptor: In, 512 bits.
        chain: In, 1 bit; only `next` counts.
        location: In, 64 bits; address of the descriptor, or of the chain.
        status: Out, 8 bits; Status, OK if nothing is wrong.
        address: Out, 64 bits; fault address.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "descriptor": In(DESCRIPTOR),
                "chain": In(1),
                "location": In(64),
                "status": Out(8),
                "address": Out(64),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        asked = self.descriptor
        copies = asked.opcode == DescriptorOpcode.COPY.value
        fills = asked.opcode == DescriptorOpcode.FILL.value
        malformed = (
            (asked.magic != DESCRIPTOR_MAGIC)
            | ~(copies | fills)
            | (fills & (asked.source != 0))
            | (asked.row_bytes == 0)
            | (asked.rows == 0)
        )
        for name in _RESERVED:
            malformed |= asked[name] != 0
        misaligned = asked.next[: LINE_BYTES.bit_length() - 1].any()

        with m.If(misaligned | (~self.chain & malformed)):
            m.d.comb += [
                self.status.eq(Status.BAD_DESCRIPTOR.value),
                self.address.eq(self.location),
            ]
        with m.Elif(~self.chain & asked.source[ADDRESS_BITS:].any()):
            m.d.comb += [
                self.status.eq(Status.ADDRESS_FAULT.value),
                self.address.eq(asked.source),
            ]
        with m.Elif(~self.chain & asked.destination[ADDRESS_BITS:].any()):
            m.d.comb += [
                self.status.eq(Status.ADDRESS_FAULT.value),
                self.address.eq(asked.destination),
            ]
        with m.Elif(asked.next[ADDRESS_BITS:].any()):
            m.d.comb += [
                self.status.eq(Status.ADDRESS_FAULT.value),
                self.address.eq(asked.next),
            ]
        return m
