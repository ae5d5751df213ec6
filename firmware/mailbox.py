"""The mailbox server: every request gets exactly one response."""

from abi.address import MAILBOX_SLOTS
from abi.geometry import QUEUES
from abi.mailbox import (
    MESSAGES,
    RESPONSE_PLAIN,
    RESPONSES,
    FirmwarePhase,
    FirmwareTask,
    MessageKind,
)
from abi.status import Status
from abi.version import ABI_MAJOR, ABI_MINOR
from firmware.config import FirmwareConfig
from firmware.heartbeat import StatusBoard
from firmware.port import FirmwarePort
from firmware.queues import QueueTable
from firmware.registers import EVENT, Registers

__all__ = ["MailboxServer"]

MESSAGE_WORDS = 8
INDEX_MASK = (1 << 32) - 1
KINDS = {int(kind): kind for kind in MessageKind}


class MailboxServer:
    """Reads requests, answers them in order, but for DESTROY_QUEUE, which is answered when the
    queue has drained; other requests do not wait for it."""

    def __init__(
        self,
        port: FirmwarePort,
        registers: Registers,
        config: FirmwareConfig,
        board: StatusBoard,
        queues: QueueTable,
    ) -> None:
        self._port = port
        self._registers = registers
        self._config = config
        self._board = board
        self._queues = queues
        self._read = 0
        self._written = 0
        self._known_write = 0
        self._known_response_read = 0
        self._closing: dict[int, int] = {}

    def resume(self) -> None:
        """Go on where the rings stand: an earlier program may have used them."""
        self._read = self._registers.firmware.read("request_read")
        self._written = self._registers.firmware.read("response_write")
        self._known_write = self._registers.firmware.read("request_write")

    def look(self, events: int) -> None:
        """Look at the request ring if `events` names it."""
        if events & EVENT["mailbox"]:
            self._known_write = self._registers.firmware.read("request_write")

    @property
    def pending(self) -> bool:
        """Whether a request waits that can be answered now."""
        return self._known_write != self._read and self._room()

    @property
    def blocked(self) -> bool:
        """Whether a request waits until the host has read responses."""
        return self._known_write != self._read and not self._has_room()

    def _has_room(self) -> bool:
        unread = (self._written - self._known_response_read) & INDEX_MASK
        return unread + len(self._closing) < MAILBOX_SLOTS

    def _room(self) -> bool:
        if not self._has_room():
            self._known_response_read = self._registers.firmware.read("response_read")
        return self._has_room()

    def serve(self) -> None:
        """Answer one request."""
        self._port.compute(self._config.costs.request)
        firmware = self._registers.firmware
        waiting = (self._known_write - self._read) & INDEX_MASK
        if waiting > MAILBOX_SLOTS:
            # The host overran its own ring: what lies there cannot be told apart.
            self._read = self._known_write
            firmware.write("request_read", self._read)
            self._respond(0, 0, Status.BAD_MESSAGE)
            return
        first = self._read % MAILBOX_SLOTS * MESSAGE_WORDS
        raw = 0
        for word in range(MESSAGE_WORDS):
            raw |= firmware.read("request_word", first + word) << (64 * word)
        self._read = (self._read + 1) & INDEX_MASK
        firmware.write("request_read", self._read)
        header = RESPONSE_PLAIN.unpack(raw)
        kind, request_id = header["kind"], header["request_id"]
        self._board.work(FirmwareTask.MAILBOX, code=kind)
        self._port.note("request", kind=kind, request_id=request_id)
        self._answer(kind, request_id, raw)

    def _answer(self, kind: int, request_id: int, raw: int) -> None:
        known = KINDS.get(kind)
        fields = MESSAGES[known].unpack(raw) if known is not None else {}
        bad = known is None or any(
            value for name, value in fields.items() if name.startswith("reserved")
        )
        early = (
            self._board.phase is not FirmwarePhase.RUNNING and known is not MessageKind.HANDSHAKE
        )
        if bad or early:
            self._respond(kind, request_id, Status.BAD_MESSAGE)
            return
        status, answer = Status.OK, dict[str, int]()
        match known:
            case MessageKind.HANDSHAKE:
                status, answer = self._shake(fields)
            case MessageKind.CREATE_QUEUE:
                status = self._queues.create(fields)
            case MessageKind.QUERY_QUEUE:
                status, answer = self._queues.query(fields["queue"])
            case MessageKind.RESET_QUEUE:
                status, answer = self._queues.reset(fields["queue"])
            case MessageKind.DESTROY_QUEUE:
                status = self._queues.close(fields["queue"])
                if not status:
                    self._closing[fields["queue"]] = request_id
                    self.finish_closing()
                    return
        self._respond(kind, request_id, status, answer)

    def _shake(self, fields: dict[str, int]) -> tuple[Status, dict[str, int]]:
        answer = {"abi_major": ABI_MAJOR, "abi_minor": ABI_MINOR, "queues": QUEUES}
        if fields["abi_major"] != ABI_MAJOR:
            return Status.VERSION_MISMATCH, answer
        if self._board.phase is not FirmwarePhase.RUNNING:
            self._board.enter(FirmwarePhase.RUNNING)
        return Status.OK, answer

    def finish_closing(self) -> None:
        """Answer DESTROY_QUEUE for the queues that have drained."""
        for number, request_id in list(self._closing.items()):
            answer = self._queues.closed(number)
            if answer is not None:
                del self._closing[number]
                self._respond(MessageKind.DESTROY_QUEUE, request_id, Status.OK, answer)

    def _respond(
        self, kind: int, request_id: int, status: Status, answer: dict[str, int] | None = None
    ) -> None:
        record = RESPONSES[KINDS[kind]] if answer else RESPONSE_PLAIN
        raw = record.pack(answer or {}, kind=kind, request_id=request_id, status=status)
        firmware = self._registers.firmware
        first = self._written % MAILBOX_SLOTS * MESSAGE_WORDS
        for word in range(MESSAGE_WORDS):
            firmware.write("response_word", raw >> (64 * word) & (1 << 64) - 1, first + word)
        self._written = (self._written + 1) & INDEX_MASK
        self._port.note("response", kind=kind, request_id=request_id, status=status)
        firmware.write("response_write", self._written)
