"""`glassnpu trace`: runs a script and writes what happened when."""

from pathlib import Path

import click

from tb.cli.engine import engine
from tb.cli.options import OutputFile, ScriptFile, machine_options, options_of
from tb.cli.programs import Script

__all__ = ["trace"]


@click.command(
    context_settings={"ignore_unknown_options": True}, short_help="Run a script, write a trace."
)
@machine_options
@click.option(
    "-o",
    "--output",
    type=OutputFile(".json"),
    default="trace.json",
    metavar="FILE.json",
    show_default=True,
    help="The trace, in Chrome's format; Perfetto opens it.",
)
@click.argument("script", type=ScriptFile())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def trace(
    context: click.Context,
    sim: str,
    seed: int,
    waves: Path | None,
    output: Path,
    script: Path,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT and trace every layer of it on one time axis.

    Options that glassnpu does not know, and all that follows `--`, belong to the script.

    API call, ring write, doorbell, fetch, firmware, DMA, Cube, completion, interrupt, wake. The
    run takes exactly as many device cycles as without the trace.
    """
    status = engine().run(Script(script, arguments), options_of(sim, seed, waves), trace=output)
    context.exit(status)
