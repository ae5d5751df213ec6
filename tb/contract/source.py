"""Reads the declarations of `abi`: records, register maps, enums and constants."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, EnumType
from types import ModuleType

import abi
from abi.record import Record
from abi.register import Register, RegisterMap

__all__ = ["Constant", "Declarations", "declarations_of", "module_names"]

# The classes with which the contract is written are no part of it.
LANGUAGE = ("record", "register")


@dataclass(frozen=True)
class Constant:
    """A shared number, with the string that documents it."""

    name: str
    value: int
    meaning: str


@dataclass(frozen=True)
class Declarations:
    """What one module of `abi` declares, in the order of the source."""

    module: str
    title: str
    constants: list[Constant]
    enums: list[EnumType]
    records: list[Record]
    maps: list[RegisterMap]
    member_meanings: dict[str, dict[str, str]]


def module_names() -> list[str]:
    """The modules of `abi` that declare parts of the contract, without the package's name."""
    return [info.name for info in pkgutil.iter_modules(abi.__path__) if info.name not in LANGUAGE]


def _documented_names(body: list[ast.stmt]) -> dict[str, str]:
    """The string that stands below each assignment of a module or class."""
    meanings = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = inspect.cleandoc(str(following.value.value)).replace("\n", " ")
        meanings[statement.targets[0].id] = text
    return meanings


def _records_of(value: object) -> Iterator[Record]:
    """Records that a module-level value is or holds; registers belong to their maps."""
    if isinstance(value, Register):
        return
    if isinstance(value, Record):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _records_of(item)


def declarations_of(name: str) -> Declarations:
    """The declarations of module `abi.<name>`."""
    module: ModuleType = importlib.import_module(f"abi.{name}")
    tree = ast.parse(inspect.getsource(module))
    own = _documented_names(tree.body)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    values = vars(module)
    records = {id(r): r for key in own for r in _records_of(values[key])}
    return Declarations(
        module=name,
        title=(module.__doc__ or "").splitlines()[0],
        constants=[
            Constant(key, values[key], text)
            for key, text in own.items()
            if not key.startswith("_") and isinstance(values[key], int)
        ],
        enums=[
            values[key]
            for key in classes
            if isinstance(values[key], EnumType) and issubclass(values[key], Enum)
        ],
        records=list(records.values()),
        maps=[values[key] for key in own if isinstance(values[key], RegisterMap)],
        member_meanings={key: _documented_names(node.body) for key, node in classes.items()},
    )
