"""A small host for the firmware's tests: probes the model, talks to the mailbox, owns rings."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from abi.address import HBM_BASE, HOST_BASE, LINE_BYTES, MSI_BUS_ADDRESS, PACKET_BYTES, PAGE_BYTES
from abi.config_space import CONFIG_SPACE
from abi.geometry import VECTORS
from abi.mailbox import MESSAGES, RESPONSE_PLAIN, RESPONSES, FirmwarePhase, MessageKind
from abi.packet import PACKETS, PacketOpcode
from abi.registers_host import BAR0
from abi.semaphore import SEMAPHORE, STATUS_WORD
from abi.version import ABI_MAJOR, ABI_MINOR
from driver.bus import Region
from firmware.config import FirmwareConfig
from firmware.main import main
from firmware.state import DeviceSram
from tb.models.device import ModelMachine, ModelTiming, Note

__all__ = ["Host", "Ring"]

Fields = dict[str, int]

TASK_TIMEOUT = 1_000_000
ANSWER_LIMIT = 100_000
"""Cycles within which a mailbox request must be answered."""


@dataclass
class Ring:
    """A queue as its user sees it: the ring, the read index, and a semaphore at `semaphore`."""

    host: "Host"
    number: int
    depth: int
    ring: int
    index_page: int
    written: int = 0

    @property
    def semaphore(self) -> int:
        """Device address of the queue's own semaphore."""
        return HOST_BASE + self.index_page + 128

    @property
    def read_index(self) -> int:
        """The published read index."""
        return self.host.word(self.index_page + 64)

    def put_raw(self, packet: int) -> int:
        """Write a packet of 512 bits into the next slot; returns its index."""
        slot = self.written % self.depth
        self.host.poke(self.ring + slot * PACKET_BYTES, packet.to_bytes(PACKET_BYTES, "little"))
        self.written += 1
        return self.written - 1

    def put(self, opcode: PacketOpcode, **fields: int) -> int:
        """Write a packet with its sequence number; returns its index."""
        values: Fields = {"opcode": opcode, "sequence": self.written & 0xFFFF_FFFF} | fields
        return self.put_raw(PACKETS[opcode].pack(values))

    def copy(self, source: int, destination: int, row_bytes: int, rows: int = 1, **f: int) -> int:
        """Write a COPY packet."""
        return self.put(
            PacketOpcode.COPY,
            source=source,
            destination=destination,
            row_bytes=row_bytes,
            rows=rows,
            **f,
        )

    def kernel(
        self,
        code: bytes,
        *arguments: int,
        grid: tuple[int, int, int] = (1, 1, 1),
        **fields: int,
    ) -> int:
        """Place a kernel and its argument block of 64-bit words, and write a KERNEL packet."""
        block = b"".join(word.to_bytes(8, "little") for word in arguments)
        values: Fields = {
            "code": self.host.place(code),
            "code_bytes": len(code),
            "arguments": self.host.place(block) if block else 0,
            "argument_bytes": len(block),
            "grid_x": grid[0],
            "grid_y": grid[1],
            "grid_z": grid[2],
        }
        return self.put(PacketOpcode.KERNEL, **(values | fields))

    def signal(self, value: int, *, semaphore: int | None = None, interrupt: int = 1) -> int:
        """Write a SIGNAL packet, by default for the queue's own semaphore."""
        at = self.semaphore if semaphore is None else semaphore
        return self.put(PacketOpcode.SIGNAL, semaphore=at, value=value, interrupt=interrupt)

    def wait(self, semaphore: int, value: int, timeout: int = 0) -> int:
        """Write a WAIT packet."""
        return self.put(PacketOpcode.WAIT, semaphore=semaphore, value=value, timeout=timeout)

    def ring_doorbell(self, value: int | None = None) -> None:
        """Publish what was written (or an arbitrary index)."""
        self.host.bus.write(
            Region.BAR2, self.number * 4096, self.written if value is None else value
        )

    def value(self) -> int:
        """Value of the own semaphore."""
        return self.host.word(self.index_page + 128)

    def status(self) -> Fields:
        """Status word of the own semaphore."""
        return STATUS_WORD.unpack(self.host.word(self.index_page + 128 + 16))

    def reach(self, value: int, limit: int = 200_000) -> int:
        """Wait for the own semaphore by interrupt; returns the time that took.

        Raises:
            TimeoutError: the value was not reached within `limit` cycles.
        """
        began = self.host.bus.now()
        while self.value() < value:
            if not self.host.bus.wait_interrupt(2 << self.number, began + limit):
                raise TimeoutError(
                    f"queue {self.number} must reach {value}, not {self.value()}: "
                    f"{self.host.query(self.number)}"
                )
        return self.host.bus.now() - began

    def query(self) -> Fields:
        """QUERY_QUEUE."""
        return self.host.query(self.number)


