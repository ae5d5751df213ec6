"""Kernel objects: a kernel's code, with what the runtime has to know to launch it."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from abi.core import FLAGS
from abi.isa import RAM_BYTES
from abi.kernel_object import (
    FLAG_LEFT_BITS,
    KERNEL_ARGUMENT,
    KERNEL_NOTE,
    NOTE_VERSION,
    ArgumentKind,
    ElementType,
)
from abi.version import ABI_MAJOR, ABI_MINOR

__all__ = ["Argument", "BufferUse", "KernelObject", "ObjectError", "pack_note", "unpack_note"]

SIZES = {ArgumentKind.POINTER: 8, ArgumentKind.INT32: 4, ArgumentKind.FLOAT32: 4}
GRID_LIMITS = {"x": 1 << 32, "y": 1 << 16, "z": 1 << 16}


class ObjectError(ValueError):
    """A kernel object that cannot be: the message says what is wrong."""


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel.

    Args:
        name: its name.
        kind: pointer, int32 or float32.
        offset: bytes from the start of the argument block.
        element: what a pointer points to.
    """

    name: str
    kind: ArgumentKind
    offset: int
    element: ElementType = ElementType.NONE

    @property
    def size(self) -> int:
        """Bytes in the argument block."""
        return SIZES[self.kind]


@dataclass(frozen=True)
class BufferUse:
    """Lines (64 bytes each) of each buffer that a kernel uses, from line 0 on."""

    l1: int = 0
    l0a: int = 0
    l0b: int = 0
    l0c: int = 0
    bias: int = 0
    ub: int = 0


@dataclass(frozen=True)
class KernelObject:
    """A kernel. `write_object` makes a file of it, `read_object` brings it back.

    Args:
        name: name of the entry symbol.
        code: code and constant data, whole words, loaded at 0.
        entry: byte of the code where execution starts.
        arguments: in the order in which a caller gives them.
        buffers: lines of each buffer that it uses.
        ram_bytes: scalar RAM that it uses, stack included.
        flags: mask of the flags that it uses.
        flags_left: count of flags that are not zero when a block has ended.
        grid_limit: largest grid, (x, y, z).
        symbols: other names of addresses in the code.
        abi: (major, minor) of the ABI that it was made for.

    Raises:
        ObjectError: something does not fit.
    """

    name: str
    code: bytes
    entry: int = 0
    arguments: tuple[Argument, ...] = ()
    buffers: BufferUse = field(default_factory=BufferUse)
    ram_bytes: int = 0
    flags: int = 0
    flags_left: Mapping[int, int] = field(default_factory=dict)
    grid_limit: tuple[int, int, int] = ((1 << 32) - 1, (1 << 16) - 1, (1 << 16) - 1)
    symbols: Mapping[str, int] = field(default_factory=dict)
    abi: tuple[int, int] = (ABI_MAJOR, ABI_MINOR)

    def __post_init__(self) -> None:
        if not self.name or "\0" in self.name:
            raise ObjectError(f"name must not be empty or hold a zero byte, not {self.name!r}")
        if not self.code or len(self.code) % 4:
            raise ObjectError(f"code must have whole words of 4 bytes, not {len(self.code)} bytes")
        if not 0 <= self.entry < len(self.code) or self.entry % 4:
            raise ObjectError(f"entry must be a word of the code, not {self.entry:#x}")
        if not 0 <= self.ram_bytes <= RAM_BYTES:
            raise ObjectError(f"ram_bytes must be at most {RAM_BYTES}, not {self.ram_bytes!r}")
        for axis, limit in zip(GRID_LIMITS, self.grid_limit, strict=True):
            if not 1 <= limit < GRID_LIMITS[axis]:
                raise ObjectError(
                    f"grid_limit along {axis} must be between 1 and {GRID_LIMITS[axis] - 1}, "
                    f"not {limit!r}"
                )
        for flag, count in self.flags_left.items():
            if not 0 <= flag < FLAGS or not 0 < count < 1 << FLAG_LEFT_BITS:
                raise ObjectError(
                    f"flags_left must name flags 0 to {FLAGS - 1} with counts 1 to 15, "
                    f"not {flag!r}: {count!r}"
                )
        self._check_arguments()

    def _check_arguments(self) -> None:
        end, names = 0, set()
        for argument in sorted(self.arguments, key=lambda each: each.offset):
            if argument.offset % argument.size or argument.offset < end:
                raise ObjectError(
                    f"offset of {argument.name} must be a multiple of {argument.size} and at "
                    f"least {end}, not {argument.offset!r}"
                )
            if not argument.name or argument.name in names:
                raise ObjectError(f"arguments must have different names, not {argument.name!r}")
            if argument.kind is not ArgumentKind.POINTER and argument.element:
                raise ObjectError(f"{argument.name} is no pointer, so it must have no element type")
            names.add(argument.name)
            end = argument.offset + argument.size

    @property
    def argument_bytes(self) -> int:
        """Bytes of the argument block."""
        return max((argument.offset + argument.size for argument in self.arguments), default=0)

    def pack_arguments(self, values: Mapping[str, int | float]) -> bytes:
        """The argument block for some values.

        Raises:
            ObjectError: an argument is missing, unknown, or does not fit.
        """
        block = bytearray(self.argument_bytes)
        given = dict(values)
        for argument in self.arguments:
            if argument.name not in given:
                raise ObjectError(f"argument {argument.name} of {self.name} is missing")
            value = given.pop(argument.name)
            form = {
                ArgumentKind.POINTER: "<Q",
                ArgumentKind.INT32: "<i",
                ArgumentKind.FLOAT32: "<f",
            }[argument.kind]
            try:
                struct.pack_into(form, block, argument.offset, value)
            except (struct.error, OverflowError) as error:
                raise ObjectError(
                    f"argument {argument.name} must be a {argument.kind.name.lower()}, "
                    f"not {value!r}"
                ) from error
        if given:
            raise ObjectError(f"{self.name} has no argument {sorted(given)[0]!r}")
        return bytes(block)


