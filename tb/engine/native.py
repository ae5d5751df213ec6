"""The clock of a Verilator build with our own main, reached through ctypes."""

import ctypes
from typing import Any, Final

import cocotb
import cocotb._event_loop
import numpy as np
import numpy.typing as npt
from cocotb._gpi_triggers import GPITrigger
from cocotb.triggers import NextTimeStep

from tb.engine.backdoor import verilated_memory
from tb.engine.clockwork import (
    COCOTB,
    FINISHED,
    RUN,
    UNTIL,
    SimulationEndedError,
)
from tb.engine.hosting import Hosting

__all__ = ["NativeClockwork"]

# Indices of the status words, as in machine.h.
_CYCLE: Final = 0
_STOP: Final = 1
_DONE_MASK: Final = 2
_LINES: Final = 3
_MESSAGES: Final = 4
_TRACES: Final = 5
_PORT_BASE: Final = 8
_NO_RESPONSE: Final = 2**64 - 1
_TAKEN: Final = 128

# The longest stretch inside one call: between two, Python sees Ctrl-C.
_STRETCH: Final = 1 << 18


class _StopTrigger(GPITrigger):
    """Fires when the main loop stops the clock for what `glass_arm` asked for."""

    def _prime(self) -> None:
        """The clock is armed before the trigger is awaited."""

    def _unprime(self) -> None:
        """A stop that nobody waits for is harmless."""


def _library() -> Any:
    library = ctypes.PyDLL(None)
    u64, u32, integer = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int
    pointer = ctypes.c_void_p
    for name, result, arguments in [
        ("glass_status", pointer, []),
        ("glass_arm", None, [u64, u32]),
        ("glass_run", u32, [u64, u32]),
        ("glass_submit", None, [integer, integer, u64, u64, u64]),
        ("glass_transact", u32, [u32, u64, u64, u64, u32]),
        ("glass_take", None, [integer]),
        ("glass_take_run_change", None, []),
        ("glass_set_timeout", None, [u64]),
        ("glass_messages", pointer, []),
        ("glass_drop_messages", None, []),
        ("glass_set_tracing", None, [integer]),
        ("glass_traces", pointer, []),
        ("glass_drop_traces", None, []),
        ("glass_set_reset", None, [integer]),
        ("glass_zero_cycle", None, []),
        ("glass_bare_run", None, [u64]),
    ]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class NativeClockwork:
    """A `Clockwork` whose cycles run in C++; Python is entered at stops only.

    While cocotb needs nothing (no ready task, no deadline before the next edge, no watched
    signal), the clock runs inside the ctypes call; otherwise the caller waits in cocotb.

    Raises:
        AttributeError: the simulator was not built with our main and a machine header.
    """

    def __init__(self, hosting: Hosting, *, host_memory: str = "top.dram") -> None:
        library = _library()
        self._library = library
        self.hosting = hosting
        self._host_memory = host_memory
        words = (ctypes.c_uint64 * 16).from_address(library.glass_status())
        self._status = memoryview(words).cast("B").cast("Q")
        self._run = library.glass_run
        self._submit = library.glass_submit
        self._transact = library.glass_transact
        self._take = library.glass_take
        self._trigger = _StopTrigger()
        self._on_stop = ctypes.CFUNCTYPE(None)(self._trigger._react)
        library.glass_on_stop(self._on_stop)
        self._ready = cocotb._event_loop._inst._callbacks
        self._next_step = NextTimeStep()

    def now(self) -> int:
        return self._status[_CYCLE]

    def submit(self, port: int, write: bool, address: int, data: int, strobe: int) -> None:
        self._submit(port, write, address, data, strobe)

    def result(self, port: int) -> tuple[int | None, int] | None:
        status = self._status
        if not status[_DONE_MASK] >> port & 1:
            return None
        self._take(port)
        response = status[_PORT_BASE + 2 * port]
        if response == _NO_RESPONSE:
            return None, 0
        return response, status[_PORT_BASE + 2 * port + 1]

    def transact(
        self,
        port: int,
        write: bool,
        address: int,
        data: int,
        strobe: int,
        until: int,
        watch: int,
    ) -> tuple[int | None, int] | int:
        if self._ready or self._next_step._callbacks:
            self._submit(port, write, address, data, strobe)
            return self.run(until, watch)
        reason = self._transact(port | write << 8 | strobe << 16, address, data, until, watch)
        if reason == _TAKEN:
            status = self._status
            response = status[_PORT_BASE + 2 * port]
            if response != _NO_RESPONSE:
                return response, status[_PORT_BASE + 2 * port + 1]
            return None, 0
        return self._complete(reason, until, until, watch)

    def run(self, until: int, watch: int) -> int:
        while True:
            stretch = min(until, self._status[_CYCLE] + _STRETCH)
            reason = COCOTB
            if not self._ready and not self._next_step._callbacks:
                reason = self._run(stretch, watch)
            reason = self._complete(reason, stretch, until, watch)
            if reason != 0:
                return reason

    def _complete(self, reason: int, stretch: int, until: int, watch: int) -> int:
        """Wait in cocotb if it needs control; the reasons for the caller, 0 to run on."""
        if reason & COCOTB:
            self._library.glass_arm(stretch, watch)
            self.hosting.hand(self._trigger)
            reason = self._status[_STOP]
        if reason & RUN:
            self._library.glass_take_run_change()
        if reason & FINISHED:
            raise SimulationEndedError("the simulator has finished")
        return reason if stretch == until else reason & ~UNTIL

    def messages(self) -> list[tuple[int, int]]:
        count = self._status[_MESSAGES]
        if not count:
            return []
        words = (ctypes.c_uint64 * (2 * count)).from_address(self._library.glass_messages())
        taken = list(zip(words[::2], words[1::2], strict=True))
        self._library.glass_drop_messages()
        return taken

    def firmware_event(self) -> bool:
        return bool(self._status[_LINES] & 1)

    def firmware_runs(self) -> bool:
        return bool(self._status[_LINES] & 2)

    def traces(self) -> npt.NDArray[np.uint64]:
        count = self._status[_TRACES]
        if not count:
            return np.empty((0, 2), np.uint64)
        words = (ctypes.c_uint64 * (2 * count)).from_address(self._library.glass_traces())
        taken = np.frombuffer(memoryview(words).cast("B"), np.uint64).reshape(count, 2).copy()
        self._library.glass_drop_traces()
        return taken

    def set_tracing(self, on: bool) -> None:
        self._library.glass_set_tracing(on)

    def set_bus_timeout(self, cycles: int) -> None:
        self._library.glass_set_timeout(cycles)

    def reset(self, cycles: int = 8) -> None:
        self._library.glass_set_reset(1)
        end = self.now() + cycles
        while self.now() < end:
            self.run(end, 0)
        self._library.glass_set_reset(0)
        self._library.glass_zero_cycle()

    def host_memory(self) -> npt.NDArray[np.uint8]:
        return verilated_memory(self._host_memory, "mem")

    def bare_run(self, cycles: int) -> None:
        """Evaluate `cycles` cycles with nothing around: the reference of benchmarks.

        Ports, messages, traces and device time do not see them.
        """
        self._library.glass_bare_run(cycles)
