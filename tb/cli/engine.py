"""What the commands ask of the simulation engine, and where they find it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Engine", "MachineOptions", "PytestRun", "Script", "Shell", "engine"]


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


class Engine(Protocol):
    """Builds, starts and measures the machine."""

    def build(self, options: MachineOptions) -> Path:
        """Build the simulator, or find the build; returns its folder."""
        ...

    def run(
        self,
        program: Script | Shell | PytestRun,
        options: MachineOptions,
        trace: Path | None = None,
    ) -> int:
        """Start the machine with `program` hosted in it; returns the program's exit status.

        `trace` names a file to which the events of the run are written.
        """
        ...

    def bench(self, name: str, options: MachineOptions) -> dict[str, float]:
        """Run a benchmark; returns its figures by name."""
        ...


def engine() -> Engine:
    """The engine of this checkout."""
    from tb.cli.simulated import SimulatedEngine

    return SimulatedEngine()
