"""How long a more urgent kernel waits for a core, in cycles of the RTL, and what others lose."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from abi.core import BLOCK_LIMIT, PREEMPTION_LIMIT
from abi.status import Engine
from abi.trace import TraceCode, TraceSource
from runtime import Device, DeviceArray, Stream, gemm
from runtime.operations.rows import layer_norm, softmax
from runtime.operations.windows import conv2d
from tb.fullstack import objects
from tb.tracing.events import HardwareEvent, hardware_events

HANDOVER = PREEMPTION_LIMIT - BLOCK_LIMIT
TURNS = 3

pytestmark = pytest.mark.usefixtures("engine")

Submit = Callable[[Stream], DeviceArray]


@dataclass(frozen=True)
class Span:
    """A block on a core."""

    core: int
    begin: int
    end: int

    @property
    def cycles(self) -> int:
        return self.end - self.begin


def blocks_of(events: list[HardwareEvent]) -> list[Span]:
    """The blocks that began and ended, in the order of their begin."""
    begun: dict[int, int] = {}
    spans = []
    for event in events:
        if event.source is not TraceSource.CORE:
            continue
        if event.code is TraceCode.BEGIN:
            begun[event.instance] = event.cycle
        else:
            spans.append(Span(event.instance, begun.pop(event.instance), event.cycle))
    return sorted(spans, key=lambda span: span.begin)


class Urgent:
    """A small kernel of the best band; `latency` of a launch is from its doorbell, at the device,
    to the start of its first block."""

    def __init__(self, device: Device, engine: Any) -> None:
        self.stream = device.stream(priority=0)
        self.out = device.zeros(1, np.int32)
        self._kernel = device.load(objects.squares(1)).kernel()
        self._notes = engine.firmware_bus.notes
        self._before = len(self._notes)
        self.launch()  # Uploads it.
        self.stream.synchronize()
        self.first: Span

    def launch(self) -> None:
        self._before = len(self._notes)
        self._kernel.launch(self.out.size, self.out, stream=self.stream)

    def check(self) -> None:
        np.testing.assert_array_equal(self.out.numpy(), np.arange(self.out.size) ** 2 + 7)

    def latency(self, events: list[HardwareEvent]) -> int:
        queue = self.stream.queue
        [rung] = [
            event.cycle
            for event in events
            if event.source is TraceSource.DOORBELL and event.instance == queue
        ]
        given, core = next(
            (cycle, fields["instance"])
            for cycle, name, fields in self._notes[self._before :]
            if name == "dispatch" and (fields["queue"], fields["engine"]) == (queue, Engine.CORE)
        )
        self.first = next(s for s in blocks_of(events) if s.core == core and s.begin > given)
        return self.first.begin - rung


def victims(device: Device) -> dict[str, Submit]:
    """Kernels of the library with several blocks for each core."""
    draw = np.random.default_rng(7)

    def made(*shape: int) -> DeviceArray:
        return device.array(draw.normal(size=shape).astype(np.float32))

    def small(*shape: int) -> DeviceArray:
        return device.array(draw.integers(-99, 99, shape).astype(np.int8))

    a, b = small(512, 512), small(512, 448)
    half = device.array(draw.integers(0x3F80, 0x3FFF, (128, 128)).astype(np.uint16))
    rows, gain = made(96, 520), made(520)
    images, weights = small(8, 28, 28, 16), small(3, 3, 16, 64)
    bias = device.array(draw.integers(-99, 99, 64).astype(np.int32))
    return {
        "gemm": lambda stream: gemm(a, b, stream=stream),
        "gemm of bfloat16": lambda stream: gemm(half, half, stream=stream),
        "layer norm": lambda stream: layer_norm(rows, gain, gain, stream=stream),
        "softmax": lambda stream: softmax(rows, stream=stream),
        "conv2d": lambda stream: conv2d(images, weights, bias, padding=1, stream=stream),
    }


@pytest.mark.parametrize("name", ["gemm", "gemm of bfloat16", "layer norm", "softmax", "conv2d"])
def test_the_library_yields_its_cores_within_the_limit(
    device: Device, engine: Any, seed: int, name: str
) -> None:
    draw = random.Random(f"{seed} {name}")
    submit, low, urgent = victims(device)[name], device.stream(priority=3), Urgent(device, engine)
    expected = submit(low).numpy()  # Uploads it.
    begun = device.bus.now()
    alone = submit(low)
    low.synchronize()
    length = device.bus.now() - begun
    np.testing.assert_array_equal(alone.numpy(), expected)
    overtaken, several, notes = 0, False, len(engine.firmware_bus.notes)
    for turn in range(TURNS):
        engine.clockwork.traces()
        result = submit(low)
        # Once early, when there are blocks left to come behind.
        delay = draw.randrange(length if turn else length // 3)
        device.bus.wait_interrupt(0, device.bus.now() + delay)
        urgent.launch()
        urgent.stream.synchronize()
        low.synchronize()
        events = hardware_events(engine.clockwork.traces())
        latency = urgent.latency(events)
        spans = blocks_of(events)
        longest = max(span.cycles for span in spans)
        print(f"{name}: {length} cycles in {len(spans) - 1} blocks of up to {longest}; ")
        print(f"  overtaken after {delay}: {latency} cycles to a core")
        assert longest <= BLOCK_LIMIT
        assert latency <= longest + HANDOVER <= PREEMPTION_LIMIT
        behind = [span for span in spans if span.begin > urgent.first.end]
        overtaken += bool(behind)
        several |= len(spans) - 1 > device.info.cores
        np.testing.assert_array_equal(result.numpy().view(np.uint8), expected.view(np.uint8))
        urgent.check()
        device.fill(urgent.out, 0)
    # A short product has one block for each core: nothing is left to come behind.
    assert overtaken or not several, "no block of the other kernel came behind the urgent one"
    assert not [n for n in engine.firmware_bus.notes[notes:] if n[1] == "overdue"]


def test_another_user_waits_for_the_scrubbing_besides(
    device: Device, engine: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core's buffers hold data of another address space, so they are cleaned first."""
    low = device.stream(priority=3)
    submit = victims(device)["layer norm"]
    expected = submit(low).numpy()
    # Another session on the same device: only its address space matters here.
    session: Any = device.client.session
    monkeypatch.setattr(session, "_pasid", session._pasid + 1)
    urgent = Urgent(device, engine)
    submit(low)
    low.synchronize()  # The cores hold its data again.
    engine.clockwork.traces()
    result = submit(low)
    device.bus.wait_interrupt(0, device.bus.now() + random.Random(seed).randrange(15_000))
    urgent.launch()
    urgent.stream.synchronize()
    low.synchronize()
    events = hardware_events(engine.clockwork.traces())
    latency, longest = urgent.latency(events), max(span.cycles for span in blocks_of(events))
    print(f"{latency} cycles to a core, the longest block takes {longest}")
    assert latency <= longest + HANDOVER
    np.testing.assert_array_equal(result.numpy().view(np.uint8), expected.view(np.uint8))
    urgent.check()


