"""Names at once everything that the machine lacks, with the Debian package that brings it.

This runs before anything is installed, on a bare and perhaps too old system Python: it imports
only the standard library, and each piece that Debian packages apart (venv, ensurepip) is looked
for, not imported.
"""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.util
import os
import shutil
import sys
import sysconfig

OLDEST = (3, 11)
# Names under which a newer Python may stand beside an old `python3`.
NEWER_NAMES = tuple(f"python3.{minor}" for minor in range(16, 10, -1))


class Missing:
    """One thing that the machine lacks: what it is, and the Debian package that brings it."""

    def __init__(self, what: str, package: str, hint: str = "") -> None:
        self.what = what
        self.package = package
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}: {self.package}" + (f" ({self.hint})" if self.hint else "")


def missing_python(version: tuple[int, int], executable: str) -> list[Missing]:
    """What is wrong with a Python of `version`: nothing, or that it is too old."""
    if version >= OLDEST:
        return []
    newer = [name for name in NEWER_NAMES if shutil.which(name)]
    hint = f"`make PYTHON={newer[0]} ...` uses the one that is here" if newer else ""
    here = ".".join(str(part) for part in version)
    return [Missing(f"Python >= 3.11 ({executable} is {here})", "python3.11", hint)]


def missing_modules(version: tuple[int, int]) -> list[Missing]:
    """The modules `venv` and `ensurepip`, which Debian packages apart from Python."""
    lacking = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if not lacking:
        return []
    package = f"python{version[0]}.{version[1]}-venv"
    what = f"{' and '.join(lacking)} of Python {version[0]}.{version[1]}"
    return [Missing(what, package, "python3-venv brings it for Debian's own python3")]


def missing_programs(icarus: bool) -> list[Missing]:
    """Programs that no wheel brings."""
    wanted = [("g++", "g++"), ("ar", "binutils"), ("make", "make")]
    if icarus:
        wanted += [("iverilog", "iverilog"), ("vvp", "iverilog")]
    return [
        Missing(f"the program {program}", package)
        for program, package in wanted
        if shutil.which(program) is None
    ]


def libpython_candidates(version: tuple[int, int]) -> list[str]:
    """Paths at which the shared libpython of this interpreter may lie."""
    variables = sysconfig.get_config_vars()
    stem = f"libpython{version[0]}.{version[1]}.so"
    names = [variables.get("INSTSONAME"), variables.get("LDLIBRARY"), f"{stem}.1.0", stem]
    libdir = str(variables.get("LIBDIR") or "/usr/lib")
    folders = [
        libdir,
        os.path.join(libdir, str(variables.get("MULTIARCH") or "")),
        str(variables.get("LIBPL") or libdir),
        os.path.join(sys.base_prefix, "lib"),
    ]
    return [
        os.path.join(folder, str(name))
        for folder in folders
        for name in names
        if name and ".so" in str(name)
    ]


def missing_libpython(version: tuple[int, int], candidates: list[str]) -> list[Missing]:
    """The shared libpython, which the simulator embeds and a bare Debian python3 lacks."""
    stem = f"python{version[0]}.{version[1]}"
    if any(os.path.exists(path) for path in candidates) or ctypes.util.find_library(stem):
        return []
    return [
        Missing(
            f"the shared library lib{stem}",
            f"lib{stem}",
            "python3-dev brings it too; a Python of your own needs --enable-shared",
        )
    ]


def find_missing(icarus: bool = False) -> list[Missing]:
    """Everything that this machine lacks, in the order in which to install it."""
    version = sys.version_info[:2]
    missing = missing_python(version, sys.executable)
    if not missing:  # The parts of a Python that will not be used say nothing.
        missing += missing_modules(version)
        missing += missing_libpython(version, libpython_candidates(version))
    return missing + missing_programs(icarus)


def packages_of(missing: list[Missing]) -> list[str]:
    """The packages to install, each once."""
    return list(dict.fromkeys(item.package for item in missing))


def report_of(missing: list[Missing]) -> str:
    """The message for a person."""
    prefix = "" if os.geteuid() == 0 else "sudo "
    return "\n".join(
        [
            "GlassNPU needs what this machine lacks (what: Debian or Ubuntu package):",
            *(f"  - {item}" for item in missing),
            "Install it all with:",
            f"  {prefix}apt-get install {' '.join(packages_of(missing))}",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Print what is missing; 0 if nothing is, else 1."""
    parser = argparse.ArgumentParser(description="Name what this machine lacks for GlassNPU.")
    parser.add_argument("--icarus", action="store_true", help="want Icarus Verilog too")
    parser.add_argument("--packages", action="store_true", help="print only the package names")
    options = parser.parse_args(arguments)
    missing = find_missing(options.icarus)
    if options.packages:
        print(" ".join(packages_of(missing)))
    elif missing:
        print(report_of(missing), file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
