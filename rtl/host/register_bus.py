"""The register bus inside the chip: one request, one response, one outstanding."""

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

__all__ = ["REGISTER_REQUEST", "REGISTER_RESPONSE", "RegisterPort"]

REGISTER_REQUEST = data.StructLayout({"data": 64, "address": 28, "strobe": 8, "write": 1})
"""An access: byte `address` in the block (low 3 bits are ignored), `write`, and for a write `data`
and one `strobe` bit a byte."""

REGISTER_RESPONSE = data.StructLayout({"data": 64, "error": 1})
"""The outcome: `data` of a read, `error` = 1 for SLVERR."""

RegisterPort = Signature(
    {
        "request": Out(stream.Signature(REGISTER_REQUEST)),
        "response": In(stream.Signature(REGISTER_RESPONSE)),
    }
)
"""The port, as the initiator sees it. Each request gets exactly one response, and the initiator
sends the next request only after it took the response."""
