"""The benchmark of kernels, on the model of the device: it leaves no operation out."""

import json
from collections.abc import Iterator

import pytest

from abi.core import Pipe
from driver.bus import attach_bus, detach_bus
from firmware.main import main as firmware
from runtime import Device
from runtime.operations import elements, matrix, movement, rows, windows
from tb.bench import describe, kernels
from tb.models.device import ModelMachine


@pytest.fixture
def device() -> Iterator[Device]:
    """A device of a model machine."""
    machine = ModelMachine(firmware)
    attach_bus(machine.bus)
    with Device(machine.bus) as opened:
        yield opened
    detach_bus(machine.bus)


def test_every_operation_has_a_case(device: Device) -> None:
    arrays = kernels._Arrays(device)
    makers = kernels._element_cases, kernels._row_cases, kernels._product_cases
    names = [case.name for cases in makers for case in cases(arrays)]
    assert len(names) == len(set(names))
    for module in (matrix, elements, rows, movement, windows):
        assert set(module.__all__) <= set(names), module.__name__


def test_a_case_is_measured(device: Device) -> None:
    arrays = kernels._Arrays(device)
    cases = {case.name: case for case in kernels._product_cases(arrays)}
    figures = kernels._measure(device, cases["gemm"])
    assert set(figures) == {"gemm_cycles", "gemm_pipe", "gemm_use", "gemm_macs"}
    assert figures["gemm_pipe"] == Pipe.CUBE
    # 128 ** 3 MACs on two cores with 256 a cycle: 4096 cycles at least.
    assert figures["gemm_cycles"] > 4096
    assert 0.5 < figures["gemm_macs"] <= figures["gemm_use"] <= 1


def test_the_table_names_the_pipes() -> None:
    figures = {
        "exp_cycles": 14756.0, "exp_pipe": 4.0, "exp_use": 0.957,
        "gemm_cycles": 5279.0, "gemm_pipe": 2.0, "gemm_use": 0.878, "gemm_macs": 0.864,
    }  # fmt: skip
    figures = json.loads(json.dumps(figures))
    assert describe("kernels", figures).splitlines() == [
        "kernel    cycles  busiest pipe     use    MACs",
        f"exp       14,756  {Pipe(4).name:<12}   95.7%",
        "gemm       5,279  CUBE           87.8%   86.4%",
    ]
    assert describe("dma", {"use": 0.5}) == "use  0.5"
