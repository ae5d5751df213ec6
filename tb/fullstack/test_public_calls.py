"""Every public call of the runtime has a case of bad input, and refuses a closed device."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import runtime
from abi.packet import PacketOpcode
from runtime import Device, DeviceClosedError, gemm, requantise
from tb.contract.runtime_page import INTERNAL
from tb.fullstack import objects, test_bad_input
from tb.fullstack.test_bad_input import CASES, things

__all__ = ["things"]

MADE_BY_DEVICE = (runtime.DeviceArray, runtime.DeviceBuffer, runtime.PinnedArray)
"""Classes that a user does not construct."""


def public_calls() -> dict[str, tuple[object, str]]:
    """Every public callable of the runtime that takes arguments: owner and name."""
    calls: dict[str, tuple[object, str]] = {
        name: (runtime, name) for name in ("gemm", "requantise", "padded_macs")
    }
    kinds = (Device, runtime.Stream, runtime.Event, runtime.Module, runtime.Kernel)
    for kind in (*kinds, *MADE_BY_DEVICE):
        for name, member in vars(kind).items():
            if name.startswith("_") and name not in ("__init__", "__getitem__"):
                continue
            if not callable(getattr(kind, name)) or isinstance(member, property):
                continue
            if name == "__init__" and kind in (*MADE_BY_DEVICE, runtime.Kernel):
                continue
            calls[f"{kind.__name__}.{name}"] = kind, name
    return {name: place for name, place in calls.items() if name not in INTERNAL}


NO_ARGUMENT = {
    "Device.close",
    "Device.event",
    "Device.reset",
    "DeviceArray.numpy",
    "DeviceArray.free",
    "DeviceBuffer.free",
    "Event.destroy",
    "Event.query",
    "Event.target",
    "Stream.batch",
    "Stream.destroy",
    "Stream.flush",
    "Stream.query",
    "Stream.reset",
}
"""Calls that take nothing: the test of a closed device below has them."""


def test_every_public_call_has_a_case(
    things: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cases above reach every public callable that takes an argument."""
    reached: set[str] = set()

    def watch(name: str, call: Any) -> Any:
        def watched(*arguments: Any, **named: Any) -> Any:
            reached.add(name)
            return call(*arguments, **named)

        return watched

    for name, (owner, attribute) in public_calls().items():
        call: Any = getattr(owner, attribute)
        if owner is runtime:
            monkeypatch.setattr(test_bad_input, attribute, watch(name, call))
        elif name == "Device.open":
            monkeypatch.setattr(owner, attribute, staticmethod(watch(name, call)))
        else:
            monkeypatch.setattr(owner, attribute, watch(name, call))
    for _, bad, kind, _ in CASES:
        with pytest.raises(kind):
            bad(things)
    assert set(public_calls()) - reached - NO_ARGUMENT == set()
    assert set(public_calls()) >= NO_ARGUMENT


def test_a_closed_device_refuses_every_call(things: SimpleNamespace) -> None:
    t = things
    t.device.close()
    calls: dict[str, Callable[[], object]] = {
        "Device.malloc": lambda: t.device.malloc(1),
        "Device.empty": lambda: t.device.empty(1, np.int8),
        "Device.zeros": lambda: t.device.zeros(1, np.int8),
        "Device.array": lambda: t.device.array(t.host),
        "Device.pinned": lambda: t.device.pinned(1, np.int8),
        "Device.free": lambda: t.device.free(t.buffer),
        "Device.memcpy": lambda: t.device.memcpy(t.buffer, t.host),
        "Device.memcpy_async": lambda: t.device.memcpy_async(t.buffer, t.host),
        "Device.memcpy_2d": lambda: t.device.memcpy_2d(t.buffer, 10, t.host, 10, 10, 10),
        "Device.memcpy_2d_async": lambda: t.device.memcpy_2d_async(
            t.buffer, 10, t.host, 10, 10, 10
        ),
        "Device.memset": lambda: t.device.memset(t.buffer, 0),
        "Device.fill": lambda: t.device.fill(t.a, 0),
        "Device.stream": lambda: t.device.stream(),
        "Device.event": lambda: t.device.event(),
        "Device.synchronize": lambda: t.device.synchronize(),
        "Device.reset": lambda: t.device.reset(),
        "Stream.__init__": lambda: runtime.Stream(t.device),
        "Stream.submit": lambda: t.stream.submit([(PacketOpcode.NOP, {})]),
        "Stream.batch": lambda: t.stream.batch().__enter__(),
        "Stream.synchronize": lambda: t.stream.synchronize(),
        "Stream.query": lambda: t.stream.query(),
        "Stream.record": lambda: t.stream.record(t.event),
        "Stream.wait": lambda: t.stream.wait(t.event),
        "Stream.reset": lambda: t.stream.reset(),
        "Event.__init__": lambda: runtime.Event(t.device),
        "Event.record": lambda: t.event.record(),
        "Event.query": lambda: t.event.query(),
        "Event.target": lambda: t.event.target(),
        "Event.synchronize": lambda: t.event.synchronize(),
        "Event.elapsed_cycles": lambda: t.event.elapsed_cycles(t.event),
        "DeviceArray.numpy": lambda: t.a.numpy(),
        "DeviceArray.copy_from": lambda: t.a.copy_from(np.ones((4, 8), np.int8)),
        "DeviceArray.free": lambda: t.a.free(),
        "DeviceBuffer.free": lambda: t.buffer.free(),
        "PinnedArray.free": lambda: t.pinned.free(),
        "Device.load": lambda: t.device.load(objects.squares()),
        "Module.__init__": lambda: runtime.Module(t.device, objects.squares()),
        "Module.replace": lambda: t.module.replace(objects.axpy(2)),
        "Kernel.launch": lambda: t.kernel.launch(1, t.int32, t.int32, 1, 2.0),
        "Kernel.__getitem__": lambda: t.kernel[1](t.int32, t.int32, 1, 2.0),
        "gemm": lambda: gemm(t.a, t.b),
        "requantise": lambda: requantise(t.int32, 1, 0),
    }
    for call in calls.values():
        with pytest.raises(DeviceClosedError, match="device is closed"):
            call()
    harmless = {"Device.close", "Stream.destroy", "Stream.flush", "Event.destroy"}
    t.device.close()
    t.stream.destroy()
    t.stream.flush()
    without_device = {
        "DeviceArray.reshape",
        "DeviceArray.__getitem__",
        "padded_macs",
        "Module.kernel",
    }
    fresh = {"Device.__init__", "Device.open"}
    assert set(public_calls()) == set(calls) | harmless | without_device | fresh
    assert t.device.driver.pages.pages == 0
