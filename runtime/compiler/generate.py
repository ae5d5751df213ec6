"""Scalar code of a kernel: loops, expressions, and the words of its commands.

An instruction takes two cycles, so that what counts is how few there are. Words stay staged for a
pipe's next command, and only those that differ are set; those that a loop's commands agree on are
set in front of it. Values that do not change in a loop are computed in front of it too, and what
a register still holds is not computed again.
"""

from itertools import count

from abi.core import PIPES, Pipe
from abi.isa import WINDOW_BASE, WINDOW_REGISTER
from runtime.compiler.hoist import changed_in, hoist
from runtime.compiler.homes import assign_homes
from runtime.compiler.ir import (
    Barrier,
    Command,
    Define,
    Fetch,
    FlagUse,
    Loop,
    Node,
    Pointer,
    Region,
    When,
    commands_in,
)
from runtime.compiler.registers import IMMEDIATES, Registers
from runtime.compiler.scalar import (
    Argument,
    Binary,
    Constant,
    Operation,
    Scalar,
    SpecialValue,
    Variable,
)
from runtime.compiler.synchronise import Primed
from runtime.compiler.values import Values
from runtime.compiler.words import WORDS, Slots, Words, command_words
from runtime.toolchain.assembler import Assembler

__all__ = ["CodeGenerator"]

ARGUMENTS_REGISTER = 10

BRANCH_REACH = 4096
"""Bytes that a branch reaches back; a jump reaches everything."""

_IMMEDIATE_FORM = {
    Operation.ADD: "addi",
    Operation.AND: "andi",
    Operation.OR: "ori",
    Operation.XOR: "xori",
    Operation.SHL: "slli",
    Operation.SHR: "srli",
    Operation.LESS: "slti",
}

Place = tuple[Pipe, int]
"""A word of a pipe's next command."""


