"""Files stay small and named by their subject; nothing is suppressed; the lock file agrees."""

import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

from tb.house.source_tree import ROOT, python_files, tracked_files

MAXIMUM_LINES = 500
DUMPING_GROUNDS = re.compile(r"(^|_)(utils?|commons?|helpers?|misc)(_|$)")
SUPPRESSIONS = re.compile(r"#\s*(type:\s*ignore|noqa|ruff:\s*noqa|mypy:\s*ignore|pragma:\s*no)")
SOURCES = (".py", ".cpp", ".h", ".sv", ".v")


def suppressions(source: str) -> list[int]:
    """Lines with a comment that silences a checker; strings that mention one do not count."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT and SUPPRESSIONS.search(token.string)
    ]


def is_dumping_ground(path: Path) -> bool:
    """Whether a file or folder is named for being useful instead of for its subject."""
    return any(DUMPING_GROUNDS.search(part.split(".")[0]) for part in path.parts)


def locked_versions(text: str) -> dict[str, set[str]]:
    """Versions that the lock file pins, by normalised name (several where markers differ)."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE):
        versions.setdefault(normalised(name), set()).add(version)
    return versions


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def unpinned_requirements(text: str) -> list[str]:
    """Requirements of the lock file without a hash: `--require-hashes` would refuse them."""
    joined = text.replace("\\\n", " ")
    lines = (line.strip() for line in joined.splitlines())
    return [line for line in lines if line and line[0] != "#" and "--hash=sha256:" not in line]


@pytest.mark.parametrize("path", [p for p in tracked_files() if p.suffix in SOURCES], ids=str)
def test_a_file_has_at_most_500_lines(path: Path) -> None:
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= MAXIMUM_LINES


def test_no_file_is_a_dumping_ground() -> None:
    assert [str(path) for path in tracked_files() if is_dumping_ground(path)] == []


@pytest.mark.parametrize("path", python_files(), ids=str)
def test_nothing_is_suppressed(path: Path) -> None:
    assert suppressions((ROOT / path).read_text(encoding="utf-8")) == []


def test_suppressions_are_detected() -> None:
    mark = "#"  # Put together here, so that this very file has none.
    source = f"x = 1  {mark} type: ignore[misc]\ny = '{mark} noqa'\nz = 2  {mark}noqa: E501\n"
    assert suppressions(source) == [1, 3]


@pytest.mark.parametrize("name", ["rtl/utils.py", "tb/common/bus.py", "driver/dma_helpers.py"])
def test_dumping_grounds_are_detected(name: str) -> None:
    assert is_dumping_ground(Path(name))
    assert not is_dumping_ground(Path("rtl/community.py"))


def test_the_lock_file_pins_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
    ]
    locked = locked_versions((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    assert declared
    for requirement in declared:
        name, operator, version = requirement.partition("==")
        assert operator, f"{requirement} must be pinned"
        assert locked.get(normalised(name)) == {version}, f"{name} differs from the lock file"


def test_every_locked_requirement_has_a_hash() -> None:
    assert unpinned_requirements((ROOT / "requirements.lock").read_text(encoding="utf-8")) == []
    text = "a==1 \\\n    --hash=sha256:00\nb==2\n# note\n"
    assert unpinned_requirements(text) == ["b==2"]
    assert locked_versions("A_b==1.0 ; x\na.b==2.0 \\\n") == {"a-b": {"1.0", "2.0"}}
