"""Plans of operators, and `glassnpu plan`."""

import json
from collections.abc import Callable
from importlib import import_module
from inspect import isfunction, signature
from pkgutil import iter_modules
from typing import Any

import pytest
from click.testing import CliRunner, Result

import runtime.operations
from abi.core import Pipe
from rtl.config import NpuConfig
from runtime.kernels.matrix_source import Tiling
from runtime.kernels.window_source import Convolution, Pooling
from runtime.memory import DeviceArray
from runtime.planner import operators
from runtime.planner.chip import Chip
from runtime.planner.matrix import formula_cycles, plan_matrix_product
from tb.cli import main
from tb.cli.plan import chip_of

REFERENCE = Chip()
ONE = Chip(cores=1)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ("plan", *arguments), prog_name="glassnpu")


def test_the_reference_chip() -> None:
    config = NpuConfig()
    assert chip_of(config, config.cores) == REFERENCE
    with pytest.raises(ValueError, match="cores must be positive, not 0"):
        Chip(cores=0)


def test_a_large_product_keeps_the_cube_busy() -> None:
    plan = operators.plan_gemm(256, 256, 256, "int8", ONE)
    assert plan.timeline.macs == 256**3
    assert plan.timeline.limiter is Pipe.CUBE
    assert 0.9 < plan.operations / plan.timeline.core_cycles / 256 < 1


def test_two_cores_share_a_product() -> None:
    one, two = (operators.plan_gemm(256, 256, 256, "int8", c) for c in (ONE, REFERENCE))
    assert one.timeline.cycles / 2 < two.timeline.cycles < 0.6 * one.timeline.cycles
    assert two.timeline.macs == one.timeline.macs


