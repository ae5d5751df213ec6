"""The commands on the simulated machine, as a user starts them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tb.engine import toolchain

PRODUCT = """\
import numpy as np
from runtime import Device, gemm

with Device() as device:
    a = device.array(np.full((4, 4), 3, np.int8))
    print(gemm(a, a).numpy().sum(), device.bus.now())
"""
"""Prints the sum of a product, 576, and the cycle."""


def glassnpu(folder: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in `folder`."""
    own = ("PYTEST_", "COCOTB_", "GLASSNPU_SIM", "GLASSNPU_SEED")
    return subprocess.run(
        [str(Path(sys.executable).with_name("glassnpu")), *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(own)},
        input=typed,
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.fixture
def product(tmp_path: Path) -> Path:
    script = tmp_path / "product.py"
    script.write_text(PRODUCT)
    return script


def test_a_failing_script_ends_with_its_own_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f():\n    raise ValueError('mine')\nf()\n")
    done = glassnpu(tmp_path, "run", "bad.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("Traceback") == 1
    assert f'File "{tmp_path / "bad.py"}", line 2, in f' in done.stderr
    assert done.stderr.endswith("ValueError: mine\n")
    assert "actors.py" not in done.stderr, "the frames of the host are of no use to the user"


def test_the_prompt_takes_commands_from_a_pipe(tmp_path: Path) -> None:
    lines = "hex(regs.bar0.identity.field('magic'))\n1 / 0\ndevice.info.queues\nexit(3)\n"
    done = glassnpu(tmp_path, "shell", typed=lines)
    assert done.returncode == 3
    assert "'0x474e5055'" in done.stdout
    assert ">>> 16\n" in done.stdout, "the prompt goes on after an error"
    assert "ZeroDivisionError" in done.stderr


def test_pytest_without_tests_fails(tmp_path: Path) -> None:
    done = glassnpu(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert done.returncode == 5
    assert "no tests ran" in done.stdout


def test_a_trace_has_events_of_all_layers_and_costs_no_cycle(product: Path) -> None:
    traced = glassnpu(product.parent, "trace", "product.py", "-o", "t.json")
    plain = glassnpu(product.parent, "run", "product.py")
    assert (traced.returncode, plain.returncode) == (0, 0), traced.stderr
    assert traced.stdout == plain.stdout
    assert plain.stdout.startswith("576 ")
    trace = json.loads((product.parent / "t.json").read_text())
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    active = {names[event["pid"], event["tid"]] for event in trace["traceEvents"] if "ts" in event}
    host = {"api", "ring", "doorbell", "interrupt", "wake"}
    device = {"doorbell 0", "fetch 0", "DMA channel 0", "core 0 pipe CUBE", "completion 0"}
    assert host | {"events"} | device <= active
    assert any(name.startswith("MSI-X vector") for name in active)


def test_a_bench_ends_with_one_line_of_figures(tmp_path: Path) -> None:
    done = glassnpu(tmp_path, "bench", "dma", "--json")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["bench"] == "dma"
    assert all(isinstance(value, int | float) for value in last["figures"].values())
    assert 0.9 <= last["figures"]["aligned_link_use"] <= 1
    assert 0.8 <= last["figures"]["unaligned_link_use"] <= 1


def test_icarus_gives_the_same_result_in_the_same_cycle(product: Path) -> None:
    if os.environ.get("GLASSNPU_REQUIRE_ICARUS") != "1":
        try:
            toolchain.find_icarus()
        except toolchain.ToolchainError as error:
            pytest.skip(str(error))
    icarus = glassnpu(product.parent, "run", "--sim", "icarus", "product.py")
    verilator = glassnpu(product.parent, "run", "product.py")
    assert icarus.returncode == 0, icarus.stderr
    assert icarus.stdout == verilator.stdout


@pytest.mark.slow
def test_waves_hold_the_run_and_cost_no_cycle(product: Path) -> None:
    done = glassnpu(product.parent, "run", "--waves", "w.vcd", "product.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == glassnpu(product.parent, "run", "product.py").stdout
    cycle = int(done.stdout.split()[1])
    lines = (product.parent / "w.vcd").read_text().splitlines()
    signals = {words[4] for words in map(str.split, lines) if words[:2] == ["$var", "wire"]}
    assert {"clk", "core0_open", "host__awvalid"} <= signals
    assert not [name for name in signals if re.match(r"_?\$(\d|auto)", name)], "nobody named them"
    times = [int(line[1:]) for line in lines if line.startswith("#")]
    assert times == sorted(set(times))
    assert times[-1] >= cycle * 1000, "picoseconds"
