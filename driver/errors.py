"""Errors of the driver and the runtime: which side is to blame, where, and what was in flight."""

from abi.core import Pipe
from abi.semaphore import STATUS_WORD
from abi.status import Engine, Side, Status, side_of

__all__ = [
    "DependencyFailedError",
    "DeviceClosedError",
    "DeviceError",
    "DeviceHangError",
    "DoorbellLostError",
    "FirmwareCrashError",
    "FirmwareError",
    "FirmwareStallError",
    "HostThreadError",
    "InterruptLostError",
    "InvalidArgumentError",
    "KernelTimeoutError",
    "MailboxTimeoutError",
    "NotFinishedError",
    "NpuError",
    "OutOfMemoryError",
    "ProbeError",
    "RingFullError",
    "StaleHandleError",
    "SubmissionError",
    "VersionMismatchError",
    "WaitTimeoutError",
    "fault_from_status",
]


class NpuError(Exception):
    """Something failed.

    Attributes: `side` (HOST: the submission is wrong, FIRMWARE: it was not processed, DEVICE: its
    execution failed), `status`, `engine` (the unit that detected it), `instance` (number of that
    unit), `queue`, `packet` (ring index), `address` (device address), `in_flight` (what had not
    finished), and of a kernel `pipe`, `pc` (bytes from the start of its code), `block` (x, y, z)
    and `block_number`, each None or empty where it is not known.
    """

    default_side = Side.HOST
    default_status: Status | None = None
    default_engine = Engine.NONE

    def __init__(
        self,
        message: str,
        *,
        side: Side | None = None,
        status: Status | None = None,
        engine: Engine | None = None,
        instance: int | None = None,
        queue: int | None = None,
        packet: int | None = None,
        address: int | None = None,
        pipe: Pipe | None = None,
        pc: int | None = None,
        block_number: int | None = None,
        in_flight: tuple[str, ...] = (),
    ) -> None:
        self.message = message
        self.side = self.default_side if side is None else side
        self.status = self.default_status if status is None else status
        self.engine = self.default_engine if engine is None else engine
        self.instance = instance
        self.queue = queue
        self.packet = packet
        self.address = address
        self.pipe = pipe
        self.pc = pc
        self.block_number = block_number
        self.block: tuple[int, int, int] | None = None
        self.in_flight = in_flight
        super().__init__(message)

    def locate(self, grid: tuple[int, int, int]) -> None:
        """Give the failed block its coordinates in `grid`, the numbers of blocks along x, y, z."""
        if self.block_number is not None:
            row, x = divmod(self.block_number, grid[0])
            z, y = divmod(row, grid[1])
            self.block = (x, y, z)

    def __str__(self) -> str:
        places = [self.side.value]
        if self.status is not None:
            places.append(self.status.name)
        if self.engine is not Engine.NONE:
            unit = self.engine.name
            places.append(unit if self.instance is None else f"{unit} {self.instance}")
        if self.pipe is not None:
            places.append(f"pipe {self.pipe.name}")
        if self.pc is not None:
            places.append(f"pc {self.pc:#x}")
        if self.block_number is not None:
            shown = self.block_number if self.block is None else self.block
            places.append(f"block {shown}")
        if self.queue is not None:
            places.append(f"queue {self.queue}")
        if self.packet is not None:
            places.append(f"packet {self.packet}")
        if self.address is not None:
            places.append(f"address {self.address:#x}")
        text = f"{self.message} [{', '.join(places)}]"
        if self.in_flight:
            text += "; in flight: " + "; ".join(self.in_flight)
        return text


class InvalidArgumentError(NpuError, ValueError):
    """An argument breaks a rule; nothing was submitted. Its message is the plain rule."""

    def __str__(self) -> str:
        return self.message


class StaleHandleError(NpuError):
    """The object was freed or destroyed, or the device was reset since it was made."""


class DeviceClosedError(StaleHandleError):
    """The device is closed."""


class OutOfMemoryError(NpuError, MemoryError):
    """No memory, queue or page of the size asked for is free."""

    default_status = Status.NO_RESOURCE


class NotFinishedError(NpuError):
    """A result was asked for before the work that makes it has ended."""


class HostThreadError(NpuError):
    """The machine was called from an operating-system thread; nothing was done. Its host threads
    are actors: `tb.engine.host.current_machine().actors.spawn(name, function)` starts one."""


class ProbeError(NpuError):
    """What answers on the bus is not this device."""

    default_side = Side.DEVICE
    default_engine = Engine.HOST_INTERFACE


class VersionMismatchError(ProbeError):
    """Driver and device, or driver and firmware, speak different ABI versions."""

    default_side = Side.HOST
    default_status = Status.VERSION_MISMATCH


class SubmissionError(NpuError):
    """HOST: what was submitted is wrong, or did not reach the device."""


class RingFullError(SubmissionError):
    """The ring had no free slot within the timeout; nothing of the operation was submitted."""

    default_status = Status.NO_RESOURCE


class DoorbellLostError(SubmissionError):
    """The device does not know of packets that were published and rung for."""

    default_status = Status.DOORBELL_LOST
    default_engine = Engine.DOORBELL


class DependencyFailedError(SubmissionError):
    """What this work waited for has failed."""

    default_status = Status.DEPENDENCY_FAILED
    default_engine = Engine.FIRMWARE


