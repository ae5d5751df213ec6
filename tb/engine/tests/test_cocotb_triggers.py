"""cocotb's triggers mean the same under our main as under cocotb's own."""

import json
import subprocess
from pathlib import Path
from typing import Any

import cocotb_tools.config
import pytest

from tb.engine.build import Simulator, build_verilator
from tb.engine.machine_build import build_machine
from tb.engine.process import die_with_parent, simulator_command, simulator_environment
from tb.engine.tests.register_machine import SOURCES, RegisterMachine
from tb.engine.verilog import emit_verilog

STOCK_MAIN = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"


def logs(simulator: Simulator, folder: Path, clock: str, *options: str) -> dict[str, list[Any]]:
    path = folder / f"{clock}{''.join(options)}.json"
    extra = {"GLASSNPU_CLOCK": clock, "GLASSNPU_LOG": str(path), "COCOTB_LOG_LEVEL": "WARNING"}
    module = "tb.engine.tests.cocotb_triggers"
    environment = simulator_environment(
        simulator, module, seed=11, results=folder / "results.xml", extra=extra
    )
    subprocess.run(
        [*simulator_command(simulator), *options],
        env=environment,
        check=True,
        timeout=60,
        preexec_fn=die_with_parent,
    )
    found: dict[str, list[Any]] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    text = emit_verilog(RegisterMachine())
    simulator = build_verilator(text, sources=SOURCES, main=STOCK_MAIN)
    return logs(simulator, tmp_path_factory.mktemp("stock"), "cocotb")


@pytest.mark.parametrize(("clock", "options"), [("main", []), ("cocotb", ["--stock-clock"])])
def test_same_log_as_under_the_stock_main(
    stock: dict[str, list[Any]], clock: str, options: list[str], tmp_path: Path
) -> None:
    machine = build_machine(RegisterMachine(), sources=SOURCES, memories=[":host_dram.mem"])
    ours = logs(machine, tmp_path, clock, *options)
    assert set(ours) == set(stock) == {"each_trigger_alone", "many_tasks_at_once"}
    assert len(stock["each_trigger_alone"]) > 140
    assert len(stock["many_tasks_at_once"]) > 200
    for name, expected in stock.items():
        for place, (mine, other) in enumerate(zip(ours[name], expected, strict=False)):
            assert mine == other, f"{name}, entry {place}"
        assert len(ours[name]) == len(expected)
