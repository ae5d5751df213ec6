"""Operations element by element."""

from driver import tracing
from runtime.arguments import refuse
from runtime.kernels.element_source import (
    BINARY,
    UNARY,
    binary_source,
    dequantise_source,
    element_work,
    quantise_source,
    scale_source,
    unary_source,
)
from runtime.kernels.requantise_source import requantise_source, requantise_work
from runtime.memory import DeviceArray
from runtime.operations.launch import Operands, check_flag, check_requantise, run
from runtime.stream import Stream

__all__ = [
    "absolute",
    "add",
    "dequantise",
    "divide",
    "erf",
    "exp",
    "gelu",
    "log",
    "maximum",
    "minimum",
    "multiply",
    "quantise",
    "reciprocal",
    "reciprocal_root",
    "relu",
    "requantise",
    "scale",
    "sigmoid",
    "subtract",
    "tanh",
]


def _unary(
    name: str, x: DeviceArray, out: DeviceArray | None, stream: Stream | None
) -> DeviceArray:
    assert name in UNARY
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"])
    result = operands.result(out, x.shape, "float32")
    run(operands, unary_source, (name,), element_work(x.size, name), x, result, x.size)
    return result


def _binary(
    name: str, x: DeviceArray, y: DeviceArray, out: DeviceArray | None, stream: Stream | None
) -> DeviceArray:
    assert name in BINARY
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"] if name == "divide" else ["float32", "int32"])
    operands.add("y", y, [x.dtype.name], shape=x.shape)
    result = operands.result(out, x.shape, x.dtype.name)
    key = name, x.dtype.name
    run(operands, binary_source, key, element_work(x.size, name), x, y, result, x.size)
    return result


def relu(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """max(x, 0), fp32; a NaN gives 0."""
    return _unary("relu", x, out, stream)


def exp(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """e**x, fp32; 2 ulp."""
    return _unary("exp", x, out, stream)


def log(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Natural logarithm, fp32; 2 ulp."""
    return _unary("log", x, out, stream)


def reciprocal(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """1 / x, fp32; 1 ulp."""
    return _unary("reciprocal", x, out, stream)


def reciprocal_root(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """1 / sqrt(x), fp32; 2 ulp."""
    return _unary("reciprocal_root", x, out, stream)


def tanh(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Hyperbolic tangent, fp32; 3 ulp."""
    return _unary("tanh", x, out, stream)


def sigmoid(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """1 / (1 + e**-x), fp32; 4 ulp."""
    return _unary("sigmoid", x, out, stream)


def erf(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """Error function, fp32; 3 ulp."""
    return _unary("erf", x, out, stream)


def gelu(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """x / 2 * (1 + erf(x / sqrt 2)), fp32; absolute error at most 2e-7 * max(1, |x|)."""
    return _unary("gelu", x, out, stream)


def absolute(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """|x|, fp32."""
    return _unary("absolute", x, out, stream)


def add(
    x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """x + y, fp32 or int32, of the same shape."""
    return _binary("add", x, y, out, stream)


def subtract(
    x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """x - y, fp32 or int32, of the same shape."""
    return _binary("subtract", x, y, out, stream)


def multiply(
    x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """x * y, fp32 or int32 (low word), of the same shape."""
    return _binary("multiply", x, y, out, stream)


def divide(
    x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """x / y as x * reciprocal(y), fp32; 2 ulp as long as 1 / y is a normal number."""
    return _binary("divide", x, y, out, stream)


def maximum(
    x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """The larger of each pair, fp32 (a NaN is left out) or int32."""
    return _binary("largest", x, y, out, stream)


def minimum(
    x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """The smaller of each pair, fp32 (a NaN is left out) or int32."""
    return _binary("smallest", x, y, out, stream)


def check_scale(name: str, scale: object) -> float:
    """Check a factor.

    Raises:
        InvalidArgumentError: it is no number.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise refuse(name, "be a number", scale)
    return float(scale)


def scale(
    x: DeviceArray, factor: float, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """x * factor, fp32."""
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"])
    number = check_scale("factor", factor)
    result = operands.result(out, x.shape, "float32")
    run(operands, scale_source, (), element_work(x.size), x, result, x.size, number)
    return result


def quantise(
    x: DeviceArray, scale: float, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """int8 of fp32: x * scale, rounded to nearest even, saturated; a NaN gives 0."""
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32"])
    factor = check_scale("scale", scale)
    result = operands.result(out, x.shape, "int8")
    run(operands, quantise_source, (), element_work(x.size), x, result, x.size, factor)
    return result


def dequantise(
    x: DeviceArray, scale: float, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """fp32 of int8 or int32: x * scale."""
    operands = Operands("x", x, stream)
    operands.add("x", x, ["int8", "int32"])
    factor = check_scale("scale", scale)
    result = operands.result(out, x.shape, "float32")
    key = (x.dtype.name,)
    run(operands, dequantise_source, key, element_work(x.size), x, result, x.size, factor)
    return result


def requantise(
    x: DeviceArray,
    multiplier: int,
    shift: int,
    relu: bool = False,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """int8 of int32: `clip((x * multiplier + (1 << shift >> 1)) >> shift, -128, 127)`, after
    `max(x, 0)` if `relu`; multiplier from 0 to 2**31 - 1, shift from 0 to 62."""
    with tracing.span("api", "requantise"):
        operands = Operands("x", x, stream)
        operands.add("x", x, ["int32"])
        scale = check_requantise("requantise", (multiplier, shift))
        assert scale is not None
        positive = check_flag("relu", relu)
        result = operands.result(out, x.shape, "int8")
        work = requantise_work(x.size)
        run(operands, requantise_source, (positive,), work, x, result, x.size, *scale)
        return result
