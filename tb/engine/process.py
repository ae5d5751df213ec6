"""The command line and environment that start a simulator with cocotb inside."""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import cocotb_tools.config

from tb.engine import toolchain
from tb.engine.build import Simulator

__all__ = ["die_with_parent", "simulator_command", "simulator_environment"]

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For `preexec_fn`: a simulator must not run on when whoever waits for it is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def simulator_command(simulator: Simulator, *, waves: Path | None = None) -> list[str]:
    """The program and its arguments; `waves` names a VCD that a waves build writes.

    Raises:
        ValueError: the build has no waves.
    """
    if waves is not None and not simulator.waves:
        raise ValueError(f"waves need a waves build, not {simulator.directory.name!r}")
    if simulator.sim == "verilator":
        dump = [] if waves is None else ["--waves", str(waves)]
        return [str(simulator.executable), "+verilator+quiet", *dump]
    modules = [Path(cocotb_tools.config.lib_name_path("vpi", "icarus")), *simulator.modules]
    command = [str(toolchain.find_icarus().vvp), "-n"]
    for module in modules:
        command += ["-m", str(module)]
    command.append(str(simulator.executable))
    return command if waves is None else [*command, f"+waves={waves}"]


def simulator_environment(
    simulator: Simulator,
    test_module: str,
    *,
    seed: int,
    results: Path,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment in which cocotb runs the tests of `test_module` on module `top`."""
    library = toolchain.find_python_library()
    environment = {
        **os.environ,
        "GPI_USERS": f"{library};{cocotb_tools.config.pygpi_entry_point()}",
        "PYGPI_PYTHON_BIN": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "COCOTB_TOPLEVEL": "top",
        "TOPLEVEL_LANG": "verilog",
        "COCOTB_TEST_MODULES": test_module,
        # Icarus applies inertial writes before nested clocks have moved: leave those to cocotb.
        "COCOTB_TRUST_INERTIAL_WRITES": "1" if simulator.sim == "verilator" else "0",
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_RESULTS_FILE": str(results),
        "GLASSNPU_SEED": str(seed),
        **(extra or {}),
    }
    # Left-overs of a caller's own simulation would select other tests.
    for name in ("COCOTB_TESTCASE", "COCOTB_TEST_FILTER"):
        if name not in (extra or {}):
            environment.pop(name, None)
    return environment
