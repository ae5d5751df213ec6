"""`glassnpu bench`: measures, each figure beside its reference in the same run."""

import json
from pathlib import Path

import click

from tb.bench import BENCHES, describe
from tb.cli.engine import engine
from tb.cli.options import machine_options, options_of

__all__ = ["bench"]


@click.command(
    epilog="Benchmarks: " + "; ".join(f"{name}: {what}" for name, what in BENCHES.items()) + "."
)
@machine_options
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
@click.argument("name", type=click.Choice(list(BENCHES)), metavar="NAME")
def bench(sim: str, seed: int, waves: Path | None, as_json: bool, name: str) -> None:
    """Run benchmark NAME and print its figures."""
    figures = engine().bench(name, options_of(sim, seed, waves))
    if as_json:
        click.echo(json.dumps({"bench": name, "figures": figures}))
        return
    click.echo(describe(name, figures))
