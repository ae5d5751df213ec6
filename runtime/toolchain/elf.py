"""Kernel objects as ELF files, which any objdump can read.

The format is that of the System V ABI (ELF32) with the RISC-V supplement; the note's own records
are declared in `abi.kernel_object`.
"""

import io
import struct
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from abi.kernel_object import ELF_MACHINE, NOTE_NAME, NOTE_SECTION, NOTE_TYPE
from runtime.toolchain.object import KernelObject, ObjectError, pack_note, unpack_note

__all__ = ["load_object", "read_object", "save_object", "write_object"]

_HEADER = struct.Struct("<16sHHIIIIIHHHHHH")
_PROGRAM = struct.Struct("<IIIIIIII")
_SECTION = struct.Struct("<IIIIIIIIII")
_SYMBOL = struct.Struct("<IIIBBH")
_NOTE = struct.Struct("<III")

IDENTITY = b"\x7fELF\x01\x01\x01" + bytes(9)
ET_EXEC, PT_LOAD = 2, 1
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOTE = 1, 2, 3, 7
SHF_ALLOC, SHF_EXECINSTR, SHF_COMPRESSED = 2, 4, 0x800
READ_EXECUTE = 5
GLOBAL_FUNCTION, LOCAL_LABEL = 0x12, 0x00
TEXT, SYMTAB, STRTAB, SHSTRTAB = ".text", ".symtab", ".strtab", ".shstrtab"
TEXT_INDEX, STRTAB_INDEX = 1, 4
CODE_ALIGNMENT = 64


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    contents: bytes
    flags: int = 0
    link: int = 0
    info: int = 0
    alignment: int = 1
    entry_bytes: int = 0


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.contents = b"\0"

    def add(self, text: str) -> int:
        """Offset of a string, which is appended."""
        offset = len(self.contents)
        self.contents += text.encode() + b"\0"
        return offset


def write_object(kernel: KernelObject) -> bytes:
    """The ELF file of a kernel."""
    strings, symbols = _Strings(), [bytes(_SYMBOL.size)]
    for name, address in kernel.symbols.items():
        symbols.append(_SYMBOL.pack(strings.add(name), address, 0, LOCAL_LABEL, 0, TEXT_INDEX))
    first_global = len(symbols)
    symbols.append(
        _SYMBOL.pack(
            strings.add(kernel.name),
            kernel.entry,
            len(kernel.code) - kernel.entry,
            GLOBAL_FUNCTION,
            0,
            TEXT_INDEX,
        )
    )
    owner = NOTE_NAME.encode() + b"\0"
    description = pack_note(kernel)
    note = _NOTE.pack(len(owner), len(description), NOTE_TYPE)
    note += _padded(owner) + _padded(description)
    sections = [
        _Section("", 0, b"", alignment=0),
        _Section(
            TEXT,
            SHT_PROGBITS,
            kernel.code,
            SHF_ALLOC | SHF_EXECINSTR,
            alignment=CODE_ALIGNMENT,
        ),
        _Section(NOTE_SECTION, SHT_NOTE, note, alignment=4),
        _Section(
            SYMTAB,
            SHT_SYMTAB,
            b"".join(symbols),
            link=STRTAB_INDEX,
            info=first_global,
            alignment=4,
            entry_bytes=_SYMBOL.size,
        ),
        _Section(STRTAB, SHT_STRTAB, strings.contents),
    ]
    return _lay_out(kernel, sections)


def _lay_out(kernel: KernelObject, sections: list[_Section]) -> bytes:
    """Headers, sections, and the table of sections."""
    names = _Strings()
    offsets_of_names = [names.add(each.name) if each.name else 0 for each in sections]
    offsets_of_names.append(names.add(SHSTRTAB))
    sections = [*sections, _Section(SHSTRTAB, SHT_STRTAB, names.contents)]
    body, table = bytearray(_HEADER.size + _PROGRAM.size), b""
    text_at = 0
    for name_at, section in zip(offsets_of_names, sections, strict=True):
        if section.kind:
            body += bytes(-len(body) % section.alignment)
        if section.name == TEXT:
            text_at = len(body)
        table += _SECTION.pack(
            name_at,
            section.kind,
            section.flags,
            0,
            len(body) if section.kind else 0,
            len(section.contents),
            section.link,
            section.info,
            section.alignment,
            section.entry_bytes,
        )
        body += section.contents
    body += bytes(-len(body) % 4)
    header = _HEADER.pack(
        IDENTITY,
        ET_EXEC,
        ELF_MACHINE,
        1,
        kernel.entry,
        _HEADER.size,
        len(body),
        0,
        _HEADER.size,
        _PROGRAM.size,
        1,
        _SECTION.size,
        len(sections),
        len(sections) - 1,
    )
    size = len(kernel.code)
    program = _PROGRAM.pack(PT_LOAD, text_at, 0, 0, size, size, READ_EXECUTE, CODE_ALIGNMENT)
    body[: len(header) + len(program)] = header + program
    return bytes(body) + table


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 4)


