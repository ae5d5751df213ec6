"""Matrix products of int8 and bfloat16, with transposed operands."""

from driver import tracing
from runtime.arguments import check_integer, refuse
from runtime.kernels.buffers import core_buffers
from runtime.kernels.element_source import convert_source, element_work
from runtime.kernels.matrix_source import MatrixProduct, matrix_source
from runtime.memory import DeviceArray
from runtime.operations.launch import Operands, check_flag, check_requantise, launch, run
from runtime.planner.chip import Chip
from runtime.planner.matrix import plan_product
from runtime.stream import Stream

__all__ = ["from_bfloat16", "gemm", "gemm_heads", "to_bfloat16"]

TIMEOUT_FACTOR = 16
TIMEOUT_SLACK = 1_000_000
LARGEST_TIMEOUT = (1 << 32) - 1


def _multiply(operands: Operands, product: MatrixProduct, *arrays: DeviceArray) -> None:
    """Launch a product, tiled by the estimator's formula; its timeout is a generous multiple of
    the estimate. `arrays`: A, B, the result and the bias, if any."""
    info = operands.device.info
    chip = Chip(cores=info.cores, buffers=core_buffers(operands.device), bf16_depth=info.bf16_depth)
    plan = plan_product(product, chip)
    timeout = min(LARGEST_TIMEOUT, TIMEOUT_FACTOR * plan.cycles + TIMEOUT_SLACK)
    key = product, plan.tiling
    launch(operands, matrix_source, key, plan.blocks, *arrays, timeout=timeout)


def _output_type(integer: bool, scale: tuple[int, int] | None, output: str | None) -> str:
    """The dtype of a result; of bfloat16, that of its bits."""
    if integer:
        if output is not None:
            raise refuse("output", "be None for int8 operands", output)
        return "int32" if scale is None else "int8"
    if scale is not None:
        raise refuse("requantise", "be None for bfloat16 operands", scale)
    if output not in (None, "float32", "uint16"):
        raise refuse("output", "be float32 or uint16", output)
    return output or "float32"


def gemm(
    a: DeviceArray,
    b: DeviceArray,
    out: DeviceArray | None = None,
    bias: DeviceArray | None = None,
    relu: bool = False,
    requantise: tuple[int, int] | None = None,
    stream: Stream | None = None,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    output: str | None = None,
) -> DeviceArray:
    """Submit `out = a @ b + bias`, of int8 with int32 sums or of bfloat16 with fp32 sums; returns
    `out` at once.

    All sizes are at least 1. Sums of int8 wrap at 32 bits. Each shape has a kernel of its own,
    compiled and uploaded when it is first used.

    Args:
        a: (M, K), or (K, M) if `transpose_a`. int8, or uint16 with the bits of bfloat16.
        b: (K, N), or (N, K) if `transpose_b`; same type.
        out: (M, N); None: a new array.
        bias: int32 (N,); int8 operands only.
        relu: negative sums become 0.
        requantise: (multiplier, shift) for int8 output of int8 operands,
            `clip((x * multiplier + (1 << shift >> 1)) >> shift, -128, 127)`, with multiplier from
            0 to 2**31 - 1 and shift from 0 to 62; None: int32.
        output: for bfloat16 operands, "float32" (None) or "uint16": bfloat16 bits.

    Raises:
        InvalidArgumentError: an argument breaks its rule; nothing was submitted.
        OutOfMemoryError: no memory for the output or the kernel.
        NpuError: the stream takes no work.
    """
    with tracing.span("api", "gemm"):
        operands = Operands("a", a, stream)
        operands.add("a", a, ["int8", "uint16"], ndim=2)
        operands.add("b", b, [a.dtype.name], ndim=2)
        turn_a = check_flag("transpose_a", transpose_a)
        turn_b = check_flag("transpose_b", transpose_b)
        m, k = a.shape[::-1] if turn_a else a.shape
        inner, n = b.shape[::-1] if turn_b else b.shape
        if inner != k:
            raise refuse("b", f"have {k} rows, the columns of a (after transposing)", b.shape)
        integer = a.dtype.name == "int8"
        scale = check_requantise("requantise", requantise)
        if bias is not None:
            if not integer:
                raise refuse("bias", "be None for bfloat16 operands", bias)
            operands.add("bias", bias, ["int32"], shape=(n,))
        dtype = _output_type(integer, scale, output)
        product = MatrixProduct(
            m, n, k, "int8" if integer else "bfloat16", "bfloat16" if dtype == "uint16" else dtype,
            turn_a, turn_b, bias is not None, check_flag("relu", relu), scale or (0, 0),
        )  # fmt: skip
        result = operands.result(out, (m, n), dtype)
        _multiply(operands, product, a, b, result, *([] if bias is None else [bias]))
        return result


