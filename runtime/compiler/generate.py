"""Scalar code of a kernel: loops, expressions, and the words of its commands."""

from collections import Counter
from itertools import count

from abi.core import COMMANDS, PIPES, CommandOpcode, Pipe
from abi.isa import RAM_BASE, WINDOW_BASE, WINDOW_REGISTER
from runtime.compiler.errors import CompileError
from runtime.compiler.ir import (
    Barrier,
    Buffer,
    Command,
    Define,
    Fetch,
    FlagUse,
    Line,
    Loop,
    Node,
    Pointer,
    Region,
    When,
)
from runtime.compiler.scalar import (
    Argument,
    Binary,
    Constant,
    Operation,
    Scalar,
    SpecialValue,
    Variable,
    scalar,
)
from runtime.compiler.synchronise import Primed
from runtime.toolchain.assembler import Assembler

__all__ = ["CodeGenerator"]

ARGUMENTS_REGISTER = 10
HOMES = (8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 1, 3, 4)
"""Registers of variables: s0 to s11, ra, gp, tp."""

TEMPORARIES = (5, 6, 7, 28, 29, 30, 31, 11, 12, 13, 14, 15, 16, 17)
"""Registers of intermediate results: t0 to t6, a1 to a7."""

LOOP_WEIGHT = 8
"""How much more a use counts for each loop around it, when registers are given away."""

_IMMEDIATE_FORM = {
    Operation.ADD: "addi",
    Operation.AND: "andi",
    Operation.OR: "ori",
    Operation.XOR: "xori",
    Operation.SHL: "slli",
    Operation.SHR: "srli",
    Operation.LESS: "slti",
}


