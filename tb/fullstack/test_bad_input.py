"""Bad input to every public call: an exception that names argument, rule and value; nothing is
submitted and nothing is leaked."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import runtime
from abi.packet import PacketOpcode
from runtime import (
    Device,
    InvalidArgumentError,
    NotFinishedError,
    NpuError,
    OutOfMemoryError,
    StaleHandleError,
)
from runtime.profiling import read_counters
from tb.fullstack import objects
from tb.fullstack.bad_launches import LAUNCHES

# Without types, as a user who makes mistakes calls them.
gemm: Any = runtime.gemm
requantise: Any = runtime.requantise
padded_macs: Any = runtime.padded_macs
Stream: Any = runtime.Stream
Event: Any = runtime.Event


def anything(call: Any) -> Any:
    """A call without its types."""
    return call


Call = Callable[[SimpleNamespace], object]


def state(device: Device) -> tuple[object, ...]:
    """Packets submitted, and what is allocated."""
    device.heap.reap()
    driver = device.driver
    return (
        [stream.submitted_packets for stream in device.streams],
        driver.hbm.allocations,
        driver.hbm.used_bytes,
        driver.pages.pages,
        len(driver.queues.live),
        len(device.programs),
    )


@pytest.fixture
def things(device: Device) -> SimpleNamespace:
    """Operands, among them unfit ones."""
    freed = device.malloc(64)
    freed_array = device.array(np.zeros((4, 4), np.int8))
    freed_pinned = device.pinned(64, np.uint8)
    freed_pinned.free()
    freed.free()
    freed_array.free()
    made = SimpleNamespace(
        device=device,
        a=device.array(np.ones((4, 8), np.int8)),
        b=device.array(np.ones((8, 16), np.int8)),
        bias=device.array(np.zeros(16, np.int32)),
        int32=device.array(np.zeros((4, 16), np.int32)),
        int8=device.array(np.zeros((4, 16), np.int8)),
        wide=device.empty(3, np.complex128),
        buffer=device.malloc(100),
        pinned=device.pinned(100, np.uint8),
        freed=freed,
        freed_pinned=freed_pinned,
        freed_array=freed_array,
        host=np.zeros(100, np.uint8),
        read_only=np.zeros(100, np.uint8),
        event=device.event(),
        stream=device.stream(),
        module=device.load(objects.axpy()),
        kernel=device.load(objects.axpy()).kernel("axpy"),
        wide_kernel=device.load(objects.squares()).kernel(),
    )
    made.read_only.flags.writeable = False
    device.synchronize()
    return made


CASES: list[tuple[str, Call, type[Exception], str]] = [
    # Memory.
    (
        "malloc zero",
        lambda t: t.device.malloc(0),
        InvalidArgumentError,
        "nbytes .*at least 1, not 0",
    ),
    ("malloc negative", lambda t: t.device.malloc(-5), InvalidArgumentError, "nbytes .*, not -5"),
    ("malloc None", lambda t: t.device.malloc(None), InvalidArgumentError, "nbytes .*, not None"),
    ("malloc float", lambda t: t.device.malloc(1.5), InvalidArgumentError, "nbytes .*, not 1.5"),
    ("malloc bool", lambda t: t.device.malloc(True), InvalidArgumentError, "nbytes .*, not True"),
    ("malloc huge", lambda t: t.device.malloc(1 << 40), OutOfMemoryError, "nbytes must be at most"),
    (
        "malloc all",
        lambda t: t.device.malloc(t.device.info.hbm_bytes),
        OutOfMemoryError,
        "bytes asked for",
    ),
    (
        "empty shape",
        lambda t: t.device.empty((3, 0), np.int8),
        InvalidArgumentError,
        r"shape .*3, 0",
    ),
    (
        "empty no shape",
        lambda t: t.device.empty((), np.int8),
        InvalidArgumentError,
        "shape must have",
    ),
    (
        "empty None",
        lambda t: t.device.empty(None, np.int8),
        InvalidArgumentError,
        "shape .*not None",
    ),
    ("empty dtype", lambda t: t.device.empty(3, "x9"), InvalidArgumentError, "dtype .*, not 'x9'"),
    (
        "empty object",
        lambda t: t.device.empty(3, object),
        InvalidArgumentError,
        "dtype .*fixed size",
    ),
    ("empty no dtype", lambda t: t.device.empty(3, None), InvalidArgumentError, "dtype .*not None"),
    (
        "array list",
        lambda t: t.device.array([1, 2]),
        InvalidArgumentError,
        r"source .*not \[1, 2\]",
    ),
    (
        "array empty",
        lambda t: t.device.array(np.zeros(0)),
        InvalidArgumentError,
        "source .*one element",
    ),
    (
        "array object",
        lambda t: t.device.array(np.array([{}])),
        InvalidArgumentError,
        "source.dtype",
    ),
    (
        "pinned shape",
        lambda t: t.device.pinned(-1, np.int8),
        InvalidArgumentError,
        "shape .*not -1",
    ),
    ("pinned huge", lambda t: t.device.pinned(1 << 33, np.int8), OutOfMemoryError, "no run of"),
    ("free host", lambda t: t.device.free(t.host), InvalidArgumentError, "memory must be a Device"),
    (
        "free None",
        lambda t: t.device.free(None),
        InvalidArgumentError,
        "memory must be a DeviceBuffer",
    ),
    ("free twice", lambda t: t.device.free(t.freed), StaleHandleError, "memory was freed"),
    ("free array twice", lambda t: t.freed_array.free(), StaleHandleError, "was freed"),
    ("reshape", lambda t: t.a.reshape(5, 5), InvalidArgumentError, "shape must have 32"),
    ("view step", lambda t: t.a[::2], InvalidArgumentError, "index .*step 1"),
    ("view empty", lambda t: t.a[2:2], InvalidArgumentError, "index .*not empty"),
    ("view tuple", lambda t: t.a[1, 2], InvalidArgumentError, r"index .*\(1, 2\)"),
    ("view outside", lambda t: t.a[4], IndexError, "index must be below 4, not 4"),
    ("numpy freed", lambda t: t.freed_array.numpy(), StaleHandleError, "src was freed"),
    # Copies.
    ("copy None", lambda t: t.device.memcpy(None, t.host), InvalidArgumentError, "dst .*not None"),
    (
        "copy bytes",
        lambda t: t.device.memcpy(t.buffer, b"x"),
        InvalidArgumentError,
        "src .*not b'x'",
    ),
    (
        "copy sizes",
        lambda t: t.device.memcpy(t.buffer, np.zeros(99, np.uint8)),
        InvalidArgumentError,
        "dst must have the 99 bytes of src, not 100",
    ),
    (
        "copy dtypes",
        lambda t: t.device.memcpy(t.int8, np.zeros((4, 16), np.uint8)),
        InvalidArgumentError,
        "dst must have the dtype of src, uint8, not dtype",
    ),
    (
        "copy both pageable",
        lambda t: t.device.memcpy(t.host, t.host.copy()),
        InvalidArgumentError,
        "dst or src must lie in device or pinned memory",
    ),
    (
        "copy strided",
        lambda t: t.device.memcpy(t.buffer, np.zeros((100, 2), np.uint8)[:, 0]),
        InvalidArgumentError,
        "src must be C-contiguous",
    ),
    (
        "copy read-only",
        lambda t: t.device.memcpy(t.read_only, t.buffer),
        InvalidArgumentError,
        "dst must be writeable",
    ),
    (
        "copy overlap",
        lambda t: t.device.memcpy(t.a[0:2], t.a[1:3]),
        InvalidArgumentError,
        "dst must not overlap src",
    ),
    (
        "copy freed",
        lambda t: t.device.memcpy(t.freed, t.host[:64]),
        StaleHandleError,
        "dst was freed",
    ),
    (
        "copy stream",
        lambda t: t.device.memcpy_async(t.buffer, t.host, "s"),
        InvalidArgumentError,
        "stream must be a Stream or None, not 's'",
    ),
    (
        "2d rows",
        lambda t: t.device.memcpy_2d(t.buffer, 10, t.host, 10, 10, 11),
        InvalidArgumentError,
        "dst must have at least 110 bytes for 11 rows, not 100",
    ),
    (
        "2d no rows",
        lambda t: t.device.memcpy_2d(t.buffer, 10, t.host, 10, 10, 0),
        InvalidArgumentError,
        "rows must be an integer",
    ),
    (
        "2d pitch",
        lambda t: t.device.memcpy_2d(t.buffer, 9, t.host, 10, 10, 2),
        InvalidArgumentError,
        "dst_pitch must be .* not 9",
    ),
    ("memset value", lambda t: t.device.memset(t.a, 256), InvalidArgumentError, "value .*not 256"),
    (
        "memset host",
        lambda t: t.device.memset(t.host, 0),
        InvalidArgumentError,
        "dst must be a Dev",
    ),
    ("memset freed", lambda t: t.device.memset(t.freed, 0), StaleHandleError, "dst was freed"),
    (
        "fill buffer",
        lambda t: t.device.fill(t.buffer, 0),
        InvalidArgumentError,
        "dst .*DeviceArray",
    ),
    (
        "fill wide",
        lambda t: t.device.fill(t.wide, 0),
        InvalidArgumentError,
        "dst must have elements of 1, 2, 4 or 8",
    ),
    (
        "2d async stream",
        lambda t: t.device.memcpy_2d_async(t.buffer, 10, t.host, 10, 10, 2, 7),
        InvalidArgumentError,
        "stream must be a Stream or None, not 7",
    ),
    # Streams and events.
    ("priority", lambda t: t.device.stream(priority=4), InvalidArgumentError, "priority .*not 4"),
    (
        "task timeout",
        lambda t: t.device.stream(task_timeout=0),
        InvalidArgumentError,
        "task_timeout",
    ),
    *(
        (
            f"block timeout {value!r}",
            lambda t, value=value: t.device.stream(block_timeout=value),
            InvalidArgumentError,
            f"block_timeout .*not {value!r}",
        )
        for value in (0, -1, 1.5, True, None, 1 << 63)
    ),
    ("timeout", lambda t: t.stream.synchronize(0), InvalidArgumentError, "timeout .*not 0"),
    (
        "timeout float",
        lambda t: t.device.synchronize(0.5),
        InvalidArgumentError,
        "timeout .*not 0.5",
    ),
    ("event timeout", lambda t: t.event.synchronize(-1), InvalidArgumentError, "timeout"),
    ("wait None", lambda t: t.stream.wait(None), InvalidArgumentError, "event .*not None"),
    ("record", lambda t: t.event.record(3), InvalidArgumentError, "stream .*not 3"),
    ("elapsed", lambda t: t.event.elapsed_cycles(None), InvalidArgumentError, "end .*None"),
    (
        "elapsed early",
        lambda t: t.event.elapsed_cycles(t.event),
        NotFinishedError,
        "record",
    ),
    # Kernels.
    (
        "gemm host",
        lambda t: gemm(np.ones((2, 2), np.int8), t.b),
        InvalidArgumentError,
        "a must",
    ),
    ("gemm None", lambda t: gemm(t.a, None), InvalidArgumentError, "b must be a DeviceArray"),
    (
        "gemm dtype",
        lambda t: gemm(t.int32, t.b),
        InvalidArgumentError,
        "a .*int8 or uint16, not dt",
    ),
    ("gemm inner", lambda t: gemm(t.a, t.a), InvalidArgumentError, "b must have 8 rows"),
    ("gemm dims", lambda t: gemm(t.a, t.b[0]), InvalidArgumentError, "b .*2 dimensions"),
    ("gemm freed", lambda t: gemm(t.freed_array, t.b), StaleHandleError, "a was freed"),
    (
        "gemm out shape",
        lambda t: gemm(t.a, t.b, t.int32.reshape(16, 4)),
        InvalidArgumentError,
        r"out must have shape \(4, 16\), not \(16, 4\)",
    ),
    (
        "gemm out dtype",
        lambda t: gemm(t.a, t.b, t.int8),
        InvalidArgumentError,
        "out .*int32",
    ),
    (
        "gemm in place",
        lambda t: gemm(
            t.a,
            t.b,
            t.b.reshape(8, 16)[0:4],
            requantise=(1, 0),
        ),
        InvalidArgumentError,
        "out must not overlap an input",
    ),
    (
        "gemm bias",
        lambda t: gemm(t.a, t.b, bias=t.int8),
        InvalidArgumentError,
        "bias must have dtype int32",
    ),
    (
        "gemm bias shape",
        lambda t: gemm(t.a, t.b, bias=t.bias[0:15]),
        InvalidArgumentError,
        r"bias must have shape \(16,\), not \(15,\)",
    ),
    ("gemm relu", lambda t: gemm(t.a, t.b, relu=2), InvalidArgumentError, "relu .*not 2"),
    (
        "gemm scale",
        lambda t: gemm(t.a, t.b, requantise=(1,)),
        InvalidArgumentError,
        r"requantise must be \(multiplier, shift\) or None, not \(1,\)",
    ),
    (
        "gemm multiplier",
        lambda t: gemm(t.a, t.b, requantise=(1 << 31, 0)),
        InvalidArgumentError,
        "multiplier must be .*, not 2147483648",
    ),
    (
        "gemm shift",
        lambda t: gemm(t.a, t.b, requantise=(1, 63)),
        InvalidArgumentError,
        "shift must be an integer from 0 to 62, not 63",
    ),
    ("gemm stream", lambda t: gemm(t.a, t.b, stream=1), InvalidArgumentError, "stream"),
    ("requantise dtype", lambda t: requantise(t.a, 1, 0), InvalidArgumentError, "x .*int32"),
    (
        "requantise host",
        lambda t: requantise(t.host, 1, 0),
        InvalidArgumentError,
        "x must be",
    ),
    # Construction, and calls below the kernels.
    ("device bus", lambda _: anything(Device)(3), InvalidArgumentError, "bus must be a Bus.*not 3"),
    ("device twice", lambda t: Device(t.device.bus), StaleHandleError, "open"),
    (
        "open bus",
        lambda _: anything(Device.open)("x"),
        InvalidArgumentError,
        "bus must be a Bus.*not 'x'",
    ),
    (
        "stream device",
        lambda _: Stream(None),
        InvalidArgumentError,
        "device must be a Device.*None",
    ),
    ("stream depth", lambda t: t.device.stream(depth=3), InvalidArgumentError, "depth .*not 3"),
    (
        "stream priority",
        lambda t: Stream(t.device, priority=4),
        InvalidArgumentError,
        "priority .*not 4",
    ),
    ("event device", lambda _: Event("x"), InvalidArgumentError, "device must be a Device.*'x'"),
    ("submit None", lambda t: t.stream.submit(None), InvalidArgumentError, "packets .*not None"),
    (
        "submit opcode",
        lambda t: t.stream.submit([(PacketOpcode.NOP, {}), (99, {})]),
        InvalidArgumentError,
        "packets must",
    ),
    (
        "submit field",
        lambda t: t.stream.submit([(PacketOpcode.NOP, {}), (PacketOpcode.COPY, {"size": 1})]),
        InvalidArgumentError,
        "packets must .*size",
    ),
    (
        "submit negative",
        lambda t: t.stream.submit([(PacketOpcode.NOP, {}), (PacketOpcode.COPY, {"rows": -1})]),
        InvalidArgumentError,
        "packets must",
    ),
    ("record event", lambda t: t.stream.record(None), InvalidArgumentError, "event .*not None"),
    ("macs zero", lambda _: padded_macs(0, 1, 1), InvalidArgumentError, "m must .*not 0"),
    ("macs None", lambda _: padded_macs(1, 1, None), InvalidArgumentError, "k must .*not None"),
    (
        "pinned free twice",
        lambda t: t.freed_pinned.free(),
        StaleHandleError,
        "was freed",
    ),
    (
        "free sum of pinned",
        lambda t: (t.pinned + 1).free(),
        InvalidArgumentError,
        "array must lie in pinned|memory must be",
    ),
    (
        "zeros negative",
        lambda t: t.device.zeros(-1, np.int8),
        InvalidArgumentError,
        "shape .*not -1",
    ),
    ("copy_from", lambda t: t.a.copy_from(None), InvalidArgumentError, "src .*not None"),
    (
        "counters",
        lambda _: anything(read_counters)(None),
        InvalidArgumentError,
        "device must be a Device",
    ),
    ("requantise shift", lambda t: requantise(t.int32, 1, -1), InvalidArgumentError, "shift"),
    (
        "requantise out",
        lambda t: requantise(t.int32, 1, 1, out=t.a),
        InvalidArgumentError,
        "out must have shape",
    ),
    *LAUNCHES,
]


@pytest.mark.parametrize(
    ("call", "kind", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_bad_input(
    things: SimpleNamespace, call: Call, kind: type[Exception], message: str
) -> None:
    device: Device = things.device
    before = state(device)
    with pytest.raises(kind, match=message) as caught:
        call(things)
    assert isinstance(caught.value, NpuError | IndexError)
    assert state(device) == before
    device.synchronize()
    assert device.last_error is None


def test_numpy_does_not_take_a_device_array_for_an_object(device: Device) -> None:
    array = device.zeros((2, 3), np.int8)
    with pytest.raises(TypeError, match=r"copied to the host with \.numpy\(\)"):
        np.array(array)


def test_an_error_does_not_print_a_whole_array(device: Device) -> None:
    right = device.zeros((30, 4), np.int8)
    with pytest.raises(InvalidArgumentError, match=r"not a numpy array of shape \(20, 30\)"):
        gemm(np.zeros((20, 30), np.int8), right)
