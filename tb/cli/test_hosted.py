"""What `glassnpu run`, `shell` and `pytest` host, here on the model of the device."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.bus import attach_bus, attached_bus, detach_bus
from firmware.main import main as firmware
from tb.cli import fixtures, hosted
from tb.models.device import ModelMachine


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelMachine]:
    """A model machine whose bus is attached; `sys.argv` and `sys.path` are put back."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    machine = ModelMachine(firmware)
    attach_bus(machine.bus)
    yield machine
    detach_bus(machine.bus)


def test_a_script_sees_itself_as_main(
    model: ModelMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'near'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom runtime import Device\nfrom neighbour import WORD\n"
        "with Device() as device:\n"
        "    print(__name__, sys.argv[1:], WORD, device.info.hbm_bytes)\n"
        "sys.exit(4)\n"
    )
    with pytest.raises(SystemExit) as end:
        hosted.run_script(str(script), ["--n", "2"])
    assert end.value.code == 4
    assert capsys.readouterr().out == f"__main__ ['--n', '2'] near {64 << 20}\n"
    assert sys.argv[0] == str(script)
    assert model.bus.now() > 0


@pytest.mark.usefixtures("model")
def test_the_prompt_has_device_regs_and_bus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "hex(regs.bar0.identity.field('magic'))\n"
        "t = bus.now(); _ = regs.bar0.time.read(); bus.now() > t\n"
        "device.malloc(-1)\n"
        "device.memory_info['used']\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    hosted.run_shell()
    shown = capsys.readouterr()
    assert "'0x474e5055'" in shown.out
    assert "True" in shown.out
    assert "InvalidArgumentError: nbytes must be " in shown.err
    assert "GlassNPU, device time" in shown.err


def test_the_device_fixture_starts_from_a_reset(
    model: ModelMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resets = []
    ends = []

    class Faults:
        def __init__(self, _machine: object) -> None:
            pass

        def end(self) -> None:
            ends.append(attached_bus().now())

    class Machine:
        bus = model.bus

        def reset(self) -> None:
            resets.append(attached_bus().now())

    monkeypatch.setattr(fixtures, "current_machine", Machine)
    monkeypatch.setattr(fixtures, "MachineFaults", Faults)
    test = tmp_path / "test_device.py"
    test.write_text(
        "import numpy as np\n"
        "def test_one(device):\n"
        "    assert device.array(np.arange(3)).numpy().tolist() == [0, 1, 2]\n"
        "def test_two(device, machine):\n"
        "    assert device.bus is machine.bus\n"
        "def test_three(device):\n"
        "    assert device.closed\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    assert hosted.run_pytest([*options, str(test)]) == 1, "the third test fails, as it must"
    assert len(resets) == len(ends) == 3, "no fault outlives its test"
    assert hosted.run_pytest([*options, "-k", "one or two", str(test)]) == 0
    assert hosted.run_pytest([*options, "-k", "four", str(test)]) == 5, "no test is a failure"


def test_outside_the_machine_a_script_is_told_how_to_start(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from runtime import Device\nDevice()\n")
    with pytest.raises(RuntimeError, match="start the program with `glassnpu run`"):
        hosted.run_script(str(script), [])
