"""The cocotb test that hosts a program: it runs inside the simulator, started by `launch`."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

import cocotb

from tb.engine.agents import AgentClockwork
from tb.engine.clockwork import Clockwork
from tb.engine.host import Machine
from tb.engine.hosting import Hosting
from tb.engine.job import Job

HOSTING = (Path(__file__).parent, Path(__file__).parents[1] / "cli")
"""Folders whose frames stand between the simulator and the hosted program."""


def _named(name: str) -> Callable[..., Any]:
    """The callable at `module:function`."""
    module, _, path = name.partition(":")
    if not path:
        raise ValueError(f"a callable is named 'module:function', not {name!r}")
    return attrgetter(path)(import_module(module))


def _from_program(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that host the program, if any other is left."""
    inner = trace
    while inner is not None and _hosts(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    return inner or trace


def _hosts(filename: str) -> bool:
    path = Path(filename)
    return path.parent in HOSTING or filename.startswith("<frozen")


def _clockwork(job: Job, hosting: Hosting, dut: Any) -> Clockwork:
    if job.agents:
        module = Path(job.host_dram_module) if job.host_dram_module else None
        return AgentClockwork(hosting, dut, host_memory=job.host_memory, host_dram_module=module)
    # Only our own main has the symbols that this module binds.
    from tb.engine.native import NativeClockwork

    return NativeClockwork(hosting, host_memory=job.host_memory)


def _hosted(job: Job, hosting: Hosting, dut: Any) -> int:
    """Run the job; returns the exit code. Everything that goes wrong is printed and counted."""
    try:
        target = _named(job.target)
        firmware = _named(job.firmware) if job.firmware else None
        clockwork = _clockwork(job, hosting, dut)
        clockwork.set_tracing(job.tracing)
        machine = Machine(
            clockwork, seed=job.seed, firmware=firmware, drain_window=job.drain_window
        )
        outcome: list[object] = []
        machine.run(lambda: outcome.append(target(*job.args)))
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BaseException as error:
        traceback.print_exception(error.with_traceback(_from_program(error.__traceback__)))
        return 1
    value = outcome[0]
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


@cocotb.test()
async def hosted_program(dut: Any) -> None:
    """Host the job of `$GLASSNPU_JOB` and write its exit code to `$GLASSNPU_EXIT`."""
    job = Job.from_json(os.environ["GLASSNPU_JOB"])
    hosting = Hosting()
    code = await hosting.run(lambda: _hosted(job, hosting, dut))
    sys.stdout.flush()
    sys.stderr.flush()
    Path(os.environ["GLASSNPU_EXIT"]).write_text(json.dumps({"code": code}))
