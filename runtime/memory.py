"""Memory as a user sees it: device buffers, device arrays, pinned host arrays."""

import math
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from abi.address import HOST_BASE
from driver.errors import StaleHandleError
from runtime.arguments import check_dtype, check_shape, refuse
from runtime.heap import Block

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["DeviceArray", "DeviceBuffer", "PinnedArray", "PinnedOwner", "make_pinned"]


class DeviceBuffer:
    """Bytes of device memory. Made by `Device.malloc`; freed by `free`, or when forgotten.

    Attributes: `device`, `nbytes`, `address` (device address).
    """

    def __init__(self, device: "Device", block: Block) -> None:
        self.device = device
        self.block = block
        self.nbytes = block.allocation.nbytes
        self.address = block.allocation.device_address

    def check(self, name: str = "buffer") -> None:
        """Refuse a buffer that must no longer be used.

        Raises:
            StaleHandleError: it was freed, or its device was closed or reset.
        """
        self.device.check_current(self.block.generation)
        if self.block.freed:
            raise StaleHandleError(f"{name} was freed: {self!r}")

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self.block.freed

    def free(self) -> None:
        """Free it; the memory returns once all submitted work that uses it is done.

        Raises:
            StaleHandleError: it was freed before.
        """
        self.device.free(self)

    def __del__(self) -> None:
        self.device.heap.abandon(self.block)

    def __repr__(self) -> str:
        return f"DeviceBuffer(nbytes={self.nbytes}, address={self.address:#x})"


class DeviceArray:
    """A C-contiguous array in device memory: a typed view of a DeviceBuffer.

    Attributes: `buffer`, `offset` (bytes), `shape`, `dtype`, `size` (elements), `nbytes`.
    """

    def __init__(
        self, buffer: DeviceBuffer, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0
    ) -> None:
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.dtype = dtype
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def device(self) -> "Device":
        """Its device."""
        return self.buffer.device

    @property
    def address(self) -> int:
        """Device address of the first element."""
        return self.buffer.address + self.offset

    def __array__(self, *_arguments: object, **_options: object) -> npt.NDArray[Any]:
        """Refused: numpy would otherwise wrap the handle, or copy behind the caller's back.

        Raises:
            TypeError: always.
        """
        raise TypeError("a DeviceArray must be copied to the host with .numpy()")

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def free(self) -> None:
        """Free the whole buffer behind it, as `DeviceBuffer.free`."""
        self.buffer.free()

    def reshape(self, *shape: int | tuple[int, ...]) -> "DeviceArray":
        """The same elements in another shape; shares the buffer.

        Raises:
            InvalidArgumentError: the number of elements differs.
        """
        given = shape[0] if len(shape) == 1 else shape
        sizes = check_shape("shape", given)
        if math.prod(sizes) != self.size:
            raise refuse("shape", f"have {self.size} elements", given)
        return DeviceArray(self.buffer, sizes, self.dtype, self.offset)

    def __getitem__(self, index: slice | SupportsIndex) -> "DeviceArray":
        """Rows of the first axis, as a contiguous view that shares the buffer.

        Raises:
            InvalidArgumentError: the view would not be contiguous, or has no element.
        """
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step != 1 or stop <= start:
                raise refuse("index", "be a slice with step 1 that is not empty", index)
            shape: tuple[int, ...] = (stop - start, *self.shape[1:])
        else:
            try:
                start = int(index.__index__())
            except AttributeError:
                raise refuse("index", "be an integer or a slice of the first axis", index) from None
            start += self.shape[0] if start < 0 else 0
            if not 0 <= start < self.shape[0]:
                raise IndexError(f"index must be below {self.shape[0]}, not {index!r}")
            shape = self.shape[1:] or (1,)
        row = self.nbytes // self.shape[0]
        return DeviceArray(self.buffer, shape, self.dtype, self.offset + start * row)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in host memory, once all submitted work on the buffer is done."""
        host = np.empty(self.shape, self.dtype)
        self.device.memcpy(host, self)
        return host

    def copy_from(self, source: npt.NDArray[Any]) -> Self:
        """Copy a host array of the same size and dtype into it; blocks."""
        self.device.memcpy(self, source)
        return self

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, address={self.address:#x})"


class PinnedArray(np.ndarray[Any, np.dtype[Any]]):
    """A numpy array in pinned host memory that the device reaches directly: no copy is made.

    Made by `Device.pinned`. Views of it are pinned too. Freed by `Device.free`, or when the last
    view is forgotten.
    """

    owner: "PinnedOwner | None"

    def __array_finalize__(self, parent: npt.NDArray[Any] | None) -> None:
        self.owner = getattr(parent, "owner", None)

    @property
    def pinned(self) -> bool:
        """Whether its data lies in pinned memory (results of arithmetic do not)."""
        return self.owner is not None and self.owner.covers(self)

    def free(self) -> None:
        """Free the pinned memory; see `Device.free`."""
        if self.owner is None:
            raise refuse("array", "lie in pinned memory", type(self).__name__)
        self.owner.device.free(self)


class PinnedOwner:
    """The pinned memory behind PinnedArrays."""

    def __init__(self, device: "Device", block: Block, view: npt.NDArray[np.uint8]) -> None:
        self.device = device
        self.block = block
        self.start = view.__array_interface__["data"][0]
        self.nbytes = block.allocation.nbytes

    def covers(self, array: npt.NDArray[Any]) -> bool:
        """Whether the array's data lies here."""
        offset = array.__array_interface__["data"][0] - self.start
        return offset >= 0 and offset + array.nbytes <= self.nbytes

    def address(self, array: npt.NDArray[Any]) -> int:
        """Device address of the array's first byte."""
        offset: int = array.__array_interface__["data"][0] - self.start
        return HOST_BASE + self.block.allocation.bus_address + offset

    def check(self, name: str) -> None:
        """Refuse pinned memory that must no longer be used.

        Raises:
            StaleHandleError: it was freed, or its device was closed or reset.
        """
        self.device.check_current(self.block.generation)
        if self.block.freed:
            raise StaleHandleError(f"{name} was freed: pinned memory of {self.nbytes} bytes")

    def __del__(self) -> None:
        self.device.heap.abandon(self.block)


def make_pinned(device: "Device", block: Block, shape: Any, dtype: Any) -> PinnedArray:
    """A PinnedArray over a block of pinned memory."""
    sizes, kind = check_shape("shape", shape), check_dtype("dtype", dtype)
    view = device.client.session.mmap(block.allocation.handle)
    array = view.view(kind).reshape(sizes).view(PinnedArray)
    array.owner = PinnedOwner(device, block, view)
    return array
