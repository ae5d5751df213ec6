"""Lets a Verilated model look only for edges of clocks that may have moved.

Verilator's model has one function that compares each clock with its former value. Most clocks are
`gate & parent`: while the parent is 0 and was 0, so is the clock and was the clock. So all clocks
of one parent stand behind one test of the parent, and those of a sleeping core cost one test.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import indent

from tb.engine.verilated.expressions import OtherFormError, Tree, name_of, number_of, parse
from tb.engine.verilated.functions import Functions

__all__ = ["Edge", "edges_of", "guard_edges", "with_parents"]

_FUNCTION = re.compile(
    r"^(?P<head>void \w+___eval_triggers_vec__act\(\w+\* vlSelf\) \{\n)(?P<body>.*?)^\}\n",
    re.M | re.S,
)
_LOCAL = re.compile(r"^    CData/\*0:0\*/ (\w+);\n    \1 = 0;\n", re.M)
_STATEMENT = re.compile(r"^    (?P<left>[\w.\[\]]+)\s*= (?P<right>[^;]*);\n", re.M)


@dataclass(frozen=True)
class Edge:
    """A trigger: `bit` of the triggers is set when `now` rises (or falls) from `before`.

    `now` is an expression of C++; `variables` are those in it; `before` is the variable that
    keeps its former value. `parents` are variables without which the clock is 0.
    """

    bit: int
    rising: bool
    now: str
    variables: tuple[str, ...]
    before: str
    parents: tuple[str, ...] = ()


def _bits(tree: Tree, shift: int = 0) -> Iterator[tuple[int, bool, str, str]]:
    """Bit, whether rising, variable now, variable before: of all edges in an expression."""
    if tree.word == "|":
        for argument in tree.arguments:
            yield from _bits(argument, shift)
        return
    if len(tree.arguments) != 2:
        raise OtherFormError
    left, right = tree.arguments
    if tree.word == "<<":
        yield from _bits(left, shift + number_of(right))
    elif tree.word == "&" and right.word == "~":
        yield shift, True, name_of(left), name_of(right.arguments[0])
    elif tree.word == "&" and left.word == "~":
        yield shift, False, name_of(left.arguments[0]), name_of(right)
    else:
        raise OtherFormError


def edges_of(source: str) -> list[Edge]:
    """The edges that Verilator's C++ looks for; none if the function has another form."""
    function = _FUNCTION.search(source)
    if function is None:
        return []
    body = function["body"]
    start = body.find("    // Body\n")
    statements = list(_STATEMENT.finditer(body, max(start, 0)))
    locals_ = set(_LOCAL.findall(body))
    try:
        return _edges(statements, locals_)
    except OtherFormError:
        return []


def _edges(statements: list[re.Match[str]], locals_: set[str]) -> list[Edge]:
    ands: dict[str, tuple[str, ...]] = {}
    kept: dict[str, str] = {}
    found: list[tuple[int, bool, str, str]] = []
    for statement in statements:
        left, tree = statement["left"], parse(statement["right"])
        word = re.fullmatch(r"vlSelfRef\.__VactTriggered\[(\d+)U\]", left)
        if word:
            found += _bits(tree, 64 * int(word[1]))
        elif left in locals_:
            if tree.word != "&":
                raise OtherFormError
            ands[left] = tuple(name_of(argument) for argument in tree.arguments)
        else:
            kept[left] = name_of(tree)
    edges = []
    for bit, rising, now, before in found:
        if kept.get(before) != now or (now in locals_) != (now in ands):
            raise OtherFormError
        parents = ands.get(now, ())
        variables = parents or (now,)
        edges.append(Edge(bit, rising, " & ".join(variables), variables, before, parents))
    if not edges or len({edge.bit for edge in edges}) != len(edges):
        raise OtherFormError
    if {edge.before for edge in edges} != set(kept):
        raise OtherFormError
    return edges


def with_parents(edges: list[Edge], functions: Functions) -> list[Edge]:
    """The edges, with parents also for clocks that are variables of their own."""
    return [
        edge if edge.parents else replace(edge, parents=_parents(edge.now, functions))
        for edge in edges
    ]


def _parents(variable: str, functions: Functions) -> tuple[str, ...]:
    """The variables that a variable is always assigned the AND of; none if it has another form."""
    found = set()
    for right in functions.assigned(variable.removeprefix("vlSelfRef.")):
        if right == "0":  # By the constructor.
            continue
        try:
            tree = parse(right)
            if tree.word != "&":
                return ()
            found.add(frozenset(name_of(argument) for argument in tree.arguments))
        except OtherFormError:
            return ()
    return tuple(sorted(next(iter(found)))) if len(found) == 1 else ()


def _parent_clocks(edges: list[Edge]) -> dict[str, str]:
    """For each clock, by its `before`: the clock that it is a gate of, if it is one."""
    clocks = {edge.now: edge.before for edge in edges if len(edge.variables) == 1}
    parents = {}
    for edge in edges:
        above = [clocks[name] for name in edge.parents if name in clocks]
        if above and above[0] != edge.before:
            parents[edge.before] = above[0]
    return parents


def _look(edge: Edge, same: list[Edge]) -> str:
    """C++ that sets the triggers of a clock, whose edges are `same`, and keeps its value."""
    lines = [f"{{ const IData now = {edge.now}; const IData before = {edge.before};\n"]
    for each in same:
        moved = "now & ~before" if each.rising else "before & ~now"
        word, bit = divmod(each.bit, 64)
        lines.append(f"glass_word{word} |= (QData)({moved}) << {bit};\n")
    lines.append(f"{edge.before} = now; }}\n")
    return "".join(lines)


def _guarded(edges: list[Edge]) -> str:
    parents = _parent_clocks(edges)
    clocks: dict[str, list[Edge]] = {}
    for edge in edges:
        clocks.setdefault(edge.before, []).append(edge)

    def looks(parent: str | None) -> str:
        # A parent's own former value is the guard of its children: it is renewed after them.
        lines = []
        for before, same in clocks.items():
            if parents.get(before) == parent:
                children = looks(before)
                if children:
                    lines.append(f"if ({same[0].now} | {before}) {{\n{children}}}\n")
                lines.append(_look(same[0], same))
        return "".join(lines)

    words = range(max(edge.bit for edge in edges) // 64 + 1)
    start = "".join(f"QData glass_word{word} = 0;\n" for word in words)
    end = "".join(f"vlSelfRef.__VactTriggered[{word}U] = glass_word{word};\n" for word in words)
    return start + looks(None) + end


def guard_edges(source: str, edges: list[Edge]) -> str:
    """Verilator's C++ with a function that looks for these edges behind guards."""
    function = _FUNCTION.search(source)
    if function is None:
        return source
    symbols = "auto& vlSelfRef = std::ref(*vlSelf).get();\n"
    text = f"{function['head']}{indent(symbols + _guarded(edges), '    ')}}}\n"
    return source[: function.start()] + text + source[function.end() :]
