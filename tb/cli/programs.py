"""What a command runs, and on which machine."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["MachineOptions", "PytestRun", "Script", "Shell"]


@dataclass(frozen=True)
class MachineOptions:
    """Which machine to start: simulator ("verilator" or "icarus"), seed, VCD to write or None."""

    sim: str
    seed: int
    waves: Path | None = None


@dataclass(frozen=True)
class Script:
    """A program of the user, run as `__main__` with `arguments` in `sys.argv`; absolute path."""

    path: Path
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shell:
    """A Python prompt with `device`, `regs` and `bus`."""


@dataclass(frozen=True)
class PytestRun:
    """pytest, hosted in the machine, in the caller's folder."""

    arguments: tuple[str, ...] = ()
