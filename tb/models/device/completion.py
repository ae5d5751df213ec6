"""The completion unit and the interrupt controller."""

from collections.abc import Callable, Iterator

from abi.address import ADDRESS_BITS, LINE_BYTES, MSI_BUS_ADDRESS
from abi.geometry import VECTORS
from abi.registers_firmware import COMPLETION_BLOCK, CompletionOperation
from abi.status import Status
from tb.models.device.clock import EventClock
from tb.models.device.memory import DeviceMemory, MemoryFaultError
from tb.models.device.registers import RegisterFile, SlaveError
from tb.models.device.timing import ModelTiming

__all__ = ["CompletionModel", "InterruptModel"]

VALUE, TIMESTAMP, STATUS = 0, 8, 16
"""Byte offsets in a semaphore."""


class InterruptModel:
    """MSI-X: table, masks, pending bits. `arrive(vector)` is called at the host's end.

    Attributes for tests: `drop[v]`, the number of coming messages of vector v that are sent but
    do not arrive.
    """

    def __init__(
        self,
        clock: EventClock,
        memory: DeviceMemory,
        timing: ModelTiming,
        event: Callable[[str], None],
        arrive: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._timing = timing
        self._event = event
        self._arrive = arrive
        self.drop = [0] * VECTORS
        self.reset()

    def reset(self) -> None:
        """All vectors are masked, nothing is pending."""
        self.pending = 0
        self._busy = False
        self._last = 0
        self.sent = [0] * VECTORS
        self.address = [0] * VECTORS
        self.data = [0] * VECTORS
        self.masked = [True] * VECTORS

    def set_vector(self, vector: int, data: int, masked: bool) -> None:
        """Write VECTOR_DATA; unmasking sends a pending message."""
        self.data[vector], self.masked[vector] = data, masked
        self.pump()

    def send(self, vector: int) -> None:
        """A vector has a message; while one is pending, further ones merge with it."""
        self.pending |= 1 << vector
        self.pump()

    def pump(self) -> None:
        """Send the next message that may go: one at a time, the vectors in turn."""
        ready = [v for v in range(VECTORS) if self.pending >> v & 1 and not self.masked[v]]
        if self._busy or not ready or not self._memory.bus_master:
            return
        vector = min(ready, key=lambda v: (v <= self._last, v))
        self._busy, self._last = True, vector
        self.pending &= ~(1 << vector)
        self._clock.process(self._deliver(vector, self.address[vector], self.data[vector]))

    def _deliver(self, vector: int, address: int, data: int) -> Iterator[int]:
        yield self._timing.interrupt // 2
        good = True
        if address & -4 != MSI_BUS_ADDRESS:
            good = self._memory.write_message(address & -4, data)
        elif self.drop[vector]:
            self.drop[vector] -= 1
        else:
            self._arrive(data % VECTORS)
        yield self._timing.interrupt // 2
        self._busy = False
        if good:
            self.sent[vector] += 1
        else:
            self._event("interrupt_fault")
        self.pump()


class CompletionModel:
    """One operation at a time. Attributes for tests: `hang`, operations do not end."""

    def __init__(
        self,
        clock: EventClock,
        memory: DeviceMemory,
        timing: ModelTiming,
        event: Callable[[str], None],
        interrupts: InterruptModel,
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._timing = timing
        self._event = event
        self._interrupts = interrupts
        self.hang = False
        self.registers = RegisterFile(COMPLETION_BLOCK)
        state = COMPLETION_BLOCK["state"].register
        self.registers.on_read["state"] = lambda _: state.pack(busy=self.busy, status=self.outcome)
        self.registers.on_read["loaded_value"] = lambda _: self.loaded[0]
        self.registers.on_read["loaded_status"] = lambda _: self.loaded[1]
        self.registers.on_write["start"] = self._start
        self.reset()

    def reset(self) -> None:
        """Idle."""
        self.registers.reset()
        self.busy = False
        self.outcome = Status.OK
        self.loaded = (0, 0)

    def _start(self, _: int, word: int) -> None:
        fields = COMPLETION_BLOCK["start"].register.unpack(word)
        if self.busy:
            raise SlaveError
        self.busy, self.outcome = True, Status.OK
        self._clock.process(self._run(fields))

    def _run(self, fields: dict[str, int]) -> Iterator[int]:
        words = {name: values[0] for name, values in self.registers.words.items()}
        address, began = words["address"], self._clock.now
        host = self._memory.is_host(address)
        latency = self._timing.host_latency if host else self._timing.hbm_latency
        try:
            wrong = self._wrong(fields, address)
            if wrong:
                raise MemoryFaultError(wrong, address)
            if fields["operation"] == CompletionOperation.SIGNAL:
                self._memory.write_word(address + TIMESTAMP, began)
                self._memory.write_word(address + STATUS, words["status"])
                yield latency
                self._memory.write_word(address + VALUE, words["value"])
                yield latency
                if fields["interrupt"]:
                    self._interrupts.send(fields["vector"])
            else:
                yield latency
                self.loaded = (
                    self._memory.read_word(address + VALUE),
                    self._memory.read_word(address + STATUS),
                )
        except MemoryFaultError as error:
            self.outcome = error.status
            yield latency
        while self.hang:
            yield self._timing.host_latency
        self.busy = False
        self._event("completion")

    @staticmethod
    def _wrong(fields: dict[str, int], address: int) -> Status:
        signal = fields["operation"] == CompletionOperation.SIGNAL
        if fields["operation"] not in list(CompletionOperation) or (
            signal and fields["interrupt"] and fields["vector"] >= VECTORS
        ):
            return Status.BAD_FIELD
        if address % LINE_BYTES:
            return Status.MISALIGNED
        return Status.ADDRESS_FAULT if address >> ADDRESS_BITS else Status.OK
