"""`glassnpu run`: runs a user's script against the machine."""

from pathlib import Path

import click

from tb.cli.engine import engine
from tb.cli.options import ScriptFile, machine_options, note_misplaced, options_of
from tb.cli.programs import Script

__all__ = ["run"]


@click.command(
    context_settings={"allow_interspersed_args": False}, short_help="Run a script on the machine."
)
@machine_options
@click.argument("script", type=ScriptFile())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    sim: str,
    seed: int,
    waves: Path | None,
    script: Path,
    arguments: tuple[str, ...],
) -> None:
    """Run the Python file SCRIPT with ARGUMENTS on the simulated machine.

    The script is a plain program: `from runtime import Device`, and go. Options of glassnpu stand
    before SCRIPT; all that follows it belongs to the script.
    """
    note_misplaced(arguments)
    context.exit(engine().run(Script(script, arguments), options_of(sim, seed, waves)))
