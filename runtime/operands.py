"""What a copy may be given: device buffers and arrays, pinned and ordinary host arrays."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from runtime.arguments import check_plain, contiguous_bytes, refuse
from runtime.heap import Block
from runtime.memory import DeviceArray, DeviceBuffer, PinnedArray

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["Operand", "device_of", "operand"]


@dataclass(frozen=True)
class Operand:
    """One side of a copy.

    `address` is its device address, None for pageable host memory, whose bytes are then `host`;
    `block` is the memory behind it; `dtype` is None for raw bytes.
    """

    nbytes: int
    dtype: np.dtype[Any] | None
    address: int | None
    block: Block | None
    host: npt.NDArray[np.uint8] | None

    @property
    def blocks(self) -> list[Block]:
        """Memory that work on it uses."""
        return [] if self.block is None else [self.block]


def device_of(*things: object) -> "Device | None":
    """The device of the first operand that has one."""
    for thing in things:
        if isinstance(thing, DeviceBuffer | DeviceArray):
            return thing.device
        if isinstance(thing, PinnedArray) and thing.owner is not None and thing.pinned:
            return thing.owner.device
    return None


def operand(name: str, thing: object, device: "Device", *, written: bool) -> Operand:
    """Check one side of a copy on `device`.

    Raises:
        InvalidArgumentError: it is none, not contiguous, masked, read-only, or of another device.
        StaleHandleError: it was freed, or its device was reset.
    """
    if isinstance(thing, DeviceBuffer | DeviceArray):
        buffer = thing if isinstance(thing, DeviceBuffer) else thing.buffer
        if buffer.device is not device:
            raise refuse(name, "belong to this device", thing)
        buffer.check(name)
        dtype = thing.dtype if isinstance(thing, DeviceArray) else None
        return Operand(thing.nbytes, dtype, thing.address, buffer.block, None)
    if not isinstance(thing, np.ndarray):
        raise refuse(name, "be a DeviceBuffer, a DeviceArray or a numpy array", thing)
    check_plain(name, thing)
    described = f"an array of shape {thing.shape} and strides {thing.strides}"
    if not thing.flags.c_contiguous:
        raise refuse(name, "be C-contiguous", described)
    if thing.dtype.hasobject:
        raise refuse(name, "have a dtype without Python objects", thing.dtype)
    if thing.nbytes == 0:
        raise refuse(name, "have at least one element", described)
    if written and not thing.flags.writeable:
        raise refuse(name, "be writeable", described)
    if isinstance(thing, PinnedArray) and thing.owner is not None and thing.pinned:
        if thing.owner.device is not device:
            raise refuse(name, "belong to this device", described)
        thing.owner.check(name)
        address = thing.owner.address(thing)
        return Operand(thing.nbytes, thing.dtype, address, thing.owner.block, None)
    return Operand(thing.nbytes, thing.dtype, None, None, contiguous_bytes(thing))
