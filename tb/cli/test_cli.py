"""The command line: what it passes to the engine, what it prints, how it refuses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from abi.register import Place
from abi.registers_host import BAR0
from tb.cli import main
from tb.cli.programs import MachineOptions, PytestRun, Script, Shell
from tb.cli.regs import MAPS, matching_places
from tb.engine.toolchain import ToolchainError


class RecordingEngine:
    """Notes what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def build(self, options: MachineOptions) -> Path:
        self.calls.append(("build", options))
        return Path("/builds/one")

    def run(
        self,
        program: Script | Shell | PytestRun,
        options: MachineOptions,
        trace: Path | None = None,
    ) -> int:
        self.calls.append((program, options, trace))
        return 3

    def bench(self, name: str, options: MachineOptions) -> dict[str, float]:
        self.calls.append((name, options))
        return {"reads_per_s": 1234567.0, "over_cocotbext_axi": 42.5}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="glassnpu")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> RecordingEngine:
    recording = RecordingEngine()
    monkeypatch.delenv("GLASSNPU_SEED", raising=False)
    monkeypatch.delenv("GLASSNPU_SIM", raising=False)
    for command in ("build", "run", "shell", "pytest", "trace", "bench"):
        monkeypatch.setattr(f"tb.cli.{command}.engine", lambda: recording)
    return recording


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hello.py"
    path.write_text("print('hello')\n")
    return path


DEFAULTS = MachineOptions(sim="verilator", seed=1)


def test_run_passes_the_script_and_what_follows_it(recorder: RecordingEngine, script: Path) -> None:
    result = invoke("run", "--sim", "icarus", "--seed", "7", "hello.py", "--seed", "9", "-x", "a b")
    assert result.exit_code == 3, "the exit status is the script's"
    program = Script(script, ("--seed", "9", "-x", "a b"))
    assert recorder.calls == [(program, MachineOptions("icarus", 7), None)]


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("words", "noted"),
    [
        (["--seed", "7"], ["--seed"]),
        (["--waves=w.vcd", "x", "--sim", "icarus"], ["--sim", "--waves"]),
        (["--", "--seed", "7"], []),
        (["seed", "--seeds", "7"], []),
    ],
)
def test_run_says_that_an_option_after_the_script_is_the_scripts(
    recorder: RecordingEngine, words: list[str], noted: list[str]
) -> None:
    result = invoke("run", "hello.py", *words)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{name} after SCRIPT goes to the script; put it before SCRIPT for the simulator"
        for name in noted
    ]
    ((program, options, _),) = recorder.calls
    assert isinstance(program, Script)
    assert list(program.arguments) == words, "the script gets it all the same"
    assert options == DEFAULTS


