"""Runs the cocotb tests of a module against one Amaranth component, from a pytest function."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from amaranth.hdl import Elaboratable

from tb.engine import toolchain
from tb.engine.build import Simulator, build_icarus, build_verilator
from tb.engine.build_cache import cache_directory
from tb.engine.process import die_with_parent, simulator_command, simulator_environment
from tb.engine.verilog import emit_verilog

__all__ = ["BlockError", "BlockResult", "parameters", "run_block", "seed", "skip_without_icarus"]


class BlockError(AssertionError):
    """A cocotb test failed, none ran, or the simulator died; the message holds its output."""


@dataclass(frozen=True)
class BlockResult:
    """What ran: names of the passed tests, names of the skipped ones, the simulator's output."""

    passed: tuple[str, ...]
    skipped: tuple[str, ...]
    output: str


def seed() -> int:
    """The seed of this run, inside the simulator; cocotb seeds `random` with it too."""
    return int(os.environ["GLASSNPU_SEED"])


def parameters() -> dict[str, Any]:
    """What `run_block(parameters=...)` was given, inside the simulator (it travels as JSON)."""
    return dict(json.loads(os.environ.get("GLASSNPU_PARAMETERS", "{}")))


def skip_without_icarus() -> None:
    """Skip the calling test if there is no Icarus; fail it under `GLASSNPU_REQUIRE_ICARUS=1`.

    Raises:
        ToolchainError: there is none, and the environment requires it.
    """
    try:
        toolchain.find_icarus()
    except toolchain.ToolchainError as error:
        if os.environ.get("GLASSNPU_REQUIRE_ICARUS") == "1":
            raise
        pytest.skip(str(error))


def _build(
    text: str, sim: str, sources: Sequence[Path], public: Sequence[str], waves: bool
) -> Simulator:
    if sim == "verilator":
        # Blocks are small and their tests short: the compiler's time is what one waits for.
        return build_verilator(text, sources=sources, public=public, optimise="-O1", waves=waves)
    if sim == "icarus":
        skip_without_icarus()
        return build_icarus(text, sources=sources, waves=waves)
    raise ValueError(f"sim must be 'verilator' or 'icarus', not {sim!r}")


def _outcome(results: Path, output: str) -> BlockResult:
    if not results.exists():
        raise BlockError(f"the simulator left no results file\n{output}")
    passed, skipped, failed = [], [], []
    for case in ElementTree.parse(results).iter("testcase"):
        name = case.get("name", "?")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is not None:
            skipped.append(name)
        else:
            passed.append(name)
    if failed:
        raise BlockError(f"failed: {', '.join(failed)}\n{output}")
    if not passed:
        raise BlockError(f"no cocotb test ran\n{output}")
    return BlockResult(tuple(passed), tuple(skipped), output)


def run_block(
    component: Elaboratable | str,
    test_module: str,
    *,
    sim: str = "verilator",
    sources: Sequence[Path] = (),
    public: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    only: str | None = None,
    timeout: float = 300.0,
) -> BlockResult:
    """Elaborate `component` as module `top` and run all `@cocotb.test()`s of `test_module`.

    Args:
        component: the block; its ports are `dut.<name>`, nested ones `dut.<a>__<b>`, and
            `dut.clk` and `dut.rst` of the `sync` domain (`dut.<domain>_clk` of others). Or its
            Verilog, with `top` as the top module.
        test_module: importable name, usually `__name__` of the calling test file.
        sim: "verilator" or "icarus".
        sources: SystemVerilog files of `Instance`s, such as `Sram.SOURCE`.
        public: internal signals that the tests read on Verilator, as `submodule.signal`.
        parameters: JSON values that the tests read with `parameters()`.
        env: further environment variables.
        only: a regular expression that selects tests by name.
        timeout: wall seconds after which the simulator is killed.

    The seed is `GLASSNPU_SEED`, or drawn from the clock; it is printed. `GLASSNPU_WAVES=<file>`
    writes a VCD.

    Raises:
        BlockError: a test failed, no test ran, or the simulator failed.
        BuildError, ToolchainError: the simulator could not be built.
    """
    waves = os.environ.get("GLASSNPU_WAVES")
    text = component if isinstance(component, str) else emit_verilog(component)
    simulator = _build(text, sim, sources, public, waves is not None)
    chosen = int(os.environ.get("GLASSNPU_SEED", time.time_ns() % 2**31))
    print(f"{test_module} on {sim}: GLASSNPU_SEED={chosen}", file=sys.stderr)
    extra = {"GLASSNPU_PARAMETERS": json.dumps(dict(parameters or {})), **(env or {})}
    if only is not None:
        extra["COCOTB_TEST_FILTER"] = only
    with tempfile.TemporaryDirectory(dir=cache_directory().parent, prefix="run-") as scratch:
        results = Path(scratch) / "results.xml"
        try:
            done = subprocess.run(
                simulator_command(simulator, waves=Path(waves).resolve() if waves else None),
                cwd=scratch,
                env=simulator_environment(
                    simulator, test_module, seed=chosen, results=results, extra=extra
                ),
                preexec_fn=die_with_parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as error:
            shown = bytes(error.stdout or b"").decode(errors="replace")
            raise BlockError(f"no end after {timeout} s, GLASSNPU_SEED={chosen}\n{shown}") from None
        output = f"GLASSNPU_SEED={chosen}\n{done.stdout}"
        print(output)
        outcome = _outcome(results, output)
        if done.returncode:
            raise BlockError(f"the simulator ended with code {done.returncode}\n{output}")
        return outcome
