"""Kernel objects: round trip, what other tools see, and files that are refused."""

import io
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from abi.kernel_object import (
    KERNEL_ARGUMENT,
    KERNEL_NOTE,
    NOTE_SECTION,
    ArgumentKind,
    ElementType,
)
from abi.version import ABI_MAJOR, ABI_MINOR
from runtime.toolchain.elf import load_object, read_object, save_object, write_object
from runtime.toolchain.object import Argument, BufferUse, KernelObject, ObjectError
from runtime.toolchain.source import assemble

CODE = assemble("table: .word 1, 2\nstart: lw a1, 0(a0)\nloop: j loop")
KERNEL = KernelObject(
    name="scale_ö",
    code=CODE,
    entry=8,
    arguments=(
        Argument("source", ArgumentKind.POINTER, 0, ElementType.BFLOAT16),
        Argument("count", ArgumentKind.INT32, 8),
        Argument("größe", ArgumentKind.FLOAT32, 12),
        Argument("target", ArgumentKind.POINTER, 24, ElementType.FLOAT32),
    ),
    buffers=BufferUse(l1=4096, l0a=1, l0b=2, l0c=3, bias=4, ub=65536),
    ram_bytes=128,
    flags=1 << 31 | 5,
    flags_left={0: 1, 31: 15},
    grid_limit=(1 << 20, 7, 9),
    symbols={"table": 0, "loop": 12},
)


def _section(elf: ELFFile, name: str) -> Any:
    """A section that must be there."""
    section = elf.get_section_by_name(name)
    assert section is not None
    return section


def test_round_trip(tmp_path: Path) -> None:
    """All that is written is read, from bytes and from a file."""
    assert read_object(write_object(KERNEL)) == KERNEL
    plain = KernelObject("k", CODE)
    assert read_object(write_object(plain)) == plain
    path = tmp_path / "scale.o"
    save_object(KERNEL, path)
    assert load_object(path) == KERNEL


def test_as_other_tools_see_it() -> None:
    """An ordinary executable: sections, symbols, segment, note."""
    elf = ELFFile(io.BytesIO(write_object(KERNEL)))
    assert elf.get_machine_arch() == "RISC-V"
    assert (elf.elfclass, elf.little_endian, elf["e_entry"]) == (32, True, 8)
    text = _section(elf, ".text")
    assert (text["sh_addr"], text["sh_flags"], text.data()) == (0, 6, CODE)
    (segment,) = elf.iter_segments()
    assert (segment["p_type"], segment["p_vaddr"], segment.data()) == ("PT_LOAD", 0, CODE)
    assert segment["p_offset"] % segment["p_align"] == 0
    symbols = _section(elf, ".symtab")
    assert [(each.name, each["st_value"]) for each in symbols.iter_symbols()] == [
        ("", 0),
        ("table", 0),
        ("loop", 12),
        ("scale_ö", 8),
    ]
    assert symbols["sh_info"] == 3
    (note,) = _section(elf, NOTE_SECTION).iter_notes()
    assert note["n_name"] == "GlassNPU"
    raw = note["n_descdata"]
    header = KERNEL_NOTE.unpack_bytes(raw[: KERNEL_NOTE.nbytes])
    assert header["ub_lines"] == 65536
    assert header["flags_left"] == 15 << 124 | 1
    assert header["argument_bytes"] == 32
    assert raw.endswith("sourcecountgrößetarget".encode())


def test_arguments() -> None:
    """The argument block, and arguments that do not fit."""
    values = {"source": 1 << 47, "count": -2, "größe": 0.5, "target": 3}
    block = KERNEL.pack_arguments(values)
    assert block == struct.pack("<Qif8xQ", 1 << 47, -2, 0.5, 3)
    for wrong, message in (
        ({"count": 1 << 31}, "argument count must be a int32, not 2147483648"),
        ({"source": -1}, "argument source must be a pointer, not -1"),
        ({"count": 0.5}, "argument count must be a int32, not 0.5"),
        ({"other": 1}, "scale_ö has no argument 'other'"),
    ):
        with pytest.raises(ObjectError, match=message):
            KERNEL.pack_arguments({**values, **wrong})
    with pytest.raises(ObjectError, match="argument count of scale_ö is missing"):
        KERNEL.pack_arguments({"source": 0})


def test_every_cut_is_refused() -> None:
    """A file that was cut anywhere."""
    raw = write_object(KERNEL)
    for length in range(len(raw)):
        with pytest.raises(ObjectError, match=r"cut|must be an ELF file"):
            read_object(raw[:length])


