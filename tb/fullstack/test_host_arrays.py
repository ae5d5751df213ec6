"""Host arrays and values of unusual kinds: masked, without dimensions, no array at all."""

from types import SimpleNamespace

import numpy as np
import pytest

from runtime import Device, InvalidArgumentError
from tb.fullstack.test_bad_input import Call, state, things

__all__ = ["things"]

CASES: list[tuple[str, Call, type[Exception], str]] = [
    ("array None", lambda t: t.device.array(None), InvalidArgumentError, "source .*not None"),
    ("array scalar", lambda t: t.device.array(np.int8(3)), InvalidArgumentError, "source .*int8"),
    (
        "array masked",
        lambda t: t.device.array(np.ma.masked_array([1, 2], mask=[False, True])),
        InvalidArgumentError,
        r"source must have no mask .*, not a masked array of shape \(2,\) and dtype int64",
    ),
    ("array masked away", lambda t: t.device.array(np.ma.masked), InvalidArgumentError, "source"),
    (
        "copy masked",
        lambda t: t.device.memcpy(t.buffer, np.ma.zeros(100, np.uint8)),
        InvalidArgumentError,
        "src must have no mask",
    ),
    (
        "copy to masked",
        lambda t: t.device.memcpy_async(np.ma.zeros(100, np.uint8), t.buffer),
        InvalidArgumentError,
        "dst must have no mask",
    ),
    (
        "copy_from masked",
        lambda t: t.a.copy_from(np.ma.zeros((4, 8), np.int8)),
        InvalidArgumentError,
        "src must have no mask",
    ),
    (
        "2d masked",
        lambda t: t.device.memcpy_2d(t.buffer, 10, np.ma.zeros(100, np.uint8), 10, 10, 10),
        InvalidArgumentError,
        "src must have no mask",
    ),
    (
        "copy 0-d size",
        lambda t: t.device.memcpy(t.buffer, np.array(1, np.uint8)),
        InvalidArgumentError,
        "dst must have the 1 bytes of src, not 100",
    ),
    (
        "fill None",
        lambda t: t.device.fill(t.device.empty(3, np.float32), None),
        InvalidArgumentError,
        "value .*None",
    ),
    (
        "fill text",
        lambda t: t.device.fill(t.device.empty(3, np.float32), "x"),
        InvalidArgumentError,
        "value .*'x'",
    ),
    (
        "fill row",
        lambda t: t.device.fill(t.device.empty(3, np.float32), [1, 2]),
        InvalidArgumentError,
        "value .*1, 2",
    ),
    ("fill wide int", lambda t: t.device.fill(t.int8, 300), InvalidArgumentError, "value .*300"),
    (
        "fill complex",
        lambda t: t.device.fill(t.device.empty(3, np.float32), 1 + 2j),
        InvalidArgumentError,
        "value must fit float32",
    ),
    (
        "fill masked",
        lambda t: t.device.fill(t.device.empty(3, np.float32), np.ma.masked),
        InvalidArgumentError,
        "value must fit float32, not a masked array",
    ),
]


@pytest.mark.parametrize(
    ("call", "kind", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_no_plain_array_or_number_is_refused(
    things: SimpleNamespace, call: Call, kind: type[Exception], message: str
) -> None:
    device: Device = things.device
    before = state(device)
    with pytest.raises(kind, match=message):
        call(things)
    assert state(device) == before


def test_arrays_without_dimensions_are_arrays_of_one_element(device: Device) -> None:
    array = device.array(np.array(-7, np.int32))
    assert array.shape == (1,)
    host = np.array(0, np.int32)
    device.memcpy(host, array)
    assert host == -7
    assert array.copy_from(np.array(9, np.int32)).numpy().tolist() == [9]
    floats = device.empty(2, np.float32)
    device.fill(floats, np.float64(0.1))
    assert floats.numpy().tolist() == [np.float32(0.1)] * 2
