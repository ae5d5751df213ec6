"""Operations that slide a window over images, NHWC."""

from runtime.arguments import check_integer, refuse
from runtime.kernels.window_source import (
    Convolution,
    Pooling,
    convolution_source,
    convolution_work,
    pooling_source,
    pooling_work,
)
from runtime.memory import DeviceArray
from runtime.operations.launch import Operands, check_requantise, run
from runtime.stream import Stream

__all__ = ["conv2d", "max_pool2d", "mean_pool2d"]

LARGEST_STRIDE = 15
LARGEST_PADDING = 255


def conv2d(
    x: DeviceArray,
    w: DeviceArray,
    bias: DeviceArray,
    *,
    stride: int = 1,
    padding: int = 0,
    relu: bool = False,
    requantise: tuple[int, int] | None = None,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """Convolution with int32 sums.

    Args:
        x: int8 (images, height, width, channels).
        w: int8 (kernel_height, kernel_width, channels, filters).
        bias: int32 (filters,).
        stride: pixels from window to window, 1 to 15.
        padding: pixels of zeros on each side, 0 to 255.
        relu: negative sums become 0.
        requantise: (multiplier, shift) for int8 output, as in `gemm`; None gives int32.

    Raises:
        InvalidArgumentError: an argument breaks its rule, or the kernel is larger than the padded
            image, or an image or a row of the kernel too large for a core; nothing was submitted.
    """
    operands = Operands("x", x, stream)
    operands.add("x", x, ["int8"], ndim=4)
    operands.add("w", w, ["int8"], ndim=4)
    images, height, width, channels = x.shape
    kernel_height, kernel_width, inner, filters = w.shape
    if inner != channels:
        raise refuse("w", f"have the {channels} channels of x", w.shape)
    operands.add("bias", bias, ["int32"], shape=(filters,))
    step = check_integer("stride", stride, 1, LARGEST_STRIDE)
    border = check_integer("padding", padding, 0, LARGEST_PADDING)
    scale = check_requantise("requantise", requantise)
    output = "int32" if scale is None else "int8"
    shape = Convolution(
        height, width, channels, filters, kernel_height, kernel_width, step, border, output,
        bool(relu),
    )  # fmt: skip
    if shape.out_height < 1 or shape.out_width < 1:
        raise refuse("w", "not be larger than the padded image", w.shape)
    size = images, shape.out_height, shape.out_width, filters
    result = operands.result(out, size, output)
    multiplier, shift = scale or (0, 0)
    run(
        operands, convolution_source, (shape,), convolution_work(images, shape), x, w, bias, result,
        images, multiplier, shift,
    )  # fmt: skip
    return result


def _pool(
    kind: str,
    x: DeviceArray,
    window: int,
    stride: int | None,
    out: DeviceArray | None,
    queue: Stream | None,
) -> DeviceArray:
    operands = Operands("x", x, queue)
    operands.add("x", x, ["float32", "int8"] if kind == "max" else ["float32"], ndim=4)
    images, height, width, channels = x.shape
    side = check_integer("window", window, 1, min(height, width))
    step = side if stride is None else check_integer("stride", stride, 1, 1 << 15)
    shape = Pooling(height, width, channels, side, step, kind, x.dtype.name)
    size = images, shape.out_height, shape.out_width, channels
    result = operands.result(out, size, x.dtype.name)
    run(operands, pooling_source, (shape,), pooling_work(images, shape), x, result, images)
    return result


def max_pool2d(
    x: DeviceArray,
    window: int,
    stride: int | None = None,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """Largest of each window by window pixels of fp32 or int8 (images, height, width, channels);
    `stride` is that of the windows, None: `window`."""
    return _pool("max", x, window, stride, out, stream)


def mean_pool2d(
    x: DeviceArray,
    window: int,
    stride: int | None = None,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """Mean of each window of fp32 (images, height, width, channels); see `max_pool2d`."""
    return _pool("mean", x, window, stride, out, stream)
