"""`glassnpu pytest`: pytest hosted in the machine."""

from pathlib import Path

import click

from tb.cli.engine import engine
from tb.cli.options import machine_options, options_of
from tb.cli.programs import PytestRun

__all__ = ["pytest"]


@click.command(
    context_settings={"ignore_unknown_options": True}, short_help="Run pytest inside the machine."
)
@machine_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def pytest(
    context: click.Context, sim: str, seed: int, waves: Path | None, arguments: tuple[str, ...]
) -> None:
    """Run pytest with ARGUMENTS inside the machine; tests take a `device` fixture.

    Fails, as pytest does, when no test is found.
    """
    context.exit(engine().run(PytestRun(arguments), options_of(sim, seed, waves)))
