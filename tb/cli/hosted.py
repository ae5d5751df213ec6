"""What runs inside the simulator: a script, a prompt, pytest. Each is the target of a `Job`."""

import code
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from driver.bus import attached_bus
from driver.registers import Registers
from runtime import Device

__all__ = ["run_pytest", "run_script", "run_shell"]

FIXTURES = "tb.cli.fixtures"
"""The pytest plugin with the `device` fixture."""


def run_script(path: str, arguments: list[str]) -> None:
    """Run a Python file as `__main__`, as `python path *arguments` would.

    Raises:
        SystemExit: the script ended itself.
        BaseException: what the script raised.
    """
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def run_shell() -> None:
    """Read and run Python until the end of input or `exit()`.

    Raises:
        SystemExit: the user left.
    """
    if find_spec("readline"):  # Line editing and history, where Python has them.
        __import__("readline")
    bus = attached_bus()
    with Device(bus) as device:
        banner = (
            f"GlassNPU, device time {bus.now()}. Names: device (runtime), regs (registers), bus.\n"
            "Try regs.bar0.time.read(), regs.bar0.firmware_state.fields(), device.info; "
            "exit() leaves."
        )
        names = {"device": device, "regs": Registers(bus), "bus": bus}
        code.interact(banner=banner, local=names, exitmsg="")


def run_pytest(arguments: list[str]) -> int:
    """Run pytest in this process; returns its exit status, which is not 0 if it found no test."""
    import pytest

    return int(pytest.main(["-p", FIXTURES, *arguments]))
