"""Kernels from object files: loading, checking of arguments, launch over a grid."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abi.kernel_object import ArgumentKind, ElementType
from driver import tracing
from runtime.arguments import check_device, check_integer, refuse
from runtime.heap import Block
from runtime.memory import DeviceArray, DeviceBuffer, PinnedArray
from runtime.stream import Stream
from runtime.toolchain.declared import check_declared
from runtime.toolchain.elf import load_object, read_object
from runtime.toolchain.object import Argument, KernelObject, ObjectError

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["Grid", "Kernel", "KernelSource", "Module"]

Grid = int | Sequence[int]
"""Blocks along x, or along x, y and z; what is missing is 1."""

KernelSource = bytes | str | os.PathLike[str] | KernelObject
"""An object file's bytes or its path, or what the toolchain made of one."""

BLOCK_LIMIT = 1 << 32
LARGEST_TIMEOUT = (1 << 32) - 1
LOWEST_INT, LARGEST_INT = -(1 << 31), (1 << 31) - 1

DTYPES: dict[ElementType, tuple[str, ...]] = {
    ElementType.INT8: ("int8",),
    ElementType.UINT8: ("uint8",),
    ElementType.INT16: ("int16",),
    ElementType.UINT16: ("uint16",),
    ElementType.INT32: ("int32",),
    ElementType.UINT32: ("uint32",),
    # numpy has no such dtype of its own: its bits are given as uint16.
    ElementType.BFLOAT16: ("bfloat16", "uint16"),
    ElementType.FLOAT32: ("float32",),
}
"""Names of the dtypes that a pointer's array may have."""


class Module:
    """A kernel object on a device. Made by `Device.load`; it outlives a reset of the device.

    Attributes: `device`, `object` (what the toolchain knows of it).
    """

    def __init__(self, device: "Device", source: KernelSource) -> None:
        check_device("device", device)
        device.check_open()
        self.device = device
        self.object = self._read(source)

    def _read(self, source: KernelSource) -> KernelObject:
        try:
            if isinstance(source, KernelObject):
                found = source
            elif isinstance(source, bytes | bytearray | memoryview):
                found = read_object(bytes(source))
            elif isinstance(source, str | os.PathLike):
                found = load_object(Path(source))
            else:
                raise refuse("source", "be an object file's bytes or path", type(source).__name__)
        except ObjectError as error:
            raise refuse(
                "source", f"be a kernel object ({error})", type(source).__name__
            ) from error
        try:
            check_declared(found)
        except ObjectError as error:
            raise refuse("source", f"declare what it uses ({error})", found.name) from error
        info = self.device.info
        for name in ("l1", "l0a", "l0b", "l0c", "bias", "ub"):
            lines, there = getattr(found.buffers, name), getattr(info, f"{name}_lines")
            if lines > there:
                raise refuse("source", f"use at most the device's {there} lines of {name}", lines)
        return found

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of its kernels."""
        return (self.object.name,)

    def kernel(self, name: str | None = None) -> "Kernel":
        """The kernel of a name; None: the only one.

        Raises:
            InvalidArgumentError: there is none of that name.
        """
        if name is not None and name not in self.kernels:
            raise refuse("name", f"be one of {', '.join(self.kernels)}", name)
        return Kernel(self, self.object.name)

    def replace(self, source: KernelSource) -> None:
        """Use another object from the next launch on. Launches that were submitted before run the
        old code. It must have a kernel of the same name with the same arguments.

        Raises:
            InvalidArgumentError: it has not, or is no kernel object that fits the device.
        """
        self.device.check_open()
        found = self._read(source)
        for what in ("name", "arguments"):
            old, new = getattr(self.object, what), getattr(found, what)
            if old != new:
                raise refuse("source", f"have the {what} of what it replaces, {old!r}", new)
        self.object = found

    def __repr__(self) -> str:
        return f"Module({', '.join(self.kernels)})"


class Kernel:
    """A kernel of a module. `launch` submits a run, as does a call of the kernel at a grid."""

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What it takes."""
        return self.module.object.arguments

    def __getitem__(self, grid: Grid) -> "_Launcher":
        """The launch over a grid, to be called with the arguments."""
        return _Launcher(self, grid)

    def launch(
        self,
        grid: Grid,
        *arguments: Any,
        stream: Stream | None = None,
        timeout: int | None = None,
    ) -> None:
        """Submit a run of every block of `grid`.

        Args:
            grid: blocks along x, or along x, y and z.
            arguments: in the order of the kernel's: a DeviceArray or pinned array of its dtype, or
                a DeviceBuffer, for a pointer (None: address 0); int; float.
            stream: None: the default stream.
            timeout: cycles on cores after which it is aborted; None: the stream's.

        Raises:
            InvalidArgumentError: grid or an argument breaks its rule; nothing was submitted.
            StaleHandleError: an array was freed, or its device was reset.
            OutOfMemoryError: no memory for code or arguments.
            NpuError: the stream takes no work.
        """
        with tracing.span("api", "launch"):
            device, code = self.module.device, self.module.object
            target = device.check_stream("stream", stream)
            blocks = check_grid(grid, code.grid_limit)
            limit = 0 if timeout is None else check_integer("timeout", timeout, 1, LARGEST_TIMEOUT)
            packed, used = self._pack(device, arguments)
            target.check()
            resident = device.programs.get(code.code, target)
            device.programs.launch(
                resident, blocks, packed, used, target, entry=code.entry, timeout=limit
            )

    def _pack(self, device: "Device", given: Sequence[Any]) -> tuple[bytes, list[Block]]:
        """The argument block, and the memory that it refers to."""
        expected = self.arguments
        if len(given) != len(expected):
            names = ", ".join(argument.name for argument in expected)
            raise refuse("arguments", f"be {len(expected)} ({names})", len(given))
        packed = bytearray(self.module.object.argument_bytes)
        used: list[Block] = []
        for argument, value in zip(expected, given, strict=True):
            match argument.kind:
                case ArgumentKind.POINTER:
                    address, block = _pointer(argument, value, device)
                    struct.pack_into("<Q", packed, argument.offset, address)
                    if block is not None:
                        used.append(block)
                case ArgumentKind.INT32:
                    number = check_integer(argument.name, value, LOWEST_INT, LARGEST_INT)
                    struct.pack_into("<i", packed, argument.offset, number)
                case _:
                    struct.pack_into("<f", packed, argument.offset, _float(argument, value))
        return bytes(packed), used

    def __repr__(self) -> str:
        arguments = ", ".join(argument.name for argument in self.arguments)
        return f"Kernel({self.name}({arguments}))"


