"""`glassnpu shell`: a Python prompt hosted in the machine."""

from pathlib import Path

import click

from tb.cli.engine import engine
from tb.cli.options import machine_options, options_of
from tb.cli.programs import Shell

__all__ = ["shell"]


@click.command(short_help="Open a Python prompt on the machine.")
@machine_options
@click.pass_context
def shell(context: click.Context, sim: str, seed: int, waves: Path | None) -> None:
    """Open a Python prompt on the machine, with `device`, `regs` and `bus`.

    Each call advances the clock until it has its answer; between calls, time stands still.
    """
    context.exit(engine().run(Shell(), options_of(sim, seed, waves)))
