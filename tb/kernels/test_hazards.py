"""No kernel of the library has a hazard, and none could lose a single wait or set unnoticed."""

from collections.abc import Callable
from typing import Any

import pytest

from abi.address import HBM_BASE
from abi.isa import INSTRUCTIONS
from runtime.compiler.kernel import KernelSource
from runtime.kernels.element_source import (
    binary_source,
    quantise_source,
    scale_source,
    unary_source,
)
from runtime.kernels.matrix_source import MatrixProduct, Tiling, matrix_source
from runtime.kernels.movement_source import gather_rows_source, transpose_source
from runtime.kernels.requantise_source import requantise_source
from runtime.kernels.row_source import (
    add_row_source,
    layer_norm_source,
    reduce_source,
    row_tiles,
    softmax_source,
)
from runtime.kernels.window_source import (
    Convolution,
    Pooling,
    convolution_source,
    pooling_source,
)
from runtime.toolchain.hazards import check_block
from runtime.toolchain.object import KernelObject
from tb.compiler.scheduled_core import BUFFERS

SIZES: dict[str, int | float] = {
    "n": 5000, "m": 40, "count": 12, "images": 3, "multiplier": 3, "shift": 4, "scale": 0.5,
    "inverse": 0.1, "epsilon": 0.1, "factor": 0.5,
}  # fmt: skip
NARROW = SIZES | {"n": 600}
LONG = SIZES | {"n": 20_000, "m": 4}
ONE_TILE = Tiling(16, 32, 64, 16, 32)

CASES: dict[str, tuple[Callable[[], KernelSource], dict[str, int | float]]] = {
    "add": (lambda: binary_source("add", "float32"), SIZES),
    "relu": (lambda: unary_source("relu"), SIZES),
    "quantise": (quantise_source, SIZES),
    "scale": (scale_source, SIZES),
    "add_row": (add_row_source, NARROW),
    "sum": (lambda: reduce_source("sum"), NARROW),
    "softmax": (softmax_source, NARROW),
    "layer_norm": (layer_norm_source, NARROW),
    "add_row, whole": (lambda: add_row_source(row_tiles(600)), NARROW),
    "sum, whole": (lambda: reduce_source("sum", row_tiles(600)), NARROW),
    "softmax, whole": (lambda: softmax_source(row_tiles(600)), NARROW),
    "layer_norm, whole": (lambda: layer_norm_source(row_tiles(600)), NARROW),
    "softmax, long": (lambda: softmax_source(row_tiles(20_000)), LONG),
    "pooling, cut": (
        lambda: pooling_source(Pooling(6, 6, 6000, 2, 4, "max", "float32")),
        SIZES,
    ),
    "transpose": (lambda: transpose_source("float32"), NARROW),
    "gather_rows": (lambda: gather_rows_source("float32"), NARROW),
    "requantise": (lambda: requantise_source(relu=False), SIZES | {"n": 20_000}),
    "int8 product": (
        lambda: matrix_source(
            MatrixProduct(40, 96, 200, "int8", "int8", bias=True, relu=True, requantise=(3, 4)),
            Tiling(16, 32, 64, 48, 96),
        ),
        {},
    ),
    "int8 product of one chunk": (
        lambda: matrix_source(
            MatrixProduct(40, 96, 60, "int8", "int32", bias=True), Tiling(16, 32, 64, 48, 96)
        ),
        {},
    ),
    "int8 product of one tile": (
        lambda: matrix_source(MatrixProduct(16, 32, 200, "int8", "int32"), ONE_TILE),
        {},
    ),
    "bf16 product": (
        lambda: matrix_source(
            MatrixProduct(40, 96, 200, "bfloat16", "float32", True, True),
            Tiling(16, 32, 64, 48, 96),
        ),
        {},
    ),
    "head product": (
        lambda: matrix_source(
            MatrixProduct(
                40,
                96,
                200,
                "bfloat16",
                "bfloat16",
                transpose_b=True,
                heads=2,
                strides=(200, 200, 96),
                steps=(8000, 19200, 3840),
            ),
            Tiling(16, 32, 64, 48, 96, 2),
        ),
        {},
    ),
    "convolution": (
        lambda: convolution_source(Convolution(12, 12, 3, 80, 3, 3, 1, 1, "int8", True)),
        SIZES,
    ),
    "deep convolution": (
        lambda: convolution_source(Convolution(6, 6, 192, 80, 3, 3, 1, 1, "int8", True)),
        SIZES,
    ),
    "pooling": (lambda: pooling_source(Pooling(8, 8, 5, 2, 2, "max", "int8")), SIZES),
    "pooling of large windows": (
        lambda: pooling_source(Pooling(8, 8, 5, 4, 4, "max", "int8")),
        SIZES,
    ),
}

_NOP = INSTRUCTIONS["addi"].match.to_bytes(4, "little")


def compiled(name: str) -> tuple[KernelObject, bytes]:
    factory, sizes = CASES[name]
    code = factory().compile(BUFFERS)
    values: dict[str, int | float] = {}
    for place, argument in enumerate(code.arguments):
        pointer = argument.size == 8
        values[argument.name] = HBM_BASE + (place << 20) if pointer else sizes[argument.name]
    return code, code.pack_arguments(values)


@pytest.mark.parametrize("name", CASES)
def test_no_hazards(name: str) -> None:
    code, arguments = compiled(name)
    report = check_block(code.code, arguments=arguments, flags_left=code.flags_left)
    assert report.is_clean, str(report)
    assert report.commands > 10


@pytest.mark.parametrize("name", CASES)
def test_each_wait_and_set_is_needed(name: str) -> None:
    code, arguments = compiled(name)
    flags = [INSTRUCTIONS["npu.wait"], INSTRUCTIONS["npu.set"]]
    places = [
        at
        for at in range(0, len(code.code), 4)
        if any(
            int.from_bytes(code.code[at : at + 4], "little") & flag.mask == flag.match
            for flag in flags
        )
    ]
    assert len(places) >= 4
    for at in places:
        broken = code.code[:at] + _NOP + code.code[at + 4 :]
        report: Any = check_block(broken, arguments=arguments)
        assert not report.is_clean, f"nothing wrong without the instruction at {at:#x}"
