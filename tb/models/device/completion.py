"""The completion unit and the interrupt controller."""

from collections.abc import Callable, Iterator

from abi.address import HOST_BASE, MSI_BUS_ADDRESS
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
        self.sent = [0] * VECTORS
        self.address = [0] * VECTORS
        self.data = [0] * VECTORS
        self.masked = [True] * VECTORS

    def set_vector(self, vector: int, data: int, masked: bool) -> None:
        """Write VECTOR_DATA; unmasking sends a pending message."""
        self.data[vector], self.masked[vector] = data, masked
        if not masked and self.pending >> vector & 1:
            self.pending &= ~(1 << vector)
            self.send(vector)

    def send(self, vector: int) -> None:
        """Send a message, or keep it pending while masked."""
        if self.masked[vector]:
            self.pending |= 1 << vector
            return
        address, data = self.address[vector], self.data[vector]
        self._clock.after(self._timing.interrupt // 2, lambda: self._deliver(vector, address, data))

    def _deliver(self, vector: int, address: int, data: int) -> None:
        if not self._memory.bus_master:
            self._event("interrupt_fault")
            return
        if address == MSI_BUS_ADDRESS:
            if self.drop[vector]:
                self.drop[vector] -= 1
            else:
                self._arrive(data % VECTORS)
        else:
            try:
                self._memory.write(HOST_BASE + address, data.to_bytes(4, "little"))
            except MemoryFaultError:
                self._event("interrupt_fault")
                return
        self.sent[vector] += 1


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
        address = words["address"]
        host = self._memory.is_host(address)
        latency = self._timing.host_latency if host else self._timing.hbm_latency
        try:
            if address % 64:
                raise MemoryFaultError(Status.MISALIGNED, address)
            if fields["operation"] == CompletionOperation.SIGNAL:
                self._memory.write_word(address + TIMESTAMP, self._clock.now)
                self._memory.write_word(address + STATUS, words["status"])
                yield latency
                self._memory.write_word(address + VALUE, words["value"])
                yield latency
                if fields["interrupt"]:
                    self._interrupts.send(fields["vector"] % VECTORS)
            elif fields["operation"] == CompletionOperation.LOAD:
                yield latency
                self.loaded = (
                    self._memory.read_word(address + VALUE),
                    self._memory.read_word(address + STATUS),
                )
            else:
                self.outcome = Status.BAD_FIELD
        except MemoryFaultError as error:
            self.outcome = error.status
            yield latency
        while self.hang:
            yield self._timing.host_latency
        self.busy = False
        self._event("completion")