def read_object(raw: bytes) -> KernelObject:
    """The kernel of an ELF file.

    Raises:
        ObjectError: the file is cut, no kernel of this device, or of another version.
    """
    _check_whole(raw)
    try:
        elf = ELFFile(io.BytesIO(raw))
        contents = {section.name: section.data() for section in elf.iter_sections()}
        table = elf.get_section_by_name(SYMTAB)
        symbols = [
            (symbol.name, symbol["st_value"], symbol["st_info"]["bind"])
            for symbol in (table.iter_symbols() if isinstance(table, SymbolTableSection) else ())
            if symbol.name
        ]
    except (ELFError, UnicodeDecodeError) as error:
        raise ObjectError(f"ELF file is damaged: {error}") from error
    for name in (TEXT, NOTE_SECTION, SYMTAB):
        if name not in contents:
            raise ObjectError(f"ELF file must have a section {name}, as kernel objects have")
    entry = elf["e_entry"]
    named = [name for name, address, bind in symbols if bind == "STB_GLOBAL" and address == entry]
    if len(named) != 1:
        raise ObjectError(f"ELF file must have one global symbol at its entry, not {named!r}")
    return unpack_note(
        _note(contents[NOTE_SECTION]),
        name=named[0],
        code=contents[TEXT],
        entry=entry,
        symbols={name: address for name, address, bind in symbols if bind == "STB_LOCAL"},
    )


def _check_whole(raw: bytes) -> None:
    """Check that it is an ELF file for the scalar unit, and that nothing of it is missing."""
    if raw[:4] != IDENTITY[:4]:
        raise ObjectError(f"file must be an ELF file, not one that starts with {raw[:4]!r}")
    if len(raw) < _HEADER.size:
        raise ObjectError(f"ELF file is cut: it has {len(raw)} bytes of its {_HEADER.size} first")
    if raw[4:6] != IDENTITY[4:6]:
        raise ObjectError(f"ELF file must be 32-bit and little-endian, not {raw[4:6]!r}")
    fields = _HEADER.unpack_from(raw)
    if fields[2] != ELF_MACHINE:
        raise ObjectError(f"ELF file must be for machine {ELF_MACHINE} (RISC-V), not {fields[2]}")
    table, entry_bytes, count, names = fields[6], *fields[11:14]
    if entry_bytes != _SECTION.size or count == 0 or names >= count:
        raise ObjectError("ELF file is damaged: it has no table of sections")
    end = table + entry_bytes * count
    if end > len(raw):
        raise ObjectError(f"ELF file is cut: it has {len(raw)} bytes, not {end}")
    for index in range(count):
        section = _SECTION.unpack_from(raw, table + entry_bytes * index)
        if section[2] & SHF_COMPRESSED:
            raise ObjectError(f"section {index} of the ELF file must not be compressed")
        if section[4] + section[5] > len(raw):
            raise ObjectError(
                f"ELF file is cut or damaged: section {index} ends at byte "
                f"{section[4] + section[5]} of {len(raw)}"
            )


def _note(raw: bytes) -> bytes:
    """The description of our note."""
    at = 0
    while at + _NOTE.size <= len(raw):
        owner_bytes, description_bytes, kind = _NOTE.unpack_from(raw, at)
        start = at + _NOTE.size
        owner = raw[start : start + owner_bytes].rstrip(b"\0")
        start += owner_bytes + -owner_bytes % 4
        if owner == NOTE_NAME.encode() and kind == NOTE_TYPE:
            return raw[start : start + description_bytes]
        at = start + description_bytes + -description_bytes % 4
    raise ObjectError(f"ELF file must have a note of {NOTE_NAME} and type {NOTE_TYPE}")


def save_object(kernel: KernelObject, path: str | Path) -> None:
    """Write a kernel's file."""
    Path(path).write_bytes(write_object(kernel))


def load_object(path: str | Path) -> KernelObject:
    """Read a kernel's file.

    Raises:
        ObjectError: as `read_object`, with the path.
        OSError: the file cannot be read.
    """
    try:
        return read_object(Path(path).read_bytes())
    except ObjectError as error:
        raise ObjectError(f"{path}: {error}") from error
