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
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

__all__ = ["GROUP", "Piece", "any_of", "group_triggers", "pieces"]

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


@dataclass(frozen=True)
class Piece:
    """A statement of the walk: its `text`, and the triggers that it is for.

    `triggers` has a mask for each word; it is empty if the statement has another form.
    """

    text: str
    triggers: dict[int, int]


def _triggers(test: str) -> dict[int, int]:
    """The triggers that a test asks for, a mask for each word; empty if it asks for more."""
    if re.search(r"[^()|\s]", _MASK.sub("", test)):
        return {}
    words: dict[int, int] = {}
    for match in _MASK.finditer(test):
        word = int(match["word"])
        words[word] = words.get(word, 0) | int(match["mask"], 0)
    return words


def pieces(body: str) -> Iterator[Piece]:
    """What the body of the walk is made of, in order; together they are the body."""
    place = 0
    for match in _PIECE.finditer(body):
        if match.start() != place:
            yield Piece(body[place : match.start()], {})
        yield Piece(match[0], _triggers(match["test"]))
        place = match.end()
    if place != len(body):
        yield Piece(body[place:], {})


def any_of(triggers: dict[int, int]) -> str:
    """C++ that is not 0 if any of these triggers is set."""
    tests = [
        f"(0x{mask:016x}ULL & vlSelfRef.__VnbaTriggered[{word}U])"
        for word, mask in sorted(triggers.items())
    ]
    return " | ".join(tests) or "0"


def _shared(group: list[Piece]) -> str:
    text = "".join(piece.text for piece in group)
    if len(group) == 1:
        return text
    union: dict[int, int] = {}
    for piece in group:
        for word, mask in piece.triggers.items():
            union[word] = union.get(word, 0) | mask
    return f"    if ({any_of(union)}) {{\n{text}    }}\n"


def group_triggers(source: str) -> tuple[str, int]:
    """Verilator's C++ with grouped trigger tests, and how many pieces were grouped.

    Statements of another form stay as they are, and where they are.
    """
    walk = _WALK.search(source)
    if walk is None:
        return source, 0
    out = []
    grouped = 0
    for known, same in groupby(pieces(walk["body"]), key=lambda piece: bool(piece.triggers)):
        run = list(same)
        if known:
            starts = range(0, len(run), GROUP)
            out += [_shared(run[start : start + GROUP]) for start in starts]
            grouped += len(run)
        else:
            out += [piece.text for piece in run]
    return source[: walk.start("body")] + "".join(out) + source[walk.end("body") :], grouped
