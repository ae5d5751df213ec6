"""The code of random kernels issues the commands that the kernel's functions ask for.

An interpreter of the recorded loops, conditions and expressions says which these are.
"""

import random
from collections.abc import Callable

import pytest

from abi.address import HBM_BASE
from abi.core import COMMANDS, CommandOpcode, Pipe
from abi.isa import Special
from abi.vector import VectorOperation
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.ir import Barrier, Command, Define, Fetch, Loop, Node, Pointer, When
from runtime.compiler.kernel import kernel
from runtime.compiler.scalar import (
    Argument,
    Binary,
    Constant,
    Operation,
    Scalar,
    SpecialValue,
    Variable,
)
from runtime.toolchain.block_trace import trace_block
from runtime.toolchain.memory_image import MemoryImage
from tb.compiler.scheduled_core import BUFFERS

Issued = dict[Pipe, list[dict[str, int]]]
ARGUMENTS = 6
BLOCK, GRID = (3, 0, 0), (7, 1, 1)
TABLE = [(i * 2654435761) % 251 for i in range(64)]
MASK = (1 << 32) - 1


def signed(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


OPERATIONS: dict[Operation, Callable[[int, int], int]] = {
    Operation.ADD: lambda a, b: a + b,
    Operation.SUB: lambda a, b: a - b,
    Operation.MUL: lambda a, b: a * b,
    Operation.DIV: lambda a, b: a // b,
    Operation.REM: lambda a, b: a % b,
    Operation.AND: lambda a, b: a & b,
    Operation.OR: lambda a, b: a | b,
    Operation.XOR: lambda a, b: a ^ b,
    Operation.SHL: lambda a, b: a << (b & 31),
    Operation.SHR: lambda a, b: (a & MASK) >> (b & 31),
    Operation.LESS: lambda a, b: int(a < b),
}


class Interpreter:
    """Runs recorded nodes."""

    def __init__(self, arguments: list[int]) -> None:
        self.arguments = arguments
        self.variables: dict[Variable, int] = {}
        self.issued: Issued = {pipe: [] for pipe in Pipe}

    def value(self, scalar: Scalar | int) -> int:
        match scalar:
            case int():
                return scalar
            case Constant():
                return scalar.value
            case Argument():
                return self.arguments[int(scalar.name.removeprefix("a"))]
            case SpecialValue():
                return BLOCK[0] if scalar.special is Special.BLOCK_X else GRID[0]
            case Variable():
                return self.variables[scalar]
            case Binary():
                left, right = self.value(scalar.left), self.value(scalar.right)
                return signed(OPERATIONS[scalar.operation](left, right))
        raise AssertionError(scalar)

    def run(self, nodes: list[Node]) -> None:
        for node in nodes:
            match node:
                case Command():
                    fields = {
                        name: self.value(field)
                        for name, field in node.fields.items()
                        if isinstance(field, Scalar | int)
                    }
                    self.issued[node.pipe].append({"opcode": int(node.opcode), **fields})
                case Fetch():
                    self.variables[node.value] = TABLE[self.value(node.offset) // 4]
                case Loop():
                    present, step = self.value(node.start), self.value(node.step)
                    while present < self.value(node.stop):
                        self.variables[node.index] = present
                        self.run(node.body.nodes)
                        present += step
                case When():
                    if self.value(node.condition):
                        self.run(node.body.nodes)
                case Define() | Barrier():
                    pass


class Author:
    """Writes a random kernel."""

    def __init__(self, seed: int, k: KernelBuilder, table: Pointer, values: list[Scalar]) -> None:
        self.random = random.Random(seed)
        self.k = k
        self.table = table
        self.scopes: list[list[Scalar]] = [[*values, k.block_x, k.grid_x]]

    def leaf(self) -> Scalar:
        if self.random.random() < 0.3:
            return Constant(self.random.choice([0, 1, 7, 64, -5, 4096, 0x12345, 0x7FFFFFFF]))
        return self.random.choice([value for scope in self.scopes for value in scope])

    def one_of(self, *values: Scalar | int) -> Scalar | int:
        return self.random.choice(values)

    def expression(self, depth: int = 3) -> Scalar:
        if depth == 0 or self.random.random() < 0.2:
            return self.leaf()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        kind = self.random.randrange(10)
        match kind:
            case 0 | 1:
                return a + b
            case 2:
                return a - b
            case 3:
                return a * b
            case 4:
                return self.k.minimum(a, b)
            case 5:
                return (a & 0xFFF) // self.k.maximum(1, b & 31)
            case 6:
                return (a & 0xFFF) % ((b & 15) + 1)
            case 7:
                return a << self.random.randrange(8)
            case 8:
                return (a ^ b) >> self.random.randrange(1, 8)
        return a < b

    def load(self) -> None:
        fields: dict[str, Scalar | int] = {
            "base": 1,
            "target": 1,
            "offset": self.one_of(self.expression(), self.leaf()),
            "line": self.expression() & 0x7FF,
            "pitch": self.random.choice([1, 2, 64]),
            "row_bytes": self.one_of(64, (self.expression() & 0xFF) + 1),
            "rows": (self.expression() & 7) + 1,
            "stride": self.one_of(0, 64, self.leaf()),
            "planes": 1,
        }
        self.k.issue(Pipe.MTE2, CommandOpcode.LOAD, dict(fields))

    def vector(self) -> None:
        operation = self.random.choice([VectorOperation.FADD, VectorOperation.COPY])
        fields: dict[str, Scalar | int] = {
            "operation": operation,
            "line": self.random.randrange(2048),
            "pitch": self.random.choice([1, 16]),
            "a_line": self.random.randrange(2048),
            "a_pitch": 16,
            "columns": self.one_of(256, (self.expression() & 0xFF) + 1),
            "rows": (self.leaf() & 3) + 1,
        }
        if operation is VectorOperation.FADD:
            if self.random.random() < 0.5:
                fields |= {"b_immediate": 1, "immediate": self.leaf()}
            else:
                fields |= {"b_line": self.random.randrange(2048), "b_pitch": 16, "b_step": 1}
        self.k.issue(Pipe.VECTOR, CommandOpcode.VECTOR, dict(fields))

    def region(self, depth: int) -> None:
        for _ in range(self.random.randint(2, 5)):
            kind = self.random.randrange(8)
            if kind < 2:
                self.load()
            elif kind < 4:
                self.vector()
            elif kind == 4:
                place = self.expression() & 63
                value = self.k.fetch(self.table, place, highest=255)
                self.scopes[-1].append(value)
            elif depth and kind == 5:
                condition = self.random.choice([self.leaf() < self.leaf(), self.leaf() & 1])
                with self.k.when(condition):
                    self.inside(depth)
            elif depth:
                start = self.random.choice([Constant(0), self.leaf() & 3])
                stop = self.random.choice([Constant(3), self.leaf() & 7])
                for index in self.k.range(start, stop, self.random.choice([1, 2])):
                    self.scopes.append([index])
                    self.inside(depth)
                    self.scopes.pop()

    def inside(self, depth: int) -> None:
        self.scopes.append([])
        self.region(depth - 1)
        self.scopes.pop()


@pytest.mark.parametrize("seed", range(200))
def test_random_kernels(seed: int) -> None:
    rng = random.Random(seed)
    numbers = [rng.choice([0, 1, 5, -3, rng.randrange(-(1 << 31), 1 << 31)]) for _ in range(6)]
    interpreter = Interpreter(numbers)

    def program(k: KernelBuilder, table: Pointer, *values: Scalar) -> None:
        author = Author(seed, k, table, list(values))
        author.region(3)
        author.load()
        interpreter.run(k.root.nodes)

    names = [f"a{i}" for i in range(ARGUMENTS)]
    source = kernel(table="int32*", **dict.fromkeys(names, "int32"))(program)
    compiled = source.compile(BUFFERS)
    memory = b"".join(number.to_bytes(4, "little") for number in TABLE)
    raw = compiled.pack_arguments({"table": HBM_BASE, **dict(zip(names, numbers, strict=True))})
    trace = trace_block(
        compiled.code,
        arguments=raw,
        grid=GRID,
        block=BLOCK,
        memory=MemoryImage({HBM_BASE: memory}),
    )
    for pipe, expected in interpreter.issued.items():
        if pipe is Pipe.SCALAR:
            continue
        issued = [command.issue.command for command in trace.commands[pipe]]
        assert len(issued) == len(expected)
        for number, (command, fields) in enumerate(zip(issued, expected, strict=True)):
            record = COMMANDS[CommandOpcode(fields["opcode"])]
            got = record.unpack_bytes(command)
            wanted = {
                name: value & ((1 << record.fields[name].width) - 1)
                for name, value in fields.items()
            }
            masked = {name: got[name] & ((1 << record.fields[name].width) - 1) for name in wanted}
            assert masked == wanted, f"command {number} of {pipe.name}"
