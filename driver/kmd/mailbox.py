"""The privileged mailbox: requests to the firmware and their responses."""

from itertools import count

from abi.address import MAILBOX_SLOTS, MESSAGE_BYTES
from abi.mailbox import MESSAGES, RESPONSE_PLAIN, RESPONSES, FirmwarePhase, MessageKind
from abi.status import Engine, Status, side_of
from driver import tracing
from driver.bus import Bus
from driver.errors import (
    FirmwareCrashError,
    FirmwareStallError,
    MailboxTimeoutError,
    NpuError,
    SubmissionError,
)
from driver.kmd.interrupts import Interrupts
from driver.registers import Registers

__all__ = ["Mailbox"]

VECTOR = 0
WORDS = MESSAGE_BYTES // 8
INDEX_MASK = (1 << 32) - 1
TIMEOUT = 400_000
"""Cycles that a message may take without a sign of progress."""

SLICE = 20_000
"""Cycles after which the response ring is looked at even if no interrupt came."""

TURN = 100
"""Cycles between two looks of a host thread that waits for its turn."""

_request_ids = count(1)


class Mailbox:
    """Both rings of the mailbox, from the KMD's side.

    Each request is completed exactly once: by its response, or by a timeout, after which a late
    response is counted and dropped. Request ids are never used twice, not even after a reset.

    Attributes: `late`, responses dropped; `recovered`, responses found without their interrupt.
    """

    def __init__(self, bus: Bus, registers: Registers, interrupts: Interrupts) -> None:
        self._bus = bus
        self._bar0 = registers.bar0
        self._interrupts = interrupts
        self._written = self._bar0.request_write.read()
        self._read = self._bar0.response_read.read()
        self._waiting: set[int] = set()
        self._responses: dict[int, dict[str, int]] = {}
        self._busy = False
        self.late = 0
        self.recovered = 0

    def request(
        self, kind: MessageKind, *, timeout: int = TIMEOUT, **fields: int
    ) -> dict[str, int]:
        """Send a request and return its response's fields.

        Raises:
            NpuError: the firmware refused it (its status), or did not answer in `timeout` cycles.
        """
        response = self.call(kind, timeout=timeout, **fields)
        status = Status(response["status"])
        if status is not Status.OK:
            raise SubmissionError(
                f"the firmware refused {kind.name}",
                side=side_of(status),
                status=status,
                engine=Engine.MAILBOX,
                queue=fields.get("queue"),
            )
        return response

    def call(self, kind: MessageKind, *, timeout: int = TIMEOUT, **fields: int) -> dict[str, int]:
        """As `request`, but a refusal is returned (field `status`).

        Raises:
            FirmwareCrashError, FirmwareStallError, MailboxTimeoutError: there is no response.
        """
        with tracing.span("mailbox", kind.name):
            request_id = next(_request_ids)
            message = MESSAGES[kind].pack(kind=kind, request_id=request_id, **fields)
            # One host thread at a time: every register access lets others run.
            while self._busy:
                self._bus.wait_interrupt(0, self._bus.now() + TURN)
            self._busy = True
            try:
                self._wait_for_slot(timeout)
                self._post(message)
                self._waiting.add(request_id)
                return self._await(request_id, timeout)
            finally:
                self._busy = False
                self._waiting.discard(request_id)
                self._responses.pop(request_id, None)

    def _post(self, message: int) -> None:
        slot = self._written % MAILBOX_SLOTS
        for word in range(WORDS):
            value = message >> 64 * word & (1 << 64) - 1
            self._bar0.request_word[slot * WORDS + word].write(value)
        self._written = (self._written + 1) & INDEX_MASK
        self._bar0.request_write.write(self._written)

    def _wait_for_slot(self, timeout: int) -> None:
        deadline = self._bus.now() + timeout
        while (self._written - self._bar0.request_read.read()) & INDEX_MASK >= MAILBOX_SLOTS:
            now = self._bus.now()
            if now >= deadline:
                raise self._silence("the mailbox is full")
            self._wait(min(deadline, now + SLICE))
            self._drain()

    def _await(self, request_id: int, timeout: int) -> dict[str, int]:
        deadline = self._bus.now() + timeout
        taken = self._bar0.request_read.read()
        beats = self._bar0.heartbeat.read()
        while True:
            woken = self._wait(min(deadline, self._bus.now() + SLICE))
            self._drain()
            if request_id in self._responses:
                self.recovered += not woken
                return self._responses[request_id]
            if woken:
                continue
            if self._bar0.firmware_state.field("phase") == FirmwarePhase.CRASHED:
                raise self._silence("no answer to a message")
            before, taken = taken, self._bar0.request_read.read()
            if taken != before:
                deadline = self._bus.now() + timeout
            elif self._bus.now() >= deadline:
                alive = self._bar0.heartbeat.read() != beats
                raise self._silence("no answer to a message", alive=alive)

    def _wait(self, until: int) -> bool:
        """Wait for the mailbox's message; nobody else does, for there is one call at a time."""
        return self._interrupts.wait(VECTOR, until, self._interrupts.received[VECTOR])

    def _drain(self) -> None:
        """Take all responses; look again until nothing came meanwhile."""
        while self._read != self._bar0.response_write.read():
            slot = self._read % MAILBOX_SLOTS
            words = [self._bar0.response_word[slot * WORDS + w].read() for w in range(WORDS)]
            raw = b"".join(word.to_bytes(8, "little") for word in words)
            self._read = (self._read + 1) & INDEX_MASK
            self._bar0.response_read.write(self._read)
            fields = RESPONSE_PLAIN.unpack_bytes(raw)
            if fields["request_id"] not in self._waiting:
                self.late += 1
                continue
            if fields["status"] == Status.OK or fields["kind"] == MessageKind.HANDSHAKE:
                fields = RESPONSES[MessageKind(fields["kind"])].unpack_bytes(raw)
            self._responses[fields["request_id"]] = fields

    def _silence(self, message: str, *, alive: bool = False) -> NpuError:
        state = self._bar0.firmware_state.fields()
        text = f"{message}; firmware phase {state['phase']}, task {state['task']}"
        if state["phase"] == FirmwarePhase.CRASHED:
            return FirmwareCrashError(f"{text}, code {state['code']:#x}")
        return MailboxTimeoutError(text) if alive else FirmwareStallError(text)
