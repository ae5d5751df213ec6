"""Clock domains that stop while their unit sleeps, as an integrated clock gate does in silicon.

sync ──┬───────────────────────────┐
       │  ┌────────────────┐       ├─AND──► clock of the domain
       └─►│ latch, falling │──────►┘
enable ──►│ edge of sync   │
          └────────────────┘
"""

from dataclasses import dataclass

from amaranth import ClockDomain, ClockSignal, Module, ResetSignal, Signal
from amaranth.hdl import Const, Value, ValueLike
from amaranth.lib import wiring

__all__ = ["ClockGate", "gated_domain", "work_of"]


@dataclass(frozen=True)
class ClockGate:
    """A domain made by `gated_domain`.

    Attributes:
        name: the domain's name, for `DomainRenamer(name)(block)` and `m.d[name]`.
        running: 1 bit; 1 in a cycle whose closing edge clocks the domain. For counters; it
            is combinational of the domain's enable.
    """

    name: str
    running: Value


def work_of(component: wiring.Component) -> Value:
    """1 bit: whether a component with an `idle` output needs its clock at the next edge.

    That is `~idle`, or any input whose name ends in `valid` (streams, AXI channels). Other
    inputs that wake it (pulses, levels) are the caller's to add.

    Raises:
        TypeError: the component has no `idle` output.
    """
    members = component.signature.members
    if "idle" not in members or members["idle"].flow is not wiring.Out:
        raise TypeError(f"component must have an `idle: Out(1)` member, not {component!r}")
    work: Value = ~component.idle
    for path, member, value in component.signature.flatten(component):
        if str(path[-1]).endswith("valid") and member.flow is wiring.In:
            work = work | value
    return work


def gated_domain(
    m: Module,
    name: str,
    *,
    enable: ValueLike | None = None,
    reset: ValueLike = 0,
    source: str = "sync",
    local: bool = False,
) -> ClockGate:
    """Add clock domain `name` to `m`; its clock is that of `source` while `enable` is 1.

    Use:
        block = DmaChannel()
        gated_domain(m, "dma0", enable=work_of(block))
        m.submodules.dma0 = DomainRenamer("dma0")(block)

    Args:
        m: the module; the domain is visible in it, above it and below it.
        name: name of the new domain.
        enable: 1 bit; the domain is clocked at the edge that closes a cycle with `enable`. It may
            depend on registers of `source`, of this domain and of other gated domains of `source`,
            not on top-level inputs that change after the falling edge. None: never gated.
        reset: 1 bit; resets the domain, besides the reset of `source`.
        source: the domain whose clock is gated.
        local: the domain is not visible above `m`, so that `m` may have several instances.

    Timing: a gate costs no cycle: a `valid` that rises after one edge has its clock at the next.
    The reset is a register of the new domain, clocked whenever it changes: it follows the reset
    of `source` one cycle later. So all domains made here leave a reset together, and one cycle
    after `source`: a block left in `source` could send to one that is still in reset. So give
    every unit a domain made here, those that never sleep with `enable=None`.

    Raises:
        ValueError: `name` is `source`, or `enable` or `reset` is wider than 1 bit.
    """
    if name == source:
        raise ValueError(f"name must differ from the source domain, not {name!r}")
    work = Value.cast(Const(1) if enable is None else enable)
    again = Value.cast(reset)
    for what, value in (("enable", work), ("reset", again)):
        if len(value) != 1:
            raise ValueError(f"{what} must be 1 bit wide, not {len(value)!r}")

    domain = ClockDomain(name, local=local)
    m.domains += domain
    # A register of its own, or every reset value of a sleeping unit is evaluated at each edge.
    held = Signal(init=1, reset_less=True, name=f"{name}_reset")
    wanted = Signal(name=f"{name}_reset_wanted")
    m.d.comb += wanted.eq(ResetSignal(source, allow_reset_less=True) | again)
    m.d[name] += held.eq(wanted)
    m.d.comb += ResetSignal(name).eq(held)

    if enable is None:
        m.d.comb += ClockSignal(name).eq(ClockSignal(source))
        return ClockGate(name, Const(1))

    running = Signal(name=f"{name}_running")
    m.d.comb += running.eq(work | wanted | held)
    # The gate's latch is a register on the falling edge: a latch that is transparent while the
    # clock is low would close a combinational cycle over the gated registers.
    falling = ClockDomain(f"{name}_falling", clk_edge="neg", reset_less=True, local=local)
    m.domains += falling
    m.d.comb += ClockSignal(falling.name).eq(ClockSignal(source))
    open_ = Signal(init=1, reset_less=True, name=f"{name}_open")
    m.d[falling.name] += open_.eq(running)
    m.d.comb += ClockSignal(name).eq(ClockSignal(source) & open_)
    return ClockGate(name, running)
