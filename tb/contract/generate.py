"""Writes `docs/contract.md` from `abi` and `docs/runtime.md` from `runtime`.

`python -m tb.contract.generate [--check]`.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from enum import Enum, EnumType, IntEnum
from pathlib import Path

from abi.record import Field, Owner, Record
from abi.register import Access, Place, RegisterMap
from abi.registers_firmware import FIRMWARE_PORT, PACKET_SRAM_BASE
from abi.status import Status, side_of
from abi.version import ABI_MAJOR, ABI_MINOR
from tb.contract.core_tables import EXTRA
from tb.contract.runtime_page import RUNTIME_PAGE, runtime_page
from tb.contract.source import Constant, Declarations, declarations_of, module_names

__all__ = ["PAGE", "contract_page", "main"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "contract.md"

# The order in which a reader meets the parts. Each module of abi has its place here.
CHAPTERS = (
    ("Version", ("version",)),
    ("Addresses and sizes", ("address", "geometry")),
    ("Status codes", ("status",)),
    ("Packets", ("packet",)),
    ("DMA descriptors", ("descriptor",)),
    ("Timeline semaphore", ("semaphore",)),
    ("Scalar unit", ("isa",)),
    ("Core commands", ("core", "command_rules")),
    ("Vector operations", ("vector",)),
    ("Kernel objects", ("kernel_object",)),
    ("Mailbox messages", ("mailbox",)),
    ("Config space", ("config_space",)),
    ("Doorbell page", ("doorbell",)),
    ("Host registers", ("registers_host",)),
    (
        "Firmware registers",
        ("registers_firmware", "registers_queue", "registers_dma", "registers_core"),
    ),
    ("Trace events", ("trace",)),
)

INTRODUCTION = f"""# The contract

<!-- Generated from abi/ by `python -m tb.contract.generate`. Do not edit. -->

ABI version {ABI_MAJOR}.{ABI_MINOR}. This page is generated from the package `abi`, where each
number that two layers share is declared once. A test fails when the page is not current.

Each field names its owners. *Fills*: who writes it. *Interprets*: who checks and understands it.
*Consumes*: who acts on it.

All structures are little-endian. Bit 0 is the lowest bit of the first byte. A reserved field must
be zero: its interpreter refuses anything else. Bits of a register beyond its fields read as zero.
"""

OWNERS = {
    Owner.UMD: "the user-mode driver",
    Owner.KMD: "the privileged driver",
    Owner.FW: "the firmware",
    Owner.HW: "the hardware",
    Owner.HOST: "any software on the host",
    Owner.NONE: "nobody; the field is reserved or unused",
}


def _text(words: str) -> str:
    return words.replace("\n", " ").replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _bits(offset: int, width: int) -> str:
    return f"{offset}" if width == 1 else f"{offset + width - 1}:{offset}"


def _kind(field: Field) -> str:
    if isinstance(field.shape, int):
        return f"{'signed' if field.is_signed else 'unsigned'}, {field.width}"
    return f"{field.shape.__name__}, {field.width}"


def field_rows(record: Record) -> list[list[str]]:
    """The rows of a field table; owners stand in the last three columns."""
    return [
        [
            _bits(record.offset_of(name), field.width),
            f"`{name}`",
            _kind(field),
            _text(field.meaning),
            field.fills.value,
            field.interprets.value,
            field.consumes.value,
        ]
        for name, field in record.fields.items()
    ]


_FIELD_HEAD = ("Bits", "Field", "Type, bits", "Meaning", "Fills", "Interprets", "Consumes")


def _record(record: Record) -> list[str]:
    return [
        f"### {record.name}",
        "",
        _text(record.meaning),
        "",
        f"{record.nbytes} bytes.",
        "",
        *_table(_FIELD_HEAD, field_rows(record)),
    ]


def place_address(place: Place) -> str:
    """Where a register lies: one offset, or the rule and the range of an array's."""
    if place.count == 1:
        return f"{place.offset:#06x}"
    return f"{place.offset:#06x} + {place.stride:#x} i, i = 0 to {place.count - 1}"


def _place(place: Place) -> list[str]:
    register = place.register
    head = [*_FIELD_HEAD[:4], "Reset", *_FIELD_HEAD[4:]]
    rows = [
        [*row[:4], f"{field.reset:#x}", *row[4:]]
        for row, field in zip(field_rows(register), register.fields.values(), strict=True)
    ]
    return [
        f"#### {place.name}",
        "",
        f"At {place_address(place)}. {register.access.value.capitalize()}. `{register.name}`: "
        f"{_text(register.meaning)}",
        "",
        *_table(head, rows),
    ]


