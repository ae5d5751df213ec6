"""The decoder between one register port and the blocks in its address windows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from rtl.host.register_bus import RegisterPort

__all__ = ["RegisterDecoder", "Window"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """The byte addresses [base, base + nbytes) of a port.

    Raises:
        ValueError: `nbytes` is no power of two of at least 8, or `base` is no multiple of it.
    """

    base: int
    nbytes: int

    def __post_init__(self) -> None:
        if self.nbytes < 8 or self.nbytes & (self.nbytes - 1):
            raise ValueError(f"nbytes must be a power of two >= 8, not {self.nbytes!r}")
        if self.base < 0 or self.base % self.nbytes:
            raise ValueError(f"base must be a multiple of {self.nbytes:#x}, not {self.base!r}")


class RegisterDecoder(wiring.Component):
    """Forwards each access to the first window that holds its address, else answers an error.

    A closed window answers with an error too, also for an access that is already on its way: so a
    block can be reset under the feet of an access, and the initiator still gets its one response.
    Keep a window closed for some cycles before and after the reset of its block.

    Args:
        windows: by name; where windows overlap, the first one wins.

    Members:
        bus: RegisterPort, target.
        `<name>`: RegisterPort of each window, initiator; addresses are relative to its base.
        `<name>_closed`: in, 1: answer accesses with an error.
        idle: no access on its way; a function of registers.

    Timing: requests and responses pass in the same cycle; a refused access is answered in the cycle
    after its request.

    Raises:
        ValueError: there is no window.
    """

    def __init__(self, *, windows: Mapping[str, Window]) -> None:
        if not windows:
            raise ValueError(f"windows must name at least one window, not {windows!r}")
        self.windows = dict(windows)
        members: dict[str, Any] = {"bus": In(RegisterPort), "idle": Out(1)}
        for name in self.windows:
            members |= {name: Out(RegisterPort), f"{name}_closed": In(1)}
        super().__init__(members)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        request, response = self.bus.request, self.bus.response
        names = list(self.windows)
        refused = len(names)
        target = Signal(range(refused + 1), init=refused)
        waiting = Signal()
        choice = Signal(range(refused + 1), init=refused)
        m.d.comb += self.idle.eq(~waiting)

        address = request.payload.address
        for number, name in reversed(list(enumerate(names))):
            window = self.windows[name]
            low = ceil_log2(window.nbytes)
            inside = address[low:] == window.base >> low
            closed = getattr(self, f"{name}_closed")
            with m.If(inside):
                m.d.comb += choice.eq(Mux(closed, refused, number))
        with m.Switch(choice):
            for number, name in enumerate(names):
                port, low = getattr(self, name), ceil_log2(self.windows[name].nbytes)
                m.d.comb += [
                    port.request.payload.eq(request.payload),
                    port.request.payload.address.eq(address[:low]),
                ]
                with m.Case(number):
                    m.d.comb += [
                        port.request.valid.eq(request.valid & ~waiting),
                        request.ready.eq(port.request.ready & ~waiting),
                    ]
            with m.Default():
                m.d.comb += request.ready.eq(~waiting)
        with m.If(request.valid & request.ready):
            m.d.sync += [waiting.eq(1), target.eq(choice)]

        answered = Signal()
        m.d.comb += response.valid.eq(waiting & answered)
        with m.Switch(target):
            for number, name in enumerate(names):
                port = getattr(self, name)
                with m.Case(number):
                    m.d.comb += [
                        answered.eq(port.response.valid),
                        response.payload.eq(port.response.payload),
                        port.response.ready.eq(waiting & response.ready),
                    ]
                    with m.If(waiting & getattr(self, f"{name}_closed")):
                        m.d.sync += target.eq(refused)
            with m.Default():
                m.d.comb += [answered.eq(1), response.payload.error.eq(1)]
        with m.If(response.valid & response.ready):
            m.d.sync += waiting.eq(0)
        return m
