"""Encoding of packets: one compiled `struct` a packet kind, derived from the contract."""

import struct
from collections.abc import Callable
from functools import cache

from abi.packet import PACKETS, PacketOpcode
from abi.record import Field, Record

__all__ = ["Encoder", "encoder"]

_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}
Encoder = Callable[..., bytes]


def _steps(record: Record) -> list[tuple[str, Field]]:
    """Format code and field for each byte-aligned piece of the record.

    Fields narrower than a byte are taken together with the reserved bits that follow them.
    """
    steps: list[tuple[str, Field]] = []
    fields = list(record.fields.values())
    while fields:
        field = fields.pop(0)
        width = field.width
        if field.name.startswith("reserved"):
            if width % 8:
                raise ValueError(f"{record.name}.{field.name} must be whole bytes, not {width!r}")
            steps.append((f"{width // 8}x", field))
            continue
        while width not in _CODES:
            if not fields or not fields[0].name.startswith("reserved"):
                raise ValueError(f"{record.name}.{field.name} must fill a word, not {width!r} bits")
            width += fields.pop(0).width
        steps.append((_CODES[width].lower() if field.is_signed else _CODES[width], field))
    return steps


@cache
def encoder(opcode: PacketOpcode) -> Encoder:
    """A function that packs a packet of this kind: `encode(sequence, source=…, …) -> 64 bytes`.

    Fields that are not named are zero. The function raises KeyError for a name that is no field,
    and ValueError for a value that does not fit.
    """
    record = PACKETS[opcode]
    steps = _steps(record)
    packer = struct.Struct("<" + "".join(code for code, _ in steps))
    fields = [field for code, field in steps if not code.endswith("x")]
    names = [field.name for field in fields[2:]]
    known = frozenset(names)
    narrow = [(field.name, field.width) for field in fields[2:] if field.width not in _CODES]

    def encode(sequence: int, /, **values: int) -> bytes:
        if not known.issuperset(values):
            raise KeyError(f"{record.name} has no field {sorted(set(values) - known)[0]!r}")
        for name, width in narrow:
            if values.get(name, 0) >> width:
                raise ValueError(f"{record.name}.{name} must have {width} bits, not {values[name]}")
        get = values.get
        try:
            return packer.pack(opcode, sequence & 0xFFFFFFFF, *[get(name, 0) for name in names])
        except struct.error as error:
            raise ValueError(f"{record.name}: {error}, not {values!r}") from error

    return encode
