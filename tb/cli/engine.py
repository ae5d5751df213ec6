"""What the commands ask of the simulation engine, and where they find it."""

from pathlib import Path
from typing import Protocol

from tb.cli.programs import MachineOptions, PytestRun, Script, Shell

__all__ = ["Engine", "engine"]


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
