"""What does not change in a loop is computed in front of it."""

from collections.abc import Iterator

from runtime.compiler.ir import Command, Define, Fetch, Loop, Node, When
from runtime.compiler.scalar import Binary, Scalar, Variable
from runtime.compiler.values import Values
from runtime.compiler.words import Words

__all__ = ["changed_in", "hoist"]


def changed_in(loop: Loop) -> set[Variable]:
    """The variables that get new values while a loop runs."""
    found = {loop.index}

    def visit(nodes: list[Node]) -> None:
        for node in nodes:
            if isinstance(node, Fetch):
                found.add(node.value)
            elif isinstance(node, Loop | When):
                if isinstance(node, Loop):
                    found.add(node.index)
                if node.body.slot is not None:
                    found.add(node.body.slot)
                visit(node.body.nodes)

    visit([loop])
    return found


def hoist(nodes: list[Node], words: dict[Command, Words], values: Values) -> None:
    """Move the definitions of values that do not change out of loops, and add such definitions
    for the parts of the commands' words."""
    for node in list(nodes):
        if isinstance(node, When):
            hoist(node.body.nodes, words, values)
        elif isinstance(node, Loop):
            hoist(node.body.nodes, words, values)
            at = nodes.index(node)
            nodes[at:at] = _in_front(node, words, values)


def _in_front(loop: Loop, words: dict[Command, Words], values: Values) -> list[Node]:
    changed = changed_in(loop)
    front: dict[Scalar, Define] = {}

    def add(value: Scalar) -> None:
        """The largest parts of an expression that do not change."""
        if not isinstance(value, Binary):
            return
        if changed.isdisjoint(values.variables(value)):
            front.setdefault(value, Define(value))
        else:
            add(value.left)
            add(value.right)

    body = loop.body.nodes
    for node in list(body):
        if not isinstance(node, Define):
            continue
        value = values.canonical(node.value)
        if changed.isdisjoint(values.variables(value)):
            body.remove(node)
            front.setdefault(value, node)
    for used in _uses(body, words):
        add(values.canonical(used))
    add(values.canonical(loop.stop))
    add(values.canonical(loop.step))
    return list(front.values())


def _uses(nodes: list[Node], words: dict[Command, Words]) -> Iterator[Scalar]:
    """Expressions in a region, and in the conditions in it."""
    for node in nodes:
        match node:
            case Command():
                yield from (word for word in words[node] if word is not None)
            case Define():
                yield node.value
            case Fetch():
                yield node.offset
            case Loop():
                yield node.start
            case When():
                yield node.condition
                yield from _uses(node.body.nodes, words)
