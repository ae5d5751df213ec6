"""`glassnpu build`: builds the simulator ahead of its first use."""

from pathlib import Path

import click

from tb.cli.engine import engine
from tb.cli.options import machine_options, options_of

__all__ = ["build"]


@click.command()
@machine_options
def build(sim: str, seed: int, waves: Path | None) -> None:
    """Build the simulator, or find the build that is already there.

    Every other command does this by itself; prints the folder of the build.
    """
    click.echo(engine().build(options_of(sim, seed, waves)))
