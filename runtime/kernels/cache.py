"""Programs that are resident in device memory, and their launch."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from abi.core import COMMAND_BYTES
from abi.packet import PacketOpcode
from driver.errors import OutOfMemoryError
from runtime import copies
from runtime.heap import Block
from runtime.memory import DeviceBuffer
from runtime.stream import Stream

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["Kernel", "ProgramCache"]

LIMIT_BYTES = 8 << 20
"""Device memory that resident programs may take; beyond it, the least recently used leave."""

TIMEOUT_FACTOR = 16
TIMEOUT_SLACK = 1_000_000
LARGEST_TIMEOUT = (1 << 32) - 1


@dataclass(eq=False)
class Kernel:
    """A program in device memory. `cycles` is an estimate of its run time, from which its
    timeout is derived generously."""

    buffer: DeviceBuffer
    commands: int
    cycles: int
    uploader: Stream | None
    uploaded: int

    @property
    def timeout(self) -> int:
        """Cycles after which it is aborted."""
        return min(LARGEST_TIMEOUT, TIMEOUT_FACTOR * self.cycles + TIMEOUT_SLACK)


class ProgramCache:
    """Programs by key. One that is new is uploaded on the stream that launches it first."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self._kernels: dict[Hashable, Kernel] = {}

    def __len__(self) -> int:
        return len(self._kernels)

    def get(self, key: Hashable, build: Callable[[], bytes], cycles: int, stream: Stream) -> Kernel:
        """The resident program of `key`, ready for work of `stream`; `build` makes a new one.

        Raises:
            OutOfMemoryError: device memory is full even without other programs.
            NpuError: the stream takes no work.
        """
        kernel = self._kernels.pop(key, None)
        if kernel is None:
            kernel = self._upload(build(), cycles, stream)
        elif kernel.uploader is not None and kernel.uploader is not stream:
            kernel.uploader.finish(kernel.uploaded)
            kernel.uploader.check()
            kernel.uploader = None
        self._kernels[key] = kernel
        return kernel

    def launch(
        self, kernel: Kernel, arguments: Sequence[int], blocks: Sequence[Block], stream: Stream
    ) -> int:
        """Submit a run with base registers `arguments`; returns its timeline value.

        Raises:
            NpuError: the stream takes no work.
        """
        fields = {f"argument{i}": value for i, value in enumerate(arguments)}
        fields |= {
            "program": kernel.buffer.address,
            "commands": kernel.commands,
            "timeout": kernel.timeout,
        }
        return stream.submit([(PacketOpcode.KERNEL, fields)], [*blocks, kernel.buffer.block])

    def forget(self, stream: Stream) -> None:
        """Drop programs that `stream` may not have uploaded: it was reset or destroyed."""
        for key, kernel in list(self._kernels.items()):
            if kernel.uploader is stream:
                del self._kernels[key]

    def clear(self) -> None:
        """Drop all programs; their memory returns once no work uses it."""
        self._kernels.clear()

    def _upload(self, program: bytes, cycles: int, stream: Stream) -> Kernel:
        held = sum(kernel.buffer.nbytes for kernel in self._kernels.values())
        while self._kernels and held + len(program) > LIMIT_BYTES:
            oldest = self._kernels.pop(next(iter(self._kernels)))
            held -= oldest.buffer.nbytes
        try:
            buffer = self._device.malloc(len(program))
        except OutOfMemoryError:
            if not self._kernels:
                raise
            self.clear()
            buffer = self._device.malloc(len(program))
        source = np.frombuffer(program, np.uint8)
        value = copies.copy(self._device, buffer, source, stream)
        assert value is not None
        return Kernel(buffer, len(program) // COMMAND_BYTES, cycles, stream, value)
