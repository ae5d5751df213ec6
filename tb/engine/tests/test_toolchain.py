"""Missing tools are named with the package that brings them; builds are shared."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tb.engine import toolchain
from tb.engine.build import BuildError, Port, build_icarus, build_verilator, cached, top_ports


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


def test_refused_designs_say_why() -> None:
    broken = TEXT.replace("assign b = a", "assign b = missing")
    with pytest.raises(BuildError, match="missing"):
        build_icarus(broken)
    with pytest.raises(BuildError, match="missing"):
        build_verilator(broken)


def test_parallel_processes_share_one_build(tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        "from tb.engine.build import cached\n"
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
