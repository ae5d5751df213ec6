"""Programs hosted in the machine: cycles, memory, faults, errors, exit codes, determinism."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tb.blocks.harness import skip_without_icarus
from tb.engine.build import Simulator
from tb.engine.launch import NO_RESULT, Job, launch
from tb.engine.machine_build import build_machine
from tb.engine.tests.register_machine import SOURCES, RegisterMachine

HERE = "tb.engine.tests.hosted_programs"


def machine(sim: str, *, waves: bool = False, jitter: bool = True) -> Simulator:
    memories = [":host_dram.mem"] if sim == "verilator" else []
    top = RegisterMachine(jitter=jitter)
    return build_machine(top, sim=sim, sources=SOURCES, memories=memories, waves=waves)


@pytest.fixture(scope="module")
def verilator() -> Simulator:
    return machine("verilator")


@pytest.fixture(scope="module")
def icarus() -> Simulator:
    skip_without_icarus()
    return machine("icarus")


def run(
    build: Simulator, name: str, *args: Any, env: dict[str, str] | None = None, **job: Any
) -> int:
    target = name if ":" in name else f"{HERE}:{name}"
    return launch(Job(target, list(args), **job), build=build, env=env, timeout=60)


def mixture(build: Simulator, path: Path, operations: int, **job: Any) -> list[Any]:
    job = {"seed": 3, "firmware": f"{HERE}:echo_firmware", **job}
    assert run(build, "mixture", str(path), 17, operations, **job) == 0
    log: list[Any] = json.loads(path.read_text())
    return log


def test_every_clock_gives_the_same_cycles(
    verilator: Simulator, icarus: Simulator, tmp_path: Path
) -> None:
    native = mixture(verilator, tmp_path / "native", 60)
    assert {entry[1] for entry in native[:-2]} > {"first", "second", "interrupts"}
    assert any(entry[2:] == ["refused", None] for entry in native[:-2])
    assert any(entry[2:] == ["refused", 2] for entry in native[:-2])
    assert any(entry[1] == "firmware echoes" for entry in native[:-2])
    assert native[-2][0] > 20
    assert mixture(verilator, tmp_path / "agents", 60, agents=True) == native
    assert mixture(icarus, tmp_path / "icarus", 60) == native


def test_one_seed_one_history(verilator: Simulator, tmp_path: Path) -> None:
    logs = [
        mixture(verilator, tmp_path / f"log{i}", 200, env={"PYTHONHASHSEED": str(i)})
        for i in range(2)
    ]
    assert logs[0] == logs[1]
    assert mixture(verilator, tmp_path / "other", 200, seed=4) != logs[0]


def test_tracing_costs_no_cycles(verilator: Simulator, tmp_path: Path) -> None:
    on = mixture(verilator, tmp_path / "on", 60)
    off = mixture(verilator, tmp_path / "off", 60, tracing=False)
    assert off[-2] == [0, []]
    assert on[:-2] == off[:-2]


@pytest.mark.parametrize("sim", ["verilator", "icarus"])
def test_host_memory_is_shared(sim: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    build = request.getfixturevalue(sim)
    assert run(build, "memory", str(tmp_path / "done")) == 0
    assert (tmp_path / "done").read_text() == "done"


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("weak_order", {}),
        ("lost", {}),
        ("firmware_faults", {"firmware": f"{HERE}:echo_firmware"}),
        ("stuck", {}),
    ],
)
def test_program(verilator: Simulator, name: str, job: dict[str, Any]) -> None:
    assert run(verilator, name, **job) == 0


@pytest.mark.parametrize("agents", [False, True])
def test_other_cocotb_tasks_keep_time(verilator: Simulator, agents: bool) -> None:
    assert run(verilator, "beside_cocotb_tasks", 60, agents=agents) == 0


@pytest.mark.parametrize(
    ("target", "args", "code", "text"),
    [
        ("exits", [3], 3, ""),
        ("exits", ["told so"], 1, "told so"),
        ("returns", [5], 5, ""),
        ("returns", [None], 0, ""),
        ("fails_in_thread", [], 1, "lost in a thread"),
        ("nowhere_to_be_found", [], 1, "AttributeError"),
        ("no_such_module:main", [], 1, "No module named 'no_such_module'"),
    ],
)
def test_exit_code(
    verilator: Simulator,
    capfd: pytest.CaptureFixture[str],
    target: str,
    args: list[Any],
    code: int,
    text: str,
) -> None:
    assert run(verilator, target, *args) == code
    assert text in capfd.readouterr().err


def test_firmware_exception_ends_the_program(
    verilator: Simulator, capfd: pytest.CaptureFixture[str]
) -> None:
    firmware = f"{HERE}:broken_firmware"
    assert run(verilator, "waits_for_firmware", firmware=firmware) == 1
    errors = capfd.readouterr().err
    assert "read of 0x1000 was answered with SLVERR" in errors
    assert "raised in the firmware" in errors


def test_broken_start_is_a_failure(verilator: Simulator, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(verilator, "returns", 0, env={"COCOTB_TEST_MODULES": "missing"}) == NO_RESULT
    assert "without the program's result" in capfd.readouterr().err


def test_standard_streams_belong_to_the_program() -> None:
    script = (
        "from tb.engine.launch import Job, launch\n"
        "from tb.engine.tests.test_hosting import machine\n"
        f"launch(Job('{HERE}:echoes_input'), build=machine('verilator'), timeout=60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input="hello\n", capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "? got hello\n"


def test_interrupt_reaches_the_program() -> None:
    script = (
        "import signal, sys\n"
        # A shell starts its background jobs with this signal ignored, and so these tests.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tb.engine.launch import Job, launch\n"
        "from tb.engine.tests.test_hosting import machine\n"
        f"sys.exit(launch(Job('{HERE}:sleeps_long'), build=machine('verilator'), timeout=60))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "sleeping\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.readline() == "interrupted, register 7\n"
    assert process.wait(timeout=60) == 130


def test_pytest_runs_inside(
    verilator: Simulator, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_inside.py").write_text(
        "import pytest\n"
        "from driver.bus import Region, attached_bus\n"
        "@pytest.mark.parametrize('value', [1, 2, 3])\n"
        "def test_register(value):\n"
        "    bus = attached_bus()\n"
        "    bus.write(Region.CONFIG, 8, value)\n"
        "    read = bus.read(Region.CONFIG, 8)\n"
        "    assert read != 3\n"
    )
    assert run(verilator, "pytest_inside", str(tmp_path)) == 1
    output = capfd.readouterr().out
    assert "1 failed, 2 passed" in output
    assert "assert 3 != 3" in output


def test_waves(tmp_path: Path) -> None:
    build = machine("verilator", waves=True)
    path = tmp_path / "dump.vcd"
    assert launch(Job(f"{HERE}:returns", [0]), build=build, waves=path, timeout=60) == 0
    text = path.read_text()
    assert "word_15" in text
    assert "#7500" in text  # the last edge of reset


def test_reading_speed(tmp_path: Path) -> None:
    """The price of Python around one access is bounded: a gross slow-down is a defect."""
    path = tmp_path / "figures"
    assert run(machine("verilator", jitter=False), "reading_speed", str(path), 20_000) == 0
    figures = json.loads(path.read_text())
    assert figures["cycles_per_read"] == 3
    assert figures["reads"] > 20_000
    print(figures)
