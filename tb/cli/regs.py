"""`glassnpu regs`: prints the register maps of the contract."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import click

from abi.address import BAR0_BASE, BAR2_BASE, CONFIG_BASE
from abi.config_space import CONFIG_SPACE
from abi.doorbell import DOORBELL_PAGE
from abi.record import Record
from abi.register import Place, RegisterMap
from abi.registers_firmware import FIRMWARE_PORT
from abi.registers_host import BAR0
from tb.cli.options import nearest

__all__ = ["MAPS", "regs"]

MAPS: list[tuple[str, int, RegisterMap]] = [
    ("host port", CONFIG_BASE, CONFIG_SPACE),
    ("host port", BAR0_BASE, BAR0),
    ("host port", BAR2_BASE, DOORBELL_PAGE),
    *(("firmware port", base, block) for base, block in FIRMWARE_PORT.items()),
]
"""Port, base address on it, map."""


def _offset_of(pattern: str) -> int | None:
    if not pattern[:1].isdigit():
        return None
    try:
        return int(pattern, 0)
    except ValueError:
        return None


def _lies_at(place: Place, offset: int) -> bool:
    index, rest = divmod(offset - place.offset, place.stride)
    return 0 <= index < place.count and 0 <= rest < 8


def _like(pattern: str, name: str) -> bool:
    folded, wanted = name.casefold(), pattern.casefold()
    return wanted in folded or fnmatchcase(folded, wanted)


def matching_places(register_map: RegisterMap, pattern: str | None) -> list[Place]:
    """Places of a map whose offset, name or field fits; all if the map's own name does."""
    if pattern is None or _like(pattern, register_map.name):
        return list(register_map)
    offset = _offset_of(pattern)
    if offset is not None:
        return [place for place in register_map if _lies_at(place, offset)]
    return [
        place
        for place in register_map
        if any(
            _like(pattern, name)
            for name in (place.name, place.register.name, *place.register.fields)
        )
    ]


def known_names() -> list[str]:
    """Everything that a pattern can name."""
    names: dict[str, None] = {}
    for _port, _base, register_map in MAPS:
        names[register_map.name] = None
        for place in register_map:
            names |= dict.fromkeys((place.name, *place.register.fields))
    return list(names)


def bits_of(record: Record, name: str) -> str:
    """The bits of a field, as `7:0` or `3`."""
    offset, width = record.offset_of(name), record.fields[name].width
    return str(offset) if width == 1 else f"{offset + width - 1}:{offset}"


def place_json(place: Place) -> dict[str, Any]:
    """A place, as the JSON output shows it."""
    register = place.register
    return {
        "name": place.name,
        "offset": place.offset,
        "count": place.count,
        "stride": place.stride,
        "register": register.name,
        "access": register.access.name,
        "reset": register.reset,
        "meaning": register.meaning,
        "fields": [
            {
                "name": name,
                "bit": register.offset_of(name),
                "width": field.width,
                "signed": field.is_signed,
                "reset": field.reset,
                "fills": field.fills.value,
                "interprets": field.interprets.value,
                "consumes": field.consumes.value,
                "meaning": field.meaning,
            }
            for name, field in register.fields.items()
        ],
    }


def place_lines(place: Place, fields: bool) -> Iterator[str]:
    """The lines of the text output for one place."""
    name, register = place.name, place.register
    meaning = register.meaning
    if place.count > 1:
        name += f"[{place.count}]"
        last = place.count - 1
        meaning += f" [i] lies at {place.offset:#07x} + {place.stride:#x} * i, i = 0 to {last}."
    yield f"  {place.offset:#07x}  {register.access.name:<3}  {name:<26}  {meaning}"
    if fields:
        for field_name, field in register.fields.items():
            reset = f" (reset {field.reset:#x})" if field.reset else ""
            bits = bits_of(register, field_name)
            yield f"           {bits:>5}  {field_name:<24}  {field.meaning}{reset}"


@click.command()
@click.argument("pattern", required=False)
@click.option("--fields", is_flag=True, help="Show fields; on by itself when PATTERN is given.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list of maps.")
def regs(pattern: str | None, fields: bool, as_json: bool) -> None:
    """Print the register maps, or those registers that PATTERN names.

    PATTERN is a part of a map's, register's or field's name (`doorbell`, `core_*`), or an offset
    (`0x1040`), which says what lies there. Offsets count from the base that the map's first line
    shows; that of an array of registers is its element 0.
    """
    found = [(port, base, m, matching_places(m, pattern)) for port, base, m in MAPS]
    found = [entry for entry in found if entry[3]]
    if not found:
        hint = nearest(str(pattern), known_names())
        raise click.UsageError(
            f"PATTERN must be a part of a map, register or field, or the offset of a register, "
            f"not {pattern!r}{hint}"
        )
    if as_json:
        maps = [
            {
                "map": register_map.name,
                "port": port,
                "base": base,
                "bytes": register_map.nbytes,
                "registers": [place_json(place) for place in places],
            }
            for port, base, register_map, places in found
        ]
        click.echo(json.dumps(maps, indent=2))
        return
    for port, base, register_map, places in found:
        click.secho(f"{register_map.name}: {port} + {base:#x}. {register_map.meaning}", bold=True)
        for place in places:
            for line in place_lines(place, fields or pattern is not None):
                click.echo(line)
