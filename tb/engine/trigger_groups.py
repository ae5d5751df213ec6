"""Lets a Verilated model skip, with one test, what belongs to clocks that did not rise.

Verilator writes one function that walks through all logic in order, a test of the clocks before
each piece:

    if ((0x0004 & triggered)) { … }
    if ((0x0102 & triggered)) { … }

A chip of many gated clocks has hundreds of these, and most are false in most cycles: they are what
a sleeping chip costs. Here sixteen neighbours share a test of all their triggers. The tests inside
stay, and the triggers do not change in the walk, so the same pieces run in the same order.
"""

import re
from pathlib import Path

__all__ = ["GROUP", "group_triggers", "group_triggers_of_model"]

GROUP = 16
"""Pieces behind one test: measured, 8 and 16 cost the same."""

_WALK = re.compile(
    r"(?P<head>^void \w+___eval_nba\(\w+\* vlSelf\) \{\n)(?P<body>.*?)(?=^\}\n)", re.M | re.S
)
_PIECE = re.compile(r"^    if \((?P<test>[^{}]*?)\) \{\n(?:.*?)^    \}\n", re.M | re.S)
_MASK = re.compile(
    r"(?P<mask>0x[0-9a-f]+|\d+)U(?:LL)?\s*&\s*"
    r"vlSelfRef\s*\.__VnbaTriggered\s*\[\s*(?P<word>\d+)U\s*\]"
)


def _triggers(test: str) -> dict[int, int]:
    """The triggers that a test asks for, a mask for each word; empty if it asks for more."""
    if re.search(r"[^()|\s]", _MASK.sub("", test)):
        return {}
    words: dict[int, int] = {}
    for match in _MASK.finditer(test):
        word = int(match["word"])
        words[word] = words.get(word, 0) | int(match["mask"], 0)
    return words


def _shared(pieces: list[str], tests: list[dict[int, int]]) -> str:
    if len(pieces) == 1:
        return pieces[0]
    union: dict[int, int] = {}
    for test in tests:
        for word, mask in test.items():
            union[word] = union.get(word, 0) | mask
    asked = " | ".join(
        f"(0x{mask:016x}ULL & vlSelfRef.__VnbaTriggered[{word}U])"
        for word, mask in sorted(union.items())
    )
    return f"    if ({asked}) {{\n{''.join(pieces)}    }}\n"


def group_triggers(source: str) -> tuple[str, int]:
    """Verilator's C++ with grouped trigger tests, and how many pieces were grouped.

    Statements of another form stay as they are, and where they are.
    """
    walk = _WALK.search(source)
    if walk is None:
        return source, 0
    body = walk["body"]
    out: list[str] = []
    pieces: list[str] = []
    tests: list[dict[int, int]] = []
    grouped = place = 0

    def flush() -> None:
        if pieces:
            out.append(_shared(pieces, tests))
            pieces.clear()
            tests.clear()

    for match in _PIECE.finditer(body):
        triggers = _triggers(match["test"])
        if match.start() != place or not triggers:
            flush()
            out.append(body[place : match.start()])
        place = match.end()
        if not triggers:
            out.append(match[0])
            continue
        pieces.append(match[0])
        tests.append(triggers)
        grouped += 1
        if len(pieces) == GROUP:
            flush()
    flush()
    out.append(body[place:])
    return source[: walk.start("body")] + "".join(out) + source[walk.end("body") :], grouped


def group_triggers_of_model(folder: Path) -> int:
    """Group the tests in the C++ that Verilator wrote to `folder`; returns how many pieces."""
    total = 0
    for path in sorted(folder.glob("V*.cpp")):
        source = path.read_text(encoding="utf-8")
        if "___eval_nba(" not in source:
            continue
        text, grouped = group_triggers(source)
        if grouped:
            path.write_text(text, encoding="utf-8")
            total += grouped
    return total