def pack_note(kernel: KernelObject) -> bytes:
    """The note's contents: header, arguments, names."""
    names = b""
    records = []
    for argument in kernel.arguments:
        name = argument.name.encode()
        records.append(
            KERNEL_ARGUMENT.pack_bytes(
                offset=argument.offset,
                size=argument.size,
                kind=argument.kind,
                element=argument.element,
                name_offset=len(names),
                name_bytes=len(name),
            )
        )
        names += name
    left = sum(count << FLAG_LEFT_BITS * flag for flag, count in kernel.flags_left.items())
    header = KERNEL_NOTE.pack_bytes(
        {f"{each.name}_lines": getattr(kernel.buffers, each.name) for each in fields(BufferUse)},
        version=NOTE_VERSION,
        abi_major=kernel.abi[0],
        abi_minor=kernel.abi[1],
        arguments=len(records),
        argument_bytes=kernel.argument_bytes,
        name_bytes=len(names),
        grid_x=kernel.grid_limit[0],
        grid_y=kernel.grid_limit[1],
        grid_z=kernel.grid_limit[2],
        ram_bytes=kernel.ram_bytes,
        flags=kernel.flags,
        flags_left=left,
    )
    return header + b"".join(records) + names


def unpack_note(
    raw: bytes, *, name: str, code: bytes, entry: int, symbols: Mapping[str, int]
) -> KernelObject:
    """The kernel of a note's contents.

    Raises:
        ObjectError: the note is cut, of another version, or holds what cannot be.
    """
    if len(raw) < KERNEL_NOTE.nbytes:
        raise ObjectError(f"note must have {KERNEL_NOTE.nbytes} bytes, not {len(raw)}")
    header = KERNEL_NOTE.unpack_bytes(raw[: KERNEL_NOTE.nbytes])
    if header["version"] != NOTE_VERSION:
        raise ObjectError(f"note must have version {NOTE_VERSION}, not {header['version']}")
    abi = (header["abi_major"], header["abi_minor"])
    if abi[0] != ABI_MAJOR or abi[1] > ABI_MINOR:
        raise ObjectError(
            f"kernel must be made for ABI {ABI_MAJOR}.{ABI_MINOR} or an earlier {ABI_MAJOR}.x, "
            f"not {abi[0]}.{abi[1]}"
        )
    names_at = KERNEL_NOTE.nbytes + KERNEL_ARGUMENT.nbytes * header["arguments"]
    if len(raw) != names_at + header["name_bytes"]:
        raise ObjectError(
            f"note must have {names_at + header['name_bytes']} bytes for its "
            f"{header['arguments']} arguments, not {len(raw)}"
        )
    arguments = tuple(
        _unpack_argument(raw[at : at + KERNEL_ARGUMENT.nbytes], raw[names_at:])
        for at in range(KERNEL_NOTE.nbytes, names_at, KERNEL_ARGUMENT.nbytes)
    )
    counts = {
        flag: header["flags_left"] >> FLAG_LEFT_BITS * flag & (1 << FLAG_LEFT_BITS) - 1
        for flag in range(FLAGS)
    }
    kernel = KernelObject(
        name=name,
        code=code,
        entry=entry,
        arguments=arguments,
        buffers=BufferUse(
            **{each.name: header[f"{each.name}_lines"] for each in fields(BufferUse)}
        ),
        ram_bytes=header["ram_bytes"],
        flags=header["flags"],
        flags_left={flag: count for flag, count in counts.items() if count},
        grid_limit=(header["grid_x"], header["grid_y"], header["grid_z"]),
        symbols=symbols,
        abi=abi,
    )
    if kernel.argument_bytes != header["argument_bytes"]:
        raise ObjectError(
            f"argument block must have {kernel.argument_bytes} bytes for its arguments, "
            f"not {header['argument_bytes']}"
        )
    return kernel


def _unpack_argument(raw: bytes, names: bytes) -> Argument:
    record = KERNEL_ARGUMENT.unpack_bytes(raw)
    if record["kind"] not in list(ArgumentKind) or record["element"] not in list(ElementType):
        raise ObjectError(
            f"argument must have a known kind and element type, "
            f"not {record['kind']} and {record['element']}"
        )
    if record["reserved"]:
        raise ObjectError(f"reserved bits of an argument must be 0, not {record['reserved']:#x}")
    start, end = record["name_offset"], record["name_offset"] + record["name_bytes"]
    try:
        name = names[start:end].decode()
    except UnicodeDecodeError as error:
        raise ObjectError(f"name of an argument must be UTF-8, not {names[start:end]!r}") from error
    if not record["name_bytes"] or end > len(names):
        raise ObjectError(
            f"name of an argument must lie in {len(names)} bytes, not at {start} to {end}"
        )
    argument = Argument(
        name, ArgumentKind(record["kind"]), record["offset"], ElementType(record["element"])
    )
    if argument.size != record["size"]:
        raise ObjectError(f"{name} must have {argument.size} bytes, not {record['size']}")
    return argument
