"""The eight words of a command, as expressions."""

from collections.abc import Iterable

from abi.core import COMMANDS, CommandOpcode
from abi.vector import SOURCES, VectorOperation
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import Buffer, Command, Line, Loop, Node, Region, When
from runtime.compiler.scalar import Binary, Constant, Scalar, Variable, scalar
from runtime.compiler.values import Values

__all__ = ["WORDS", "Slots", "Words", "command_words"]

WORDS = 8
"""Words of a command."""

Words = list[Scalar | None]
"""Words of a command; None for one that its pipe does not look at."""


class Slots:
    """The counters of regions whose buffers have several slots, and the first lines of these."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.sizes: dict[Region, int] = {}
        self.offsets: dict[Region, list[Binary]] = {}
        self._lines: dict[Buffer, Scalar] = {}
        buffers = {a.buffer: None for command in _commands(nodes) for a in command.accesses}
        several = [buffer for buffer in buffers if buffer.slots > 1]
        for buffer in several:
            self.sizes[buffer.region] = max(buffer.slots, self.sizes.get(buffer.region, 0))
        for region, size in self.sizes.items():
            region.slot = Variable("slot", 0, size - 1)
        for buffer in several:
            region = buffer.region
            assert region.slot is not None
            present: Scalar = region.slot
            if buffer.slots < self.sizes[region]:
                present = present & (buffer.slots - 1)
            offset = present * buffer.stride
            self._lines[buffer] = offset + buffer.line
            if isinstance(offset, Binary):
                self.offsets.setdefault(region, []).append(offset)

    def first_line(self, buffer: Buffer) -> Scalar:
        """Of the present slot."""
        line = self._lines.get(buffer)
        return Constant(buffer.line) if line is None else line

    def following(self, region: Region) -> Scalar | None:
        """What the region's counter becomes at its end, if it has one."""
        if region.slot is None:
            return None
        size = self.sizes[region]
        return region.slot ^ 1 if size == 2 else (region.slot + 1) & (size - 1)


def _commands(nodes: Iterable[Node]) -> Iterable[Command]:
    for node in nodes:
        if isinstance(node, Command):
            yield node
        elif isinstance(node, Loop | When):
            yield from _commands(node.body.nodes)


def command_words(command: Command, slots: Slots, values: Values) -> Words:
    """Canonical expressions of a command's words.

    Raises:
        CompileError: a field may become wider than it is.
    """
    record = COMMANDS[command.opcode]
    words: list[Scalar] = [Constant(0)] * WORDS
    for name, value in {"opcode": command.opcode, **command.fields}.items():
        index, shift = divmod(record.offset_of(name), 32)
        width = record.fields[name].width
        expression = _field(value, slots)
        if width < 32 and not 0 <= expression.lowest <= expression.highest < 1 << width:
            raise CompileError(
                f"{command.origin}: {name} must fit {width} bits, not {expression!r} from "
                f"{expression.lowest} to {expression.highest}"
            )
        words[index] = words[index] + (expression << shift)
    unread = _unread(command)
    return [None if i in unread else values.canonical(word) for i, word in enumerate(words)]


def _field(value: "Scalar | int | Line", slots: Slots) -> Scalar:
    if not isinstance(value, Line):
        return scalar(value)
    line = slots.first_line(value.buffer) + value.extra
    if not isinstance(line, Constant):
        # It is known to lie in its buffer.
        line.lowest, line.highest = 0, 0xFFFF
    return line


def _unread(command: Command) -> set[int]:
    """Words that the pipe does not look at: sources that the operation has not."""
    if command.opcode is CommandOpcode.NOP:
        return set(range(1, WORDS))
    if command.opcode is not CommandOpcode.VECTOR:
        return set()
    record = COMMANDS[CommandOpcode.VECTOR]
    fields = command.fields
    operation = fields["operation"]
    assert isinstance(operation, VectorOperation)
    names = [
        f"{letter}_line"
        for number, letter in enumerate("abc")
        if number >= SOURCES[operation] or f"{letter}_immediate" in fields
    ]
    if "immediate" not in fields:
        names.append("immediate")
    return {record.offset_of(name) // 32 for name in names}
