"""Memories of the running simulator as numpy arrays, without a copy."""

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["icarus_host_memory", "verilated_memory"]


def _view(address: int, nbytes: int) -> npt.NDArray[np.uint8]:
    buffer = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memoryview(buffer), np.uint8)


def verilated_memory(scope: str, name: str) -> npt.NDArray[np.uint8]:
    """The bytes of a public signal or memory of a Verilator machine build, shape (nbytes,).

    `scope` is the path of the instance (`top.dram`). Entry 0 of a memory comes first; an entry
    takes 1, 2, 4 or 8 bytes, or, above 64 bits, a multiple of 4.

    Raises:
        LookupError: it does not exist, is not public, or the simulator is not such a build.
    """
    library = ctypes.PyDLL(None)
    if not hasattr(library, "glass_memory"):
        raise LookupError("the simulator is no machine build of Verilator")
    library.glass_memory.restype = ctypes.c_void_p
    library.glass_scopes.restype = ctypes.c_char_p
    entry, total = ctypes.c_uint64(), ctypes.c_uint64()
    address = library.glass_memory(
        scope.encode(), name.encode(), ctypes.byref(entry), ctypes.byref(total)
    )
    if not address:
        public = library.glass_scopes().decode()
        raise LookupError(f"{scope}.{name} is not public in this simulator; public are\n{public}")
    return _view(address, total.value)


def icarus_host_memory(module: Path) -> npt.NDArray[np.uint8]:
    """The bytes of host memory in the VPI module that vvp has loaded, shape (nbytes,).

    Raises:
        LookupError: no `host_dram` has started (it does at time 0 of the simulation).
    """
    library = ctypes.PyDLL(str(module))
    library.glass_dram_bytes.restype = ctypes.c_void_p
    library.glass_dram_size.restype = ctypes.c_uint64
    address = library.glass_dram_bytes()
    if not address:
        raise LookupError("the machine has no host_dram, or it has not started")
    return _view(address, library.glass_dram_size())
