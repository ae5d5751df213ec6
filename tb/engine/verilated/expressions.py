"""Reads the C++ expressions of one bit that Verilator writes for clocks."""

import re
from dataclasses import dataclass

__all__ = ["OtherFormError", "Tree", "name_of", "number_of", "parse"]

_TOKEN = re.compile(r"\s*(0x[0-9a-f]+U(?:LL)?|\d+U(?:LL)?|[\w.]+|<<|[()&|~])")
_CASTS = {"CData", "SData", "IData", "QData"}


class OtherFormError(Exception):
    """The text has another form than the one that is looked for."""


@dataclass(frozen=True)
class Tree:
    """An expression: an operator with its arguments, or a name or number without."""

    word: str
    arguments: tuple["Tree", ...] = ()


def parse(text: str) -> Tree:
    """The tree of an expression of variables, constants, casts, `&`, `|`, `~` and `<<`.

    Raises:
        OtherFormError: the text has anything else.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise OtherFormError
    place = 0

    def next_token() -> str:
        return tokens[place] if place < len(tokens) else ""

    def take(wanted: str | None = None) -> str:
        nonlocal place
        token = next_token()
        if not token or (wanted is not None and token != wanted):
            raise OtherFormError
        place += 1
        return token

    def unary() -> Tree:
        if next_token() == "~":
            take()
            return Tree("~", (unary(),))
        if next_token() != "(":
            return Tree(take())
        take("(")
        if next_token() in _CASTS:
            take()
            take(")")
            return unary()
        inner = binary(0)
        take(")")
        return inner

    def binary(level: int) -> Tree:
        if level == len(("|", "&", "<<")):
            return unary()
        operator = ("|", "&", "<<")[level]
        left = binary(level + 1)
        while next_token() == operator:
            take()
            left = Tree(operator, (left, binary(level + 1)))
        return left

    tree = binary(0)
    if place != len(tokens):
        raise OtherFormError
    return tree


def name_of(tree: Tree) -> str:
    """The variable that the tree is.

    Raises:
        OtherFormError: it is something else.
    """
    if tree.arguments or not re.fullmatch(r"[A-Za-z_][\w.]*", tree.word):
        raise OtherFormError
    return tree.word


def number_of(tree: Tree) -> int:
    """The constant that the tree is.

    Raises:
        OtherFormError: it is something else.
    """
    if tree.arguments or not tree.word[0].isdigit():
        raise OtherFormError
    return int(re.sub("U.*", "", tree.word), 0)
