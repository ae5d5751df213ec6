"""The reference of the runtime's API, as a page: signatures and docstrings of `runtime`."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from types import FunctionType, ModuleType

import runtime
from runtime import profiling
from runtime.operations import elements, matrix, movement, rows, windows

__all__ = ["INTERNAL", "RUNTIME_PAGE", "documented_names", "runtime_page"]

RUNTIME_PAGE = Path(__file__).resolve().parents[2] / "docs" / "runtime.md"

INTERNAL = {
    *("Device." + name for name in ("check_open", "check_current", "check_stream", "check_event")),
    *("Device." + name for name in ("note", "take_semaphore", "forget_stream")),
    *("Stream." + name for name in ("is_done", "check", "finish", "wait_semaphore", "push_event")),
    "DeviceBuffer.check",
}
"""What the runtime's parts call of one another; a user has nothing to pass there."""

MADE_BY_DEVICE = ("DeviceArray", "DeviceBuffer", "PinnedArray")
"""Classes that a user does not construct."""

SHOWN = ("__getitem__", "__sub__")
"""Operators that are part of the API."""

OPERATIONS = (matrix, elements, rows, movement, windows)
"""Modules of operations on device arrays."""


def _operations(module: ModuleType) -> dict[str, object]:
    """What a module of operations has besides what `runtime` itself offers, by module and name."""
    short = module.__name__.split(".")[-1]
    own = [name for name in module.__all__ if name not in runtime.__all__]
    return {f"{short}.{name}": getattr(module, name) for name in own}


# The order in which a reader meets the names. Each public name has its place here.
CHAPTERS = (
    ("The device", ("Device", "DeviceProperties", "MemoryInfo")),
    ("Streams and events", ("Stream", "Event")),
    ("Memory", ("DeviceArray", "DeviceBuffer", "PinnedArray")),
    ("Kernels", ("gemm", "requantise", "padded_macs", "Module", "Kernel")),
    (
        "Operations",
        tuple(name for module in OPERATIONS for name in _operations(module)),
    ),
    ("Profiling", ("read_counters", "Counters", "PipeCycles")),
    ("Errors", tuple(name for name in runtime.__all__ if name.endswith("Error"))),
)

INTRODUCTION = """# The runtime API

<!-- Generated from runtime/ by `python -m tb.contract.generate`. Do not edit. -->

Everything that a program imports, with its signature and what it does. `from runtime import NAME`
finds each name, but those of the profiling chapter, which are in `runtime.profiling`, and the
operations, which are functions of the modules of `runtime.operations`. Docstrings say which errors
each call raises. Copies and fills are methods of `Device`. All times are in
cycles, all sizes in bytes. [The quickstart](quickstart/runtime.md) has programs to start from.
"""


def documented_names() -> dict[str, object]:
    """All public names of the runtime, with what they stand for."""
    names = {name: getattr(runtime, name) for name in runtime.__all__}
    names |= {name: getattr(profiling, name) for name in profiling.__all__}
    for module in OPERATIONS:
        names |= _operations(module)
    return names


def _paragraphs(thing: object) -> list[str]:
    """The paragraphs of a docstring, each on one line, without arguments and errors."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(getattr(thing, "__doc__", None) or ""))
    lines = [" ".join(part.split()) for part in parts]
    return [line for line in lines if line and not line.startswith(("Args:", "Raises:"))]


def _signature(function: FunctionType) -> str:
    """The signature as the source has it, without `self`; constants are shown as numbers."""
    (node,) = ast.parse(dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    every = [*node.args.posonlyargs, *node.args.args]
    if every and every[0].arg in ("self", "cls"):
        (node.args.posonlyargs or node.args.args).pop(0)
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    text = f"({ast.unparse(node.args)}){result}".replace("'", "")
    return re.sub(r"=([A-Z][A-Z_]+)\b", lambda m: f"={function.__globals__[m[1]]}", text)


def _entry(name: str, thing: object) -> str:
    """One line of a list: signature, and the first paragraph of the docstring."""
    text = _paragraphs(thing)
    if not text:
        raise ValueError(f"{name} must have a docstring")
    signature = _signature(thing) if isinstance(thing, FunctionType) else ""
    return f"- `{name}{signature}`: {text[0]}"


def _members(name: str, kind: type) -> Iterator[str]:
    """The public members of a class, in the order of its source."""
    if is_dataclass(kind):
        for field in fields(kind):
            annotation = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(field.type))
            yield f"- `{field.name}: {annotation}`"
    for member, value in vars(kind).items():
        hidden = member.startswith("_") and member not in SHOWN
        if hidden or f"{name}.{member}" in INTERNAL:
            continue
        if isinstance(value, property | cached_property):
            getter = value.fget if isinstance(value, property) else value.func
            assert isinstance(getter, FunctionType)
            result = _signature(getter).partition(" -> ")[2]
            yield f"- `{member}: {result}`: {_paragraphs(getter)[0]}"
        elif isinstance(value, classmethod):
            yield _entry(f"{name}.{member}", value.__func__)
        elif isinstance(value, FunctionType):
            yield _entry(member, inspect.unwrap(value))


def _class(name: str, kind: type) -> list[str]:
    lines = [f"### {name}", ""]
    constructor = vars(kind).get("__init__")
    constructed = name not in MADE_BY_DEVICE and not is_dataclass(kind)
    if constructed and isinstance(constructor, FunctionType):
        lines += [f"`{name}{_signature(constructor).removesuffix(' -> None')}`", ""]
    for text in _paragraphs(kind):
        lines += [text, ""]
    members = list(_members(name, kind))
    return [*lines, *members, ""] if members else lines


def _error(name: str, kind: type) -> str:
    bases = " and ".join(f"`{base.__name__}`" for base in kind.__bases__)
    return f"- `{name}`, a kind of {bases}: {' '.join(_paragraphs(kind))}"


def runtime_page() -> str:
    """The whole page, as Markdown.

    Raises:
        ValueError: a public name has no chapter, or no docstring.
    """
    known = documented_names()
    placed = [name for _title, names in CHAPTERS for name in names]
    if sorted(placed) != sorted(known):
        raise ValueError(f"chapters must have the names {sorted(known)!r}, not {sorted(placed)!r}")
    lines = [INTRODUCTION]
    for title, names in CHAPTERS:
        lines += [f"## {title}", ""]
        plain = [name for name in names if not isinstance(known[name], type)]
        lines += [_entry(name, known[name]) for name in plain]
        lines += [""] if plain else []
        for name in names:
            thing = known[name]
            if not isinstance(thing, type):
                continue
            lines += [_error(name, thing)] if title == "Errors" else _class(name, thing)
    return "\n".join(lines).rstrip("\n") + "\n"