class _Heads:
    """Matrices of heads: (heads, rows, columns), or side by side as (rows, heads * columns)."""

    def __init__(self, name: str, array: DeviceArray, heads: int) -> None:
        if array.ndim == 3 and array.shape[0] == heads:
            _, self.rows, self.columns = array.shape
            self.stride, self.step = self.columns, self.rows * self.columns
        elif array.ndim == 2 and array.shape[1] % heads == 0:
            self.rows, self.stride = array.shape
            self.columns = self.step = self.stride // heads
        else:
            raise refuse(
                name,
                f"have shape ({heads}, rows, columns) or (rows, {heads} * columns)",
                array.shape,
            )


def gemm_heads(
    a: DeviceArray,
    b: DeviceArray,
    heads: int,
    *,
    transpose_b: bool = False,
    side_by_side: bool = False,
    output: str | None = None,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """A product of bfloat16 for each head of an attention, in one launch.

    The heads of a two-dimensional operand lie side by side, as a projection leaves them.

    Args:
        a: uint16 with the bits of bfloat16, (heads, m, k) or (m, heads * k).
        b: same type, (heads, k, n) or (k, heads * n); if `transpose_b` (heads, n, k) or
            (n, heads * k).
        heads: how many, 1 to 65535.
        side_by_side: the result is (m, heads * n), not (heads, m, n).
        output: "float32" (None) or "uint16": bfloat16 bits.

    Raises:
        InvalidArgumentError: an argument breaks its rule; nothing was submitted.
    """
    operands = Operands("a", a, stream)
    operands.add("a", a, ["uint16"])
    operands.add("b", b, ["uint16"])
    count = check_integer("heads", heads, 1, (1 << 16) - 1)
    left, right = _Heads("a", a, count), _Heads("b", b, count)
    m, depth = left.rows, left.columns
    inner, n = (right.columns, right.rows) if transpose_b else (right.rows, right.columns)
    if inner != depth:
        raise refuse(
            "b", f"have {depth} rows a head, the columns of a (after transposing)", b.shape
        )
    dtype = _output_type(False, None, output)
    shape = (m, count * n) if side_by_side else (count, m, n)
    result = operands.result(out, shape, dtype)
    target = _Heads("out", result, count)
    product = MatrixProduct(
        m, n, depth, "bfloat16", "bfloat16" if dtype == "uint16" else dtype,
        transpose_b=check_flag("transpose_b", transpose_b), heads=count,
        strides=(left.stride, right.stride, target.stride),
        steps=(left.step, right.step, target.step),
    )  # fmt: skip
    _multiply(operands, product, a, b, result)
    return result


def _convert(
    x: DeviceArray, types: tuple[str, str], out: DeviceArray | None, stream: Stream | None
) -> DeviceArray:
    names = {"bfloat16": "uint16", "float32": "float32"}
    source, target = types
    operands = Operands("x", x, stream)
    operands.add("x", x, [names[source]])
    result = operands.result(out, x.shape, names[target])
    run(operands, convert_source, types, element_work(x.size), x, result, x.size)
    return result


def to_bfloat16(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """fp32 rounded to bfloat16 (ties to even), as uint16 bits."""
    return _convert(x, ("float32", "bfloat16"), out, stream)


def from_bfloat16(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """uint16 bits of bfloat16 as fp32; exact."""
    return _convert(x, ("bfloat16", "float32"), out, stream)
