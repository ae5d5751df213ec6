"""The engine behind the commands: the simulated machine."""

from pathlib import Path
from typing import Any

import click

from tb.bench import measure
from tb.bench.errors import BenchError
from tb.cli.programs import MachineOptions, PytestRun, Script, Shell
from tb.engine.build import BuildError
from tb.engine.toolchain import ToolchainError
from tb.machine.run import run_hosted
from tb.machine.simulator import machine_simulator

__all__ = ["SimulatedEngine"]

TRACED = "tb.tracing.record:run_traced"


class SimulatedEngine:
    """Builds, starts and measures the simulated machine."""

    def build(self, options: MachineOptions) -> Path:
        """Build the simulator, or find the build; returns its folder."""
        try:
            return machine_simulator(options.sim, waves=options.waves is not None).directory
        except (BuildError, ToolchainError) as error:
            raise click.ClickException(str(error)) from error

    def run(
        self,
        program: Script | Shell | PytestRun,
        options: MachineOptions,
        trace: Path | None = None,
    ) -> int:
        """Start the machine with `program` hosted in it; returns the program's exit status."""
        arguments: list[Any]
        match program:
            case Script(path, words):
                target, arguments = "tb.cli.hosted:run_script", [str(path), list(words)]
            case Shell():
                target, arguments = "tb.cli.hosted:run_shell", []
            case PytestRun(words):
                target, arguments = "tb.cli.hosted:run_pytest", [list(words)]
        if trace is not None:
            target, arguments = TRACED, [str(trace), target, arguments]
        self.build(options)
        return run_hosted(
            target, arguments, sim=options.sim, seed=options.seed, waves=options.waves
        )

    def bench(self, name: str, options: MachineOptions) -> dict[str, float]:
        """Run a benchmark; returns its figures by name."""
        self.build(options)
        try:
            return measure(name, options.seed)
        except BenchError as error:
            raise click.ClickException(str(error)) from error
