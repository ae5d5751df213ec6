"""The register-level example, on the model of the device."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.bus import attach_bus, detach_bus
from firmware.main import main as firmware
from tb.models.device import ModelMachine

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "registers.py"


@pytest.fixture
def model() -> Iterator[ModelMachine]:
    """A model machine whose bus is attached."""
    machine = ModelMachine(firmware)
    attach_bus(machine.bus)
    yield machine
    detach_bus(machine.bus)


@pytest.mark.usefixtures("model")
def test_the_example_probes_boots_and_shakes_hands(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "BAR0: magic 0x474e5055, ABI 2.0" in lines
    assert sum(line.endswith("was answered with SLVERR") for line in lines) == 3
    assert "handshake: status 0, the firmware serves 16 queues" in lines


def test_the_example_ends_when_the_firmware_does_not_boot(model: ModelMachine) -> None:
    model.faults.stall_firmware(None)
    with pytest.raises(SystemExit, match="did not boot in 400000 cycles"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
