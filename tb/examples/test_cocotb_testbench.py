"""The user's testbench runs on the chip, on both simulators."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tb.engine import toolchain

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_the_example_passes(sim: str) -> None:
    if sim == "icarus" and os.environ.get("GLASSNPU_REQUIRE_ICARUS") != "1":
        try:
            toolchain.find_icarus()
        except toolchain.ToolchainError as error:
            pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, "cocotb_testbench.py", sim],
        cwd=EXAMPLES,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert "passed: identity_names_the_chip, bytes_go_to_hbm_and_come_back" in done.stdout
