"""Matrix products of int8 and bfloat16, with transposed operands."""

import numpy as np

from runtime.arguments import check_integer, refuse
from runtime.kernels.buffers import core_buffers
from runtime.kernels.element_source import TILE, convert_source
from runtime.kernels.gemm import check_requantise
from runtime.kernels.matrix_source import MatrixProduct, head_product_source, matrix_source
from runtime.kernels.tiling import BLOCKS_PER_CORE, divide_up
from runtime.memory import DeviceArray
from runtime.operations.launch import Operands, run
from runtime.planner.chip import Chip
from runtime.planner.matrix import plan_matrix_product
from runtime.stream import Stream

__all__ = ["from_bfloat16", "matmul", "matmul_heads", "to_bfloat16"]


def _tiles(
    operands: Operands, m: int, n: int, depth: int, dtype: str, output: str, **how: bool
) -> MatrixProduct:
    """Tiles of a product, by the estimator's formula for the operands' device."""
    info = operands.device.info
    chip = Chip(cores=info.cores, buffers=core_buffers(operands.device), bf16_depth=info.bf16_depth)
    plan = plan_matrix_product(m, n, depth, dtype, chip, output=output, simulate=False, **how)
    return plan.product


def matmul(
    a: DeviceArray,
    b: DeviceArray,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: DeviceArray | None = None,
    relu: bool = False,
    requantise: tuple[int, int] | None = None,
    output: str | None = None,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """A @ B of int8 with int32 sums, or of bfloat16 with fp32 sums.

    Args:
        a: (m, k), or (k, m) if `transpose_a`. int8, or uint16 with the bits of bfloat16.
        b: (k, n), or (n, k) if `transpose_b`; same type.
        bias: int32 (n,); int8 operands only.
        relu: negative sums become 0.
        requantise: (multiplier, shift) for int8 output of int8 operands, as in `gemm`.
        output: for bfloat16 operands, "float32" (None) or "uint16": bfloat16 bits.

    Raises:
        InvalidArgumentError: an argument breaks its rule; nothing was submitted.
    """
    operands = Operands("a", a, stream)
    operands.add("a", a, ["int8", "uint16"], ndim=2)
    operands.add("b", b, [a.dtype.name], ndim=2)
    m, depth = a.shape[::-1] if transpose_a else a.shape
    inner, n = b.shape[::-1] if transpose_b else b.shape
    if inner != depth:
        raise refuse("b", f"have {depth} rows, the columns of a (after transposing)", b.shape)
    integer = a.dtype == np.int8
    scale = check_requantise("requantise", requantise)
    if bias is not None:
        if not integer:
            raise refuse("bias", "be None for bfloat16 operands", bias)
        operands.add("bias", bias, ["int32"], shape=(n,))
    if integer:
        if output is not None:
            raise refuse("output", "be None for int8 operands", output)
        dtype = "int32" if scale is None else "int8"
    else:
        if scale is not None:
            raise refuse("requantise", "be None for bfloat16 operands", requantise)
        if output not in (None, "float32", "uint16"):
            raise refuse("output", "be float32 or uint16", output)
        dtype = output or "float32"
    result = operands.result(out, (m, n), dtype)
    product = _tiles(
        operands,
        m,
        n,
        depth,
        "int8" if integer else "bfloat16",
        "bfloat16" if dtype == "uint16" else dtype,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        bias=bias is not None,
        relu=bool(relu),
    )
    tiles = divide_up(m, product.m) * divide_up(n, product.n)
    most = BLOCKS_PER_CORE * operands.device.info.cores
    per_block = divide_up(tiles, most)
    multiplier, shift = scale or (0, 0)
    run(
        operands, matrix_source, (product,), divide_up(tiles, per_block),
        a, b, bias, result, m, n, depth, a.shape[1], b.shape[1], n, multiplier, shift, per_block,
    )  # fmt: skip
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


def matmul_heads(
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
    if output not in (None, "float32", "uint16"):
        raise refuse("output", "be float32 or uint16", output)
    shape = (m, count * n) if side_by_side else (count, m, n)
    result = operands.result(out, shape, output or "float32")
    target = _Heads("out", result, count)
    product = _tiles(
        operands,
        m,
        n,
        depth,
        "bfloat16",
        "bfloat16" if output == "uint16" else "float32",
        transpose_b=transpose_b,
    )
    tiles = count * divide_up(m, product.m) * divide_up(n, product.n)
    per_block = divide_up(tiles, BLOCKS_PER_CORE * operands.device.info.cores)
    run(
        operands, head_product_source, (product,), divide_up(tiles, per_block),
        a, b, result, count, m, n, depth, left.stride, right.stride, target.stride,
        left.step, right.step, target.step, per_block,
    )  # fmt: skip
    return result


def _convert(
    x: DeviceArray, types: tuple[str, str], out: DeviceArray | None, stream: Stream | None
) -> DeviceArray:
    names = {"bfloat16": "uint16", "float32": "float32"}
    source, target = types
    operands = Operands("x", x, stream)
    operands.add("x", x, [names[source]])
    result = operands.result(out, x.shape, names[target])
    run(operands, convert_source, types, divide_up(x.size, TILE), x, result, x.size)
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