@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 100, 70), (64, 16, 1000), (3, 2000, 5)])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_tilings_fit_and_cover(shape: tuple[int, int, int], dtype: str) -> None:
    plan = plan_matrix_product(*shape, dtype, REFERENCE)
    assert plan.timeline is not None
    m, n, k = shape
    # Rows are not padded; columns and k are, to the Cube's sixteen.
    assert plan.timeline.macs == m * -(-n // 16) * 16 * -(-k // 16) * 16
    tiling = plan.tiling
    assert (tiling.rows % tiling.m, tiling.columns % tiling.n) == (0, 0)
    assert plan.blocks == -(-m // tiling.rows) * -(-n // tiling.columns)


def test_the_formula_is_near_the_simulation() -> None:
    for shape in ((512, 128, 256), (64, 64, 64), (128, 64, 1024)):
        plan = plan_matrix_product(*shape, "int8", ONE)
        formula = formula_cycles(plan.product, plan.tiling, ONE)
        assert formula == pytest.approx(plan.cycles, rel=0.25)


def test_the_choice_beats_others() -> None:
    best = plan_matrix_product(128, 128, 128, "int8", ONE, simulate=False)
    assert best.timeline is None
    assert best.tiling == plan_matrix_product(128, 128, 128, "int8", ONE, simulate=False).tiling
    for rows in (16, 128):
        other = Tiling(rows, 16, 64, 128, 128)
        assert formula_cycles(best.product, other, ONE) > best.cycles


def test_what_cannot_be_planned() -> None:
    with pytest.raises(ValueError, match="m must be at least 1, not 0"):
        plan_matrix_product(0, 1, 1)
    with pytest.raises(ValueError, match="dtype must be int8 or bfloat16, not 'fp8'"):
        plan_matrix_product(1, 1, 1, "fp8")
    with pytest.raises(ValueError, match="name must be one of"):
        operators.plan_elementwise("cosine", 5, ONE)
    with pytest.raises(ValueError, match="n must be at least 1, not 0"):
        operators.plan_softmax(1, 0, ONE)


def test_operators_of_the_library() -> None:
    exp = operators.plan_elementwise("exp", 4096, REFERENCE)
    assert exp.timeline.blocks == 4
    assert exp.timeline.limiter is Pipe.VECTOR
    assert exp.bytes_moved == 2 * 4 * 4096
    add = operators.plan_elementwise("add", 4096, REFERENCE)
    assert (add.operations, add.bytes_moved) == (4096, 3 * 4 * 4096)
    assert exp.intensity > 10 * add.intensity
    short, long = (operators.plan_layer_norm(m, 300, ONE).timeline.core_cycles for m in (8, 80))
    assert 6 * short < long < 10 * short
    conv = Convolution(16, 16, 16, 32, 3, 3, 1, 1, "int32", False)
    assert operators.plan_convolution(2, conv, ONE).timeline.limiter is Pipe.CUBE
    pool = operators.plan_pooling(2, Pooling(16, 16, 32, 2, 2, "max", "float32"), ONE)
    assert pool.bytes_moved == 4 * 32 * (2 * 16 * 16 + 2 * 8 * 8)
    assert operators.plan_reduction("sum", 16, 64, ONE).timeline.traffic["GM", "write"] == 64


def operations() -> dict[str, Callable[..., object]]:
    """The runtime's public operations: the functions of `runtime.operations` that give an array."""
    found: dict[str, Callable[..., object]] = {}
    for module in iter_modules(runtime.operations.__path__, "runtime.operations."):
        public = import_module(module.name)
        for name in public.__all__:
            given = getattr(public, name)
            if isfunction(given) and signature(given).return_annotation is DeviceArray:
                found[name] = given
    return found


def test_each_operation_of_the_runtime_has_a_planner() -> None:
    assert len(operations()) > 30
    assert set(operators.OPERATIONS) == set(operations())


def arguments(name: str) -> tuple[Any, ...]:
    """Small sizes for the planner of an operation."""
    conv = Convolution(8, 8, 16, 8, 3, 3, 1, 1, "int32", False)
    given: dict[Callable[..., object], tuple[Any, ...]] = {
        operators.plan_elementwise: (name, 3000),
        operators.plan_reduction: (name.removeprefix("row_"), 9, 70),
        operators.plan_convolution: (2, conv),
        operators.plan_pooling: (2, Pooling(8, 8, 16, 2, 2, name.split("_")[0], "float32")),
        operators.plan_gemm: (20, 30, 40, "int8"),
        operators.plan_gemm_heads: (3, 20, 30, 40),
    }
    return given.get(operators.OPERATIONS[name], (9, 70))


@pytest.mark.parametrize("name", operators.OPERATIONS)
def test_each_planner_makes_a_plan(name: str) -> None:
    plan = operators.OPERATIONS[name](*arguments(name), REFERENCE)
    assert plan.timeline.traffic["GM", "read"] > 0
    assert plan.timeline.traffic["GM", "write"] > 0
    assert plan.timeline.cycles > REFERENCE.launch_cycles
    assert plan.operations > 0 or plan.unit == "vector unit"


def test_heads_are_products_in_one_launch() -> None:
    one = operators.plan_gemm(64, 64, 128, "bfloat16", ONE)
    heads = operators.plan_gemm_heads(6, 64, 64, 128, ONE)
    assert heads.timeline.macs == 6 * one.timeline.macs
    assert heads.timeline.cycles < 6 * one.timeline.cycles


def test_a_plan_as_text() -> None:
    result = invoke("gemm", "128", "128", "128", "--cores", "1")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "gemm 128 x 128 x 128 int8 on 1 core"
    [cube] = [line for line in lines if line.startswith("CUBE")]
    assert "8,192" in cube
    assert cube.endswith("<- limits")
    assert any("256 int8 Cube" in line and "==" in line for line in lines)
    assert sum("O" in line for line in lines if line.startswith("  |")) == 1
    assert lines[-2].startswith("Limit: CUBE, busy ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("gemm", "64", "48", "32", "--dtype", "bfloat16"),
        ("conv", "8", "8", "16", "8", "3", "--padding", "1", "--images", "2"),
        ("pool", "mean", "8", "8", "16", "2"),
        ("elementwise", "maximum", "5000"),
        ("softmax", "8", "100"),
        ("layernorm", "8", "100"),
        ("elementwise", "scale", "5000"),
        ("heads", "3", "20", "30", "40"),
        ("reduce", "mean", "8", "100"),
        ("addrow", "8", "100"),
        ("transpose", "70", "100"),
        ("gather", "50", "100"),
    ],
)
def test_a_plan_as_json(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.output.count("\n") == 1
    record: Any = json.loads(result.output)
    assert record["cores"] == 2
    pipes = record["pipes"]
    assert record["limiter"] == max(pipes, key=lambda name: pipes[name]["busy"])
    for times in pipes.values():
        assert times["busy"] + times["stall"] + times["idle"] == record["core_cycles"]
    assert record["bytes"]["GM"]["write"] > 0
    assert 0 <= record["share_of_peak"] < 1
    assert record["share_of_peak"] > 0 or arguments[0] == "gather"  # Only that computes nothing.
    text = invoke(*arguments)
    assert f"{record['cycles']:,} cycles from launch to end" in text.output


def test_bad_arguments_of_the_command_line() -> None:
    wrong = invoke("elementwise", "expp", "10")
    assert wrong.exit_code == 2
    assert "did you mean 'exp'" in wrong.output
    wrong = invoke("conv", "2", "2", "1", "1", "5")
    assert wrong.exit_code == 2
    assert "kernel must not be larger than the padded image" in wrong.output
    assert invoke("gemm", "0", "1", "1").exit_code == 2
    assert invoke("softmax", "4", "4", "--cores", "3").exit_code == 2
