"""The device: opening, memory, streams, copies, synchronisation, reset."""

import math
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from driver import tracing
from driver.bus import Bus, attached_bus
from driver.errors import DeviceClosedError, NpuError, OutOfMemoryError
from driver.kmd.device import KernelDriver
from driver.kmd.ioctl import MemoryKind
from driver.kmd.probe import DeviceProperties
from driver.kmd.session import Session
from driver.umd.client import Client
from driver.umd.queue import Semaphore
from runtime import copies
from runtime.argument_blocks import ArgumentPool
from runtime.arguments import check_dtype, check_integer, check_plain, check_shape, refuse
from runtime.event import Event
from runtime.heap import Block, Heap
from runtime.kernels.cache import ProgramCache
from runtime.memory import DeviceArray, DeviceBuffer, PinnedArray, make_pinned
from runtime.module import KernelSource, Module
from runtime.semaphores import SemaphorePool
from runtime.staging import StagingPool
from runtime.stream import BLOCK_TIMEOUT, DEPTH, TASK_TIMEOUT, TURN, Stream, check_timeout

__all__ = ["Device", "MemoryInfo"]

if TYPE_CHECKING:
    HostArray = npt.NDArray[Any]
    Memory = DeviceBuffer | DeviceArray | HostArray


class MemoryInfo(dict[str, int]):
    """Bytes of device memory: `total`, `used`, `free`, and `largest` free block."""


