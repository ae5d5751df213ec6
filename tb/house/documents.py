"""Reads Markdown: blocks that can be run, links, and paths that the text mentions.

A block may be preceded by an HTML comment that says how to run it:

    <!-- run: simulator timeout=300 expect="accuracy" stdin="exit()" env=NAME=value -->

`simulator`: it starts the machine (a Python block then runs under `glassnpu run`, else in plain
Python). `hosted`: a pytest file, run under `glassnpu pytest`. `expect`: text that the output must
hold, may be repeated. `stdin`: what is typed (`\\n` for a new line). `env`: a variable, may be
repeated. `status`: the exit status, 0 unless said. Lines of output that a console block shows
must appear in the real output, in order; `…` stands for anything.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "blocks_of", "links_of", "paths_of", "shown_output_pattern"]

LANGUAGES = ("console", "bash", "python")
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"<!--\s*run:((?:(?!-->).)*)-->\s*\Z", re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FOLDERS = ("abi", "rtl", "firmware", "driver", "runtime", "tb", "docs", "examples", ".ci")


@dataclass(frozen=True)
class Block:
    """A block that can be run, and how; `line` is that of its fence."""

    line: int
    language: str
    text: str
    simulator: bool = False
    hosted: bool = False
    timeout: float = 120
    stdin: str = ""
    status: int = 0
    expect: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    def commands(self) -> list[tuple[str, list[str]]]:
        """Commands of a console block, each with the lines of output shown below it.

        Lines after a `\\` belong to the command; in a bash block everything is one command.
        """
        if self.language != "console":
            return [(self.text, [])]
        found: list[tuple[str, list[str]]] = []
        for line in self.text.replace("\\\n", "").splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and line.strip():
                found[-1][1].append(line)
            elif line.strip():
                raise ValueError(f"a console block must begin with `$ `, not {line!r}")
        return found


def _options(marker: str) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for word in shlex.split(marker):
        name, _, value = word.partition("=")
        if name not in ("simulator", "hosted", "timeout", "stdin", "status", "expect", "env"):
            raise ValueError(f"a run marker must not have {name!r}")
        options.setdefault(name, []).append(value)
    return options


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that can be run.

    Raises:
        ValueError: a marker has an unknown word, or belongs to no block.
    """
    found = []
    markers = 0
    for match in FENCE.finditer(text):
        indent, language, body = match.groups()
        marker = MARKER.search(text[: match.start()].rstrip(" "))
        if marker is not None:
            markers += 1
        if language not in LANGUAGES:
            continue
        options = _options(marker[1]) if marker else {}
        body = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        found.append(
            Block(
                line=text.count("\n", 0, match.start()) + 1,
                language=language,
                text=body,
                simulator="simulator" in options or "hosted" in options,
                hosted="hosted" in options,
                timeout=float(options.get("timeout", ["120"])[-1]),
                stdin="".join(options.get("stdin", [])).replace("\\n", "\n"),
                status=int(options.get("status", ["0"])[-1]),
                expect=tuple(options.get("expect", [])),
                env=tuple(
                    (name, value)
                    for name, _, value in (word.partition("=") for word in options.get("env", []))
                ),
            )
        )
    if markers != len(re.findall(r"<!--\s*run:", text)):
        raise ValueError("a run marker must stand directly before a block")
    return found


def shown_output_pattern(lines: list[str]) -> re.Pattern[str]:
    """What the real output must hold if a page shows `lines` of it."""
    parts = [".*?".join(re.escape(part.strip()) for part in line.split("…")) for line in lines]
    return re.compile(".*?".join(parts), re.DOTALL)


def _prose(text: str) -> str:
    """The page without its blocks and comments."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return FENCE.sub("", text)


def links_of(text: str) -> list[str]:
    """Targets of links and images."""
    return LINK.findall(CODE.sub("", _prose(text)))


def paths_of(text: str) -> list[str]:
    """Files and folders of the checkout that the text names in inline code."""
    found = []
    for code in CODE.findall(_prose(text)):
        path = Path(code.split("::")[0])
        plain = re.fullmatch(r"[\w./-]+", code.split("::")[0]) is not None
        if plain and "/" in code and path.parts and path.parts[0] in FOLDERS:
            found.append(str(path))
    return found


def anchors_of(text: str) -> set[str]:
    """Anchors of the headings of a page, as MkDocs makes them."""
    found = set()
    for title in re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower()
        found.add(re.sub(r"[\s-]+", "-", plain))
    return found
