"""Cases of bad input to modules and kernels, for `test_bad_input`."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import runtime
from abi.version import ABI_MAJOR
from runtime import InvalidArgumentError, StaleHandleError
from runtime.toolchain.elf import write_object
from runtime.toolchain.object import BufferUse
from tb.fullstack import objects

__all__ = ["LAUNCHES"]

Call = Callable[[SimpleNamespace], Any]
Case = tuple[str, Call, type[Exception], str]

Module: Any = runtime.Module  # Without types, as a user who makes mistakes calls it.

AXPY = objects.axpy()
FILE = write_object(AXPY)
OTHER_ABI = write_object(replace(AXPY, abi=(ABI_MAJOR + 1, 0)))
TOO_LARGE = replace(AXPY, buffers=BufferUse(ub=1 << 16))
UNDECLARED = replace(objects.leak(fill=True), ram_bytes=3)


def refused(name: str, call: Call, message: str) -> Case:
    """A case of an invalid argument."""
    return name, call, InvalidArgumentError, message


def over(grid: Any) -> Call:
    """A launch over a grid."""
    return lambda t: t.kernel.launch(grid, t.int32, t.int32, 1, 2.0)


def given(arguments: Call) -> Call:
    """A launch with arguments."""
    return lambda t: t.kernel.launch(1, *arguments(t))


LAUNCHES: list[Case] = [
    refused("load None", lambda t: t.device.load(None), "source must be an object file"),
    refused("load garbage", lambda t: t.device.load(b"garbage"), "source must be a kernel object"),
    refused("load cut", lambda t: t.device.load(FILE[:-40]), "source must be a kernel object"),
    refused("load other ABI", lambda t: t.device.load(OTHER_ABI), "kernel must be made for ABI"),
    refused("load large", lambda t: t.device.load(TOO_LARGE), "source must use at most .* ub"),
    refused(
        "load undeclared", lambda t: t.device.load(UNDECLARED), "ram_bytes must be at least the 4"
    ),
    refused("module of None", lambda _: Module(None, FILE), "device must be a Device"),
    refused("kernel name", lambda t: t.module.kernel("x"), "name must be one of axpy, not 'x'"),
    refused("replace garbage", lambda t: t.module.replace(b""), "source must be a kernel object"),
    refused(
        "replace other",
        lambda t: t.module.replace(objects.squares()),
        "source must have the name of what it replaces",
    ),
    refused(
        "replace arguments",
        lambda t: t.module.replace(replace(AXPY, arguments=AXPY.arguments[:2])),
        "source must have the arguments of what it replaces",
    ),
    *(
        refused(
            f"grid {grid!r}",
            over(grid),
            message,
        )
        for grid, message in (
            (0, "grid x must be an integer from 1 to 1000, not 0"),
            (None, "grid x must be an integer .*, not None"),
            (1001, "grid x must be .*, not 1001"),
            (True, "grid x must be .*, not True"),
            ((1, 9), "grid y must be .* from 1 to 8, not 9"),
            ((1, 1, 3), "grid z must be .* from 1 to 2, not 3"),
            ((), "grid must .*one to three"),
            ((1, 1, 1, 1), "grid must .*one to three"),
        )
    ),
    refused(
        "too many blocks",
        lambda t: t.wide_kernel.launch((1 << 20, 1 << 12), t.int32),
        "grid must have less than 4294967296 blocks",
    ),
    refused(
        "few arguments", lambda t: t.kernel.launch(1, t.int32), r"arguments must be 4 \(x, out"
    ),
    refused("brackets", lambda t: t.kernel[1](), r"arguments must be 4 \(x, out"),
    refused("brackets of None", lambda t: t.kernel[None](), "grid x must"),
    *(
        refused(
            f"argument {message}",
            given(change),
            message,
        )
        for change, message in (
            (lambda t: (t.a, t.int32, 1, 2.0), "x must have dtype int32, not dtype.'int8'"),
            (lambda t: (5, t.int32, 1, 2.0), "x must be a DeviceArray, .*, not 5"),
            (lambda t: (t.host, t.int32, 1, 2.0), "x must be a DeviceArray"),
            (lambda t: (t.int32, t.int32, 1 << 31, 2.0), "n must be an integer .*2147483648"),
            (lambda t: (t.int32, t.int32, 1.5, 2.0), "n must be an integer .*, not 1.5"),
            (lambda t: (t.int32, t.int32, 1, "2"), "f must be a number, not '2'"),
            (lambda t: (t.int32, t.int32, 1, 1e39), "f must fit float32"),
            (lambda t: (t.pinned[::2], t.int32, 1, 1), "x must be C-contiguous"),
        )
    ),
    (
        "freed argument",
        lambda t: t.kernel.launch(1, t.freed_array, t.int32, 1, 2.0),
        StaleHandleError,
        "x was freed",
    ),
    refused(
        "stream",
        lambda t: t.kernel.launch(1, t.int32, t.int32, 1, 2.0, stream=5),
        "stream must be a Stream or None",
    ),
    refused(
        "timeout",
        lambda t: t.kernel.launch(1, t.int32, t.int32, 1, 2.0, timeout=0),
        "timeout must be an integer from 1",
    ),
]
