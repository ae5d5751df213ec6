"""Kernels: functions that the compiler turns into objects."""

from collections.abc import Callable

from abi.kernel_object import ArgumentKind, ElementType
from runtime.compiler.allocate import CoreBuffers, allocate
from runtime.compiler.builder import KernelBuilder
from runtime.compiler.errors import CompileError
from runtime.compiler.forward import forward_updates
from runtime.compiler.generate import CodeGenerator
from runtime.compiler.ir import Barrier, Memory, Node, Pointer, commands_in
from runtime.compiler.scalar import LOWEST, Argument, Scalar
from runtime.compiler.synchronise import synchronise
from runtime.toolchain.object import Argument as ArgumentPlace
from runtime.toolchain.object import BufferUse, KernelObject

__all__ = ["KernelSource", "kernel"]

LARGEST_BASES = 15
"""Pointer arguments at most: one base register each, besides the window's."""

_ELEMENTS = {
    "float32": ElementType.FLOAT32,
    "int32": ElementType.INT32,
    "bfloat16": ElementType.BFLOAT16,
    "int8": ElementType.INT8,
}
_VALUES = {
    "int32": ArgumentKind.INT32,
    "uint31": ArgumentKind.INT32,
    "float32": ArgumentKind.FLOAT32,
}


class KernelSource:
    """A function under `@kernel`."""

    def __init__(self, function: Callable[..., None], arguments: dict[str, str]) -> None:
        self.function = function
        self.name = function.__name__
        self.types = arguments
        self.arguments = _layout(arguments)

    def compile(self, core: CoreBuffers) -> KernelObject:
        """Compile it for a core.

        Raises:
            CompileError: it breaks a rule, or does not fit.
        """
        builder = KernelBuilder()
        pointers: list[Pointer] = []
        values: list[Pointer | Scalar] = []
        for argument, kind in zip(self.arguments, self.types.values(), strict=True):
            if argument.kind is ArgumentKind.POINTER:
                dtype = kind.removesuffix("*")
                pointer = Pointer(argument.name, dtype, len(pointers), argument.offset)
                pointers.append(pointer)
                values.append(pointer)
            else:
                lowest = 0 if kind == "uint31" else LOWEST
                is_float = kind == "float32"
                values.append(
                    Argument(argument.name, argument.offset, lowest=lowest, floating=is_float)
                )
        self.function(builder, *values)
        forward_updates(builder.root.nodes)
        stages = _stages(builder.root.nodes)
        lines = allocate(stages, core)
        primed = [synchronise(nodes) for nodes in stages]
        generator = CodeGenerator(pointers)
        code = generator.generate(list(zip(stages, primed, strict=True)))
        commands = [c for nodes in stages for node in nodes for c in commands_in(node)]
        flags = {use.flag for command in commands for use in command.wait}
        return KernelObject(
            name=self.name,
            code=code,
            arguments=self.arguments,
            buffers=BufferUse(**{memory.name.lower(): lines[memory] for memory in Memory}),
            ram_bytes=generator.ram_bytes,
            flags=sum(1 << flag for flag in flags),
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


def _layout(arguments: dict[str, str]) -> tuple[ArgumentPlace, ...]:
    found: list[ArgumentPlace] = []
    offset = 0
    for name, kind in arguments.items():
        element = _ELEMENTS.get(kind.removesuffix("*")) if kind.endswith("*") else None
        if element is None and kind not in _VALUES:
            raise CompileError(f"type of {name} must be one that exists, not {kind!r}")
        if element is None:
            argument = ArgumentPlace(name, _VALUES[kind], offset)
        else:
            offset += -offset % 8
            argument = ArgumentPlace(name, ArgumentKind.POINTER, offset, element)
        found.append(argument)
        offset += argument.size
    pointers = sum(argument.kind is ArgumentKind.POINTER for argument in found)
    if pointers > LARGEST_BASES:
        raise CompileError(f"arrays must be at most {LARGEST_BASES}, not {pointers!r}")
    return tuple(found)


def _stages(nodes: list[Node]) -> list[list[Node]]:
    """What lies between the barriers outside of all loops."""
    stages: list[list[Node]] = [[]]
    for node in nodes:
        if isinstance(node, Barrier):
            stages.append([])
        else:
            stages[-1].append(node)
    return stages
