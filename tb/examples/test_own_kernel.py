"""The example of one's own kernel, on the model of the device."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.bus import attach_bus, detach_bus
from firmware.main import main as firmware
from tb.models.device import ModelMachine

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "own_kernel.py"


@pytest.fixture
def model() -> Iterator[ModelMachine]:
    """A model machine whose bus is attached."""
    machine = ModelMachine(firmware)
    attach_bus(machine.bus)
    yield machine
    detach_bus(machine.bus)


@pytest.mark.usefixtures("model")
def test_the_example_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(SCRIPT), run_name="__main__")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "largest difference: 0.0"
    assert second.startswith("device cycles:")
    assert int(second.split()[-1]) > 0
    assert len(found["x"]) == 3000


def test_the_page_explains_this_kernel() -> None:
    source, page = SCRIPT.read_text(), (ROOT / "docs" / "kernels" / "writing.md").read_text()
    kernel = source[source.index("@kernel") : source.index("\n\n\nif")]
    assert kernel in page
