"""The clock of any cocotb simulator, turned by Python: Icarus, or Verilator with a stock main.

The cycle semantics are those of the C++ main (axi_lite.h, machine.h), to the cycle.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from cocotb.handle import LogicArrayObject, LogicObject, PackedObject
from cocotb.triggers import ReadOnly, Timer

from tb.engine.backdoor import icarus_host_memory, verilated_memory
from tb.engine.clockwork import BUSES, DONE, EVENT, MESSAGE, RUN, UNTIL
from tb.engine.hosting import Hosting

__all__ = ["AgentClockwork"]

_HALF: Final = 500  # ps
# The stop lies this long after the rising edge: the phase in which values have settled allows no
# writes, and they must come before the falling edge, where clock gates latch.
_STOP: Final = 100  # ps

_SIGNALS: Final = (
    *("awaddr", "awvalid", "awready", "wdata", "wstrb", "wvalid", "wready"),
    *("bresp", "bvalid", "bready"),
    *("araddr", "arvalid", "arready", "rdata", "rresp", "rvalid", "rready"),
)


@dataclass
class _Operation:
    write: bool
    deadline: int


@dataclass
class _Master:
    """An AXI4-Lite master; see axi_lite.h for its cycles."""

    dut: Any
    prefix: str
    operation: _Operation | None = None
    late_b: int = 0
    late_r: int = 0
    outputs: dict[str, int] = field(default_factory=dict)
    ended: tuple[int | None, int] | None = None
    took: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pins = {name: getattr(self.dut, f"{self.prefix}__{name}") for name in _SIGNALS}

    def drive(self, **values: int) -> None:
        for name, value in values.items():
            if self.outputs.get(name) != value:
                self._pins[name].value = value
                self.outputs[name] = value

    def high(self, name: str) -> bool:
        return bool(self.outputs.get(name))

    def sample(self, name: str) -> int:
        return _known(self._pins[name])

    def reset(self) -> None:
        self.operation, self.ended = None, None
        self.late_b = self.late_r = 0
        self.drive(awvalid=0, wvalid=0, arvalid=0, bready=0, rready=0)
        self.drive(awaddr=0, wdata=0, wstrb=0, araddr=0)

    def submit(self, write: bool, address: int, data: int, strobe: int, deadline: int) -> None:
        self.operation = _Operation(write, deadline)
        if write:
            self.drive(awaddr=address, wdata=data, wstrb=strobe, awvalid=1, wvalid=1, bready=1)
        else:
            self.drive(araddr=address, arvalid=1, rready=1)

    def before_edge(self) -> None:
        self.took = {}
        for channel in ("aw", "w", "ar"):
            if self.high(f"{channel}valid") and self.sample(f"{channel}ready"):
                self.took[channel] = 1
        if self.high("bready") and self.sample("bvalid"):
            self.took["b"] = self.sample("bresp")
        if self.high("rready") and self.sample("rvalid"):
            self.took["r"] = self.sample("rresp")
            self.took["data"] = self.sample("rdata")

    def after_edge(self, cycle: int) -> None:
        for channel in ("aw", "w", "ar"):
            if channel in self.took:
                self.drive(**{f"{channel}valid": 0})
        operation = self.operation
        if "b" in self.took:
            if self.late_b:
                self.late_b -= 1
            elif operation is not None and operation.write:
                self.ended = self.took["b"], 0
        if "r" in self.took:
            if self.late_r:
                self.late_r -= 1
            elif operation is not None and not operation.write:
                self.ended = self.took["r"], self.took["data"]
        if operation is not None and self.ended is None and cycle >= operation.deadline:
            self.late_b += operation.write and not self.high("awvalid") and not self.high("wvalid")
            self.late_r += not operation.write and not self.high("arvalid")
            self.drive(awvalid=0, wvalid=0, arvalid=0)
            self.ended = None, 0
        if self.ended is not None:
            self.operation = None
        if self.ended is not None or "b" in self.took or "r" in self.took:
            writes = self.operation is not None and self.operation.write
            reads = self.operation is not None and not self.operation.write
            self.drive(bready=int(writes or self.late_b > 0), rready=int(reads or self.late_r > 0))

    @property
    def active(self) -> bool:
        return self.operation is not None or self.late_b > 0 or self.late_r > 0


def _known(pin: Any) -> int:
    value = pin.value
    try:
        return int(value)
    except ValueError:
        raise RuntimeError(f"{pin._path} is {value!s}") from None


class AgentClockwork:
    """A `Clockwork` in Python on cocotb handles; it drives `clk` and `rst` itself.

    `host_dram_module` is the VPI module that holds host memory on Icarus.
    """

    def __init__(
        self,
        hosting: Hosting,
        dut: Any,
        *,
        host_memory: str = "top.dram",
        host_dram_module: Path | None = None,
    ) -> None:
        self._host_memory = host_memory
        self.hosting = hosting
        self._dut = dut
        self._host_dram_module = host_dram_module
        self._masters = [_Master(dut, prefix) for prefix in BUSES]
        self._cycle = 0
        self._timeout = 1 << 16
        self._in_reset = True
        self._tracing = True
        self._event = self._runs = self._run_changed = False
        self._messages: list[tuple[int, int]] = []
        self._traces: list[tuple[int, int]] = []
        self._high, self._low = Timer(_HALF - _STOP, "ps"), Timer(_HALF, "ps")
        self._settled, self._stop = ReadOnly(), Timer(_STOP, "ps")
        self._msi, self._trace, self._firmware = (
            hasattr(dut, name) for name in ("msi__valid", "trace__valid", "fw_event")
        )

    def now(self) -> int:
        return self._cycle

    def submit(self, port: int, write: bool, address: int, data: int, strobe: int) -> None:
        deadline = self._cycle + self._timeout
        self._masters[port].submit(write, address, data, strobe, deadline)

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
        self.submit(port, write, address, data, strobe)
        return self.run(until, watch)

    def result(self, port: int) -> tuple[int | None, int] | None:
        master = self._masters[port]
        ended, master.ended = master.ended, None
        return ended

    def _reasons(self, until: int, watch: int) -> int:
        reason = DONE if any(master.ended is not None for master in self._masters) else 0
        if self._cycle >= until:
            reason |= UNTIL
        if watch & MESSAGE and self._messages:
            reason |= MESSAGE
        if watch & EVENT and self._event:
            reason |= EVENT
        if self._run_changed:
            reason |= RUN
        return reason

    async def _one_cycle(self) -> None:
        dut = self._dut
        await self._high
        dut.clk.value = 0
        await self._low
        active = [master for master in self._masters if master.active]
        for master in active:
            master.before_edge()
        dut.clk.value = 1
        await self._settled
        self._cycle += 1
        if self._firmware:
            self._event, runs = bool(_known(dut.fw_event)), bool(_known(dut.fw_run))
            self._run_changed |= runs != self._runs
            self._runs = runs
        if not self._in_reset:
            if self._msi and _known(dut.msi__valid):
                self._messages.append((_known(dut.msi__vector), self._cycle))
            if self._trace and self._tracing and _known(dut.trace__valid):
                self._traces.append((self._cycle, _known(dut.trace__payload)))
        await self._stop
        for master in active:
            master.after_edge(self._cycle)

    async def _advance(self, until: int, watch: int) -> int:
        while not (reason := self._reasons(until, watch)):
            await self._one_cycle()
        return reason

    def run(self, until: int, watch: int) -> int:
        reason = self._reasons(until, watch)
        if not reason:
            reason = int(self.hosting.hand(self._advance(until, watch)))
        if reason & RUN:
            self._run_changed = False
        return reason

    def messages(self) -> list[tuple[int, int]]:
        taken, self._messages = self._messages, []
        return taken

    def firmware_event(self) -> bool:
        return self._event

    def firmware_runs(self) -> bool:
        return self._runs

    def traces(self) -> npt.NDArray[np.uint64]:
        taken, self._traces = self._traces, []
        return np.array(taken, np.uint64).reshape(len(taken), 2)

    def set_tracing(self, on: bool) -> None:
        self._tracing = on

    def set_bus_timeout(self, cycles: int) -> None:
        self._timeout = cycles

    async def _start(self) -> None:
        """Bring the clock from its first low half to a stop after a rising edge."""
        self._dut.clk.value = 0
        await self._stop
        self._ground_inputs()
        await self._high
        self._dut.clk.value = 1
        await self._stop

    def _ground_inputs(self) -> None:
        """Drive 0 on inputs that nobody has driven, as they have it from the start on Verilator."""
        for pin in self._dut:
            if isinstance(pin, LogicObject | LogicArrayObject | PackedObject) and set(
                str(pin.value)
            ) == {"Z"}:
                pin.value = 0

    def reset(self, cycles: int = 8) -> None:
        self._dut.rst.value = 1
        self._in_reset = True
        for master in self._masters:
            master.reset()
        self._messages.clear()
        if not self._dut.clk.value.is_resolvable or not int(self._dut.clk.value):
            # The first edge of all, before any has settled, counts as one of reset.
            self.hosting.hand(self._start())
            cycles -= 1
        end = self._cycle + cycles
        while self._cycle < end:
            self.run(end, 0)
        self._dut.rst.value = 0
        self._in_reset = False
        self._cycle = 0

    def host_memory(self) -> npt.NDArray[np.uint8]:
        if self._host_dram_module is not None:
            return icarus_host_memory(self._host_dram_module)
        return verilated_memory(self._host_memory, "mem")
