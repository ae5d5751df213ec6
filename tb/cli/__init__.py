"""The command line `glassnpu`; each command has a file of its own."""

import click

from tb.cli import bench, build, info, kernels, plan, pytest, regs, run, shell, trace

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="glassnpu", prog_name="glassnpu")
def main() -> None:
    """GlassNPU: an NPU that you can see through, from a runtime call down to the registers.

    The machine is simulated cycle by cycle. It is built on first use (docs/engine.md says how long
    that takes) and kept, so that later starts take a second or two.
    """


for command in (
    build.build,
    run.run,
    shell.shell,
    pytest.pytest,
    trace.trace,
    bench.bench,
    kernels.compile_command,
    kernels.disassemble,
    kernels.hazards,
    regs.regs,
    info.info,
    plan.plan,
):
    main.add_command(command)