@dataclass
class Host:
    """The model with its firmware booted. Each test makes its own."""

    config: FirmwareConfig = field(default_factory=FirmwareConfig)
    sram: DeviceSram = field(default_factory=DeviceSram)
    timing: ModelTiming = field(default_factory=ModelTiming)
    boot: bool = True

    def __post_init__(self) -> None:
        self.machine = ModelMachine(
            lambda port: main(port, self.sram, self.config), timing=self.timing
        )
        self.bus = self.machine.bus
        self.request_id = 0
        self.requests = 0
        self.responses = 0
        self.rings: dict[int, Ring] = {}
        if self.boot:
            self.power_up()
            assert self.call(MessageKind.HANDSHAKE, **self.version)["status"] == 0

    version: Fields = field(
        default_factory=lambda: {"abi_major": ABI_MAJOR, "abi_minor": ABI_MINOR}
    )

    # Registers.

    def read(self, name: str, index: int = 0) -> int:
        """Read a BAR0 register."""
        return self.bus.read(Region.BAR0, BAR0.address(name, index))

    def read_fields(self, name: str, index: int = 0) -> Fields:
        """Read the fields of a BAR0 register."""
        return BAR0[name].register.unpack(self.read(name, index))

    def write(self, name: str, index: int = 0, /, **fields: int) -> None:
        """Write a BAR0 register by its fields."""
        self.bus.write(Region.BAR0, BAR0.address(name, index), BAR0[name].register.pack(fields))

    def power_up(self) -> None:
        """Everything up to the phase in which the firmware waits for the handshake."""
        identity = CONFIG_SPACE["identity"].register
        self.bus.write(Region.CONFIG, 0, identity.pack(memory_enable=1, bus_master=1))
        pages = len(self.machine.chip.memory.host) // PAGE_BYTES
        self.write("host_window", base=1, limit=pages)
        for vector in range(VECTORS):
            self.write("vector_address", vector, address=MSI_BUS_ADDRESS)
            self.write("vector_data", vector, data=vector, masked=0)
        self.write("control", firmware_run=1)
        self.until(lambda: self.phase is FirmwarePhase.WAITING_FOR_HANDSHAKE, 20_000)

    @property
    def phase(self) -> FirmwarePhase:
        """Phase that the firmware shows."""
        return FirmwarePhase(self.read_fields("firmware_state")["phase"])

    def until(self, condition: Callable[[], bool], limit: int) -> int:
        """Let time pass until `condition()`; returns the time that took.

        Raises:
            TimeoutError: it did not hold within `limit` cycles.
        """
        began = self.bus.now()
        while not condition():
            if self.bus.now() - began > limit:
                raise TimeoutError(f"the condition must hold within {limit} cycles")
            self.machine.run(50)
        return self.bus.now() - began

    # Mailbox.

    def send_raw(self, message: int) -> None:
        """Publish 512 bits as a request."""
        slot = self.requests % 8
        for word in range(8):
            self.bus.write(
                Region.BAR0,
                BAR0.address("request_word", slot * 8 + word),
                message >> (64 * word) & (1 << 64) - 1,
            )
        self.requests += 1
        self.write("request_write", index=self.requests)

    def send(self, kind: MessageKind, **fields: int) -> int:
        """Publish a request; returns its id."""
        self.request_id += 1
        values: Fields = {"kind": kind, "request_id": self.request_id} | fields
        self.send_raw(MESSAGES[kind].pack(values))
        return self.request_id

    def receive_raw(self, limit: int = ANSWER_LIMIT) -> int:
        """The next response, as 512 bits.

        Raises:
            TimeoutError: none came within `limit` cycles.
        """
        until = self.bus.now() + limit
        while self.read("response_write") == self.responses:
            if not self.bus.wait_interrupt(1, until):
                raise TimeoutError(f"a response must come within {limit} cycles")
        slot = self.responses % 8
        raw = 0
        for word in range(8):
            raw |= self.read("response_word", slot * 8 + word) << (64 * word)
        self.responses += 1
        self.write("response_read", index=self.responses)
        return raw

    def receive(self, limit: int = ANSWER_LIMIT) -> Fields:
        """The next response, by the layout of its kind."""
        raw = self.receive_raw(limit)
        kind = RESPONSE_PLAIN.unpack(raw)["kind"]
        record = RESPONSES[MessageKind(kind)] if kind in list(MessageKind) else RESPONSE_PLAIN
        return record.unpack(raw)

    def call(self, kind: MessageKind, **fields: int) -> Fields:
        """Send a request and take its response."""
        request_id = self.send(kind, **fields)
        response = self.receive()
        assert (response["kind"], response["request_id"]) == (kind, request_id)
        return response

    def query(self, number: int) -> Fields:
        """QUERY_QUEUE."""
        return self.call(MessageKind.QUERY_QUEUE, queue=number)

    def create_fields(self, number: int, depth_log2: int = 6, **more: int) -> Fields:
        """Fields of a CREATE_QUEUE request with fresh pages."""
        count = max(1, (PACKET_BYTES << depth_log2) // PAGE_BYTES)
        return {
            "queue": number,
            "depth_log2": depth_log2,
            "vector": 1 + number,
            "ring": HOST_BASE + self.bus.allocate_pages(count),
            "read_index": HOST_BASE + self.bus.allocate_pages(1) + 64,
            "task_timeout": TASK_TIMEOUT,
            "block_timeout": TASK_TIMEOUT,
        } | more

    def create(self, number: int, depth_log2: int = 6, **more: int) -> Ring:
        """Make a queue."""
        fields = self.create_fields(number, depth_log2, **more)
        assert self.call(MessageKind.CREATE_QUEUE, **fields)["status"] == 0
        self.rings[number] = Ring(
            self,
            number,
            1 << depth_log2,
            fields["ring"] - HOST_BASE,
            fields["read_index"] - HOST_BASE - 64,
        )
        return self.rings[number]

    def settle(self) -> None:
        """Let the cores be cleaned, which the firmware has them do when it boots."""
        self.until(lambda: not any(core.busy for core in self.machine.chip.core.cores), 20_000)

    # Memory.

    def word(self, address: int) -> int:
        """An aligned 64-bit word of host memory, by bus address."""
        return int.from_bytes(self.bus.host_view(address, 8).tobytes(), "little")

    def poke(self, address: int, data: bytes) -> None:
        """Write host memory at once, by bus address."""
        self.bus.host_view(address, len(data))[:] = np.frombuffer(data, np.uint8)

    def place(self, data: bytes) -> int:
        """Put data into fresh pages of host memory; returns its device address."""
        bus = self.bus.allocate_pages(max(1, -(-len(data) // PAGE_BYTES)))
        self.poke(bus, data)
        return HOST_BASE + bus

    def hbm(self, address: int, nbytes: int) -> np.ndarray:
        """A view of HBM, uint8, shape (nbytes,), by device address."""
        return self.machine.chip.memory.hbm[address - HBM_BASE : address - HBM_BASE + nbytes]

    def new_semaphore(self, **fields: int) -> int:
        """A semaphore in host memory; returns its bus address."""
        address = self.bus.allocate_pages(1)
        self.poke(address, SEMAPHORE.pack_bytes(fields))
        assert address % LINE_BYTES == 0
        return address

    # Notes.

    def notes(self, event: str, **fields: int) -> list[Note]:
        """The firmware's notes of an event whose fields have these values."""
        return [
            note
            for note in self.machine.notes
            if note.event == event and fields.items() <= note.fields.items()
        ]
