"""Missing tools are named with the package that brings them; builds are shared."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tb.engine import toolchain
from tb.engine.build import BuildError, Port, build_icarus, build_verilator, top_ports


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
    text = TEXT.replace("assign b = a;", f"assign b = a; // {tmp_path}\n")
    script = (
        "import sys\n"
        "from tb.engine.build import build_verilator\n"
        "print(build_verilator(sys.argv[1], optimise='-O0').executable.stat().st_ino)\n"
    )
    command = [sys.executable, "-c", script, text]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    inodes = {process.communicate(timeout=120)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(inodes) == 1
