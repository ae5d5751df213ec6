"""A user's session with the KMD: everything it took is known here and given back with it."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from abi.address import HOST_BASE, LINE_BYTES, PAGE_BYTES
from driver.errors import InvalidArgumentError, NpuError, StaleHandleError
from driver.kmd.device import KernelDriver
from driver.kmd.ioctl import IOCTLS, IoctlCode, MemoryKind
from driver.kmd.queues import Queue
from driver.registers import RegisterAccess

__all__ = ["Session"]

GENERATION_SHIFT = 40
LARGEST_ALIGNMENT = 1 << 21

_serials = count(1)
_pasids = count(1)


@dataclass(frozen=True)
class _Memory:
    kind: MemoryKind
    address: int  # Device address (HBM) or bus address (HOST).
    nbytes: int


class Session:
    """What one user of the device holds. Handles are never used twice and carry the generation
    in which they were made, so that an old one can never touch new state."""

    def __init__(self, driver: KernelDriver) -> None:
        self._driver = driver
        self._objects: dict[int, _Memory | Queue] = {}
        self._pasid = next(_pasids) & 0xFFFFF
        self._calls: dict[IoctlCode, Callable[..., dict[str, int]]] = {
            IoctlCode.ALLOCATE: self._allocate,
            IoctlCode.FREE: self._free,
            IoctlCode.CREATE_QUEUE: self._create_queue,
            IoctlCode.DESTROY_QUEUE: self._destroy_queue,
            IoctlCode.RESET_QUEUE: self._reset_queue,
            IoctlCode.QUERY_QUEUE: self._query_queue,
            IoctlCode.WAIT: self._wait,
            IoctlCode.WAIT_SPACE: self._wait_space,
            IoctlCode.RESET_DEVICE: self._reset_device,
        }

    def ioctl(self, code: int, argument: bytes = bytes(8)) -> bytes:
        """Make a call; `argument` and the result are the structures of IOCTLS[code].

        Raises:
            InvalidArgumentError: there is no such call, or its structure is malformed.
            NpuError: the call failed; it left nothing behind.
        """
        if code not in list(IoctlCode):
            raise InvalidArgumentError(f"code must be an IoctlCode, not {code!r}")
        given, result = IOCTLS[IoctlCode(code)]
        copied = bytes(argument)
        if len(copied) != given.nbytes:
            raise InvalidArgumentError(
                f"argument of {IoctlCode(code).name} must have {given.nbytes} bytes, "
                f"not {len(copied)!r}"
            )
        fields = given.unpack_bytes(copied)
        for name in [name for name in fields if name.startswith("reserved")]:
            if fields.pop(name):
                raise InvalidArgumentError(f"{given.name}.{name} must be 0")
        self._driver.check_ready()
        return result.pack_bytes(self._calls[IoctlCode(code)](**fields))

    def mmap(self, handle: int) -> npt.NDArray[np.uint8]:
        """A zero-copy uint8 view, shape (nbytes,), of pinned host memory.

        Raises:
            StaleHandleError, InvalidArgumentError: `handle` names no such memory.
        """
        memory = self._memory(handle)
        if memory.kind is not MemoryKind.HOST:
            raise InvalidArgumentError(f"handle must be that of host memory, not {handle!r}")
        return self._driver.bus.host_view(memory.address, memory.nbytes)

    def map_doorbell(self, handle: int) -> RegisterAccess:
        """The doorbell of a queue: the only register that user mode reaches."""
        queue = self._queue(handle)
        return self._driver.leased_registers.doorbell_page(queue.number).doorbell

    @property
    def generation(self) -> int:
        """Generation of the device."""
        return self._driver.generation

    def check_generation(self, generation: int) -> None:
        """Refuse what belongs to a closed device or a former generation.

        Raises:
            DeviceClosedError, StaleHandleError: it does.
        """
        self._driver.check_generation(generation)

    def close(self) -> None:
        """Give everything back. A second call does nothing.

        Raises:
            NpuError: a queue could not be destroyed; what the device may still reach stays pinned
                until the device is reset.
        """
        failure: NpuError | None = None
        objects, self._objects = self._objects, {}
        if self._driver.closed:
            return
        current = {h: o for h, o in objects.items() if self._is_current(h)}
        for thing in current.values():
            if isinstance(thing, Queue):
                try:
                    self._driver.queues.destroy(thing)
                except NpuError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        for thing in current.values():
            if isinstance(thing, _Memory):
                self._give_back(thing)

    def _is_current(self, handle: int) -> bool:
        return handle >> GENERATION_SHIFT == self._driver.generation

    def _add(self, thing: _Memory | Queue) -> int:
        handle = self._driver.generation << GENERATION_SHIFT | next(_serials)
        self._objects[handle] = thing
        return handle

    def _find(self, handle: int) -> _Memory | Queue:
        self._driver.check_generation(handle >> GENERATION_SHIFT)
        thing = self._objects.get(handle)
        if thing is None:
            raise StaleHandleError(f"handle {handle:#x} was freed or destroyed")
        return thing

    def _memory(self, handle: int) -> _Memory:
        thing = self._find(handle)
        if not isinstance(thing, _Memory):
            raise InvalidArgumentError(f"handle must be that of memory, not {handle!r}")
        return thing

    def _queue(self, handle: int) -> Queue:
        thing = self._find(handle)
        if not isinstance(thing, Queue):
            raise InvalidArgumentError(f"handle must be that of a queue, not {handle!r}")
        return thing

    def _allocate(self, nbytes: int, kind: int, alignment: int) -> dict[str, int]:
        if nbytes < 1:
            raise InvalidArgumentError(f"nbytes must be at least 1, not {nbytes!r}")
        if kind == MemoryKind.HOST:
            bus = self._driver.pages.allocate(-(-nbytes // PAGE_BYTES))
            handle = self._add(_Memory(MemoryKind.HOST, bus, nbytes))
            return {"handle": handle, "device_address": HOST_BASE + bus, "bus_address": bus}
        if kind != MemoryKind.HBM:
            raise InvalidArgumentError(f"kind must be a MemoryKind, not {kind!r}")
        if not LINE_BYTES <= alignment <= LARGEST_ALIGNMENT or alignment & (alignment - 1):
            raise InvalidArgumentError(
                f"alignment must be a power of two between {LINE_BYTES} and {LARGEST_ALIGNMENT}, "
                f"not {alignment!r}"
            )
        address = self._driver.hbm.allocate(nbytes, alignment)
        handle = self._add(_Memory(MemoryKind.HBM, address, nbytes))
        return {"handle": handle, "device_address": address}

    def _free(self, handle: int) -> dict[str, int]:
        memory = self._memory(handle)
        del self._objects[handle]
        self._give_back(memory)
        return {}

    def _give_back(self, memory: _Memory) -> None:
        if memory.kind is MemoryKind.HOST:
            self._driver.pages.free(memory.address)
        else:
            self._driver.hbm.free(memory.address)

    def _create_queue(
        self, depth_log2: int, priority: int, task_timeout: int, block_timeout: int
    ) -> dict[str, int]:
        queue = self._driver.queues.create(
            depth_log2=depth_log2,
            priority=priority,
            pasid=self._pasid,
            task_timeout=task_timeout,
            block_timeout=block_timeout,
        )
        handle = self._add(queue)
        return {
            "handle": handle,
            "queue": queue.number,
            "ring": queue.ring,
            "indices": queue.indices,
        }

    def _destroy_queue(self, handle: int) -> dict[str, int]:
        queue = self._queue(handle)
        del self._objects[handle]
        self._driver.queues.destroy(queue)
        return {}

    def _reset_queue(self, handle: int) -> dict[str, int]:
        return {"recreated": int(self._driver.queues.reset(self._queue(handle)))}

    def _query_queue(self, handle: int) -> dict[str, int]:
        return self._driver.queues.query(self._queue(handle))

    def _wait(
        self, handle: int, semaphore: int, value: int, timeout: int, limit: int
    ) -> dict[str, int]:
        queue = self._queue(handle)
        if not self._may_read(queue, semaphore):
            raise InvalidArgumentError(
                f"semaphore must lie in pinned memory of this session, not at {semaphore:#x}"
            )
        self._driver.waiter.wait_value(queue, semaphore, value, timeout, limit)
        return {}

    def _may_read(self, queue: Queue, address: int) -> bool:
        if address % 8:
            return False
        if queue.indices <= address < queue.indices + PAGE_BYTES:
            return True
        return any(
            isinstance(thing, _Memory)
            and thing.kind is MemoryKind.HOST
            and thing.address <= address < thing.address + thing.nbytes
            for thing in self._objects.values()
        )

    def _wait_space(self, handle: int, index: int, timeout: int) -> dict[str, int]:
        self._driver.waiter.wait_space(self._queue(handle), index, timeout)
        return {}

    def _reset_device(self) -> dict[str, int]:
        self._driver.reset()
        self._objects.clear()
        return {}
