"""Starts the simulated machine with a program hosted in it."""

from pathlib import Path
from typing import Any

from tb.engine.build import Simulator
from tb.engine.job import Job
from tb.engine.launch import launch
from tb.machine.simulator import HOST_MEMORY, machine_simulator

__all__ = ["FIRMWARE", "run_hosted"]

FIRMWARE = "firmware.main:main"


def run_hosted(
    target: str,
    arguments: list[Any],
    *,
    sim: str = "verilator",
    seed: int = 1,
    waves: Path | None = None,
    build: Simulator | None = None,
    agents: bool = False,
    timeout: float | None = None,
) -> int:
    """Host the callable `target` ("module:function", JSON `arguments`); returns the exit status.

    `build` is another simulator than the cached one of `sim`; `agents` lets Python turn its clock;
    `timeout` is in wall seconds.

    Raises:
        BuildError, ToolchainError: the machine could not be built.
    """
    build = build or machine_simulator(sim, waves=waves is not None)
    job = Job(
        target,
        arguments,
        firmware=FIRMWARE,
        seed=seed,
        host_memory=HOST_MEMORY,
        agents=agents,
    )
    return launch(job, build=build, waves=waves, timeout=timeout)
