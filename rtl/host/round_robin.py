"""Round robin choice among requests."""

from amaranth import C, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RoundRobin"]


class RoundRobin(wiring.Component):
    """Picks the first request behind `last`, cyclically; combinational.

    Members:
        requests: width bits, in.
        last: in; number of the request that was served last.
        choice: out; number of the request to serve now, if `valid`.
        valid: out; there is a request.

    Raises:
        ValueError: `width` is no power of two of at least 2.
    """

    def __init__(self, *, width: int) -> None:
        if width < 2 or width & (width - 1):
            raise ValueError(f"width must be a power of two >= 2, not {width!r}")
        self.width = width
        super().__init__(
            {
                "requests": In(width),
                "last": In(range(width)),
                "choice": Out(range(width)),
                "valid": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        behind = Signal(self.width)
        scanned = Signal(self.width)
        mask = ~(((C(2, self.width + 1) << self.last)[: self.width] - 1)[: self.width])
        m.d.comb += [
            behind.eq(self.requests & mask),
            scanned.eq(Mux(behind.any(), behind, self.requests)),
            self.valid.eq(self.requests.any()),
        ]
        with m.If(scanned[0]):
            m.d.comb += self.choice.eq(0)
        for number in range(1, self.width):
            with m.Elif(scanned[number]):
                m.d.comb += self.choice.eq(number)
        return m
