"""Kernels: functions that the compiler turns into objects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.compiler.allocate import CoreBuffers, allocate
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.generate import CodeGenerator
from runtime.compiler.ir import Barrier, Memory, Node, Pointer, commands_in
from runtime.compiler.scalar import Argument, Scalar
from runtime.compiler.synchronise import synchronise
from runtime.compiler.tile import ELEMENT_BYTES

__all__ = ["CompiledKernel", "KernelArgument", "KernelSource", "kernel"]

LARGEST_BASES = 15
"""Pointer arguments at most: one base register each, besides the window's."""


@dataclass(frozen=True)
class KernelArgument:
    """An argument: `dtype` of a value, or of what it points to; `offset` in the block, in bytes."""

    name: str
    dtype: str
    pointer: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Its size in the argument block."""
        return 8 if self.pointer else 4


@dataclass(frozen=True)
class CompiledKernel:
    """Code and what it needs. `lines`: of each buffer; `flags`: how many."""

    name: str
    code: bytes
    arguments: tuple[KernelArgument, ...]
    argument_bytes: int
    lines: dict[Memory, int]
    ram_bytes: int
    flags: int


class KernelSource:
    """A function under `@kernel`."""

    def __init__(self, function: Callable[..., None], arguments: dict[str, str]) -> None:
        self.function = function
        self.name = function.__name__
        self.arguments, self.argument_bytes = _layout(arguments)

    def compile(self, core: CoreBuffers) -> CompiledKernel:
        """Compile it for a core.

        Raises:
            CompileError: it breaks a rule, or does not fit.
        """
        builder = KernelBuilder()
        pointers: list[Pointer] = []
        values: list[Pointer | Scalar] = []
        for argument in self.arguments:
            if argument.pointer:
                pointer = Pointer(argument.name, argument.dtype, len(pointers), argument.offset)
                pointers.append(pointer)
                values.append(pointer)
            else:
                values.append(Argument(argument.name, argument.offset, lowest=_lowest(argument)))
        self.function(builder, *values)
        stages = _stages(builder.root.nodes)
        lines = allocate(stages, core)
        primed = [synchronise(nodes) for nodes in stages]
        generator = CodeGenerator(pointers)
        code = generator.generate(list(zip(stages, primed, strict=True)))
        flags = max((f + 1 for nodes in stages for f in _flags(nodes)), default=0)
        return CompiledKernel(
            self.name, code, self.arguments, self.argument_bytes, lines, generator.ram_bytes, flags
        )


def kernel(**arguments: str) -> Callable[[Callable[..., None]], KernelSource]:
    """Make a kernel of a function.

        @kernel(x="float32*", out="float32*", n="int32")
        def double(k, x, out, n):
            for i in k.range(k.block_x * 1024, n, k.grid_x * 1024):
                count = k.minimum(1024, n - i)
                k.store(out, i, k.load(x, i, count) * 2.0)

    Args:
        arguments: type of each argument after the first: "int32", "uint31" (an int32 that is
            never negative), "float32", or "float32*", "int32*", "bfloat16*", "int8*": an array.

    Raises:
        CompileError: a type is none of these, or there are more than 15 arrays.
    """
    _layout(arguments)
    return lambda function: KernelSource(function, arguments)


def _layout(arguments: dict[str, str]) -> tuple[tuple[KernelArgument, ...], int]:
    found: list[KernelArgument] = []
    offset = 0
    for name, kind in arguments.items():
        pointer = kind.endswith("*")
        dtype = kind.removesuffix("*")
        allowed: Any = ELEMENT_BYTES if pointer else ("int32", "uint31", "float32")
        if dtype not in allowed:
            raise CompileError(f"type of {name} must be one that exists, not {kind!r}")
        size = 8 if pointer else 4
        offset += -offset % size
        found.append(KernelArgument(name, dtype, pointer, offset))
        offset += size
    pointers = sum(argument.pointer for argument in found)
    if pointers > LARGEST_BASES:
        raise CompileError(f"arrays must be at most {LARGEST_BASES}, not {pointers!r}")
    return tuple(found), offset


def _lowest(argument: KernelArgument) -> int:
    return 0 if argument.dtype == "uint31" else -(1 << 31)


def _stages(nodes: list[Node]) -> list[list[Node]]:
    """What lies between the barriers outside of all loops."""
    stages: list[list[Node]] = [[]]
    for node in nodes:
        if isinstance(node, Barrier):
            stages.append([])
        else:
            stages[-1].append(node)
    return stages


def _flags(nodes: list[Node]) -> list[int]:
    return [f for node in nodes for command in commands_in(node) for f in command.wait]
