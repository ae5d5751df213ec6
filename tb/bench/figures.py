"""Runs the hosted part of a benchmark and brings its figures back."""

import json
import tempfile
from pathlib import Path

from tb.bench.errors import BenchError
from tb.engine.build import Simulator
from tb.machine.run import run_hosted

__all__ = ["hosted_figures", "write_figures"]


def hosted_figures(
    target: str, seed: int, *, build: Simulator | None = None, agents: bool = False
) -> dict[str, float]:
    """Host `target(path)`, which writes its figures to `path`; returns them.

    `build` is another simulator than the machine's own; `agents`: its clock is turned by Python.

    Raises:
        BenchError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="glassnpu-bench-") as folder:
        path = Path(folder) / "figures.json"
        status = run_hosted(target, [str(path)], seed=seed, build=build, agents=agents)
        if status:
            raise BenchError(f"{target} ended with status {status}")
        figures: dict[str, float] = json.loads(path.read_text())
    return figures


def write_figures(path: str, figures: dict[str, float]) -> None:
    """Hand the figures to `hosted_figures`."""
    Path(path).write_text(json.dumps(figures))
