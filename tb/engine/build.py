"""Turns Verilog into a simulator, kept in the cache of builds."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import cocotb_tools.config

from rtl.core.fp.lane import SHARED_MODULES
from tb.engine import toolchain
from tb.engine.build_cache import cache_directory, cached, digest
from tb.engine.verilated import skip_sleeping as skip_sleeping_logic
from tb.engine.verilog import top_ports, unnamed_hidden

__all__ = ["BuildError", "Simulator", "build_icarus", "build_verilator"]

MAIN = Path(__file__).with_name("main.cpp")
TIMESCALE = ("1ns", "1ps")

PASSES = tuple(sorted(MAIN.with_name("verilated").glob("*.py")))
"""What changes the model that Verilator wrote, and so decides about a build."""

# What Verilator finds odd in the Verilog that Amaranth's Yosys writes.
_QUIET = (
    "-Wno-CASEINCOMPLETE",
    "-Wno-CASEOVERLAP",
    "-Wno-CASEX",
    "-Wno-LATCH",
    "-Wno-PINCONNECTEMPTY",
    "-Wno-PINMISSING",
    "-Wno-SELRANGE",
    "-Wno-TIMESCALEMOD",
    "-Wno-UNSIGNED",
    "-Wno-WIDTH",
)


class BuildError(RuntimeError):
    """A tool refused the design; the message holds the tool's output."""


@dataclass(frozen=True)
class Simulator:
    """A finished build.

    Attributes: `sim` ("verilator" or "icarus"), `directory`, `executable` (the program, or the
    .vvp file for Icarus), `modules` (VPI modules that vvp loads), `waves`.
    """

    sim: str
    directory: Path
    executable: Path
    modules: tuple[Path, ...] = ()
    waves: bool = False


