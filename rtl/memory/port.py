"""Memory ports: how every initiator inside the chip reads and writes lines."""

from enum import IntEnum

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.status import Status

__all__ = [
    "LINE_BITS",
    "LINE_NUMBER_BITS",
    "READ_REQUEST",
    "READ_RESPONSE",
    "WRITE_REQUEST",
    "WRITE_RESPONSE",
    "LineError",
    "ReadPort",
    "WritePort",
    "status_of",
]

LINE_BITS = LINE_BYTES * 8
"""Width of a line in bits."""

LINE_NUMBER_BITS = ADDRESS_BITS - LINE_BYTES.bit_length() + 1
"""Width of a line's number: the device address without the offset in the line."""


class LineError(IntEnum):
    """What became of one line. The larger value is the worse one."""

    OK = 0
    """Done."""

    ADDRESS = 1
    """There is no memory at this address, or it is not granted."""

    BUS = 2
    """The host link answered with an error."""


def status_of(error: int) -> Status:
    """The status that an initiator reports for a line's error.

    Raises:
        ValueError: `error` is no `LineError`.
    """
    match LineError(error):
        case LineError.ADDRESS:
            return Status.ADDRESS_FAULT
        case LineError.BUS:
            return Status.BUS_ERROR
    return Status.OK


READ_REQUEST = data.StructLayout({"line": LINE_NUMBER_BITS})
"""Read one line: `line` is its device address divided by `LINE_BYTES`."""

READ_RESPONSE = data.StructLayout({"data": LINE_BITS, "error": 2})
"""The line, byte 0 in bits 0 to 7, and its `LineError`; `data` is undefined unless it is OK."""

WRITE_REQUEST = data.StructLayout(
    {"data": LINE_BITS, "strobe": LINE_BYTES, "line": LINE_NUMBER_BITS}
)
"""Write the bytes of a line whose bit is set in `strobe`; the others are not touched."""

WRITE_RESPONSE = data.StructLayout({"error": 2})
"""The write is visible to every later read, or `error` says why it did not happen."""


class ReadPort(wiring.Signature):
    """Reads of whole lines, from the initiator's view.

    Members:
        request: Out; stream of `READ_REQUEST`. `valid` comes from registers.
        response: In; stream of `READ_RESPONSE`, one per request, in request order.

    An initiator requests only what it has room for, so it takes every response in bounded time by
    itself: `response.ready` depends on nothing but the buffer that it reserved.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "request": Out(stream.Signature(READ_REQUEST)),
                "response": In(stream.Signature(READ_RESPONSE)),
            }
        )


class WritePort(wiring.Signature):
    """Writes of lines with byte strobes, from the initiator's view.

    Members:
        request: Out; stream of `WRITE_REQUEST`. `valid` comes from registers.
        response: In; stream of `WRITE_RESPONSE`, one per request, in request order.

    The initiator takes every response in bounded time by itself, as with `ReadPort`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "request": Out(stream.Signature(WRITE_REQUEST)),
                "response": In(stream.Signature(WRITE_RESPONSE)),
            }
        )
