"""`glassnpu info`: tools, versions, the contract's version and the chip's parameters."""

import json
import platform
from collections.abc import Callable
from importlib.metadata import version

import click

from abi.version import ABI_MAJOR, ABI_MINOR
from rtl.config import NpuConfig
from tb.engine import toolchain
from tb.engine.build_cache import cache_directory

__all__ = ["info"]

Section = dict[str, str | int]


def _found(find: Callable[[], str]) -> str:
    """What a tool says, or what to install."""
    try:
        return find()
    except toolchain.ToolchainError as error:
        return f"missing: {error}"


def versions() -> Section:
    """Versions of this project and of what it runs on."""
    packages = ("amaranth", "cocotb", "cocotbext-axi", "numpy")
    return {
        "glassnpu": version("glassnpu"),
        "ABI": f"{ABI_MAJOR}.{ABI_MINOR}",
        "Python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def tools() -> Section:
    """The programs that a simulation needs; a missing one says which package brings it."""
    return {
        "Verilator": _found(lambda: toolchain.find_verilator().version),
        "Icarus": _found(lambda: toolchain.find_icarus().version),
        "compiler": _found(lambda: toolchain.find_compiler()[1]),
        "libpython": _found(lambda: str(toolchain.find_python_library())),
        "builds": str(cache_directory()),
    }


def chip() -> Section:
    """Parameters of the reference chip."""
    config = NpuConfig()
    names = ["cores", "dma_channels", "queues", "vectors", *NpuConfig.__dataclass_fields__]
    return {name: int(getattr(config, name)) for name in names}


@click.command(short_help="Show tools, versions and the chip's parameters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(as_json: bool) -> None:
    """Show the tools, their versions, the ABI version and the chip's parameters."""
    sections = {"versions": versions(), "tools": tools(), "chip": chip()}
    if as_json:
        click.echo(json.dumps(sections, indent=2))
        return
    width = max(len(name) for section in sections.values() for name in section)
    for title, section in sections.items():
        click.echo(title)
        for name, value in section.items():
            click.echo(f"  {name:<{width}}  {value}")