class _Launcher:
    """A kernel with its grid; a call launches it."""

    def __init__(self, kernel: Kernel, grid: Grid) -> None:
        self._kernel = kernel
        self._grid = grid

    def __call__(
        self, *arguments: Any, stream: Stream | None = None, timeout: int | None = None
    ) -> None:
        self._kernel.launch(self._grid, *arguments, stream=stream, timeout=timeout)


def check_grid(grid: Grid, limit: tuple[int, int, int]) -> tuple[int, int, int]:
    """A grid with three sizes, each from 1 to its limit, and less than 2**32 blocks.

    Raises:
        InvalidArgumentError: it is none.
    """
    sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(sizes) <= len(limit):
        raise refuse("grid", "be an integer or have one to three integers", grid)
    full = (*sizes, *[1] * (len(limit) - len(sizes)))
    x, y, z = (
        check_integer(f"grid {axis}", size, 1, most)
        for axis, size, most in zip("xyz", full, limit, strict=True)
    )
    if x * y * z >= BLOCK_LIMIT:
        raise refuse("grid", f"have less than {BLOCK_LIMIT} blocks", grid)
    return x, y, z


def _pointer(argument: Argument, value: Any, device: "Device") -> tuple[int, Block | None]:
    """The address of a pointer argument and the memory behind it."""
    name = argument.name
    if value is None:
        return 0, None
    if isinstance(value, PinnedArray) and value.owner is not None and value.pinned:
        owner: Any = value.owner
        address = owner.address(value)
        if not value.flags.c_contiguous:
            raise refuse(name, "be C-contiguous", f"strides {value.strides}")
    elif isinstance(value, DeviceArray | DeviceBuffer):
        owner = value.buffer if isinstance(value, DeviceArray) else value
        address = value.address
    else:
        raise refuse(name, "be a DeviceArray, a pinned array, a DeviceBuffer or None", value)
    if owner.device is not device:
        raise refuse(name, "belong to the kernel's device", value)
    owner.check(name)
    names = DTYPES.get(argument.element)
    if names and not isinstance(value, DeviceBuffer) and value.dtype.name not in names:
        raise refuse(name, f"have dtype {' or '.join(names)}", value.dtype)
    return address, owner.block


def _float(argument: Argument, value: Any) -> float:
    """A number that fp32 holds, rounded."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            number = float(value)
            struct.pack("<f", number)
        except OverflowError:
            raise refuse(argument.name, "fit float32", value) from None
        return number
    raise refuse(argument.name, "be a number", value)
