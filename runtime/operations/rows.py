"""Operations on the rows of a matrix: reductions and normalisations of its last axis."""

from runtime.kernels.row_source import (
    add_row_source,
    layer_norm_source,
    reduce_source,
    row_tiles,
    row_work,
    softmax_source,
)
from runtime.memory import DeviceArray
from runtime.operations.elements import check_scale
from runtime.operations.launch import Operands, run
from runtime.stream import Stream

__all__ = ["add_row", "layer_norm", "row_max", "row_mean", "row_min", "row_sum", "softmax"]


def _reduce(
    name: str, x: DeviceArray, out: DeviceArray | None, stream: Stream | None
) -> DeviceArray:
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"], ndim=2)
    m, n = x.shape
    result = operands.result(out, (m,), "float32")
    arguments = x, result, m, n, 1 / n
    run(operands, reduce_source, (name, row_tiles(n)), row_work("reduce", m, n), *arguments)
    return result


def row_sum(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Sum of each row of fp32 (m, n), as (m,)."""
    return _reduce("sum", x, out, stream)


def row_mean(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Mean of each row of fp32 (m, n), as (m,)."""
    return _reduce("mean", x, out, stream)


def row_max(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Largest of each row of fp32 (m, n), as (m,); a NaN is left out."""
    return _reduce("max", x, out, stream)


def row_min(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Smallest of each row of fp32 (m, n), as (m,); a NaN is left out."""
    return _reduce("min", x, out, stream)


def add_row(
    x: DeviceArray,
    row: DeviceArray,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """x + row: fp32 row (n,) added to each row of fp32 x (m, n), as the bias of a layer is."""
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"], ndim=2)
    m, n = x.shape
    operands.add("row", row, ["float32"], shape=(n,))
    result = operands.result(out, x.shape, "float32")
    run(operands, add_row_source, (row_tiles(n),), row_work("add_row", m, n), x, row, result, m, n)
    return result


def softmax(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Softmax of each row of fp32 (m, n)."""
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"], ndim=2)
    m, n = x.shape
    result = operands.result(out, x.shape, "float32")
    run(operands, softmax_source, (row_tiles(n),), row_work("softmax", m, n), x, result, m, n)
    return result


def layer_norm(
    x: DeviceArray,
    gain: DeviceArray,
    bias: DeviceArray,
    epsilon: float = 1e-5,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """(x - mean) / sqrt(variance + epsilon) * gain + bias of each row; all fp32, x (m, n), gain
    and bias (n,)."""
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"], ndim=2)
    m, n = x.shape
    operands.add("gain", gain, ["float32"], shape=(n,))
    operands.add("bias", bias, ["float32"], shape=(n,))
    small = check_scale("epsilon", epsilon)
    result = operands.result(out, x.shape, "float32")
    run(
        operands, layer_norm_source, (row_tiles(n),), row_work("layer_norm", m, n),
        x, gain, bias, result, m, n, 1 / n, small,
    )  # fmt: skip
    return result