def test_damaged_files() -> None:
    """A byte changed at random: another kernel or an ObjectError, never anything else."""
    draw = random.Random(5)
    raw = write_object(KERNEL)
    refused = 0
    for _ in range(1000):
        damaged = bytearray(raw)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(raw))] = draw.getrandbits(8)
        try:
            read_object(bytes(damaged))
        except ObjectError:
            refused += 1
    assert 200 < refused < 950


def _patched(offset: int, form: str, value: int) -> bytes:
    raw = bytearray(write_object(KERNEL))
    struct.pack_into(form, raw, offset, value)
    return bytes(raw)


def _note_at(field: str) -> int:
    elf = ELFFile(io.BytesIO(write_object(KERNEL)))
    start = int(_section(elf, NOTE_SECTION)["sh_offset"])
    return start + 12 + 12 + KERNEL_NOTE.offset_of(field) // 8


def test_foreign_files() -> None:
    """What is no kernel object, or one of another version, is named."""
    for raw, message in (
        (b"", "must be an ELF file"),
        (b"#!/bin/sh\n", "must be an ELF file, not one that starts with b'#!/b'"),
        (_patched(4, "<B", 2), "must be 32-bit and little-endian"),
        (_patched(18, "<H", 62), r"must be for machine 243 \(RISC-V\), not 62"),
        (_patched(24, "<I", 4), "must have one global symbol at its entry"),
        (_patched(_note_at("version"), "<H", 2), "note must have version 1, not 2"),
        (
            _patched(_note_at("abi_major"), "<H", ABI_MAJOR + 1),
            f"must be made for ABI {ABI_MAJOR}.{ABI_MINOR} .*, not {ABI_MAJOR + 1}.{ABI_MINOR}",
        ),
        (_patched(_note_at("abi_minor"), "<H", ABI_MINOR + 1), "must be made for ABI"),
        (_patched(_note_at("arguments"), "<H", 5), "note must have .* for its 5 arguments"),
        (_patched(_note_at("argument_bytes"), "<I", 4), "argument block must have 32 bytes"),
        (_patched(_note_at("grid_y"), "<H", 0), "grid_limit along y must be between 1"),
        (_patched(_note_at("version") - 12, "<B", 65), "must have a note of GlassNPU"),
        (
            _patched(_note_at("version") + KERNEL_NOTE.nbytes + 8, "<B", 9),
            "must have a known kind",
        ),
        (
            _patched(_note_at("version") + KERNEL_NOTE.nbytes + 4, "<I", 4),
            "source must have 8 bytes, not 4",
        ),
    ):
        with pytest.raises(ObjectError, match=message):
            read_object(raw)
    assert KERNEL_ARGUMENT.nbytes == 16


def test_path_in_errors(tmp_path: Path) -> None:
    """An error of a file names it."""
    path = tmp_path / "no_kernel"
    path.write_bytes(b"text")
    with pytest.raises(ObjectError, match="no_kernel: file must be an ELF file"):
        load_object(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": b"abc"}, "code must have whole words of 4 bytes, not 3 bytes"),
        ({"code": b""}, "code must have whole words"),
        ({"entry": 2}, "entry must be a word of the code, not 0x2"),
        ({"entry": 400}, "entry must be a word of the code"),
        ({"name": ""}, "name must not be empty"),
        ({"ram_bytes": 8193}, "ram_bytes must be at most 8192, not 8193"),
        ({"grid_limit": (0, 1, 1)}, "grid_limit along x must be between 1"),
        ({"grid_limit": (1, 1 << 16, 1)}, "grid_limit along y must be between 1 and 65535"),
        ({"flags_left": {32: 1}}, "flags_left must name flags 0 to 31"),
        (
            {"arguments": (Argument("p", ArgumentKind.POINTER, 4),)},
            "offset of p must be a multiple of 8",
        ),
        (
            {
                "arguments": (
                    Argument("p", ArgumentKind.POINTER, 0),
                    Argument("q", ArgumentKind.INT32, 4),
                )
            },
            "offset of q must be a multiple of 4 and at least 8, not 4",
        ),
        (
            {"arguments": (Argument("i", ArgumentKind.INT32, 0, ElementType.INT8),)},
            "i is no pointer",
        ),
    ],
)
def test_objects_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    """A kernel that does not fit is refused when it is made."""
    values: dict[str, Any] = {"name": "k", "code": CODE, **changes}
    with pytest.raises(ObjectError, match=message):
        KernelObject(**values)
