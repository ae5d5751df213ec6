"""Missing tools are named with the package that brings them; builds are shared."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tb.engine import toolchain
from tb.engine.build import BuildError, build_icarus, build_verilator
from tb.engine.build_cache import cached
from tb.engine.verilog import Port, renamed_top, top_ports, unnamed_hidden


@pytest.mark.parametrize(
    ("find", "package"),
    [
        (toolchain.find_compiler, "apt-get install make"),
        (toolchain.find_icarus, "apt-get install iverilog"),
    ],
)
def test_missing_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, find: Any, package: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(toolchain.ToolchainError, match=package):
        find.__wrapped__()


def test_missing_libpython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.find_libpython, "find_libpython", lambda: None)
    with pytest.raises(toolchain.ToolchainError, match=r"apt-get install libpython3\.\d+"):
        toolchain.find_python_library.__wrapped__()


TEXT = """
module top(a, b, clk);
  input clk;
  wire clk;
  input [7:0] a;
  wire [7:0] a;
  output signed [63:0] b;
  wire signed [63:0] b;
  assign b = a;
endmodule

module other(c);
  input c;
endmodule
"""


def test_ports_of_the_top_module() -> None:
    expected = [Port("clk", 1, False), Port("a", 8, False), Port("b", 64, True)]
    assert top_ports(TEXT) == expected


def test_a_chip_becomes_a_part_of_another_top() -> None:
    text = "\nmodule top(clk);\n  \\top.core  core (\n  );\n  wire \\top$1 ;\nendmodule\n"
    text += "module \\top.core (clk);\nendmodule\n"
    assert renamed_top(text, "npu") == text.replace("module top(", "module npu(").replace(
        "\\top.core", "\\npu.core"
    )
    with pytest.raises(ValueError, match="must have one module top, not 0"):
        renamed_top("module other(c);\nendmodule\n", "npu")


def test_refused_designs_say_why() -> None:
    broken = TEXT.replace("assign b = a", "assign b = missing")
    with pytest.raises(BuildError, match="missing"):
        build_icarus(broken)
    with pytest.raises(BuildError, match="missing"):
        build_verilator(broken)


def test_parallel_processes_share_one_build(tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        "from tb.engine.build_cache import cached\n"
        "def make(folder):\n"
        "    (folder / 'maker').write_text(str(os.getpid()))\n"
        "    time.sleep(1)\n"
        "    (folder / 'complete').touch()\n"
        "built = cached('shared', make)\n"
        "assert (built / 'complete').exists()\n"
        "print((built / 'maker').read_text())\n"
    )
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "GLASSNPU_CACHE": str(tmp_path)}
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    makers = {process.communicate(timeout=120)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(makers) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared", "shared.lock"]


def test_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GLASSNPU_CACHE", str(tmp_path))

    def fails(folder: Path) -> None:
        (folder / "half").touch()
        raise BuildError("half way")

    with pytest.raises(BuildError, match="half way"):
        cached("broken", fails)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.lock"]
    assert cached("broken", lambda folder: (folder / "whole").touch()).is_dir()


SLOW = """\
import sys, time
from pathlib import Path
from tb.engine.build_cache import cached
def make(folder):
    (folder / 'half').touch()
    Path(sys.argv[1]).touch()
    time.sleep(float(sys.argv[2]))
cached('slow', make)
"""
"""Builds `slow`: touches its first argument when it has begun, and takes its second in seconds."""


def begin_slow_build(tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    begun = tmp_path / "begun"
    cache = tmp_path / "cache"
    words = [sys.executable, "-c", SLOW, str(begun), str(seconds)]
    process = subprocess.Popen(words, env={**os.environ, "GLASSNPU_CACHE": str(cache)}, text=True)
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_what_a_killed_build_left_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = begin_slow_build(tmp_path, 60)
    process.kill()
    process.wait(10)
    cache = tmp_path / "cache"
    monkeypatch.setenv("GLASSNPU_CACHE", str(cache))
    (left,) = cache.glob("making-*")
    foreign = cache / "making-other-123"
    foreign.mkdir()
    built = cached("slow", lambda folder: (folder / "whole").touch())
    assert [path.name for path in built.iterdir()] == ["whole"]
    assert not left.exists()
    assert foreign.exists(), "another key's build may be on its way"


@pytest.mark.parametrize(("seconds", "lines"), [(2.0, 1), (0.2, 0)])
def test_who_waits_long_for_another_build_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seconds: float,
    lines: int,
) -> None:
    process = begin_slow_build(tmp_path, seconds)
    monkeypatch.setenv("GLASSNPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tb.engine.build_cache.PATIENCE", 1.0)
    built = cached("slow", lambda folder: (folder / "mine").touch(), "the simulator")
    assert process.wait(10) == 0
    assert [path.name for path in built.iterdir()] == ["half"]
    message = "waits for another process that builds the simulator\n"
    assert capsys.readouterr().err == message * lines


def test_waves_leave_out_what_nobody_named() -> None:
    text = "wire \\$12 ;\nreg \\$auto$rtlil.cc:1:Not$2 ;\nwire \\$signal$3 ;\nassign a = \\$12 ;\n"
    hidden = (
        "wire \\_$12 ;\nreg \\_$auto$rtlil.cc:1:Not$2 ;\nwire \\$signal$3 ;\nassign a = \\_$12 ;\n"
    )
    assert unnamed_hidden(text) == hidden
