"""The DMA engine: channels that copy, fill and follow descriptor chains."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.descriptor import DESCRIPTOR, DESCRIPTOR_MAGIC, DescriptorOpcode
from abi.geometry import DMA_CHANNELS
from abi.registers_dma import (
    DMA_SIZE,
    DMA_START,
    DMA_STATE,
    DMA_STRIDE,
    DmaStart,
)
from abi.registers_firmware import DMA_BLOCK
from abi.status import Status
from tb.models.device.clock import EventClock
from tb.models.device.memory import DeviceMemory, MemoryFaultError
from tb.models.device.registers import RegisterFile, SlaveError
from tb.models.device.timing import ModelTiming

__all__ = ["DmaModel"]

STEP_CYCLES = 64
"""Data moves in steps of about this long, so that an abort finds a run half done."""

CHUNK_BYTES = 4096
ADDRESS_LIMIT = 1 << ADDRESS_BITS
WORD = (1 << 64) - 1


@dataclass
class _Transfer:
    source: int | None
    destination: int
    row_bytes: int
    rows: int
    source_stride: int
    destination_stride: int
    pattern: int


def _check_row(address: int, nbytes: int) -> None:
    """A row must not leave the address space, not even by wrapping around."""
    if not 0 <= address < ADDRESS_LIMIT:
        raise MemoryFaultError(Status.ADDRESS_FAULT, address & WORD)
    if address + nbytes > ADDRESS_LIMIT:
        raise MemoryFaultError(Status.ADDRESS_FAULT, ADDRESS_LIMIT)


class _Channel:
    def __init__(self) -> None:
        self.busy = False
        self.abort = False
        self.status = Status.OK
        self.descriptor = 0
        self.fault_address = 0
        self.bytes = 0
        self.cycles = 0
        self.since = 0


class DmaModel:
    """All channels. Attributes for tests: `hang`, a mask of channels whose runs do not end
    until they are aborted."""

    def __init__(
        self,
        clock: EventClock,
        memory: DeviceMemory,
        timing: ModelTiming,
        event: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._timing = timing
        self._event = event
        self.hang = 0
        self.registers = RegisterFile(DMA_BLOCK)
        self.registers.on_read["state"] = self.read_state
        self.registers.on_read["fault_address"] = lambda i: self.channels[i].fault_address
        self.registers.on_read["busy"] = lambda _: sum(
            1 << i for i, channel in enumerate(self.channels) if channel.busy
        )
        self.registers.on_write["start"] = self._start
        self.reset()

    def reset(self) -> None:
        """All channels are idle, their counters zero."""
        self.registers.reset()
        self.channels = [_Channel() for _ in range(DMA_CHANNELS)]

    def read_state(self, index: int) -> int:
        """Word of DMA_STATE."""
        channel = self.channels[index]
        return DMA_STATE.pack(
            busy=channel.busy, status=channel.status, descriptor=channel.descriptor
        )

    def read_bytes(self, index: int) -> int:
        """Word of DMA_BYTES."""
        return self.channels[index].bytes

    def read_cycles(self, index: int) -> int:
        """Word of DMA_CYCLES."""
        channel = self.channels[index]
        return channel.cycles + (self._clock.now - channel.since if channel.busy else 0)

    def _start(self, index: int, word: int) -> None:
        kind = DmaStart(DMA_START.unpack(word)["kind"])
        channel = self.channels[index]
        if kind is DmaStart.ABORT:
            channel.abort = channel.busy
            return
        if channel.busy:
            raise SlaveError
        channel.busy, channel.abort, channel.since = True, False, self._clock.now
        channel.status, channel.descriptor, channel.fault_address = Status.OK, 0, 0
        self._clock.process(self._run(index, channel, kind))

    def _run(self, index: int, channel: _Channel, kind: DmaStart) -> Iterator[int]:
        yield self._timing.hbm_latency
        status, address = Status.OK, 0
        try:
            if kind is DmaStart.CHAIN:
                yield from self._chain(channel, self.registers.words["source"][index])
            else:
                yield from self._transfer(channel, self._direct(index, kind))
                channel.descriptor = 0 if channel.abort else 1
        except MemoryFaultError as error:
            status, address = error.status, error.address
        while self.hang >> index & 1 and not channel.abort:
            yield STEP_CYCLES
        yield self._timing.host_latency
        if channel.abort and not status:
            status = Status.ABORTED
        channel.cycles += self._clock.now - channel.since
        channel.busy, channel.status, channel.fault_address = False, status, address
        self._event("dma")

    def _direct(self, index: int, kind: DmaStart) -> _Transfer:
        words = {
            name: values[index] for name, values in self.registers.words.items() if values[index:]
        }
        size, stride = DMA_SIZE.unpack(words["size"]), DMA_STRIDE.unpack(words["stride"])
        return _Transfer(
            source=words["source"] if kind is DmaStart.COPY else None,
            destination=words["destination"],
            row_bytes=size["row_bytes"],
            rows=size["rows"],
            source_stride=stride["source"],
            destination_stride=stride["destination"],
            pattern=words["pattern"],
        )

    def _chain(self, channel: _Channel, address: int) -> Iterator[int]:
        if address % LINE_BYTES:
            raise MemoryFaultError(Status.BAD_DESCRIPTOR, address)
        if address >= ADDRESS_LIMIT:
            raise MemoryFaultError(Status.ADDRESS_FAULT, address)
        while not channel.abort:
            yield self._timing.host_latency
            fields = DESCRIPTOR.unpack_bytes(self._memory.read(address, LINE_BYTES).tobytes())
            fill = fields["opcode"] == DescriptorOpcode.FILL
            wrong = (
                fields["magic"] != DESCRIPTOR_MAGIC
                or fields["opcode"] not in (DescriptorOpcode.COPY, DescriptorOpcode.FILL)
                or any(fields[name] for name in fields if name.startswith("reserved"))
                or fields["row_bytes"] == 0
                or fields["rows"] == 0
                or fields["next"] % LINE_BYTES
                or (fill and fields["source"] != 0)
            )
            if wrong:
                raise MemoryFaultError(Status.BAD_DESCRIPTOR, address)
            for beyond in (fields["source"], fields["destination"], fields["next"]):
                if beyond >= ADDRESS_LIMIT:
                    raise MemoryFaultError(Status.ADDRESS_FAULT, beyond)
            yield from self._transfer(
                channel,
                _Transfer(
                    source=None if fill else fields["source"],
                    destination=fields["destination"],
                    row_bytes=fields["row_bytes"],
                    rows=fields["rows"],
                    source_stride=fields["source_stride"],
                    destination_stride=fields["destination_stride"],
                    pattern=fields["pattern"],
                ),
            )
            if not channel.abort:
                channel.descriptor += 1
            address = fields["next"]
            if not address:
                return

    def _transfer(self, channel: _Channel, transfer: _Transfer) -> Iterator[int]:
        if not transfer.row_bytes or not transfer.rows:
            raise MemoryFaultError(Status.BAD_DESCRIPTOR, 0)
        for address in (transfer.source or 0, transfer.destination):
            if address >= ADDRESS_LIMIT:
                raise MemoryFaultError(Status.ADDRESS_FAULT, address)
        pattern = np.frombuffer(transfer.pattern.to_bytes(8, "little"), np.uint8)
        cost = 0
        for row in range(transfer.rows):
            destination = transfer.destination + row * transfer.destination_stride
            source = (transfer.source or 0) + row * transfer.source_stride
            if transfer.source is not None:
                _check_row(source, transfer.row_bytes)
            _check_row(destination, transfer.row_bytes)
            for offset in range(0, transfer.row_bytes, CHUNK_BYTES):
                if channel.abort:
                    return
                nbytes = min(CHUNK_BYTES, transfer.row_bytes - offset)
                if transfer.source is None:
                    content = np.resize(pattern, nbytes)
                else:
                    content = self._memory.read(source + offset, nbytes)
                    cost += self._cost(source, nbytes)
                self._memory.write(destination + offset, content)
                channel.bytes += nbytes
                cost += self._cost(destination, nbytes)
                if cost >= STEP_CYCLES:
                    yield cost
                    cost = 0
        yield cost

    def _cost(self, address: int, nbytes: int) -> int:
        host = self._memory.is_host(address)
        width = self._timing.host_width if host else self._timing.hbm_width
        return nbytes // (2 * width) + 1
