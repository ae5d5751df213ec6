"""`glassnpu compile`, `disassemble` and `check`: kernels and their object files."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

from abi.kernel_object import ArgumentKind
from rtl.config import NpuConfig
from runtime.compiler.allocate import CoreBuffers
from runtime.compiler.errors import CompileError
from runtime.compiler.kernel import KernelSource
from runtime.module import DTYPES
from runtime.toolchain.assumptions import AssumptionKind
from runtime.toolchain.elf import load_object, save_object
from runtime.toolchain.inspection import check_object, disassemble_object
from runtime.toolchain.object import Argument, KernelObject, ObjectError
from tb.cli.options import OutputFile, name_of, nearest

__all__ = ["chip_buffers", "compile_command", "disassemble", "hazards"]

AXES = 3


def chip_buffers() -> CoreBuffers:
    """Sizes of the buffers of the chip's cores."""
    config = NpuConfig()
    return CoreBuffers(
        l1=config.l1_lines,
        l0a=config.l0a_lines,
        l0b=config.l0b_lines,
        l0c=config.l0c_lines,
        bias=config.bias_lines,
        ub=config.ub_lines,
    )


class ObjectFile(click.ParamType):
    """A kernel's object file that exists; gives its path."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if not path.is_file():
            rule = "a file, not the folder" if path.is_dir() else "an existing object file, not"
            folder = path.parent if path.parent.is_dir() else Path()
            hint = nearest(str(value), [str(each) for each in sorted(folder.glob("*.o"))])
            self.fail(f"{name_of(param)} must be {rule} {value!r}{hint}", param, ctx)
        return path


class GridSizes(click.ParamType):
    """Blocks along x, or x,y or x,y,z; what is missing is 1."""

    name = "grid"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        if len(words) > AXES or not all(word.strip().isdecimal() for word in words):
            self.fail(f"{name_of(param)} must be X, X,Y or X,Y,Z, not {value!r}", param, ctx)
        x, y, z = (*(int(word) for word in words), 1, 1)[:AXES]
        return x, y, z


class ArgumentValue(click.ParamType):
    """NAME=VALUE, the value an integer (also 0x...) or a float; gives both."""

    name = "argument"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | float]:
        if isinstance(value, tuple):
            return value[0], value[1]
        name, equals, text = str(value).partition("=")
        number = _number(text)
        if not name or not equals or number is None:
            self.fail(
                f"{name_of(param)} must be NAME=VALUE with a number, not {value!r}", param, ctx
            )
        return name, number


class ArrayFile(click.ParamType):
    """NAME=FILE, a file that exists; gives the name and the path."""

    name = "array"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path]:
        if isinstance(value, tuple):
            return value[0], value[1]
        name, equals, file = str(value).partition("=")
        if not name or not equals or not Path(file).is_file():
            self.fail(
                f"{name_of(param)} must be NAME=FILE with an existing file, not {value!r}",
                param,
                ctx,
            )
        return name, Path(file)


def _contents(argument: Argument, path: Path) -> bytes:
    """What a file says that memory holds: an array of numpy's, or else its bytes.

    Raises:
        BadParameter: the array is of another type than the argument.
    """
    if path.suffix != ".npy":
        return path.read_bytes()
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise click.BadParameter(
            f"--data must be a .npy file, not {str(path)!r}: {error}"
        ) from None
    wanted = DTYPES.get(argument.element, (array.dtype.name,))
    if array.dtype.name not in wanted:
        raise click.BadParameter(
            f"--data of {argument.name} must be an array of {wanted[0]}, not {array.dtype.name}"
        )
    return bytes(array.tobytes())


def _check_names(option: str, given: list[str], kernel: KernelObject, names: list[str]) -> None:
    """Refuse what is no name of those."""
    for name in given:
        if name not in names:
            what = "a pointer" if option == "--data" else "an argument"
            hint = nearest(name, names) or f"; it has {', '.join(names) or 'none'}"
            raise click.BadParameter(
                f"{option} must name {what} of {kernel.name}, not {name!r}{hint}"
            )


def _number(text: str) -> int | float | None:
    """The number that a text stands for, if any."""
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _module(name: str) -> ModuleType:
    """A module by its dotted name, seen from the caller's folder, or by the path of its file."""
    path = Path(name)
    if path.suffix != ".py":
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    if not path.is_file():
        folder = path.parent if path.parent.is_dir() else Path("examples")
        hint = nearest(name, [str(each) for each in sorted(folder.glob("*.py"))])
        raise click.BadParameter(f"MODULE must be an existing Python file, not {name!r}{hint}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


def find_kernel(place: str) -> KernelSource:
    """The kernel that `MODULE:KERNEL` names.

    Raises:
        BadParameter: there is none.
        ClickException: the module cannot be imported.
    """
    name, colon, attribute = place.rpartition(":")
    if not colon or not name or not attribute:
        raise click.BadParameter(f"must be MODULE:KERNEL, not {place!r}")
    try:
        module = _module(name)
    except click.ClickException:
        raise
    except Exception as error:
        raise click.ClickException(
            f"{name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, attribute, None)
    if isinstance(found, KernelSource):
        return found
    kernels = [key for key, value in vars(module).items() if isinstance(value, KernelSource)]
    if found is None:
        close = nearest(attribute, kernels)
        hint = close or (f"; it has {', '.join(kernels)}" if kernels else "; it has none")
        raise click.BadParameter(f"KERNEL must be a kernel of {name}, not {attribute!r}{hint}")
    made = _made_by(found)
    if made is None:
        raise click.BadParameter(
            f"{attribute} of {name} must be a function under @kernel, or one that makes such a "
            f"kernel without arguments, not a {type(found).__name__}"
        )
    return made


def _made_by(factory: object) -> KernelSource | None:
    """The kernel that a function without arguments gives, as the library's do."""
    if not callable(factory):
        return None
    try:
        made = factory()
    except TypeError:
        return None
    return made if isinstance(made, KernelSource) else None


@click.command(name="compile", short_help="Compile a kernel of a Python module.")
@click.option(
    "-o", "--output", type=OutputFile(".o"), required=True, metavar="FILE.o", help="The object."
)
@click.argument("kernel", metavar="MODULE:KERNEL")
def compile_command(output: Path, kernel: str) -> None:
    """Compile a function under `@kernel` for the chip's cores, and write the object.

    MODULE is a Python file or a dotted name. A runtime program launches the object with
    `device.load("FILE.o").kernel()`.
    """
    source = find_kernel(kernel)
    try:
        code = source.compile(chip_buffers())
    except CompileError as error:
        raise click.ClickException(f"{source.name} does not compile: {error}") from error
    save_object(code, output)
    names = ", ".join(argument.name for argument in code.arguments)
    click.echo(f"{output}: {code.name}({names}), {len(code.code)} bytes of code")


@click.command(short_help="Show a kernel's instructions.")
@click.argument("file", type=ObjectFile())
def disassemble(file: Path) -> None:
    """Show what the kernel object FILE takes and uses, and its instructions."""
    try:
        click.echo(disassemble_object(file), nl=False)
    except (ObjectError, OSError) as error:
        raise click.ClickException(str(error)) from error


@click.command(name="check", short_help="Look for races and deadlocks in a kernel.")
@click.option(
    "--grid",
    type=GridSizes(),
    default=(1, 1, 1),
    metavar="X,Y,Z",
    help="Blocks along each axis; what is missing is 1.  [default: 1]",
)
@click.option(
    "--argument",
    "arguments",
    type=ArgumentValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of an argument; once for each. Pointers may be left out.",
)
@click.option(
    "--data",
    "files",
    type=ArrayFile(),
    multiple=True,
    metavar="NAME=FILE",
    help="What memory holds from a pointer on: a .npy array or a file of bytes; once for each.",
)
@click.argument("file", type=ObjectFile())
def hazards(
    grid: tuple[int, int, int],
    arguments: tuple[tuple[str, int | float], ...],
    files: tuple[tuple[str, Path], ...],
    file: Path,
) -> None:
    """Run the blocks of the kernel object FILE in the interpreter, and look for hazards.

    Races between pipes, deadlocks, flags that are left over, and use of more than the kernel
    declares. The exit status is 1 if there is any.

    The check goes the way that the kernel goes with these arguments and this data. What else the
    scalar unit loads reads as zeros; the report names it.
    """
    try:
        kernel = load_object(file)
        named = {argument.name: argument for argument in kernel.arguments}
        pointers = [each.name for each in named.values() if each.kind is ArgumentKind.POINTER]
        _check_names("--argument", [name for name, _ in arguments], kernel, list(named))
        _check_names("--data", [name for name, _ in files], kernel, pointers)
        data = {name: _contents(named[name], path) for name, path in files}
        report = check_object(file, grid, dict(arguments), data)
    except (ObjectError, OSError) as error:
        missing = str(error).endswith("is missing")
        hint = "; give it with --argument NAME=VALUE" if missing else ""
        raise click.ClickException(f"{error}{hint}") from error
    click.echo(report)
    if AssumptionKind.ZERO in report.assumed:
        click.echo("To check it with what memory really holds: --data NAME=FILE")
    click.get_current_context().exit(0 if report.is_clean else 1)
