"""Checks of arguments: an error names the argument, the rule and the value."""

from typing import Any

import numpy as np
import numpy.typing as npt

from driver.errors import InvalidArgumentError

__all__ = [
    "check_device",
    "check_dtype",
    "check_integer",
    "check_plain",
    "check_shape",
    "contiguous_bytes",
    "refuse",
]


def refuse(name: str, rule: str, value: object) -> InvalidArgumentError:
    """The error for an argument that breaks a rule."""
    masked = isinstance(value, np.ma.MaskedArray)
    shown = (
        f"a {'masked' if masked else 'numpy'} array of shape {value.shape} and dtype {value.dtype}"
        if isinstance(value, np.ndarray) and (masked or value.size > 8)
        else repr(value)
    )
    return InvalidArgumentError(f"{name} must {rule}, not {shown}")


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """An integer between `low` and `high`, both included.

    Raises:
        InvalidArgumentError: it is none.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    bounds = f"at least {low}" if high is None else f"from {low} to {high}"
    raise refuse(name, f"be an integer {bounds}", value)


def check_dtype(name: str, value: Any) -> np.dtype[Any]:
    """A numpy dtype of fixed size without Python objects.

    Raises:
        InvalidArgumentError: it is none.
    """
    if value is None:
        raise refuse(name, "be a numpy dtype", value)
    try:
        dtype = np.dtype(value)
    except TypeError:
        raise refuse(name, "be a numpy dtype", value) from None
    if dtype.hasobject or dtype.itemsize == 0:
        raise refuse(name, "be a numpy dtype of fixed size", value)
    return dtype


def check_plain(name: str, array: npt.NDArray[Any]) -> None:
    """Check that an array has no mask: the device would take what lies under it for data.

    Raises:
        InvalidArgumentError: it has one.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise refuse(name, "have no mask (use .filled())", array)


def check_shape(name: str, value: object) -> tuple[int, ...]:
    """A shape: an integer or a tuple of integers, each at least 1.

    Raises:
        InvalidArgumentError: it is none.
    """
    sizes = value if isinstance(value, tuple | list) else (value,)
    if not sizes:
        raise refuse(name, "have at least one dimension", value)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise refuse(name, "be integers of at least 1", value)
    return tuple(int(size) for size in sizes)


def contiguous_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a C-contiguous array, as a view of shape (nbytes,)."""
    return array.reshape(-1).view(np.uint8)


def check_device(name: str, value: object) -> None:
    """Check that a value is a device.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not hasattr(value, "check_open"):
        raise refuse(name, "be a Device", value)
