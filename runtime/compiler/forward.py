"""Updates without a copy: what computes a tile's new value writes it in the tile's own place.

`k.update(total, value)` is recorded as a copy. It goes away if the value is of use for nothing
else, one vector command made it in the same region, and nothing in between touches the target.
That command may read the target: the vector unit takes a result in place of a source if each line
is read before it is written, which holds for what works line by line.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from abi.core import CommandOpcode
from abi.vector import VectorOperation
from runtime.compiler.ir import Buffer, Command, Line, Loop, Node, When, commands_in
from runtime.compiler.scalar import Constant, ScalarLike, same, scalar

__all__ = ["forward_updates"]

_REDUCTIONS = range(VectorOperation.SUM_FLOAT, VectorOperation.TRANSPOSE)
_LINE_BY_LINE = range(VectorOperation.UNPACK_INT8)


def forward_updates(nodes: list[Node]) -> None:
    """Remove the copies of updates from a region, and from those in it, where that is legal."""
    accesses: Counter[Buffer] = Counter()
    for node in nodes:
        for command in commands_in(node):
            accesses.update({access.buffer for access in command.accesses})
    for region in _regions(nodes):
        for copy in [node for node in region if isinstance(node, Command) and node.updates]:
            maker = _maker(region, copy, accesses)
            if maker is None:
                continue
            target, value = _target(copy), _source(copy)
            maker.fields["line"] = Line(target)
            maker.accesses = tuple(
                replace(access, buffer=target) if access.buffer is value else access
                for access in maker.accesses
            )
            maker.origin = maker.origin.replace(value.name, target.name)
            region.remove(copy)


def _regions(nodes: list[Node]) -> Iterator[list[Node]]:
    yield nodes
    for node in nodes:
        if isinstance(node, Loop | When):
            yield from _regions(node.body.nodes)


def _target(command: Command) -> Buffer:
    return next(access.buffer for access in command.accesses if access.writes)


def _source(copy: Command) -> Buffer:
    return next(access.buffer for access in copy.accesses if not access.writes)


def _maker(region: list[Node], copy: Command, accesses: Counter[Buffer]) -> Command | None:
    """The command that may write the target itself."""
    target, value = _target(copy), _source(copy)
    if accesses[value] != 2 or copy.fields["a_line"] != Line(value):
        return None
    for node in reversed(region[: region.index(copy)]):
        touched = {access.buffer for c in commands_in(node) for access in c.accesses}
        if value in touched:
            return node if isinstance(node, Command) and _may_write(node, copy, target) else None
        if target in touched:
            return None
    return None


def _may_write(maker: Command, copy: Command, target: Buffer) -> bool:
    if maker.opcode is not CommandOpcode.VECTOR:
        return False
    fields, copied = maker.fields, copy.fields
    operation = VectorOperation(_number(fields["operation"]))
    if operation in (VectorOperation.TRANSPOSE, VectorOperation.GATHER):
        return False
    pitch = _number(fields["pitch"])
    if (pitch, pitch) != (_number(copied["a_pitch"]), _number(copied["pitch"])):
        return False
    if not _same(fields["rows"], copied["rows"]):
        return False
    if operation not in _REDUCTIONS and not _same(fields["columns"], copied["columns"]):
        return False
    reads_target = any(access.buffer is target for access in maker.accesses)
    if reads_target and operation not in _LINE_BY_LINE:
        return False
    # A source in the target's place must lie there as the result will.
    return all(
        fields[f"{letter}_line"] == Line(target)
        and (_number(fields[f"{letter}_pitch"]), _number(fields[f"{letter}_step"])) == (pitch, 1)
        for letter in "abc"
        if isinstance(line := fields.get(f"{letter}_line"), Line) and line.buffer is target
    )


def _number(value: ScalarLike | Line) -> int:
    """A field that is known when the kernel is compiled; -1 if it is not."""
    if isinstance(value, Constant):
        return value.value
    return value if isinstance(value, int) else -1


def _same(a: ScalarLike | Line, b: ScalarLike | Line) -> bool:
    if isinstance(a, Line) or isinstance(b, Line):
        return False
    return same(scalar(a), scalar(b))
