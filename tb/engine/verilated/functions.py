"""The functions of a model's C++, and where they assign to members or call one another."""

import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator

__all__ = ["Functions", "Use", "is_assigned", "is_called", "places"]

_HEAD = re.compile(r"^[A-Za-z_][\w:&*<> ,]* (?P<name>\w+)\([^;{]*\) \{$", re.M)

Use = Callable[[str, int, int], bool]
"""Whether a text makes a certain use of the word between two places."""

_ASSIGNED = re.compile(r"\s*=(?!=)")
_ADDRESS = re.compile(r"&\s*\(?\s*vlSelf(?:Ref\s*\.|->)\Z")


def is_assigned(text: str, start: int, end: int) -> bool:
    """Whether the member is assigned to, or its address is taken."""
    if text[start - 1 : start] not in (".", ">") or re.match(r"\w", text[end : end + 1]):
        return False
    address = _ADDRESS.search(text, max(start - 40, 0), start)
    return address is not None or _ASSIGNED.match(text, end) is not None


def is_called(text: str, start: int, end: int) -> bool:
    """Whether the word is the name of a function that is called, or defined."""
    return text[end : end + 1] == "(" and not re.match(r"\w", text[start - 1 : start])


def places(text: str, word: str, use: Use) -> Iterator[int]:
    """Where a text makes that use of a word."""
    place = text.find(word)
    while place >= 0:
        end = place + len(word)
        if use(text, place, end):
            yield place
        place = text.find(word, end)


class Functions:
    """The functions of a model's C++."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        self._starts: list[list[int]] = []
        self._names: list[list[str]] = []
        for text in self._texts:
            heads = list(_HEAD.finditer(text))
            self._starts.append([head.start() for head in heads])
            self._names.append([head["name"] for head in heads])

    def body(self, name: str) -> str:
        """Body of the first function of this name."""
        for text, starts, names in zip(self._texts, self._starts, self._names, strict=True):
            if name in names:
                start = text.index(" {\n", starts[names.index(name)]) + 3
                return text[start : text.index("\n}\n", start) + 1]
        raise KeyError(name)

    def assigned(self, member: str) -> list[str]:
        """Right sides of all statements that assign to a member."""
        return [
            text[text.index("=", place + len(member)) + 1 : text.index(";", place)].strip()
            for text in self._texts
            for place in places(text, member, is_assigned)
        ]

    def where(self, words: Iterable[str], use: Use) -> set[str]:
        """Names of the functions that make that use of any of the words."""
        found = set()
        for word in words:
            for text, starts, names in zip(self._texts, self._starts, self._names, strict=True):
                for place in places(text, word, use):
                    function = bisect(starts, place) - 1
                    if function >= 0:
                        found.add(names[function])
        return found
