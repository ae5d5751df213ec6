"""Kernels that are resident in device memory, and their launch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from abi.packet import PacketOpcode
from driver.errors import OutOfMemoryError
from runtime import copies
from runtime.heap import Block
from runtime.memory import DeviceBuffer
from runtime.stream import Stream

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["ProgramCache", "Resident"]

LIMIT_BYTES = 8 << 20
"""Device memory that resident kernels may take; beyond it, the least recently used leave."""


@dataclass(eq=False)
class Resident:
    """A kernel in device memory."""

    buffer: DeviceBuffer
    uploader: Stream | None
    uploaded: int


class ProgramCache:
    """Kernels by code. One that is new is uploaded on the stream that launches it first."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self._kernels: dict[bytes, Resident] = {}

    def __len__(self) -> int:
        return len(self._kernels)

    def get(self, code: bytes, stream: Stream) -> Resident:
        """The resident kernel with that code, ready for work of `stream`.

        Raises:
            OutOfMemoryError: device memory is full even without other kernels.
            NpuError: the stream takes no work.
        """
        kernel = self._kernels.pop(code, None)
        if kernel is None:
            kernel = self._upload(code, stream)
        elif kernel.uploader is not None and kernel.uploader is not stream:
            kernel.uploader.finish(kernel.uploaded)
            if kernel.uploader.error is None:
                kernel.uploader = None
            else:
                # The upload may have been skipped.
                kernel = self._upload(code, stream)
        self._kernels[code] = kernel
        return kernel

    def launch(
        self,
        kernel: Resident,
        grid: tuple[int, int, int],
        arguments: bytes,
        blocks: Sequence[Block],
        stream: Stream,
        *,
        entry: int = 0,
        timeout: int = 0,
    ) -> int:
        """Submit a run over `grid`; returns its timeline value.

        `arguments`: the argument block as the kernel lays it out. `blocks`: the memory that it
        uses. `entry`: byte of the code. `timeout`: cycles after which it is aborted; 0: the
        stream's.

        Raises:
            OutOfMemoryError: no pinned memory for the argument block.
            NpuError: the stream takes no work.
        """
        fields = {
            "code": kernel.buffer.address,
            "code_bytes": kernel.buffer.nbytes,
            "entry": entry,
            "timeout": timeout,
            "grid_x": grid[0],
            "grid_y": grid[1],
            "grid_z": grid[2],
        }
        used = [*blocks, kernel.buffer.block]
        if not arguments:
            return stream.submit([(PacketOpcode.KERNEL, fields)], used)
        pool = self._device.argument_blocks
        block = pool.take(arguments)
        try:
            fields |= {
                "arguments": block.allocation.device_address,
                "argument_bytes": len(arguments),
            }
            return stream.submit([(PacketOpcode.KERNEL, fields)], [*used, block])
        finally:
            pool.give_back(block)

    def forget(self, stream: Stream) -> None:
        """Drop kernels that `stream` may not have uploaded: it was reset or destroyed."""
        for key, kernel in list(self._kernels.items()):
            if kernel.uploader is stream:
                del self._kernels[key]

    def clear(self) -> None:
        """Drop all kernels; their memory returns once no work uses it."""
        self._kernels.clear()

    def _upload(self, code: bytes, stream: Stream) -> Resident:
        held = sum(kernel.buffer.nbytes for kernel in self._kernels.values())
        while self._kernels and held + len(code) > LIMIT_BYTES:
            oldest = self._kernels.pop(next(iter(self._kernels)))
            held -= oldest.buffer.nbytes
        try:
            buffer = self._device.malloc(len(code))
        except OutOfMemoryError:
            if not self._kernels:
                raise
            self.clear()
            buffer = self._device.malloc(len(code))
        source = np.frombuffer(code, np.uint8)
        value = copies.copy(self._device, buffer, source, stream)
        assert value is not None
        return Resident(buffer, stream, value)