def test_run_takes_defaults_from_the_environment(
    recorder: RecordingEngine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSNPU_SEED", "5")
    monkeypatch.setenv("GLASSNPU_SIM", "icarus")
    invoke("run", "hello.py")
    assert recorder.calls == [(Script(script), MachineOptions("icarus", 5), None)]


def test_waves_are_written_where_the_caller_is(recorder: RecordingEngine, script: Path) -> None:
    invoke("run", "--waves", "w.vcd", "hello.py")
    options = MachineOptions("verilator", 1, script.parent / "w.vcd")
    assert recorder.calls == [(Script(script), options, None)]


def test_trace_takes_its_output_after_the_script(recorder: RecordingEngine, script: Path) -> None:
    result = invoke("trace", "hello.py", "-o", "out.json", "--images", "3", "--", "-o", "mine")
    assert result.exit_code == 3
    program = Script(script, ("--images", "3", "-o", "mine"))
    assert recorder.calls == [(program, DEFAULTS, script.parent / "out.json")]


def test_pytest_leaves_unknown_options_to_pytest(recorder: RecordingEngine) -> None:
    assert invoke("pytest", "-q", "-k", "gemm", "tests", "--sim", "icarus").exit_code == 3
    program = PytestRun(("-q", "-k", "gemm", "tests"))
    assert recorder.calls == [(program, MachineOptions("icarus", 1), None)]


def test_shell_and_build(recorder: RecordingEngine) -> None:
    assert invoke("shell", "--seed", "0").exit_code == 3
    assert invoke("build").output == "/builds/one\n"
    assert recorder.calls == [(Shell(), MachineOptions("verilator", 0), None), ("build", DEFAULTS)]


def test_bench_ends_with_one_line_of_json(recorder: RecordingEngine) -> None:
    result = invoke("bench", "mmio", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output.splitlines()[-1]) == {
        "bench": "mmio",
        "figures": {"reads_per_s": 1234567.0, "over_cocotbext_axi": 42.5},
    }
    assert recorder.calls == [("mmio", DEFAULTS)]
    assert "over_cocotbext_axi  42.5" in invoke("bench", "mmio").output


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (
            ["run", "helo.py"],
            "SCRIPT must be an existing Python file, not 'helo.py'; did you mean 'hello.py'?",
        ),
        (["run", "."], "SCRIPT must be a file, not the folder '.'"),
        (["run"], "Missing argument 'SCRIPT'"),
        (
            ["run", "--sed", "3", "hello.py"],
            "No such option '--sed'. (Did you mean one of: '--seed'",
        ),
        (["run", "--sim", "questa", "hello.py"], "'questa' is not one of 'verilator', 'icarus'"),
        (["run", "--seed", "-1", "hello.py"], "-1 is not in the range 0<=x<=4294967295"),
        (["run", "--waves", "w.fst", "hello.py"], "--waves must end in '.vcd', not 'w.fst'"),
        (
            ["trace", "hello.py", "-o", "no/t.json"],
            "must lie in a folder that can be written, not 'no/t.json'",
        ),
        (["bench", "speed"], "'speed' is not one of 'engine', 'mmio', 'dma', 'gemm', 'kernels'"),
        (["regs", "dorbell"], "not 'dorbell'; did you mean 'doorbell'"),
        (["regs", "0x9999999"], "or the offset of a register, not '0x9999999'"),
    ],
)
def test_bad_input_names_argument_rule_and_value(
    recorder: RecordingEngine, arguments: list[str], message: str
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")
    assert recorder.calls == []


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_has_help(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"Usage: glassnpu {name}" in result.output
    assert main.commands[name].help


@pytest.mark.parametrize("name", ["build", "run", "shell", "trace", "bench", "pytest"])
def test_machine_commands_share_their_options(name: str) -> None:
    assert {"sim", "seed", "waves"} <= {parameter.name for parameter in main.commands[name].params}


def test_regs_prints_every_register_of_every_map() -> None:
    lines = invoke("regs").output.splitlines()
    assert len(lines) == sum(1 + len(list(register_map)) for _, _, register_map in MAPS)
    assert any(line.startswith("  0x00028  RO   time ") for line in lines)


def test_regs_filters_by_name_and_shows_fields() -> None:
    output = invoke("regs", "firmware_run").output
    assert "control" in output
    assert "    0  firmware_run " in output
    assert "Doorbell page" not in output


def test_regs_says_what_lies_at_an_offset() -> None:
    output = invoke("regs", "0x1048").output
    (line,) = [line for line in output.splitlines() if "queue_fetched[16]" in line]
    assert line.startswith("  0x01008  RO   queue_fetched[16] ")
    assert line.endswith(". [i] lies at 0x01008 + 0x40 * i, i = 0 to 15.")
    assert "queue_doorbell" not in output


def test_regs_as_json_is_complete() -> None:
    maps = {entry["map"]: entry for entry in json.loads(invoke("regs", "--json").output)}
    assert maps["BAR0"]["base"] == 0x100_0000
    names = [place["name"] for place in maps["BAR0"]["registers"]]
    assert names == [place.name for place in BAR0]
    (data,) = [p for p in maps["BAR0"]["registers"] if p["name"] == "vector_data"]
    assert (data["count"], data["stride"], data["access"]) == (32, 8, "RW")
    assert data["fields"][1]["name"] == "masked"
    assert (data["fields"][1]["bit"], data["fields"][1]["reset"]) == (32, 1)


def test_an_offset_between_the_elements_of_an_array_is_no_register() -> None:
    def names(places: list[Place]) -> list[str]:
        return [place.name for place in places]

    assert names(matching_places(BAR0, "0x2040")) == ["dma_state"]
    assert names(matching_places(BAR0, "0x2018")) == []
    assert names(matching_places(BAR0, "0x2047")) == ["dma_state"]


def test_info_shows_versions_tools_and_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_icarus() -> None:
        raise ToolchainError("iverilog is missing: install it")

    monkeypatch.setattr("tb.engine.toolchain.find_icarus", no_icarus)
    sections = json.loads(invoke("info", "--json").output)
    assert sections["versions"]["ABI"] == "2.0"
    assert sections["tools"]["Icarus"] == "missing: iverilog is missing: install it"
    assert sections["chip"]["hbm_bytes"] == 64 << 20
    text = invoke("info").output
    assert "hbm_bytes        67108864" in text
    assert text.endswith("\n")
