"""Every command and example of README and docs runs; every link and named path exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tb.house.documents import (
    Block,
    anchors_of,
    blocks_of,
    links_of,
    paths_of,
    shown_output_pattern,
)
from tb.house.source_tree import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for page in (ROOT / "docs").rglob("*.md")),
    ]
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def all_blocks() -> list[object]:
    found: list[object] = []
    for page in PAGES:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            kind = "simulator" if block.simulator else "plain"
            marks = [pytest.mark.slow] if block.simulator else []
            name = f"{name_of(page)}:{block.line}-{kind}"
            found.append(pytest.param(block, id=name, marks=marks))
    return found


def environment_of(block: Block) -> dict[str, str]:
    """The caller's environment with this Python's programs first, and what the block asks for."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", "")])
    # What belongs to the pytest or make around this must not reach one inside.
    own = ("PYTEST_", "COCOTB_", "MAKE", "MFLAGS")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**outer, "PATH": path, **dict(block.env)}


def run_block(block: Block, folder: Path) -> None:
    """Run a block in the checkout; a Python example is written into `folder` first.

    Raises:
        AssertionError: an exit status or an output is not what the page says.
    """
    if block.language == "python":
        example = folder / ("test_example.py" if block.hosted else "example.py")
        example.write_text(block.text, encoding="utf-8")
        start = [sys.executable, str(example)]
        if block.simulator:
            start = ["glassnpu", "pytest" if block.hosted else "run", str(example)]
        programs: list[tuple[list[str], list[str]]] = [(start, [])]
    else:
        programs = [
            (["bash", "-euo", "pipefail", "-c", command], shown)
            for command, shown in block.commands()
        ]
    output = ""
    for program, shown in programs:
        done = subprocess.run(
            program,
            cwd=ROOT,
            env=environment_of(block),
            input=block.stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=block.timeout,
        )
        said = f"{program[-1]}\nended with {done.returncode}:\n{done.stdout}"
        assert done.returncode == block.status, said
        assert shown_output_pattern(shown).search(done.stdout), f"{said}\nThe page shows {shown}"
        output += done.stdout
    for text in block.expect:
        assert text in output, f"{text!r} is not in\n{output}"


@pytest.mark.parametrize("block", all_blocks())
def test_a_block_of_the_docs_runs(block: Block, tmp_path: Path) -> None:
    run_block(block, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def broken_links(page: Path) -> list[str]:
    """Links of a page to files or headings that do not exist."""
    broken = []
    for link in links_of(page.read_text(encoding="utf-8")):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_page = target.suffix == ".md" and target.exists()
        known = anchors_of(target.read_text(encoding="utf-8")) if is_page else set()
        if not target.exists() or (anchor and anchor not in known):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_paths_exist(page: Path) -> None:
    named = paths_of(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    folder = ROOT / "docs"
    pages = [str(page.relative_to(folder)) for page in PAGES if page.is_relative_to(folder)]
    assert pages
    assert [name for name in pages if f": {name}\n" not in navigation] == []


def test_the_pages_build_without_warnings_and_fetch_nothing(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [str(mkdocs), "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    fetched = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 10
    assert [tag for page in pages for tag in fetched.findall(page.read_text())] == []


def test_the_time_of_a_build_is_stated_once() -> None:
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    for file in ("Makefile", "tb/cli/__init__.py", "tb/cli/build.py", "tb/engine/build.py"):
        texts[file] = (ROOT / file).read_text(encoding="utf-8")
    figure = re.compile(r"\bminutes?\b|\bCPU seconds\b")
    stated = {name: figure.findall(text) for name, text in texts.items() if figure.search(text)}
    assert stated == {"docs/engine.md": ["minutes", "CPU seconds"]}


def test_no_fact_waits_for_verification() -> None:
    waiting = {
        name_of(page): count
        for page in PAGES
        if (count := page.read_text(encoding="utf-8").count("<!-- verify"))
    }
    assert waiting == {}


def test_blocks_are_found_with_their_markers() -> None:
    text = (
        "# T\n\n```console\n$ echo a \\\n    b\na b\n$ true\n```\n\n"
        '<!-- run: simulator timeout=5 expect="x y" stdin="1\\n" env=A=b=c status=2 -->\n'
        "```python\nprint(1)\n```\n\n```text\n$ no\n```\n"
        "1. item\n\n    ```bash\n    true\n    ```\n"
    )
    console, python, bash = blocks_of(text)
    assert console.commands() == [("echo a     b", ["a b"]), ("true", [])]
    assert (console.line, console.simulator) == (3, False)
    assert (python.simulator, python.timeout, python.expect) == (True, 5.0, ("x y",))
    assert (python.stdin, python.env, python.status) == ("1\n", (("A", "b=c"),), 2)
    assert bash.text == "true\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- run: simulater -->\n```bash\ntrue\n```\n", "must not have 'simulater'"),
        ("<!-- run: simulator -->\n\nText.\n\n```bash\ntrue\n```\n", "directly before"),
    ],
)
def test_a_marker_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        blocks_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ false\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```bash\nfalse\ntrue\n```\n",
        "```python\nraise SystemExit(1)\n```\n",
        '<!-- run: expect="three" -->\n```bash\necho one\n```\n',
        "<!-- run: status=1 -->\n```bash\ntrue\n```\n",
    ],
)
def test_a_wrong_block_fails(text: str, tmp_path: Path) -> None:
    (block,) = blocks_of(text)
    with pytest.raises(AssertionError):
        run_block(block, tmp_path)


def test_a_right_block_passes(tmp_path: Path) -> None:
    (console, python) = blocks_of(
        "```console\n$ printf 'a 12 b\\nc\\n'\na … b\nc\n```\n"
        '<!-- run: stdin="7" expect="8" -->\n```python\nprint(int(input()) + 1)\n```\n'
    )
    run_block(console, tmp_path)
    run_block(python, tmp_path)


def test_broken_links_and_paths_are_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c\n[x](#a-b-c) [y](#d) [z](no.md) ![i](page.md) `rtl/no.py` `a/b`\n")
    assert broken_links(page) == ["#d", "no.md"]
    assert paths_of(page.read_text()) == ["rtl/no.py"]
