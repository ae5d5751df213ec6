"""A queue's fault, as its detectors report it."""

from amaranth import Cat, Value, ValueLike
from amaranth.lib import data

from abi.geometry import QUEUES
from rtl.host.line_status import line_status

__all__ = ["QUEUE_FAULT", "line_fault"]

QUEUE_FAULT = data.StructLayout({"address": 48, "status": 8, "queue": range(QUEUES), "valid": 1})
"""`valid`: `queue` faulted with `status` at `address` (see QUEUE_STATE) in this cycle."""


def line_fault(*, valid: ValueLike, queue: Value, error: ValueLike, line: Value) -> Value:
    """The bits of a QUEUE_FAULT for the `LineError` of an access to a line."""
    return Cat(Cat(line << 6)[:48], line_status(error), queue, valid)
