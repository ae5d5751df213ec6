"""The crossbar: every initiator's way to HBM and to host memory.

port 0 ──guard──┐                ┌─► one-line register ─► HBM
port 1 ──guard──┼─► arbiter of ──┤       order FIFO ◄─┐
  …             │   each target  └─► one-line register ─► host link
port n ──guard──┘ ◄───────── responses by the order FIFO's head
"""

from collections.abc import Collection, Sequence

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Const, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from abi.address import LINE_BYTES
from rtl.memory.arbiter import Arbiter
from rtl.memory.port import LineError, ReadPort, WritePort
from rtl.mmu.guard import AddressGuard, Target

__all__ = ["Crossbar", "CrossbarDirection"]

IN_FLIGHT = 64
"""Requests per target and direction that may be unanswered. It covers the latency of either target
(about 30 lines of HBM, 40 of the host link) at full rate."""

OFFSET_BITS = LINE_BYTES.bit_length() - 1


class CrossbarDirection(wiring.Component):
    """All reads, or all writes, of all initiators.

    Args:
        port: `ReadPort()` or `WritePort()`.
        classes: priority class of each port, 0 first.
        hbm_bytes: size of HBM.
        trusted: ports that may reach all of host memory (see `AddressGuard`).

    Members:
        ports: In; one port per initiator, with device lines.
        hbm, host: Out; the targets, with local lines.
        window_base, window_limit: 32 bits; granted host pages (see `AddressGuard`).
        hbm_total, host_total: 64 bits; bytes of lines answered without error, 64 a line.
        idle: 1 bit; no request is unanswered.
    """

    def __init__(
        self,
        *,
        port: wiring.Signature,
        classes: Sequence[int],
        hbm_bytes: int,
        trusted: Collection[int] = (),
    ) -> None:
        self.classes = tuple(classes)
        self.trusted = frozenset(trusted)
        strange = self.trusted - set(range(len(self.classes)))
        if strange:
            raise ValueError(f"trusted must name existing ports, not {min(strange)!r}")
        self._guards = [
            AddressGuard(hbm_bytes=hbm_bytes, trusted=i in self.trusted)
            for i in range(len(self.classes))
        ]
        super().__init__(
            {
                "ports": In(port).array(len(self.classes)),
                "hbm": Out(port),
                "host": Out(port),
                "window_base": In(32),
                "window_limit": In(32),
                "hbm_total": Out(64),
                "host_total": Out(64),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        count = len(self.classes)
        ports = [self.ports[i] for i in range(count)]
        guards = self._guards
        # A port has requests at one target at a time, so that its responses keep their order.
        current = [Signal(2, name=f"current_{i}") for i in range(count)]
        unanswered = [Signal(range(IN_FLIGHT + 1), name=f"unanswered_{i}") for i in range(count)]
        may_ask = [Signal(name=f"may_ask_{i}") for i in range(count)]
        for i, port in enumerate(ports):
            guard = m.submodules[f"guard_{i}"] = guards[i]
            same = (current[i] == guard.target) & (unanswered[i] != IN_FLIGHT)
            m.d.comb += [
                guard.line.eq(port.request.payload.line),
                guard.window_base.eq(self.window_base),
                guard.window_limit.eq(self.window_limit),
                may_ask[i].eq((unanswered[i] == 0) | same),
            ]

        grants: dict[Target, Signal] = {}
        heads: dict[Target, Signal] = {}
        for target, link, total in (
            (Target.HBM, self.hbm, self.hbm_total),
            (Target.HOST, self.host, self.host_total),
        ):
            grants[target], heads[target] = self._target(
                m, target, link, total, ports, guards, may_ask
            )

        for i, port in enumerate(ports):
            response = port.response
            refused = (current[i] == Target.NONE) & (unanswered[i] != 0)
            m.d.comb += [
                port.request.ready.eq(
                    grants[Target.HBM][i]
                    | grants[Target.HOST][i]
                    | ((guards[i].target == Target.NONE) & may_ask[i])
                ),
                response.valid.eq(
                    heads[Target.HBM][i] | heads[Target.HOST][i] | (refused & (unanswered[i] != 0))
                ),
            ]
            # A refused read gives zeros, not what another initiator is reading.
            m.d.comb += response.p.error.eq(LineError.ADDRESS)
            for target, link in ((Target.HBM, self.hbm), (Target.HOST, self.host)):
                with m.If(current[i] == target):
                    m.d.comb += response.payload.eq(link.response.payload)
            asks = port.request.valid & port.request.ready
            answers = response.valid & response.ready
            with m.If(asks):
                m.d.sync += current[i].eq(guards[i].target)
            with m.If(asks != answers):
                m.d.sync += unanswered[i].eq(Mux(asks, unanswered[i] + 1, unanswered[i] - 1))
        m.d.comb += self.idle.eq(~Cat(unanswered).any())
        return m

    def _target(
        self,
        m: Module,
        target: Target,
        link: wiring.PureInterface,
        total: Value,
        ports: Sequence[wiring.PureInterface],
        guards: Sequence[AddressGuard],
        may_ask: Sequence[Signal],
    ) -> tuple[Signal, Signal]:
        """Logic of one target: who is granted now, and to whom its valid response belongs."""
        name = target.name.lower()
        count = len(ports)
        arbiter = m.submodules[f"{name}_arbiter"] = Arbiter(classes=self.classes)
        order = m.submodules[f"{name}_order"] = SyncFIFO(width=count, depth=IN_FLIGHT)
        valid = Signal(name=f"{name}_valid")
        payload = Signal(link.request.p.shape(), name=f"{name}_payload", reset_less=True)
        grant = Signal(count, name=f"{name}_grant")
        head = Signal(count, name=f"{name}_head")

        takes = (~valid | link.request.ready) & order.w_rdy
        with m.If(takes):
            m.d.comb += grant.eq(arbiter.grant)
        m.d.comb += [
            arbiter.requests.eq(
                Cat(
                    port.request.valid & (guard.target == target) & may
                    for port, guard, may in zip(ports, guards, may_ask, strict=True)
                )
            ),
            arbiter.advance.eq(grant.any()),
            link.request.valid.eq(valid),
            link.request.payload.eq(payload),
            order.w_en.eq(grant.any()),
            order.w_data.eq(grant),
        ]
        with m.If(link.request.ready):
            m.d.sync += valid.eq(0)
        with m.If(grant.any()):
            m.d.sync += valid.eq(1)
        with m.Switch(grant):
            for i, port in enumerate(ports):
                with m.Case(1 << i):
                    for field, _ in payload.shape():
                        value = guards[i].local_line if field == "line" else port.request.p[field]
                        m.d.sync += payload[field].eq(value)

        ready = (head & Cat(port.response.ready for port in ports)).any()
        with m.If(link.response.valid & order.r_rdy):
            m.d.comb += head.eq(order.r_data)
        m.d.comb += [link.response.ready.eq(ready), order.r_en.eq(ready)]

        lines = Signal(64 - OFFSET_BITS, name=f"{name}_lines")
        m.d.comb += total.eq(Cat(Const(0, OFFSET_BITS), lines))
        with m.If(ready & (link.response.p.error == LineError.OK)):
            m.d.sync += lines.eq(lines + 1)
        return grant, head


class Crossbar(wiring.Component):
    """Connects read and write ports of initiators to HBM and the host link.

    Each request is checked by an `AddressGuard`; what is not granted is answered with
    `LineError.ADDRESS` and goes nowhere. Responses of a port come in request order: a port that
    turns to the other target waits until its earlier requests are answered.

    Args:
        readers, writers: priority class of each port: 0 for control traffic, served first, 1 for
            bulk; round robin within a class.
        hbm_bytes: size of HBM.
        trusted_readers, trusted_writers: indices of ports that may reach all of host memory and
            the interrupt page.

    Members:
        read_ports, write_ports: In; `ReadPort`, `WritePort` of the initiators, device lines.
        hbm_read, hbm_write, host_read, host_write: Out; the targets. `line` is local: offset in HBM
            / 64, or bus address / 64.
        window_base, window_limit: 32 bits; granted host pages: first, and first behind.
        hbm_read_bytes, hbm_write_bytes, host_read_bytes, host_write_bytes: 64 bits; bytes of the
            lines answered without error, 64 a line, whatever the strobes.
        idle: 1 bit; no request is unanswered.

    Timing: 1 cycle from a granted request to the target; responses pass in the same cycle. Each
    target and direction carries 1 line a cycle, with up to 64 requests unanswered.

    Raises:
        ValueError: a class, a port index or `hbm_bytes` is out of range.
    """

    def __init__(
        self,
        *,
        readers: Sequence[int],
        writers: Sequence[int],
        hbm_bytes: int,
        trusted_readers: Collection[int] = (),
        trusted_writers: Collection[int] = (),
    ) -> None:
        self._reads = CrossbarDirection(
            port=ReadPort(), classes=readers, hbm_bytes=hbm_bytes, trusted=trusted_readers
        )
        self._writes = CrossbarDirection(
            port=WritePort(), classes=writers, hbm_bytes=hbm_bytes, trusted=trusted_writers
        )
        super().__init__(
            {
                "read_ports": In(ReadPort()).array(len(readers)),
                "write_ports": In(WritePort()).array(len(writers)),
                "hbm_read": Out(ReadPort()),
                "hbm_write": Out(WritePort()),
                "host_read": Out(ReadPort()),
                "host_write": Out(WritePort()),
                "window_base": In(32),
                "window_limit": In(32),
                "hbm_read_bytes": Out(64),
                "hbm_write_bytes": Out(64),
                "host_read_bytes": Out(64),
                "host_write_bytes": Out(64),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.reads, m.submodules.writes = self._reads, self._writes
        for name, direction in (("read", self._reads), ("write", self._writes)):
            for i, port in enumerate(getattr(self, f"{name}_ports")):
                wiring.connect(m, wiring.flipped(port), direction.ports[i])
            wiring.connect(m, direction.hbm, wiring.flipped(getattr(self, f"hbm_{name}")))
            wiring.connect(m, direction.host, wiring.flipped(getattr(self, f"host_{name}")))
            m.d.comb += [
                direction.window_base.eq(self.window_base),
                direction.window_limit.eq(self.window_limit),
                getattr(self, f"hbm_{name}_bytes").eq(direction.hbm_total),
                getattr(self, f"host_{name}_bytes").eq(direction.host_total),
            ]
        m.d.comb += self.idle.eq(self._reads.idle & self._writes.idle)
        return m