def _run(command: Iterable[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise BuildError(f"{shlex.join(words)} failed in {cwd}:\n{done.stdout}")


def _control_file(text: str, public: Sequence[str], memories: Sequence[str]) -> str:
    """Open the top ports, signals (read only) and memories named `path.to.signal`."""
    lines = ["`verilator_config"]
    for port in top_ports(text):
        mode = "rd" if port.output else "rw"
        lines.append(f'public_flat_{mode} -module "top" -var "{port.name}"')
    for mode, names in (("rd", public), ("rw", memories)):
        for path in names:
            scope, variable = f"top.{path}".rsplit(".", 1)
            module = scope.split(":")[-1]
            lines.append(f'public_flat_{mode} -module "{module}" -var "{variable}"')
    for module in SHARED_MODULES:
        if re.search(rf"^module {module}\b", text, re.MULTILINE):
            # One function for all instances: quicker to compile, and to run.
            lines.append(f'no_inline -module "{module}"')
    return "\n".join(lines) + "\n"


def _named_text(path: Path) -> tuple[str, str]:
    return path.name, path.read_text(encoding="utf-8")


def build_verilator(
    text: str,
    *,
    sources: Sequence[Path] = (),
    public: Sequence[str] = (),
    memories: Sequence[str] = (),
    header: str = "",
    control: str = "",
    main: Path = MAIN,
    optimise: str = "-O3 -march=native",
    waves: bool = False,
    all_public: bool = False,
    skip_sleeping: bool = True,
) -> Simulator:
    """Build a Verilog text (top module `top`) and extra sources with a C++ main.

    `public` names internal signals that VPI may read, `memories` those that may be written
    through a pointer, both as `submodule.signal`, or as `:module.signal` for every instance of a
    module of the extra sources (`:glass_sram.mem`). `header` is
    the text of `glass_config.h`; `control` is added to the Verilator control file; a `waves` build
    can write a VCD of every signal that has a name; `all_public` opens every signal to VPI, as
    cocotb's runner does (slow to build and to run). `skip_sleeping` lets the model skip what sleeps
    at little cost, see `tb.engine.verilated`.

    Raises:
        BuildError: Verilator or the compiler refused.
        ToolchainError: a tool is missing.
    """
    found = toolchain.find_verilator()
    compiler, compiler_version = toolchain.find_compiler()
    libraries = cocotb_tools.config.libs_dir
    flags = ["--cc", "--exe", "--vpi", "--no-timing", "--assert", "--top-module", "top"]
    flags += ["--prefix", "Vtop", "-o", "simulator", "--timescale", "/".join(TIMESCALE)]
    flags += ["-O3", "--x-assign", "fast", "--x-initial", "fast", *_QUIET]
    if waves:
        flags.append("--trace")
        text = unnamed_hidden(text)
    flags += ["--public-flat-rw"] if all_public else []
    link = f"-rdynamic -Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator"
    vlt = _control_file(text, public, memories) + control
    tools = [found.version, compiler_version, toolchain.cpu_model(), version("cocotb")]
    # The headers beside the main matter to machine builds only.
    headers = sorted(main.parent.glob("*.h")) if header else []
    passes = PASSES if skip_sleeping else ()
    texts = [part for path in [main, *headers, *passes, *sources] for part in _named_text(path)]
    key = digest(["verilator", text, vlt, header, optimise, link, *flags, *tools, *texts])
    runtime_key = digest(["runtime", optimise, str(waves), str(bool(header)), *tools])

    def make(folder: Path) -> None:
        print(
            "compiling a simulator (once; docs/engine.md says how long it takes)", file=sys.stderr
        )
        (folder / "top.v").write_text(text, encoding="utf-8")
        (folder / "top.vlt").write_text(vlt, encoding="utf-8")
        objects = folder / "obj"
        objects.mkdir()
        (objects / "glass_config.h").write_text(header, encoding="utf-8")
        environment = {"VERILATOR_ROOT": str(found.root)}
        inputs = [folder / "top.vlt", folder / "top.v", *sources, main]
        # A machine build ends without Verilator's word on stdout: see vl_finish in driven.h.
        defines = f"-I{main.parent}" + (" -DVL_USER_FINISH" if header else "")
        where = ["-CFLAGS", defines, "-LDFLAGS", link, "--Mdir", str(objects)]
        command = [str(word) for word in [found.binary, *flags, *where, *inputs]]
        _run(command, folder, environment)
        if skip_sleeping:
            skip_sleeping_logic(objects)
        _share_runtime(runtime_key, objects)
        # The wheel's verilated.mk names the compilers of the machine that built the wheel.
        tool_names = [f"CXX={compiler}", f"LINK={compiler}", "AR=ar", f"PYTHON3={sys.executable}"]
        tuning = [f"OPT_FAST={optimise}", "OPT_GLOBAL=-O2", "CFG_CXXFLAGS_PCH_I=-include"]
        _run(["make", "-j2", "-f", "Vtop.mk", *tool_names, *tuning], objects, environment)
        _keep_runtime(runtime_key, objects)
        (objects / "simulator").rename(folder / "simulator")
        shutil.rmtree(objects)

    folder = cached(key, make, "the simulator")
    return Simulator("verilator", folder, folder / "simulator", waves=waves)


def _share_runtime(key: str, objects: Path) -> None:
    """Put the run-time library's objects of an earlier build where make finds them newer."""
    kept = cache_directory() / key
    if kept.is_dir():
        for path in kept.glob("*.o"):
            shutil.copyfile(path, objects / path.name)


def _keep_runtime(key: str, objects: Path) -> None:
    def make(folder: Path) -> None:
        for path in objects.glob("verilated*.o"):
            shutil.copyfile(path, folder / path.name)

    cached(key, make, "the simulator's run-time library")


def _woken(text: str) -> str:
    """Let every `always @*` run once at time 0, also if what it reads never changes.

    Yosys has each one read a register for that, but Icarus initialises that register before the
    blocks start to wait, so they see no change, and outputs of a reset state stay X.
    """
    trigger = r"^(\s+)reg (\\\$auto\$verilog_backend\S+)\s+= 0;$"
    return re.sub(trigger, r"\g<0>\n\1initial \2 <= 1;", text, flags=re.MULTILINE)


def build_icarus(
    text: str,
    *,
    sources: Sequence[Path] = (),
    modules: Sequence[Path] = (),
    waves: bool = False,
) -> Simulator:
    """Compile a Verilog text (top module `top`) and extra sources for vvp.

    `modules` are C++ sources of VPI modules; each is compiled and loaded by vvp. A `waves` build
    writes `+waves=<file>` as VCD.

    Raises:
        BuildError: Icarus or the compiler refused.
        ToolchainError: a tool is missing.
    """
    found = toolchain.find_icarus()
    text = _woken(text)
    compiler = toolchain.find_compiler()[0] if modules else Path("g++")
    texts = [part for path in [*sources, *modules] for part in _named_text(path)]
    key = digest(["icarus", text, found.version, str(waves), *TIMESCALE, *texts])

    def make(folder: Path) -> None:
        (folder / "top.v").write_text(text, encoding="utf-8")
        (folder / "commands.f").write_text("+timescale+{}/{}\n".format(*TIMESCALE))
        inputs = [folder / "top.v", *sources]
        tops = ["-s", "top"]
        if waves:
            (folder / "waves.v").write_text(_ICARUS_WAVES)
            inputs.append(folder / "waves.v")
            tops += ["-s", "glass_waves"]
        options = ["-g2012", "-f", "commands.f", "-o", "top.vvp", *tops]
        _run([found.iverilog, *options, *inputs], folder)
        header = found.vvp.parent.parent / "include" / "iverilog"
        for module in modules:
            flags = ["-O2", "-fPIC", "-shared", "-std=c++17", f"-I{header}"]
            _run([compiler, *flags, "-o", folder / f"{module.stem}.vpi", module], folder)

    folder = cached(key, make, "the simulator")
    loaded = tuple(folder / f"{module.stem}.vpi" for module in modules)
    return Simulator("icarus", folder, folder / "top.vvp", loaded, waves)


_ICARUS_WAVES = """\
module glass_waves;
    reg [8*1024-1:0] path;
    initial if ($value$plusargs("waves=%s", path)) begin
        $dumpfile(path);
        $dumpvars(0, top);
    end
endmodule
"""
