"""Agents for memory ports: a numpy memory behind a port of the block under test, and initiators.

A target sits where the crossbar would (the block has `Out(ReadPort())`); an initiator sits where
a block would (the fabric has `In(ReadPort())`). All check that streams are stable.
"""

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from numpy.typing import NDArray

from abi.address import LINE_BYTES
from rtl.memory.port import (
    READ_REQUEST,
    READ_RESPONSE,
    WRITE_REQUEST,
    WRITE_RESPONSE,
    LineError,
)
from tb.blocks.streams import StabilityRule, StreamSink, StreamSource, pack, unpack

__all__ = ["LineMemory", "ReadInitiator", "ReadTarget", "WriteInitiator", "WriteTarget"]


class LineMemory:
    """Memory in regions, addressed by byte address; what lies outside answers ADDRESS.

    Args:
        regions: size in bytes of each region by its base address, both multiples of 64.
    """

    def __init__(self, regions: Mapping[int, int]) -> None:
        self._regions = {base: np.zeros(nbytes, np.uint8) for base, nbytes in regions.items()}
        self._failing: list[tuple[int, int, LineError]] = []

    def view(self, base: int) -> NDArray[np.uint8]:
        """The bytes of the region that begins at `base`; writing to it writes the memory."""
        return self._regions[base]

    def fail(self, address: int, nbytes: int, error: LineError) -> None:
        """From now on, lines that touch the range answer `error` and are not written."""
        self._failing.append((address, address + nbytes, error))

    def heal(self) -> None:
        """Forget every `fail`."""
        self._failing.clear()

    def error_of(self, line: int) -> LineError:
        """What an access to a line answers."""
        address = line * LINE_BYTES
        for base, limit, error in self._failing:
            if base < address + LINE_BYTES and address < limit:
                return error
        for base, array in self._regions.items():
            if base <= address < base + len(array):
                return LineError.OK
        return LineError.ADDRESS

    def _line(self, line: int) -> NDArray[np.uint8]:
        address = line * LINE_BYTES
        for base, array in self._regions.items():
            if base <= address < base + len(array):
                return array[address - base : address - base + LINE_BYTES]
        raise KeyError(f"line must lie in a region, not {line!r}")

    def read_line(self, line: int) -> tuple[int, LineError]:
        """Data (random bits on an error) and error of a line."""
        error = self.error_of(line)
        if error is not LineError.OK:
            return random.getrandbits(8 * LINE_BYTES), error
        return int.from_bytes(self._line(line).tobytes(), "little"), error

    def write_line(self, line: int, value: int, strobe: int) -> LineError:
        """Write the strobed bytes of a line."""
        error = self.error_of(line)
        if error is LineError.OK:
            new = np.frombuffer(value.to_bytes(LINE_BYTES, "little"), np.uint8)
            mask = np.frombuffer(strobe.to_bytes(LINE_BYTES // 8, "little"), np.uint8)
            chosen = np.unpackbits(mask, bitorder="little").astype(bool)
            self._line(line)[chosen] = new[chosen]
        return error


@dataclass
class _Pending:
    """A request that was accepted: when it may be answered, and what the answer is."""

    due: int
    line: int
    value: int = 0
    strobe: int = 0
    answer: int | None = None


@dataclass
class _Statistics:
    """What a target saw."""

    lines: list[int] = field(default_factory=list)
    most_outstanding: int = 0
    answered: int = 0


class _Target:
    """What read and write targets share: acceptance, latency, order, stalls."""

    def __init__(
        self,
        dut: Any,
        name: str,
        memory: LineMemory,
        *,
        latency: int | tuple[int, int] = (1, 20),
        stall: float = 0.0,
        patience: int = 2000,
    ) -> None:
        self._dut = dut
        self._name = name
        self.memory = memory
        self.latency = latency
        self.stall = stall
        self.patience = patience
        self.seen = _Statistics()
        self._pending: deque[_Pending] = deque()
        self._rule = StabilityRule(f"{name}__request")
        self._ready = getattr(dut, f"{name}__request__ready")
        self._valid = getattr(dut, f"{name}__request__valid")
        self._payload = getattr(dut, f"{name}__request__payload")
        self._out_ready = getattr(dut, f"{name}__response__ready")
        self._out_valid = getattr(dut, f"{name}__response__valid")
        self._out_payload = getattr(dut, f"{name}__response__payload")
        self._ready.value = 0
        self._out_valid.value = 0
        self._out_payload.value = 0
        cocotb.start_soon(self._run())

    @property
    def lines(self) -> list[int]:
        """The line of every accepted request, in order."""
        return self.seen.lines

    @property
    def outstanding(self) -> int:
        """Requests accepted and not answered."""
        return len(self._pending)

    @property
    def most_outstanding(self) -> int:
        """The largest `outstanding` so far."""
        return self.seen.most_outstanding

    def _accept(self, word: int, due: int) -> _Pending:
        raise NotImplementedError

    def _progress(self) -> None:
        """Once a cycle: perform some of what was accepted."""

    def _perform(self, request: _Pending) -> int:
        """Perform a request if that has not happened; its response."""
        raise NotImplementedError

    def _due(self, cycle: int) -> int:
        low, high = (
            self.latency if isinstance(self.latency, tuple) else (self.latency, self.latency)
        )
        return cycle + random.randint(low, high) - 1

    async def _run(self) -> None:
        edge = RisingEdge(self._dut.clk)
        cycle, ready, presented, waited = 0, 0, False, 0
        while True:
            await edge
            cycle += 1
            if self._dut.rst.value:
                self._pending.clear()
                self._rule.reset()
                presented = False
                if ready:
                    ready = 0
                    self._ready.value = 0
                self._out_valid.value = 0
                continue
            valid = int(self._valid.value)
            payload = str(self._payload.value) if valid else ""
            self._rule.step(valid, ready, payload)
            if ready and valid:
                request = self._accept(int(payload, 2), self._due(cycle))
                self.seen.lines.append(request.line)
                self._pending.append(request)
            self._progress()
            was_presented = presented
            if presented:
                waited += 1
                assert waited <= self.patience, (
                    f"{self._name}: a response was not taken for {self.patience} cycles"
                )
                if self._out_ready.value:
                    self._pending.popleft()
                    self.seen.answered += 1
                    presented = False
            self.seen.most_outstanding = max(self.seen.most_outstanding, len(self._pending))
            if not presented:
                waited = 0
                head = self._pending[0] if self._pending else None
                if head is not None and head.due <= cycle and random.random() >= self.stall:
                    presented = True
                    self._out_payload.value = self._perform(head)
                if presented != was_presented:
                    self._out_valid.value = int(presented)
            wanted = int(random.random() >= self.stall)
            if wanted != ready:
                ready = wanted
                self._ready.value = ready


class ReadTarget(_Target):
    """Answers `{name}` of the block, an `Out(ReadPort())`, from a memory, in request order.

    A line is read at once when its request is accepted, or only when its response is given, by
    chance: a block that relies on either sees wrong data.

    Args:
        latency: cycles from accepting a request to `response.valid`, at least 1; a fixed number
            or inclusive bounds. With a fixed one and no stall, 1 line a cycle is sustained.
        stall: chance per cycle of `request.ready` low, and of a response that is held back.
        patience: cycles after which a response that is not taken fails the test.

    Attributes: `lines` (all requested lines), `outstanding`, `most_outstanding`; `latency`,
    `stall` may be changed at any time.
    """

    def _accept(self, word: int, due: int) -> _Pending:
        request = _Pending(due, unpack(READ_REQUEST, word)["line"])
        if random.random() < 0.5:
            request.answer = self._perform(request)
        return request

    def _perform(self, request: _Pending) -> int:
        if request.answer is None:
            value, error = self.memory.read_line(request.line)
            request.answer = pack(READ_RESPONSE, {"data": value, "error": error})
        return request.answer


class WriteTarget(_Target):
    """Takes `{name}` of the block, an `Out(WritePort())`, into a memory, in request order.

    A write is performed somewhere between its request and its response: a block that does not
    wait for the response sees old data. Parameters and attributes as `ReadTarget`; `strobes` has
    the strobe of every request.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        self.strobes: list[int] = []
        super().__init__(*args, **named)

    def _accept(self, word: int, due: int) -> _Pending:
        fields = unpack(WRITE_REQUEST, word)
        self.strobes.append(fields["strobe"])
        return _Pending(due, fields["line"], fields["data"], fields["strobe"])

    def _progress(self) -> None:
        for request in self._pending:
            if request.answer is not None:
                continue
            if random.random() < 0.7:
                return
            self._perform(request)

    def _perform(self, request: _Pending) -> int:
        if request.answer is None:
            error = self.memory.write_line(request.line, request.value, request.strobe)
            request.answer = pack(WRITE_RESPONSE, {"error": error})
        return request.answer


class _Initiator:
    """Requests of a port of the fabric, and its responses."""

    def __init__(self, source: StreamSource, sink: StreamSink) -> None:
        self.source = source
        self.sink = sink
        self._issued = 0

    def set_stall(self, stall: float) -> None:
        """Chance per cycle of no request, and of `response.ready` low."""
        self.source.stall = stall
        self.sink.stall = stall

    async def finished(self, cycles: int = 10000) -> list[dict[str, int]]:
        """Every response so far, once all requests are answered."""
        return await self.sink.wait(self._issued, cycles)

    async def _answers(self, first: int, count: int, cycles: int) -> list[dict[str, int]]:
        await self.sink.wait(first + count, cycles)
        return self.sink.received[first : first + count]


class ReadInitiator(_Initiator):
    """Drives `{name}`, an `In(ReadPort())` of the fabric."""

    def __init__(self, dut: Any, name: str, *, stall: float = 0.0) -> None:
        super().__init__(
            StreamSource(dut, f"{name}__request", layout=READ_REQUEST, stall=stall),
            StreamSink(dut, f"{name}__response", layout=READ_RESPONSE, stall=stall),
        )

    def request(self, line: int) -> int:
        """Queue a read; the index of its response in `sink.received`."""
        self.source.send({"line": line})
        self._issued += 1
        return self._issued - 1

    async def read(self, line: int, cycles: int = 10000) -> tuple[int, int]:
        """Read one line: data and error."""
        answer = (await self._answers(self.request(line), 1, cycles))[0]
        return answer["data"], answer["error"]


class WriteInitiator(_Initiator):
    """Drives `{name}`, an `In(WritePort())` of the fabric."""

    def __init__(self, dut: Any, name: str, *, stall: float = 0.0) -> None:
        super().__init__(
            StreamSource(dut, f"{name}__request", layout=WRITE_REQUEST, stall=stall),
            StreamSink(dut, f"{name}__response", layout=WRITE_RESPONSE, stall=stall),
        )

    def request(self, line: int, value: int, strobe: int = (1 << LINE_BYTES) - 1) -> int:
        """Queue a write; the index of its response in `sink.received`."""
        self.source.send({"line": line, "data": value, "strobe": strobe})
        self._issued += 1
        return self._issued - 1

    async def write(
        self, line: int, value: int, strobe: int = (1 << LINE_BYTES) - 1, cycles: int = 10000
    ) -> int:
        """Write one line: its error."""
        return (await self._answers(self.request(line, value, strobe), 1, cycles))[0]["error"]