class Device:
    """The NPU behind a bus. A context manager; `close` may be called twice.

    Args:
        bus: the machine; None: the one that is attached (`driver.bus.attached_bus`).

    Attributes: `info` (what it is made of), `last_error` (the last error of any of its streams).

    Raises:
        RuntimeError: no machine is attached.
        InvalidArgumentError: `bus` is no bus.
        StaleHandleError: the device is already open.
        ProbeError, VersionMismatchError, FirmwareError: it does not come up.
    """

    def __init__(self, bus: Bus | None = None) -> None:
        self.bus = attached_bus() if bus is None else bus
        if not all(hasattr(self.bus, name) for name in ("read", "write", "load", "store", "now")):
            raise refuse("bus", "be a Bus (driver.bus) or None", bus)
        with tracing.span("api", "device.open"):
            self.driver = KernelDriver(self.bus)
            self._start()
        self.info: DeviceProperties = self.driver.properties
        self.last_error: NpuError | None = None

    def _start(self) -> None:
        """State of a new generation."""
        self._session = Session(self.driver)
        self.client = Client(self._session, self.driver.lease)
        self.heap = Heap(self.client)
        self.staging = StagingPool(self.client, self.heap)
        self.argument_blocks = ArgumentPool(self.client, self.heap)
        self.programs = ProgramCache(self)
        self.streams: list[Stream] = []
        self._semaphores = SemaphorePool(self.client, self.heap)
        self._default_stream: Stream | None = None
        self._makes_default = False

    @classmethod
    def open(cls, bus: Bus | None = None) -> Self:
        """Open the device; the same as `Device()`."""
        return cls(bus)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Abort unfinished work, reset the device and give everything back.

        A second call does nothing; every other call raises DeviceClosedError afterwards.
        """
        with tracing.span("api", "device.close"):
            self.driver.close()
            self.heap.clear()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.driver.closed

    @property
    def generation(self) -> int:
        """Grows with each reset; objects of a former generation are refused."""
        return self.driver.generation

    @property
    def memory_info(self) -> MemoryInfo:
        """Bytes of device memory: total, used, free and the largest free block."""
        self.check_open()
        self.heap.reap()
        hbm = self.driver.hbm
        return MemoryInfo(
            total=hbm.nbytes,
            used=hbm.used_bytes,
            free=hbm.nbytes - hbm.used_bytes,
            largest=hbm.largest_free,
        )

    # Checks that its objects make.

    def check_open(self) -> None:
        """Refuse a closed device.

        Raises:
            DeviceClosedError: it is closed.
        """
        if self.driver.closed:
            raise DeviceClosedError("the device is closed")

    def check_current(self, generation: int) -> None:
        """Refuse an object that was made before the last reset.

        Raises:
            DeviceClosedError, StaleHandleError: it was.
        """
        self.driver.check_generation(generation)

    def check_stream(self, name: str, stream: object) -> Stream:
        """A stream of this device; None: the default stream.

        Raises:
            InvalidArgumentError: it is none.
        """
        self.check_open()
        if stream is None:
            return self.default_stream
        if not isinstance(stream, Stream):
            raise refuse(name, "be a Stream or None", stream)
        if stream.device is not self:
            raise refuse(name, "belong to this device", stream)
        return stream

    def check_event(self, name: str, event: object) -> Event:
        """An event of this device.

        Raises:
            InvalidArgumentError: it is none.
        """
        if not isinstance(event, Event):
            raise refuse(name, "be an Event", event)
        if event.device is not self:
            raise refuse(name, "belong to this device", event)
        return event

    def note(self, error: NpuError) -> None:
        """Keep an error as `last_error`."""
        self.last_error = error

    def take_semaphore(self) -> tuple[Block, Semaphore]:
        """A semaphore for an event."""
        return self._semaphores.take()

    def forget_stream(self, stream: Stream) -> None:
        """A stream was destroyed."""
        self.streams.remove(stream)
        if self._default_stream is stream:
            self._default_stream = None
        self.programs.forget(stream)

    # Memory.

    def malloc(self, nbytes: int) -> DeviceBuffer:
        """Take `nbytes` of device memory, aligned to 256 bytes; its content is undefined.

        Raises:
            InvalidArgumentError: `nbytes` is no integer of at least 1.
            OutOfMemoryError: there is not enough, even after freed blocks came back.
        """
        with tracing.span("api", "malloc"):
            self.check_open()
            size = check_integer("nbytes", nbytes, 1)
            if size > self.info.hbm_bytes:
                raise OutOfMemoryError(
                    f"nbytes must be at most the device's {self.info.hbm_bytes} bytes, not {size}"
                )
            return DeviceBuffer(self, self.heap.allocate(size, MemoryKind.HBM))

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
        """A DeviceArray with undefined content.

        Raises:
            InvalidArgumentError, OutOfMemoryError: as `malloc`.
        """
        self.check_open()
        sizes, kind = check_shape("shape", shape), check_dtype("dtype", dtype)
        return DeviceArray(self.malloc(math.prod(sizes) * kind.itemsize), sizes, kind)

    def zeros(self, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
        """A DeviceArray of zero bytes; blocks.

        Raises:
            InvalidArgumentError, OutOfMemoryError: as `malloc`.
            NpuError: the default stream takes no work, or the fill failed.
        """
        array = self.empty(shape, dtype)
        stream = self.check_stream("stream", None)
        self._complete(stream, copies.fill(self, array, bytes(1), stream))
        return array

    def array(self, source: "HostArray") -> DeviceArray:
        """A DeviceArray with a copy of a host array; blocks. A 0-d array becomes one of shape (1,).

        Raises:
            InvalidArgumentError: `source` is no numpy array, or empty, or masked.
            OutOfMemoryError: as `malloc`.
        """
        self.check_open()
        if not isinstance(source, np.ndarray):
            raise refuse("source", "be a numpy array", source)
        check_plain("source", source)
        if source.size == 0:
            raise refuse("source", "have at least one element", f"shape {source.shape}")
        check_dtype("source.dtype", source.dtype)
        array = self.empty(source.shape or (1,), source.dtype)
        self.memcpy(array, np.ascontiguousarray(source))
        return array

    def pinned(self, shape: int | tuple[int, ...], dtype: Any) -> PinnedArray:
        """A zeroed numpy array in pinned host memory, which the device reaches without a copy.

        Raises:
            InvalidArgumentError: as `empty`.
            OutOfMemoryError: no run of host pages is free.
        """
        with tracing.span("api", "pinned"):
            self.check_open()
            sizes, kind = check_shape("shape", shape), check_dtype("dtype", dtype)
            block = self.heap.allocate(math.prod(sizes) * kind.itemsize, MemoryKind.HOST)
            return make_pinned(self, block, sizes, kind)

    def free(self, memory: "DeviceBuffer | DeviceArray | PinnedArray") -> None:
        """Free memory. It returns once all submitted work that uses it is done.

        Raises:
            InvalidArgumentError: `memory` is none of this device.
            StaleHandleError: it was freed before, or the device was reset.
        """
        with tracing.span("api", "free"):
            self.check_open()
            owner: Any = memory
            if isinstance(memory, DeviceArray):
                owner = memory.buffer
            elif isinstance(memory, PinnedArray) and memory.pinned:
                owner = memory.owner
            elif not isinstance(memory, DeviceBuffer):
                rule = "be a DeviceBuffer, a DeviceArray or a pinned array"
                raise refuse("memory", rule, type(memory).__name__)
            if owner.device is not self:
                raise refuse("memory", "belong to this device", memory)
            owner.check("memory")
            self.heap.free(owner.block)

    # Copies.

    def memcpy(self, dst: "Memory", src: "Memory") -> None:
        """Copy all bytes of `src` to `dst` and wait for it.

        It runs on the default stream, after all submitted work that uses either of them.

        Raises:
            InvalidArgumentError: sizes or dtypes differ, an operand is unfit, or both are pageable.
            NpuError: the copy failed.
        """
        with tracing.span("api", "memcpy"):
            stream = self.check_stream("stream", None)
            self._settle(dst, src)
            self._complete(stream, copies.copy(self, dst, src, stream))

    def memcpy_async(self, dst: "Memory", src: "Memory", stream: Stream | None = None) -> None:
        """Submit a copy of all bytes of `src` to `dst`.

        Pinned arrays must stay as they are until the stream has come past it. A pageable `src` is
        copied at the call; with a pageable `dst` the call blocks until the copy is complete.

        Raises:
            InvalidArgumentError: as `memcpy`.
            NpuError: the stream takes no work.
        """
        with tracing.span("api", "memcpy_async"):
            copies.copy(self, dst, src, self.check_stream("stream", stream))

    def memcpy_2d(
        self,
        dst: "Memory",
        dst_pitch: int,
        src: "Memory",
        src_pitch: int,
        row_bytes: int,
        rows: int,
    ) -> None:
        """Copy `rows` rows of `row_bytes` bytes and wait; pitches are bytes from row to row.

        Raises:
            InvalidArgumentError, NpuError: as `memcpy`; or a row reaches outside.
        """
        with tracing.span("api", "memcpy_2d"):
            stream = self.check_stream("stream", None)
            self._settle(dst, src)
            value = copies.copy_2d(self, dst, dst_pitch, src, src_pitch, row_bytes, rows, stream)
            self._complete(stream, value)

    def memcpy_2d_async(
        self,
        dst: "Memory",
        dst_pitch: int,
        src: "Memory",
        src_pitch: int,
        row_bytes: int,
        rows: int,
        stream: Stream | None = None,
    ) -> None:
        """Submit a 2-D copy; as `memcpy_2d` and `memcpy_async`."""
        with tracing.span("api", "memcpy_2d_async"):
            target = self.check_stream("stream", stream)
            copies.copy_2d(self, dst, dst_pitch, src, src_pitch, row_bytes, rows, target)

    def memset(
        self, dst: DeviceBuffer | DeviceArray, value: int, stream: Stream | None = None
    ) -> None:
        """Submit a fill of every byte of `dst` with `value` (0 to 255).

        Raises:
            InvalidArgumentError: an argument breaks its rule.
            NpuError: the stream takes no work.
        """
        with tracing.span("api", "memset"):
            target = self.check_stream("stream", stream)
            check_integer("value", value, 0, 255)
            copies.fill(self, dst, bytes([value]), target)

    def fill(self, dst: DeviceArray, value: float, stream: Stream | None = None) -> None:
        """Submit a fill of every element of `dst` with `value`, converted to its dtype.

        Raises:
            InvalidArgumentError: `value` is no single number or does not fit, or elements are not
                1, 2, 4 or 8 bytes.
            NpuError: the stream takes no work.
        """
        with tracing.span("api", "fill"):
            target = self.check_stream("stream", stream)
            if not isinstance(dst, DeviceArray):
                raise refuse("dst", "be a DeviceArray", dst)
            if dst.dtype.itemsize not in (1, 2, 4, 8):
                raise refuse("dst", "have elements of 1, 2, 4 or 8 bytes", dst.dtype)
            single = np.asanyarray(value)
            several = single.ndim > 0 or isinstance(single, np.ma.MaskedArray)
            narrows = single.dtype.kind == "c" and dst.dtype.kind != "c"
            if several or narrows or value is None:
                raise refuse("value", f"fit {dst.dtype}", value)
            rounds = dst.dtype.kind == "f" and single.dtype.kind in "biuf"
            try:
                pattern = np.asarray(value).astype(dst.dtype, casting="unsafe")
                if not rounds and not bool(pattern == value):
                    raise ValueError("it comes out as another value")
            except (TypeError, ValueError, OverflowError):
                raise refuse("value", f"fit {dst.dtype}", value) from None
            copies.fill(self, dst, pattern.tobytes(), target)

    def _settle(self, *operands: object) -> None:
        """Before a blocking copy: wait for work of other streams on its memory."""
        for thing in operands:
            if isinstance(thing, DeviceArray):
                block: Block | None = thing.buffer.block
            elif isinstance(thing, DeviceBuffer):
                block = thing.block
            elif isinstance(thing, PinnedArray) and thing.owner is not None and thing.pinned:
                block = thing.owner.block
            else:
                block = None
            if block is not None and block.generation == self.generation:
                for stream, value in list(block.uses.items()):
                    stream.finish(value)

    def _complete(self, stream: Stream, value: int | None) -> None:
        if value is not None:
            stream.finish(value)
            stream.check()

    # Kernels.

    def load(self, source: KernelSource) -> Module:
        """Load a kernel object: an object file's bytes or its path, or a `KernelObject`.

        Raises:
            InvalidArgumentError: it is none, or needs more than the device has.
            OSError: the file cannot be read.
        """
        with tracing.span("api", "load"):
            return Module(self, source)

    # Streams and events.

    @property
    def default_stream(self) -> Stream:
        """The stream of calls that name none; an ordinary stream, made at its first use."""
        self.check_open()
        while self._makes_default:  # Another host thread was first.
            self.client.bus.wait_interrupt(0, self.client.bus.now() + TURN)
        if self._default_stream is None:
            self._makes_default, generation = True, self.generation
            try:
                self._default_stream = Stream(self)
            finally:
                if self.generation == generation:  # Else a reset has begun anew.
                    self._makes_default = False
        return self._default_stream

    def stream(
        self,
        *,
        depth: int = DEPTH,
        priority: int = 0,
        task_timeout: int = TASK_TIMEOUT,
        block_timeout: int = BLOCK_TIMEOUT,
    ) -> Stream:
        """Make a stream; see `Stream`."""
        return Stream(
            self,
            depth=depth,
            priority=priority,
            task_timeout=task_timeout,
            block_timeout=block_timeout,
        )

    def event(self) -> Event:
        """Make an event; see `Event`."""
        return Event(self)

    def synchronize(self, timeout: int | None = None) -> None:
        """Wait for all streams.

        `timeout`: cycles without retired work after which it gives up.

        Raises:
            NpuError: the first error of a stream; the others were waited for as well.
        """
        with tracing.span("api", "device.synchronize"):
            self.check_open()
            cycles = check_timeout(timeout)
            first: NpuError | None = None
            for stream in list(self.streams):
                try:
                    stream.synchronize(cycles)
                except NpuError as error:
                    first = first or error
            self.heap.reap()
            if first is not None:
                raise first

    def reset(self) -> None:
        """Reset the chip and boot it again, after a hang or a crash.

        All memory, streams and events of before are gone: using them raises StaleHandleError.
        A pinned array's numpy view must not be touched any more either.

        Raises:
            DeviceClosedError: it is closed.
            NpuError: it does not come up; it is closed then.
        """
        with tracing.span("api", "device.reset"):
            self.check_open()
            try:
                self.client.reset_device()
            finally:
                self.heap.clear()
            self._start()
            self.last_error = None

    def __repr__(self) -> str:
        return f"Device({'closed' if self.closed else f'generation {self.generation}'})"
