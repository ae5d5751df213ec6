"""Agents and a protocol checker for valid/ready streams, on cocotb handles.

Everything drives its signals when it is made (so make it before the first clock edge), then works
on each rising edge of `dut.clk` while `dut.rst` is low. Randomness comes from `random`, which
cocotb seeds, so a run replays with its seed.
"""

import random
from collections import deque
from collections.abc import Mapping
from typing import Any

import cocotb
from amaranth.lib import data
from cocotb.triggers import RisingEdge

__all__ = [
    "StabilityRule",
    "StreamChecker",
    "StreamSink",
    "StreamSource",
    "pack",
    "reset_dut",
    "unpack",
]


def pack(layout: data.StructLayout, values: Mapping[str, int]) -> int:
    """The integer of a layout's fields, all unsigned; fields that are not named are 0.

    Raises:
        KeyError: a name is no field of the layout.
        ValueError: a value does not fit its field.
    """
    word = 0
    for name, value in values.items():
        field = layout[name]
        if not 0 <= value < 1 << field.width:
            raise ValueError(f"{name} must fit {field.width} bits, not {value!r}")
        word |= value << field.offset
    return word


def unpack(layout: data.StructLayout, word: int) -> dict[str, int]:
    """The fields of an integer as unsigned numbers, by name."""
    return {name: word >> field.offset & (1 << field.width) - 1 for name, field in layout}


async def reset_dut(dut: Any, cycles: int = 3) -> None:
    """Hold `dut.rst` for `cycles` edges of a clock that runs already."""
    dut.rst.value = 1
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


class StabilityRule:
    """The rule of a stream: `valid` is held, and its payload stable, until `ready`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: str | None = None

    def reset(self) -> None:
        """Forget what waits."""
        self._waiting = None

    def step(self, valid: int, ready: int, payload: str) -> None:
        """Judge one edge.

        Raises:
            AssertionError: the rule is broken.
        """
        if self._waiting is not None:
            assert valid, f"{self._name}: valid fell before ready"
            assert payload == self._waiting, f"{self._name}: payload changed before ready"
        self._waiting = payload if valid and not ready else None


class StreamChecker:
    """Fails the test when a stream of `dut` breaks the `StabilityRule`.

    Attributes:
        transfers: payloads taken so far.
    """

    def __init__(self, dut: Any, name: str) -> None:
        self._dut = dut
        self._rule = StabilityRule(name)
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready")
        self._payload = getattr(dut, f"{name}__payload")
        self.transfers = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        edge = RisingEdge(self._dut.clk)
        while True:
            await edge
            if self._dut.rst.value:
                self._rule.reset()
                continue
            valid, ready = int(self._valid.value), int(self._ready.value)
            self._rule.step(valid, ready, str(self._payload.value) if valid else "")
            self.transfers += valid & ready


class StreamSource:
    """Drives a stream from a queue; `stall` is the chance of an idle cycle before an item.

    With `layout`, items are mappings of field values, else integers.
    """

    def __init__(
        self, dut: Any, name: str, *, layout: data.StructLayout | None = None, stall: float = 0.0
    ) -> None:
        self._dut = dut
        self._name = name
        self._layout = layout
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready")
        self._payload = getattr(dut, f"{name}__payload")
        self._queue: deque[int] = deque()
        self.stall = stall
        self.sent = 0
        """Items taken by the other side."""
        self.cycle = 0
        """Edges since the start."""
        self.sent_at: list[int] = []
        """The cycle of each transfer."""
        self._valid.value = 0
        self._payload.value = 0
        cocotb.start_soon(self._run())

    def send(self, item: int | Mapping[str, int]) -> None:
        """Queue one item."""
        if isinstance(item, int):
            self._queue.append(item)
        elif self._layout is None:
            raise TypeError(f"item of a stream without layout must be an int, not {item!r}")
        else:
            self._queue.append(pack(self._layout, item))

    @property
    def pending(self) -> int:
        """Items not taken yet."""
        return len(self._queue)

    async def drained(self, cycles: int = 10000) -> None:
        """Wait until every queued item was taken.

        Raises:
            AssertionError: that took more than `cycles`.
        """
        edge = RisingEdge(self._dut.clk)
        for _ in range(cycles):
            if not self._queue:
                return
            await edge
        raise AssertionError(f"{self._name}: {len(self._queue)} items left after {cycles} cycles")

    async def _run(self) -> None:
        edge = RisingEdge(self._dut.clk)
        valid = offered = 0
        while True:
            await edge
            self.cycle += 1
            if self._dut.rst.value:
                continue
            if valid and self._ready.value:
                self._queue.popleft()
                self.sent += 1
                self.sent_at.append(self.cycle)
                valid = 0
            if not valid:
                valid = int(bool(self._queue) and random.random() >= self.stall)
                if valid != offered:
                    offered = valid
                    self._valid.value = valid
                if valid:
                    self._payload.value = self._queue[0]


class StreamSink:
    """Takes a stream; `stall` is the chance of a cycle without `ready`; checks its stability.

    Attributes:
        received: the items so far, mappings if `layout` is given, else integers.
        received_at: the cycle of each, counted from the start.
    """

    def __init__(
        self, dut: Any, name: str, *, layout: data.StructLayout | None = None, stall: float = 0.0
    ) -> None:
        self._dut = dut
        self._name = name
        self._layout = layout
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready")
        self._payload = getattr(dut, f"{name}__payload")
        self.stall = stall
        self.received: list[Any] = []
        self.received_at: list[int] = []
        self.cycle = 0
        self._ready.value = 0
        self._rule = StabilityRule(name)
        cocotb.start_soon(self._run())

    async def wait(self, count: int, cycles: int = 10000) -> list[Any]:
        """Wait until `count` items in all were received, and give all of them.

        Raises:
            AssertionError: that took more than `cycles`.
        """
        edge = RisingEdge(self._dut.clk)
        for _ in range(cycles):
            if len(self.received) >= count:
                return self.received
            await edge
        raise AssertionError(
            f"{self._name}: {len(self.received)} of {count} items after {cycles} cycles"
        )

    async def _run(self) -> None:
        edge = RisingEdge(self._dut.clk)
        ready = 0
        while True:
            await edge
            self.cycle += 1
            if self._dut.rst.value:
                self._rule.reset()
                continue
            valid = int(self._valid.value)
            payload = str(self._payload.value) if valid else ""
            self._rule.step(valid, ready, payload)
            if ready and valid:
                word = int(payload, 2)
                self.received.append(word if self._layout is None else unpack(self._layout, word))
                self.received_at.append(self.cycle)
            wanted = int(random.random() >= self.stall)
            if wanted != ready:
                ready = wanted
                self._ready.value = ready