class CodeGenerator:
    """Emits a kernel's stages, one after the other, into an `Assembler`."""

    def __init__(self, pointers: list[Pointer]) -> None:
        self.asm = Assembler()
        self._pointers = pointers
        self._values = Values()
        self._registers = Registers(self.asm, self._values)
        self._home: dict[Scalar, int] = {}
        self._spilled: dict[Scalar, int] = {}
        # Values of definitions that hold here.
        self._valid: set[Scalar] = set()
        # All words are zero when a block starts.
        zero = self._values.canonical(Constant(0))
        self._known: dict[Place, Scalar] = {
            (pipe, index): zero for pipe in PIPES for index in range(1, WORDS)
        }
        self._labels = count()
        self._window: Pointer | None = None
        self._commands: dict[Command, Words] = {}

    @property
    def ram_bytes(self) -> int:
        """Bytes of the scalar unit's RAM that variables take."""
        return 4 * len(self._spilled)

    def generate(self, stages: list[tuple[list[Node], list[Primed]]]) -> bytes:
        """All of the kernel's code."""
        nodes = [node for stage, _ in stages for node in stage]
        self._slots = Slots(nodes)
        for region, offsets in self._slots.offsets.items():
            place = _start(region)
            region.nodes[place:place] = [Define(offset) for offset in offsets]
        for stage, _ in stages:
            self._prepare(stage)
        everything = [node for stage, _ in stages for node in stage]
        self._home, self._spilled = assign_homes(everything, self._commands, self._values)
        self._load_arguments()
        for value in self._spilled:
            if isinstance(value, Variable):
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

    def _load_arguments(self) -> None:
        """Set base registers and what stands for arguments, in the order of the argument block,
        of which the unit keeps a line. Other registers are zero when a block starts, as slots
        are."""
        places = [*self._home, *self._spilled]
        arguments = [value for value in places if isinstance(value, Argument)]
        items: list[Pointer | Argument] = [*self._pointers, *arguments]
        for item in sorted(items, key=lambda item: item.offset):
            if isinstance(item, Pointer):
                self._set_base(item.base, item)
            elif item in self._home:
                self._load(item, self._home[item])
            else:
                register = self._registers.take(item)
                self._load(item, register)
                self._store(item, register)
                self._registers.release(register)
        for value, home in self._home.items():
            if isinstance(value, SpecialValue):
                self._load(value, home)

    def _prepare(self, nodes: list[Node]) -> None:
        for node in nodes:
            for command in commands_in(node):
                self._commands[command] = command_words(command, self._slots, self._values)
        hoist(nodes, self._commands, self._values)

    # Nodes.

    def _emit_nodes(self, nodes: list[Node]) -> None:
        for node in nodes:
            match node:
                case Command():
                    self._command(node)
                case Define():
                    self._define(self._values.canonical(node.value))
                case Fetch():
                    self._fetch(node)
                case Barrier():
                    self.asm.emit("npu.barrier")
                case Loop():
                    self._loop(node)
                case When():
                    self._when(node)

    def _define(self, value: Scalar) -> None:
        if value not in self._valid and (value in self._home or value in self._spilled):
            self._assign(value, value)
            self._valid.add(value)

    def _fetch(self, node: Fetch) -> None:
        pointer = node.pointer
        if self._window is not pointer:
            self._set_base(WINDOW_REGISTER, pointer)
            self._window = pointer
        offset = self._evaluate(self._values.canonical(node.offset))
        window = self._registers.constant(WINDOW_BASE)
        address = self._registers.take()
        self.asm.emit("add", address, window, offset)
        self.asm.emit("lw", address, 0, address)
        self._store(node.value, address)
        self._registers.release(window, offset, address)

    def _set_base(self, base: int, pointer: Pointer) -> None:
        low, high = self._registers.take(), self._registers.take()
        self.asm.emit("lw", low, pointer.offset, ARGUMENTS_REGISTER)
        self.asm.emit("lw", high, pointer.offset + 4, ARGUMENTS_REGISTER)
        self.asm.emit("npu.base", base, low, high)
        self._registers.release(low, high)

    def _loop(self, loop: Loop) -> None:
        number = next(self._labels)
        head, end = f"loop{number}", f"end{number}"
        stop, step = self._values.canonical(loop.stop), self._values.canonical(loop.step)
        self._assign(loop.index, self._values.canonical(loop.start))
        self._stage_in_front(loop)
        # Bounds do not tell: a tile's size is at least 1 only where the kernel gets to the tile.
        runs = self._values.canonical(loop.start < loop.stop)
        always = isinstance(runs, Constant) and runs.value == 1
        if not always:
            self._branch("blt", loop.index, stop, head)
            self.asm.emit("jal", 0, end)
        self._registers.forget()
        if _fetches(loop):
            self._window = None
        self.asm.label(head)
        known, valid, window = dict(self._known), set(self._valid), self._window
        self._emit_nodes(loop.body.nodes)
        self._next_slot(loop.body)
        self._assign(loop.index, self._values.canonical(loop.index + step))
        if self.asm.address - self.asm.labels[head] < BRANCH_REACH - 64:
            self._branch("blt", loop.index, stop, head)
        else:
            # The way out of a branch back, which does not reach that far.
            self._branch("bge", loop.index, stop, leave := f"leave{number}")
            self.asm.emit("jal", 0, head)
            self.asm.label(leave)
        self._valid = valid
        if not always:
            self.asm.label(end)
            self._registers.forget()
            self._agree(known)
            self._window = window if self._window is window else None

    def _stage_in_front(self, loop: Loop) -> None:
        """Set the words that all commands of a loop agree on; of the others that they set,
        nothing is known in the loop."""
        changed = changed_in(loop)
        wanted: dict[Place, set[Scalar]] = {}
        for command in commands_in(loop):
            for index, word in enumerate(self._commands[command][1:], 1):
                if word is not None:
                    wanted.setdefault((command.pipe, index), set()).add(word)
        pending: dict[Pipe, list[tuple[int, Scalar]]] = {}
        for (pipe, index), words in sorted(wanted.items(), key=lambda entry: entry[0]):
            word = next(iter(words))
            if len(words) > 1 or not changed.isdisjoint(self._values.variables(word)):
                self._known.pop((pipe, index), None)
            elif self._known.get((pipe, index)) is not word:
                pending.setdefault(pipe, []).append((index, word))
        for pipe, parts in pending.items():
            self._stage(pipe, parts)

    def _agree(self, other: dict[Place, Scalar]) -> None:
        """Another way leads to here: only those words are known that both agree on."""
        self._known = {
            place: word for place, word in self._known.items() if other.get(place) is word
        }

    def _when(self, when: When) -> None:
        number = next(self._labels)
        inside, end = f"then{number}", f"end{number}"
        condition = self._evaluate(self._values.canonical(when.condition))
        self.asm.emit("bne", condition, 0, inside)
        self.asm.emit("jal", 0, end)
        self.asm.label(inside)
        self._registers.release(condition)
        known, valid, window = dict(self._known), set(self._valid), self._window
        held = self._registers.state()
        self._emit_nodes(when.body.nodes)
        self._next_slot(when.body)
        self.asm.label(end)
        self._valid = valid
        self._registers.merge(held)
        self._agree(known)
        self._window = window if self._window is window else None

    def _next_slot(self, region: Region) -> None:
        following = self._slots.following(region)
        if region.slot is not None and following is not None:
            self._assign(region.slot, self._values.canonical(following))

    def _command(self, command: Command) -> None:
        pipe = command.pipe
        head, *words = self._commands[command]
        assert head is not None
        self._stage(
            pipe,
            [
                (index, word)
                for index, word in enumerate(words, 1)
                if word is not None and self._known.get((pipe, index)) is not word
            ],
        )
        for use in command.wait:
            self._flag("npu.wait", pipe, use)
        for use in command.give:
            self._flag("npu.set", pipe, use)
        register = self._evaluate(head)
        self.asm.emit("npu.issue", pipe, register)
        self._registers.release(register)

    def _flag(self, instruction: str, pipe: Pipe, use: FlagUse) -> None:
        if use.unless is None:
            self.asm.emit(instruction, pipe, use.flag)
            return
        label = f"flag{next(self._labels)}"
        unless = self._evaluate(self._values.canonical(use.unless))
        self.asm.emit("bne", unless, 0, label)
        self._registers.release(unless)
        self.asm.emit(instruction, pipe, use.flag)
        self.asm.label(label)

    def _stage(self, pipe: Pipe, words: list[tuple[int, Scalar]]) -> None:
        """Set words of a pipe's next command, given by number."""
        pending = list(words)
        while pending:
            index, word = pending.pop(0)
            self._known[pipe, index] = word
            first = self._evaluate(word)
            if pending and pending[0][0] == index + 1:
                index_after, word = pending.pop(0)
                self._known[pipe, index_after] = word
                second = self._evaluate(word)
                self.asm.emit("npu.pair", pipe, index, first, second)
                self._registers.release(second)
            else:
                self.asm.emit("npu.word", pipe, index, first)
            self._registers.release(first)

    # Expressions, all canonical.

    def _evaluate(self, value: Scalar) -> int:
        """A register that holds a value; give it back when it has been used."""
        if isinstance(value, Constant):
            return self._registers.constant(value.value)
        holds = not isinstance(value, Binary) or value in self._valid
        if holds and value in self._home:
            return self._home[value]
        found = self._registers.find(value)
        if found is not None:
            return found
        if holds and value in self._spilled:
            base, offset = self._registers.ram(self._spilled[value])
            register = self._registers.take(value)
            self.asm.emit("lw", register, offset, base)
            self._registers.release(base)
            return register
        if isinstance(value, Argument | SpecialValue):
            register = self._registers.take(value)
            self._load(value, register)
            return register
        assert isinstance(value, Binary)
        return self._compute(value, None)

    def _load(self, value: "Argument | SpecialValue", register: int) -> None:
        if isinstance(value, Argument):
            self.asm.emit("lw", register, value.offset, ARGUMENTS_REGISTER)
        else:
            self.asm.emit("npu.get", register, value.special)

    def _compute(self, value: Binary, target: int | None) -> int:
        """An operation, into a home or a register of its own."""
        left, right = self._evaluate(value.left), value.right
        form = _IMMEDIATE_FORM.get(value.operation)
        if form is not None and isinstance(right, Constant) and right.value in IMMEDIATES:
            self._registers.release(left)
            register = self._registers.take(value) if target is None else target
            self.asm.emit(form, register, left, right.value)
            return register
        other = self._evaluate(right)
        self._registers.release(left, other)
        register = self._registers.take(value) if target is None else target
        self.asm.emit(value.operation.value, register, left, other)
        return register

    def _branch(self, name: str, a: Scalar, b: Scalar, label: str) -> None:
        left, right = self._evaluate(a), self._evaluate(b)
        self.asm.emit(name, left, right, label)
        self._registers.release(left, right)

    def _assign(self, place: Scalar, value: Scalar) -> None:
        """Compute a value, into what stands for a variable or a definition."""
        home = self._home.get(place)
        if home is None:
            register = self._evaluate(value)
            self._store(place, register)
            self._registers.release(register)
            return
        if isinstance(value, Constant):
            self.asm.li(home, value.value)
        elif isinstance(value, Binary) and value not in self._valid:
            found = self._registers.find(value)
            if found is None:
                self._compute(value, home)
            else:
                self.asm.emit("addi", home, found, 0)
                self._registers.release(found)
        else:
            register = self._evaluate(value)
            self.asm.emit("addi", home, register, 0)
            self._registers.release(register)
        self._changed(place)

    def _store(self, place: Scalar, register: int) -> None:
        """Set a variable or a definition from a register."""
        home = self._home.get(place)
        if home is not None:
            self.asm.emit("addi", home, register, 0)
        else:
            base, offset = self._registers.ram(self._spilled[place])
            self.asm.emit("sw", register, offset, base)
            self._registers.release(base)
        self._changed(place)

    def _changed(self, place: Scalar) -> None:
        """What depends on a variable is known no longer."""
        if not isinstance(place, Variable):
            return
        self._registers.changed(place)
        self._known = {
            word: value
            for word, value in self._known.items()
            if place not in self._values.variables(value)
        }


def _fetches(node: Node) -> bool:
    """Whether the scalar unit reads global memory in it."""
    match node:
        case Fetch():
            return True
        case Loop() | When():
            return any(_fetches(inner) for inner in node.body.nodes)
    return False


def _start(region: Region) -> int:
    """Where in a region a slot's line is defined: behind those that are there already."""
    place = 0
    while place < len(region.nodes) and isinstance(region.nodes[place], Define):
        place += 1
    return place