def test_a_block_beyond_the_limit_is_named_in_the_trace(device: Device, engine: Any) -> None:
    """Nothing stops it, its results are right, and the firmware's note says who held the core."""
    loops = BLOCK_LIMIT // 3  # Of four cycles each.
    low, urgent = device.stream(priority=3), Urgent(device, engine)
    out, cores = device.zeros(3, np.int32), device.info.cores
    kernel = device.load(objects.squares(loops)).kernel()
    engine.clockwork.traces()
    kernel.launch(3, out, stream=low)
    device.bus.wait_interrupt(0, device.bus.now() + 5_000)
    notes = len(engine.firmware_bus.notes)
    urgent.launch()
    urgent.stream.synchronize()
    low.synchronize()
    events = hardware_events(engine.clockwork.traces())
    found = [
        (cycle, fields)
        for cycle, name, fields in engine.firmware_bus.notes[notes:]
        if name == "overdue"
    ]
    assert urgent.latency(events) > BLOCK_LIMIT
    assert sorted(fields["core"] for _, fields in found) == list(range(cores))
    for cycle, fields in found:
        assert (fields["queue"], fields["packet"]) == (low.queue, low.submitted_packets - 2)
        assert fields["block"] in range(cores)
        assert BLOCK_LIMIT <= fields["waited"] < BLOCK_LIMIT + HANDOVER
        assert cycle < urgent.first.begin
    np.testing.assert_array_equal(out.numpy(), np.arange(3) ** 2 + 7)
    urgent.check()
