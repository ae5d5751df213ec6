"""Trace events that leave the RTL: 64 bits each, with a cycle stamp that the sink adds.

Source CORE, instance: number of the core: BEGIN (argument: number of the block in its grid) and
END (status) of each block. Source PIPE, instance: 8 * core + pipe: BEGIN (PC of the npu.issue) and
END (status, then that PC from bit 8) of each command but NOPs; spans of a pipe do not overlap.
Source INTERRUPT, instance: the vector: BEGIN (the message's data) when a message leaves the pending
bits to be written, END (status) when its write was answered, which is after the host has got it.
"""

from enum import IntEnum

from abi.record import Field, Owner, Record

__all__ = ["PIPES_PER_CORE", "TRACE_EVENT", "TraceCode", "TraceSource"]

HW, HOST = Owner.HW, Owner.HOST


PIPES_PER_CORE = 8
"""Pipe p of core c is instance PIPES_PER_CORE * c + p of source PIPE."""


class TraceSource(IntEnum):
    """Unit that an event comes from; instances (channel, core, pipe) are in `instance`."""

    DOORBELL = 1
    FETCHER = 2
    DMA = 3
    CORE = 4
    PIPE = 5
    COMPLETION = 6
    INTERRUPT = 7
    MAILBOX = 8


class TraceCode(IntEnum):
    """What happened."""

    EVENT = 1
    """A point in time."""

    BEGIN = 2
    """A span of the unit instance starts."""

    END = 3
    """The span of the unit instance ends; the argument's low 8 bits are a status code."""


TRACE_EVENT = Record(
    "Trace event",
    "One event of the RTL.",
    Field("source", TraceSource, HW, HOST, HOST, "Unit.", bits=8),
    Field("instance", 8, HW, HOST, HOST, "Queue, channel, core, 8 * core + pipe, or vector."),
    Field("code", TraceCode, HW, HOST, HOST, "What happened.", bits=8),
    Field("argument", 40, HW, HOST, HOST, "Index, address or status, by source."),
    bits=64,
)