class WaitTimeoutError(SubmissionError):
    """A wait ended at its limit although the device is healthy: it was too short, or nobody will
    ever signal."""

    default_status = Status.WAIT_TIMEOUT
    default_engine = Engine.FIRMWARE


class FirmwareError(NpuError):
    """FIRMWARE: it did not process a submission or message."""

    default_side = Side.FIRMWARE
    default_engine = Engine.FIRMWARE


class FirmwareStallError(FirmwareError):
    """The firmware's heartbeat stands still."""

    default_status = Status.FIRMWARE_STALL


class FirmwareCrashError(FirmwareError):
    """The firmware reports that it has crashed."""

    default_status = Status.FIRMWARE_CRASH


class MailboxTimeoutError(FirmwareError):
    """The firmware lives, but did not answer a message in time. A late answer is dropped."""

    default_status = Status.FIRMWARE_STALL
    default_engine = Engine.MAILBOX


class DeviceError(NpuError):
    """DEVICE: the hardware failed while it executed."""

    default_side = Side.DEVICE


class InterruptLostError(DeviceError):
    """The work is complete and its results are valid, but its interrupt did not reach the host."""

    default_status = Status.INTERRUPT_LOST
    default_engine = Engine.INTERRUPT


class KernelTimeoutError(DeviceError):
    """A kernel or copy ran longer than its limit and was aborted."""

    default_status = Status.KERNEL_TIMEOUT


class DeviceHangError(DeviceError):
    """A unit of the device makes no progress."""

    default_status = Status.DEVICE_HANG


_BY_STATUS: dict[Status, type[NpuError]] = {
    Status.DEPENDENCY_FAILED: DependencyFailedError,
    Status.DOORBELL_LOST: DoorbellLostError,
    Status.WAIT_TIMEOUT: WaitTimeoutError,
    Status.VERSION_MISMATCH: VersionMismatchError,
    Status.FIRMWARE_STALL: FirmwareStallError,
    Status.FIRMWARE_CRASH: FirmwareCrashError,
    Status.INTERRUPT_LOST: InterruptLostError,
    Status.KERNEL_TIMEOUT: KernelTimeoutError,
    Status.DEVICE_HANG: DeviceHangError,
}
_BY_SIDE: dict[Side, type[NpuError]] = {
    Side.HOST: SubmissionError,
    Side.FIRMWARE: FirmwareError,
    Side.DEVICE: DeviceError,
}
_MEANING: dict[Status, str] = {
    Status.BAD_OPCODE: "a packet has an unknown opcode",
    Status.BAD_FIELD: "a packet has a field out of range",
    Status.BAD_DESCRIPTOR: "a DMA descriptor is malformed",
    Status.ADDRESS_FAULT: "an access went where the device has no memory for it",
    Status.DOORBELL_VIOLATION: "a doorbell moved backwards or past the ring's depth",
    Status.BAD_COMMAND: "a core command is malformed",
    Status.MISALIGNED: "an address is not aligned",
    Status.BUFFER_OVERFLOW: "a core command reaches behind an on-chip buffer",
    Status.DEPENDENCY_FAILED: "what this work waited for has failed",
    Status.BAD_SEQUENCE: "a packet carries another ring index: its slot was stale",
    Status.BAD_MESSAGE: "a mailbox message is malformed",
    Status.NO_RESOURCE: "a resource was not free",
    Status.WAIT_TIMEOUT: "a semaphore was not signalled in time",
    Status.FIRMWARE_CRASH: "the firmware has crashed",
    Status.FIRMWARE_STALL: "the firmware stands still",
    Status.BUS_ERROR: "an access was answered with a bus error",
    Status.KERNEL_TIMEOUT: "it ran longer than its limit and was aborted",
    Status.FLAG_DEADLOCK: "the pipes of a core wait for flags that nobody will set",
    Status.FLAG_OVERFLOW: "a flag of a core was set too often",
    Status.ABORTED: "it was aborted",
    Status.DEVICE_HANG: "a unit makes no progress",
    Status.ILLEGAL_INSTRUCTION: "a kernel executed what is no instruction",
    Status.BREAKPOINT: "a kernel stopped at a breakpoint",
}


def fault_from_status(
    word: int,
    *,
    packet: int | None = None,
    address: int | None = None,
    pipe: int | None = None,
    detail: int = 0,
    block: int | None = None,
    in_flight: tuple[str, ...] = (),
) -> NpuError:
    """The error for a status word that reports a fault.

    `packet` is the full ring index where it is known (the word holds its low 32 bits), `address`
    the failing device address. `pipe`, `detail` and `block` are those of RESPONSE_QUEUE.

    Raises:
        ValueError: the word's status is no fault.
    """
    fields = STATUS_WORD.unpack(word)
    status, engine = Status(fields["status"]), Engine(fields["engine"])
    side = side_of(status)
    message = _MEANING.get(status, status.name)
    if engine is Engine.DMA and detail:
        message += f" (after {detail} descriptors)"
    in_core = engine is Engine.CORE and pipe is not None
    return _BY_STATUS.get(status, _BY_SIDE[side])(
        message,
        side=side,
        status=status,
        engine=engine,
        instance=fields["instance"],
        queue=fields["queue"],
        packet=fields["packet"] if packet is None else packet,
        address=address or None,
        pipe=Pipe(pipe) if in_core and pipe in list(Pipe) else None,
        pc=detail if in_core else None,
        block_number=block if in_core else None,
        in_flight=in_flight,
    )