def _register_map(register_map: RegisterMap) -> list[str]:
    base = [base for base, block in FIRMWARE_PORT.items() if block is register_map]
    where = f" It lies at {base[0]:#07x} of the firmware port." if base else ""
    overview = [
        [
            place_address(place),
            f"`{place.name}`",
            place.register.access.name,
            f"{place.register.reset:#x}",
            _text(place.register.meaning),
        ]
        for place in register_map
    ]
    lines = [
        f"### {register_map.name}",
        "",
        f"{_text(register_map.meaning)} {register_map.nbytes:#x} bytes.{where}",
        "",
        *_table(("Offset", "Register", "Access", "Reset", "Meaning"), overview),
    ]
    for place in register_map:
        lines += _place(place)
    return lines


def _number(value: int) -> str:
    return f"{value:#x}" if value > 9 else str(value)


def _constants(constants: Sequence[Constant]) -> list[str]:
    rows = [[f"`{c.name}`", f"{c.value} ({c.value:#x})", _text(c.meaning)] for c in constants]
    return _table(("Name", "Value", "Meaning"), rows) if rows else []


def _enum(enum: EnumType, meanings: dict[str, str]) -> list[str]:
    members: list[Enum] = list(enum.__members__.values())
    head = ["Name", "Value"] if issubclass(enum, IntEnum) else ["Name"]
    texts = [meanings.get(member.name, "") for member in members]
    if enum is Status:
        head.append("Side")
    if any(texts):
        head.append("Meaning")
    rows = []
    for member, text in zip(members, texts, strict=True):
        row = [f"`{member.name}`"]
        if isinstance(member, IntEnum):
            row.append(_number(int(member)))
        if isinstance(member, Status):
            row.append("" if member == Status.OK else side_of(member).value)
        if any(texts):
            row.append(_text(text))
        rows.append(row)
    return [f"### {enum.__name__}", "", _text(enum.__doc__ or ""), "", *_table(head, rows)]


def _module(part: Declarations) -> list[str]:
    extra = list(EXTRA[part.module]()) if part.module in EXTRA else []
    if not (part.constants or part.enums or part.records or part.maps or extra):
        return []  # Only registers, which stand in the maps that place them.
    lines = [_text(part.title), "", *_constants(part.constants)]
    for enum in part.enums:
        lines += _enum(enum, part.member_meanings.get(enum.__name__, {}))
    for record in part.records:
        lines += _record(record)
    for heading, head, rows in extra:
        table = _table(head, [[_text(cell) for cell in row] for row in rows])
        lines += [f"### {heading}", "", *table]
    for register_map in part.maps:
        lines += _register_map(register_map)
    return lines


def contract_page() -> str:
    """The whole page, as Markdown.

    Raises:
        ValueError: a module of `abi` has no chapter, or a chapter names none.
    """
    placed = [name for _title, names in CHAPTERS for name in names]
    if sorted(placed) != sorted(module_names()):
        raise ValueError(f"chapters must be the modules {module_names()!r}, not {placed!r}")
    owners = [[owner.value, meaning] for owner, meaning in OWNERS.items()]
    access = [[f"`{access.name}`", access.value] for access in Access]
    lines = [
        INTRODUCTION,
        *_table(("Owner", "Who"), owners),
        *_table(("Access", "Software may"), access),
    ]
    for title, names in CHAPTERS:
        lines += [f"## {title}", ""]
        for name in names:
            lines += _module(declarations_of(name))
        if "registers_firmware" in names:
            lines += [f"Packet SRAM lies at {PACKET_SRAM_BASE:#x} of the firmware port.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with `--check` say whether those in docs/ are current (0) or not (1)."""
    parser = argparse.ArgumentParser(description="Generate pages of docs/ from abi and runtime.")
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    options = parser.parse_args(arguments)
    stale = 0
    for path, page in ((PAGE, contract_page()), (RUNTIME_PAGE, runtime_page())):
        if not options.check:
            path.write_text(page, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page:
            name = f"docs/{path.name}"
            print(f"{name} is not current: run `python -m tb.contract.generate`", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
