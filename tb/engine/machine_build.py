"""Builds a simulator of a machine top: what the C++ main must know of its ports."""

from collections.abc import Sequence
from pathlib import Path

from amaranth.hdl import Elaboratable

from tb.engine.build import Simulator, build_icarus, build_verilator
from tb.engine.clockwork import BUSES
from tb.engine.verilog import Port, emit_verilog, top_ports

__all__ = ["HOST_DRAM", "HOST_DRAM_VPI", "build_machine", "machine_header"]

_MACHINE = Path(__file__).resolve().parents[1] / "machine"
BACKDOOR = Path(__file__).with_name("backdoor.cpp")
"""Lets `tb.engine.backdoor` find memories; part of every machine build of Verilator."""

HOST_DRAM = _MACHINE / "host_dram.sv"
HOST_DRAM_VPI = _MACHINE / "host_dram_vpi.cpp"


def machine_header(ports: Sequence[Port]) -> str:
    """The text of `glass_config.h` for a top with these ports.

    Raises:
        ValueError: a bus of `BUSES` is missing.
    """
    names = {port.name for port in ports}
    for bus in BUSES:
        if f"{bus}__awvalid" not in names:
            raise ValueError(f"a machine top has the AXI4-Lite slaves {BUSES!r}, not {names!r}")
    return "\n".join(
        [
            "#define GLASS_MACHINE 1",
            "#define GLASS_PORTS(X) " + " ".join(f"X({bus})" for bus in BUSES),
            f"#define GLASS_HAS_MSI {int('msi__valid' in names)}",
            f"#define GLASS_HAS_FIRMWARE {int('fw_event' in names)}",
            f"#define GLASS_HAS_TRACE {int('trace__valid' in names)}",
            "",
        ]
    )


def build_machine(
    top: Elaboratable | str,
    *,
    sim: str = "verilator",
    sources: Sequence[Path] = (),
    memories: Sequence[str] = (),
    public: Sequence[str] = (),
    control: str = "",
    waves: bool = False,
) -> Simulator:
    """Build a machine top (ports as in the interface specification) for the hosting engine.

    `top` is the component, or its Verilog as `emit_verilog` gives it.

    `sources` are SystemVerilog files of instances; `HOST_DRAM` among them gets its VPI module on
    Icarus. `memories` and `public` name what is opened on Verilator, as in `build_verilator`.

    Raises:
        BuildError, ToolchainError: the simulator could not be built.
        ValueError: `sim` is unknown, or a bus is missing.
    """
    text = top if isinstance(top, str) else emit_verilog(top)
    if sim == "verilator":
        return build_verilator(
            text,
            sources=[*sources, BACKDOOR],
            public=public,
            memories=memories,
            header=machine_header(top_ports(text)),
            control=control,
            # Waves are for a look at a few cycles: the compiler's time is what one waits for.
            optimise="-O0" if waves else "-O3 -march=native",
            waves=waves,
        )
    if sim == "icarus":
        modules = [HOST_DRAM_VPI] if HOST_DRAM in sources else []
        return build_icarus(text, sources=sources, modules=modules, waves=waves)
    raise ValueError(f"sim must be 'verilator' or 'icarus', not {sim!r}")
