"""Imports run one way: abi ← rtl, firmware, driver ← runtime ← tb, and nothing imports tb."""

import ast
from pathlib import Path

import pytest

from tb.house.source_tree import PACKAGES, ROOT, python_files

ALLOWED = {
    "abi": {"abi"},
    "rtl": {"rtl", "abi"},
    "firmware": {"firmware", "abi"},
    "driver": {"driver", "abi"},
    "runtime": {"runtime", "driver", "abi"},
    "tb": set(PACKAGES),
    # A user's programs see what a user sees; testbenches among them also host the machine.
    "examples": set(PACKAGES),
}


def imported_packages(source: str) -> list[tuple[int, str]]:
    """Line and top-level package of each import, also of those within functions.

    A relative import stays within its package; `importlib.import_module("x.y")` with a literal
    counts too.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append((node.lineno, str(node.module).split(".")[0]))
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            found.append((node.lineno, str(node.args[0].value).split(".")[0]))
    return found


def violations(package: str, source: str) -> list[str]:
    """Imports of ours that a file of `package` must not have."""
    return [
        f"line {line}: {package} imports {name}"
        for line, name in imported_packages(source)
        if name in PACKAGES and name not in ALLOWED[package]
    ]


@pytest.mark.parametrize("path", python_files(), ids=str)
def test_imports_run_one_way(path: Path) -> None:
    assert violations(path.parts[0], (ROOT / path).read_text(encoding="utf-8")) == []


def test_every_package_is_covered() -> None:
    assert {path.parts[0] for path in python_files()} >= set(PACKAGES)


@pytest.mark.parametrize(
    ("package", "source", "found"),
    [
        ("abi", "import rtl.dma", ["line 1: abi imports rtl"]),
        ("abi", "from driver.bus import Bus", ["line 1: abi imports driver"]),
        ("rtl", "import os\nfrom firmware import port", ["line 2: rtl imports firmware"]),
        ("firmware", "def f():\n    import driver", ["line 2: firmware imports driver"]),
        ("driver", "from firmware.port import P", ["line 1: driver imports firmware"]),
        ("driver", "import runtime as r", ["line 1: driver imports runtime"]),
        ("runtime", "from rtl import npu", ["line 1: runtime imports rtl"]),
        (
            "runtime",
            "try:\n    import tb.engine\nexcept ImportError: ...",
            ["line 2: runtime imports tb"],
        ),
        ("rtl", "import importlib\nimportlib.import_module('tb.x')", ["line 2: rtl imports tb"]),
        ("runtime", "from driver.bus import Bus\nimport abi, numpy", []),
        ("rtl", "from . import dma\nfrom rtl.memory import port", []),
        ("tb", "import abi, rtl, firmware, driver, runtime, tb", []),
    ],
)
def test_a_violation_is_detected(package: str, source: str, found: list[str]) -> None:
    assert violations(package, source) == found