class CodeGenerator:
    """Emits a kernel's stages, one after the other, into an `Assembler`."""

    def __init__(self, pointers: list[Pointer]) -> None:
        self.asm = Assembler()
        self._pointers = pointers
        self._home: dict[Scalar, int] = {}
        self._spilled: dict[Scalar, int] = {}
        self._free = list(reversed(TEMPORARIES))
        # All words are zero when a block starts.
        self._known: dict[tuple[Pipe, int], int] = {
            (pipe, index): 0 for pipe in PIPES for index in range(1, 8)
        }
        self._labels = count()
        self._window: Pointer | None = None
        self._lines: dict[Buffer, Scalar] = {}
        self._commands: dict[Command, list[Scalar]] = {}

    @property
    def ram_bytes(self) -> int:
        """Bytes of the scalar unit's RAM that variables take."""
        return 4 * len(self._spilled)

    def generate(self, stages: list[tuple[list[Node], list[Primed]]]) -> bytes:
        """All of the kernel's code."""
        nodes = [node for stage, _ in stages for node in stage]
        self._prepare_slots(nodes)
        self._assign_homes(nodes)
        for pointer in self._pointers:
            self.asm.emit("lw", 5, pointer.offset, ARGUMENTS_REGISTER)
            self.asm.emit("lw", 6, pointer.offset + 4, ARGUMENTS_REGISTER)
            self.asm.emit("npu.base", pointer.base, 5, 6)
        for value in [*self._home, *self._spilled]:
            if isinstance(value, Argument | SpecialValue):
                self._store(value, self._load_special(value))
            elif isinstance(value, Variable):
                self._store(value, 0)
        for stage, primed in stages:
            for entry in primed:
                for _ in range(entry.count):
                    self.asm.emit("npu.set", Pipe.SCALAR, entry.flag)
            self._emit_nodes(stage)
            self.asm.emit("npu.barrier")
            for entry in primed:
                for _ in range(entry.count):
                    self.asm.emit("npu.wait", Pipe.SCALAR, entry.flag)
        self.asm.emit("npu.exit")
        return self.asm.assemble()

    # Preparation.

    def _prepare_slots(self, nodes: list[Node]) -> None:
        """Make the counters of slots, and the lines of the buffers that have several."""
        for node in _all(nodes):
            if not isinstance(node, Command):
                continue
            for access in node.accesses:
                buffer = access.buffer
                if buffer.slots == 1 or buffer in self._lines:
                    continue
                region = buffer.region
                if region.slot is None:
                    region.slot = Variable("slot", 0, 15)
                offset = (region.slot & (buffer.slots - 1)) * buffer.stride
                self._lines[buffer] = offset + buffer.line
                if isinstance(offset, Binary):
                    region.nodes.insert(_start(region), Define(offset))

    def _assign_homes(self, nodes: list[Node]) -> None:
        uses: Counter[Scalar] = Counter()
        weights: Counter[Scalar] = Counter()
        defined: dict[Scalar, int] = {}

        def use(value: Scalar, weight: int) -> None:
            if isinstance(value, Constant):
                return
            uses[value] += 1
            weights[value] += weight
            if isinstance(value, Binary) and uses[value] == 1:
                use(value.left, weight)
                use(value.right, weight)

        def visit(inner: list[Node], weight: int) -> None:
            for node in inner:
                match node:
                    case Command():
                        self._commands[node] = self._words(node)
                        for word in self._commands[node]:
                            use(word, weight)
                    case Fetch():
                        uses[node.value] += 2
                        weights[node.value] += weight
                        use(node.offset, weight)
                    case Define():
                        defined[node.value] = weight
                    case Loop():
                        weights[node.index] += weight * LOOP_WEIGHT
                        uses[node.index] += 2
                        use(node.start, weight)
                        for value in (node.stop, node.step):
                            use(value, weight * LOOP_WEIGHT)
                        visit(node.body.nodes, weight * LOOP_WEIGHT)
                    case When():
                        use(node.condition, weight)
                        visit(node.body.nodes, weight)
                if isinstance(node, Loop | When) and node.body.slot is not None:
                    uses[node.body.slot] += 2
                    weights[node.body.slot] += weight * LOOP_WEIGHT

        visit(nodes, 1)
        candidates = [
            value
            for value, _ in weights.most_common()
            if isinstance(value, Variable)
            or (isinstance(value, Argument) and uses[value] > 1)
            # Used more than once, or inside a loop that it does not change in.
            or (value in defined and weights[value] > defined[value])
        ]
        for value, register in zip(candidates, HOMES, strict=False):
            self._home[value] = register
        for i, value in enumerate(candidates[len(HOMES) :]):
            self._spilled[value] = 4 * i

    # Nodes.

    def _emit_nodes(self, nodes: list[Node]) -> None:
        for node in nodes:
            match node:
                case Command():
                    self._command(node)
                case Define():
                    if node.value in self._home or node.value in self._spilled:
                        register = self._compute(node.value, self._home.get(node.value))
                        self._store(node.value, register)
                        self._release(register)
                case Fetch():
                    self._fetch(node)
                case Barrier():
                    self.asm.emit("npu.barrier")
                case Loop():
                    self._loop(node)
                case When():
                    self._when(node)

    def _fetch(self, node: Fetch) -> None:
        pointer = node.pointer
        if self._window is not pointer:
            low, high = self._take(), self._take()
            self.asm.emit("lw", low, pointer.offset, ARGUMENTS_REGISTER)
            self.asm.emit("lw", high, pointer.offset + 4, ARGUMENTS_REGISTER)
            self.asm.emit("npu.base", WINDOW_REGISTER, low, high)
            self._release(low, high)
            self._window = pointer
        offset, address = self.evaluate(node.offset), self._take()
        self.asm.li(address, WINDOW_BASE)
        self.asm.emit("add", address, address, offset)
        self.asm.emit("lw", address, 0, address)
        self._store(node.value, address)
        self._release(offset, address)

    def _loop(self, loop: Loop) -> None:
        number = next(self._labels)
        head, end = f"loop{number}", f"end{number}"
        register = self.evaluate(loop.start)
        self._store(loop.index, register)
        self._release(register)
        self._forget()
        self.asm.label(head)
        index, stop = self.evaluate(loop.index), self.evaluate(loop.stop)
        inside = f"body{number}"
        # A branch reaches 4 KiB; a jump reaches everything.
        self.asm.emit("blt", index, stop, inside)
        self.asm.emit("jal", 0, end)
        self.asm.label(inside)
        self._release(index, stop)
        self._emit_nodes(loop.body.nodes)
        self._next_slot(loop.body)
        index, step = self.evaluate(loop.index), loop.step
        target = index if index in HOMES else self._take()
        if isinstance(step, Constant) and -2048 <= step.value < 2048:
            self.asm.emit("addi", target, index, step.value)
        else:
            amount = self.evaluate(step)
            self.asm.emit("add", target, index, amount)
            self._release(amount)
        self._store(loop.index, target)
        self._release(index, target)
        self.asm.emit("jal", 0, head)
        self.asm.label(end)
        self._forget()

    def _forget(self) -> None:
        """Several ways lead to here: nothing is known of the staged words and the window."""
        self._known.clear()
        self._window = None

    def _when(self, when: When) -> None:
        number = next(self._labels)
        inside, end = f"then{number}", f"end{number}"
        condition = self.evaluate(when.condition)
        self.asm.emit("bne", condition, 0, inside)
        self.asm.emit("jal", 0, end)
        self.asm.label(inside)
        self._release(condition)
        known = dict(self._known)
        self._emit_nodes(when.body.nodes)
        self._next_slot(when.body)
        self.asm.label(end)
        self._window = None
        # What both ways agree on.
        self._known = {key: value for key, value in self._known.items() if known.get(key) == value}

    def _next_slot(self, region: Region) -> None:
        if region.slot is not None:
            register = self.evaluate((region.slot + 1) & 15)
            self._store(region.slot, register)
            self._release(register)

    def _command(self, command: Command) -> None:
        pipe = command.pipe
        words = self._commands[command]
        pending: list[int] = []
        for index in range(1, 8) if command.opcode is not CommandOpcode.NOP else ():
            word = words[index]
            if isinstance(word, Constant):
                if self._known.get((pipe, index)) == word.value:
                    continue
                self._known[pipe, index] = word.value
            else:
                self._known.pop((pipe, index), None)
            pending.append(index)
        while pending:
            index = pending.pop(0)
            first = self.evaluate(words[index])
            if pending and pending[0] == index + 1:
                pending.pop(0)
                second = self.evaluate(words[index + 1])
                self.asm.emit("npu.pair", pipe, index, first, second)
                self._release(second)
            else:
                self.asm.emit("npu.word", pipe, index, first)
            self._release(first)
        for use in command.wait:
            self._flag("npu.wait", pipe, use)
        for use in command.give:
            self._flag("npu.set", pipe, use)
        head = self.evaluate(words[0])
        self.asm.emit("npu.issue", pipe, head)
        self._release(head)

    def _flag(self, instruction: str, pipe: Pipe, use: FlagUse) -> None:
        if use.unless is None:
            self.asm.emit(instruction, pipe, use.flag)
            return
        label = f"flag{next(self._labels)}"
        register = self.evaluate(use.unless)
        self.asm.emit("bne", register, 0, label)
        self._release(register)
        self.asm.emit(instruction, pipe, use.flag)
        self.asm.label(label)

    def _field(self, value: "Scalar | int | Line") -> Scalar:
        if isinstance(value, Line):
            buffer = value.buffer
            line = self._lines.get(buffer)
            first = Constant(buffer.line) if line is None else line
            return _line(first + value.extra)
        return scalar(value)

    def _words(self, command: Command) -> list[Scalar]:
        record = COMMANDS[command.opcode]
        words: list[Scalar] = [Constant(0)] * 8
        values = {"opcode": command.opcode, **command.fields}
        for name, value in values.items():
            index, shift = divmod(record.offset_of(name), 32)
            width = record.fields[name].width
            expression = self._field(value)
            if width < 32 and not 0 <= expression.lowest <= expression.highest < 1 << width:
                raise CompileError(
                    f"{command.origin}: {name} must fit {width} bits, not {expression!r} from "
                    f"{expression.lowest} to {expression.highest}"
                )
            words[index] = words[index] + (expression << shift)
        return words

    # Expressions.

    def evaluate(self, value: Scalar) -> int:
        """A register that holds a value; give it back with `_release`."""
        if isinstance(value, Constant):
            if value.value == 0:
                return 0
            register = self._take()
            self.asm.li(register, value.value)
            return register
        if value in self._home:
            return self._home[value]
        if value in self._spilled:
            register = self._take()
            self._address(register, self._spilled[value])
            self.asm.emit("lw", register, self._spilled[value] % 2048, register)
            return register
        if isinstance(value, Argument | SpecialValue):
            return self._load_special(value)
        assert isinstance(value, Binary)
        return self._compute(value)

    def _load_special(self, value: "Argument | SpecialValue") -> int:
        register = self._take()
        if isinstance(value, Argument):
            self.asm.emit("lw", register, value.offset, ARGUMENTS_REGISTER)
        else:
            self.asm.emit("npu.get", register, value.special)
        return register

    def _compute(self, value: Binary, target: int | None = None) -> int:
        left = self.evaluate(value.left)
        form = _IMMEDIATE_FORM.get(value.operation)
        right = value.right
        if form is not None and isinstance(right, Constant) and -2048 <= right.value < 2048:
            self._release(left)
            register = self._take() if target is None else target
            self.asm.emit(form, register, left, right.value)
            return register
        other = self.evaluate(right)
        self._release(left, other)
        register = self._take() if target is None else target
        self.asm.emit(value.operation.value, register, left, other)
        return register

    def _store(self, value: Scalar, register: int) -> None:
        """Set a variable."""
        home = self._home.get(value)
        if home is not None:
            if home != register:
                self.asm.emit("addi", home, register, 0)
            return
        address = self._take()
        self._address(address, self._spilled[value])
        self.asm.emit("sw", register, self._spilled[value] % 2048, address)
        self._release(address)

    def _address(self, register: int, offset: int) -> None:
        self.asm.emit("lui", register, (RAM_BASE + offset // 2048 * 2048 + 0x800) >> 12)
        if offset // 2048 % 2:
            self.asm.emit("addi", register, register, -2048)

    def _take(self) -> int:
        if not self._free:
            raise CompileError(
                f"an expression must need at most {len(TEMPORARIES)} registers: split it up"
            )
        return self._free.pop()

    def _release(self, *registers: int) -> None:
        for register in registers:
            if register in TEMPORARIES and register not in self._free:
                self._free.append(register)


def _line(value: Scalar) -> Scalar:
    """A line number, of which it is known that it lies in its buffer."""
    if not isinstance(value, Constant):
        value.lowest, value.highest = 0, 0xFFFF
    return value


def _all(nodes: list[Node]) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        found.append(node)
        if isinstance(node, Loop | When):
            found += _all(node.body.nodes)
    return found


def _start(region: Region) -> int:
    """Where in a region a slot's line is defined: behind those that are there already."""
    place = 0
    while place < len(region.nodes) and isinstance(region.nodes[place], Define):
        place += 1
    return place
