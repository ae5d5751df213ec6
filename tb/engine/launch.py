"""Starts a simulator process that hosts a program, and returns the program's exit code."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tb.engine.build import Simulator
from tb.engine.job import Job
from tb.engine.process import die_with_parent, simulator_command, simulator_environment

__all__ = ["NO_RESULT", "Job", "launch"]

NO_RESULT = 70
"""Exit code when the simulator ended without saying how the program did."""


def launch(
    job: Job,
    *,
    build: Simulator,
    waves: Path | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
) -> int:
    """Run a job in a process of its own; standard streams are the caller's.

    `waves` is a VCD file that a waves build writes; `timeout` is in wall seconds, after which the
    simulator is killed and `NO_RESULT` returned. Ctrl-C reaches the hosted program as
    KeyboardInterrupt; pressed three times it kills the simulator.
    """
    if build.sim == "icarus":
        module = str(build.modules[0]) if build.modules else None
        job = replace(job, agents=True, host_dram_module=module)
    with tempfile.TemporaryDirectory(prefix="glassnpu-") as scratch:
        exit_file = Path(scratch) / "exit.json"
        extra = {
            "GLASSNPU_JOB": job.to_json(),
            "GLASSNPU_EXIT": str(exit_file),
            # Rewriting assertions would import pytest for every program.
            "COCOTB_REWRITE_ASSERTION_FILES": "",
            "COCOTB_LOG_LEVEL": "WARNING",
            "GPI_LOG_LEVEL": "ERROR",
            **(env or {}),
        }
        environment = simulator_environment(
            build,
            "tb.engine.entry",
            seed=job.seed,
            results=Path(scratch) / "results.xml",
            extra=extra,
        )
        command = simulator_command(build, waves=waves)
        if build.sim == "verilator" and job.agents:
            command.append("--stock-clock")
        process = subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)
        _wait(process, timeout)
        if not exit_file.exists():
            print(
                f"the simulator ended (code {process.returncode}) without the program's result",
                file=sys.stderr,
            )
            return NO_RESULT
        code = json.loads(exit_file.read_text())["code"]
        # An assertion of the RTL can fail after the program has ended.
        return int(code) or (1 if process.returncode else 0)


def _wait(process: "subprocess.Popen[bytes]", timeout: float | None) -> None:
    presses = 0

    def pressed(_number: int, _frame: object) -> None:
        nonlocal presses
        presses += 1
        if presses >= 3:
            process.kill()

    previous: Any = None
    with contextlib.suppress(ValueError):  # only the main thread may take signals
        previous = signal.signal(signal.SIGINT, pressed)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        print(f"no end after {timeout} s: the simulator is killed", file=sys.stderr)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if previous is not None:
            signal.signal(signal.SIGINT, previous)
