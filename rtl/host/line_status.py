"""From the error of a line to a status code, in hardware."""

from amaranth import C, Mux, Value, ValueLike

from abi.status import Status
from rtl.memory.port import LineError

__all__ = ["line_status"]


def line_status(error: ValueLike) -> Value:
    """The `Status` (8 bits) of a `LineError`, as `rtl.memory.port.status_of` has it."""
    return Mux(
        error == LineError.OK,
        C(Status.OK, 8),
        Mux(error == LineError.ADDRESS, C(Status.ADDRESS_FAULT, 8), C(Status.BUS_ERROR, 8)),
    )
