"""Runs a hosted program and writes its trace."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from abi.registers_host import BAR0
from driver import tracing
from driver.bus import BusError, Region
from tb.engine.host import Machine, current_machine
from tb.tracing.chrome import chrome_trace
from tb.tracing.events import HostRecorder, hardware_events
from tb.tracing.overdue import overdue_blocks

__all__ = ["run_traced"]


def run_traced(output: str, target: str, arguments: list[Any]) -> object:
    """Call `target` ("module:function") with `arguments` and write the trace to `output`.

    The trace is written however the program ends; it costs no device cycle. Blocks that kept a
    more urgent kernel waiting for longer than BLOCK_LIMIT are named on stderr.
    """
    module, _, function = target.partition(":")
    machine = current_machine()
    recorder = HostRecorder()
    tracing.attach(recorder, machine.bus.now)
    try:
        return getattr(import_module(module), function)(*arguments)
    finally:
        tracing.detach()
        end = machine.bus.now()
        trace = chrome_trace(
            host=recorder.events,
            firmware=machine.firmware_bus.notes,
            hardware=hardware_events(machine.clockwork.traces()),
            end=end,
            dropped=_dropped(machine),
        )
        Path(output).write_text(json.dumps(trace))
        for line in overdue_blocks(machine.firmware_bus.notes):
            print(line, file=sys.stderr)


def _dropped(machine: Machine) -> int | None:
    """Events that the chip lost, or None if the program left the BARs switched off."""
    try:
        return machine.bus.read(Region.BAR0, BAR0.address("trace_dropped"))
    except BusError:
        return None
