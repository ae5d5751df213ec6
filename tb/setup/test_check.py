"""The environment check names everything that is missing, at once, with its package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tb.setup import check

SCRIPT = Path(check.__file__)


def run_bare(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the script as `make` does, without site packages, optionally with another PATH."""
    environment = {**os.environ, **({} if path is None else {"PATH": path})}
    return subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_complete_machine_passes_silently() -> None:
    done = run_bare()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_missing_programs_are_named_in_one_run(tmp_path: Path) -> None:
    done = run_bare("--icarus", path=str(tmp_path))
    assert done.returncode == 1
    for line in (
        "  - the program g++: g++",
        "  - the program ar: binutils",
        "  - the program make: make",
        "  - the program iverilog: iverilog",
    ):
        assert line in done.stderr.splitlines()
    assert "apt-get install g++ binutils make iverilog" in done.stderr


def test_packages_are_printed_alone_for_scripts(tmp_path: Path) -> None:
    done = run_bare("--packages", path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (1, "g++ binutils make\n", "")


def test_an_old_python_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.shutil, "which", lambda _name: None)
    (missing,) = check.missing_python((3, 9), "python3")
    assert str(missing) == "Python >= 3.11 (python3 is 3.9): python3.11"


def test_a_newer_python_beside_an_old_one_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"python3.12": "/usr/bin/python3.12", "python3.11": "/usr/bin/python3.11"}
    monkeypatch.setattr(check.shutil, "which", here.get)
    (missing,) = check.missing_python((3, 10), "python3")
    assert "`make PYTHON=python3.12 ...`" in str(missing)


def test_python_3_11_is_new_enough() -> None:
    assert check.missing_python((3, 11), "python3") == []


@pytest.mark.parametrize("absent", [("ensurepip",), ("venv", "ensurepip")])
def test_missing_modules_name_the_package_of_this_python(
    monkeypatch: pytest.MonkeyPatch, absent: tuple[str, ...]
) -> None:
    monkeypatch.setattr(
        check.importlib.util, "find_spec", lambda name: None if name in absent else object()
    )
    (missing,) = check.missing_modules((3, 13))
    assert missing.package == "python3.13-venv"
    assert missing.what == f"{' and '.join(absent)} of Python 3.13"
    assert "python3-venv" in missing.hint


def test_a_missing_libpython_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check.ctypes.util, "find_library", lambda _name: None)
    absent = tmp_path / "libpython3.12.so.1.0"
    (missing,) = check.missing_libpython((3, 12), [str(absent)])
    assert missing.package == "libpython3.12"
    assert "python3-dev" in missing.hint
    absent.touch()
    assert check.missing_libpython((3, 12), [str(absent)]) == []


def test_this_python_is_found_by_its_candidates() -> None:
    version = (sys.version_info.major, sys.version_info.minor)
    assert check.missing_libpython(version, check.libpython_candidates(version)) == []


def test_one_package_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.shutil, "which", {"g++": "", "ar": "", "make": ""}.get)
    assert check.packages_of(check.missing_programs(True)) == ["iverilog"]
