"""The Python files of the project, as the house rules see them."""

import subprocess
from pathlib import Path

__all__ = ["PACKAGES", "ROOT", "python_files", "tracked_files"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("abi", "rtl", "firmware", "driver", "runtime", "tb")


def tracked_files(root: Path = ROOT) -> list[Path]:
    """Files that git knows or would add, relative to `root`; without git, those of the packages."""
    if (root / ".git").exists():
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            names = sorted(set(done.stdout.split("\0")) - {""})
            return [Path(name) for name in names if (root / name).is_file()]
    folders = (*PACKAGES, "examples", "docs")
    return sorted(
        path.relative_to(root)
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def python_files(root: Path = ROOT) -> list[Path]:
    """Python files of the packages and the examples, relative to `root`."""
    return [
        path
        for path in tracked_files(root)
        if path.suffix == ".py" and path.parts[0] in (*PACKAGES, "examples")
    ]
