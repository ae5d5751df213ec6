"""Options and argument types that several commands share."""

import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from tb.cli.programs import MachineOptions

__all__ = [
    "OutputFile",
    "ScriptFile",
    "machine_options",
    "name_of",
    "nearest",
    "note_misplaced",
    "options_of",
]

SIMULATORS = ("verilator", "icarus")
MAXIMUM_SEED = (1 << 32) - 1

Command = TypeVar("Command", bound=Callable[..., Any])


def nearest(value: str, candidates: list[str]) -> str:
    """The end of an error message that suggests what may have been meant, or nothing."""
    close = get_close_matches(value, candidates, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else ""


def name_of(parameter: click.Parameter | None) -> str:
    """The name of a parameter as the user knows it: `SCRIPT`, `--waves`."""
    if parameter is None:
        return "the path"
    return (
        parameter.opts[0]
        if isinstance(parameter, click.Option)
        else str(parameter.human_readable_name)
    )


class ScriptFile(click.ParamType):
    """A Python file that exists; gives its absolute path."""

    name = "script"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if not path.is_file():
            rule = "a file, not the folder" if path.is_dir() else "an existing Python file, not"
            folder = path.parent if path.parent.is_dir() else Path("examples")
            hint = nearest(str(value), [str(script) for script in sorted(folder.glob("*.py"))])
            self.fail(f"{name_of(param)} must be {rule} {value!r}{hint}", param, ctx)
        return path.resolve()


class OutputFile(click.ParamType):
    """A file to write, in a folder that exists; gives its absolute path."""

    name = "file"

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.suffix != self.suffix:
            self.fail(f"{name_of(param)} must end in {self.suffix!r}, not {value!r}", param, ctx)
        folder = path.absolute().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            self.fail(
                f"{name_of(param)} must lie in a folder that can be written, not {value!r}",
                param,
                ctx,
            )
        return path.resolve()


def machine_options(command: Command) -> Command:
    """Add `--sim`, `--seed` and `--waves`; the command gets `sim`, `seed` and `waves`."""
    for option in (
        click.option(
            "--waves",
            type=OutputFile(".vcd"),
            metavar="FILE.vcd",
            help="Write the waves of all signals. The build differs, and the run is slow.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, MAXIMUM_SEED),
            default=1,
            envvar="GLASSNPU_SEED",
            show_default=True,
            show_envvar=True,
            help="Seed of everything random. The same seed gives the same run, to the cycle.",
        ),
        click.option(
            "--sim",
            type=click.Choice(SIMULATORS),
            default="verilator",
            envvar="GLASSNPU_SIM",
            show_default=True,
            show_envvar=True,
            help="Simulator. Icarus is slow, but shows undefined values (X).",
        ),
    ):
        command = option(command)
    return command


def note_misplaced(arguments: tuple[str, ...]) -> None:
    """Say on stderr which options of the machine stand behind SCRIPT: they go to the script.

    Nothing behind `--` is meant for the machine.
    """
    meant = arguments[: arguments.index("--")] if "--" in arguments else arguments
    given = [word.partition("=")[0] for word in meant]
    for name in ("--sim", "--seed", "--waves"):
        if name in given:
            click.echo(
                f"{name} after SCRIPT goes to the script; put it before SCRIPT for the simulator",
                err=True,
            )


def options_of(sim: str, seed: int, waves: Path | None) -> MachineOptions:
    """The values of `machine_options`, bundled."""
    return MachineOptions(sim=sim, seed=seed, waves=waves)
