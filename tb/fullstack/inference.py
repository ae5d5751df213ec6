"""One inference of the digits network: the program that trace and determinism tests run.

Arguments: a file for the outcome (JSON), and optionally `untraced` (collect no hardware trace)
or `raced` (three host threads run beforehand).
"""

import hashlib
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

from examples.digits_model import QuantisedMlp, reference_logits
from runtime import Device, gemm
from tb.engine.host import current_machine

__all__ = ["infer", "network"]


def network(seed: int = 3) -> tuple[QuantisedMlp, np.ndarray]:
    """A network of the digits demo's shape with drawn weights, and one image (1, 64)."""
    random = np.random.default_rng(seed)
    mlp = QuantisedMlp(
        weights1=random.integers(-128, 128, (64, 32), dtype=np.int8),
        bias1=random.integers(-5000, 5000, 32).astype(np.int32),
        weights2=random.integers(-128, 128, (32, 10), dtype=np.int8),
        bias2=random.integers(-5000, 5000, 10).astype(np.int32),
        multiplier=1 << 20,
        shift=30,
    )
    return mlp, random.integers(0, 113, (1, 64)).astype(np.int8)


def infer(device: Device) -> np.ndarray:
    """Logits (1, 10) of the image: copy in, two layers and copy out, one batch, one doorbell."""
    mlp, image = network()
    w1, b1 = device.array(mlp.weights1), device.array(mlp.bias1)
    w2, b2 = device.array(mlp.weights2), device.array(mlp.bias2)
    pinned, logits = device.pinned((1, 64), np.int8), device.pinned((1, 10), np.int32)
    pinned[:] = image
    x, hidden = device.empty((1, 64), np.int8), device.empty((1, 32), np.int8)
    scores, stream = device.empty((1, 10), np.int32), device.stream()
    scale = mlp.multiplier, mlp.shift
    with stream.batch():
        device.memcpy_async(x, pinned, stream)
        gemm(x, w1, hidden, bias=b1, relu=True, requantise=scale, stream=stream)
        gemm(hidden, w2, scores, bias=b2, stream=stream)
        device.memcpy_async(logits, scores, stream)
    stream.synchronize()
    assert np.array_equal(logits, reference_logits(mlp, image)), "the device's logits are wrong"
    return np.array(logits)


def race(device: Device) -> None:
    """Three host threads, each with a stream and an array of its own."""
    actors = current_machine().actors
    streams = [device.stream() for _ in range(3)]
    arrays = [device.zeros(4096, np.uint8) for _ in streams]

    def work(number: int) -> None:
        for value in range(5):
            device.memset(arrays[number], value, streams[number])
        streams[number].synchronize()

    threads = [actors.spawn(f"thread {i}", partial(work, i)) for i in range(len(streams))]
    for thread in threads:
        actors.join(thread)
    assert all(set(array.numpy().tolist()) == {4} for array in arrays)


def main(outcome: str, mode: str = "traced") -> None:
    """Infer once; writes logits, cycles and a hash of the hardware trace."""
    machine = current_machine()
    machine.clockwork.set_tracing(mode != "untraced")
    with Device(machine.bus) as device:
        if mode == "raced":
            race(device)
        logits = infer(device)
        dropped = device.driver.registers.bar0.trace_dropped.read()
    records = machine.clockwork.traces()
    found = {
        "logits": logits.tolist(),
        "cycles": machine.bus.now(),
        "events": len(records),
        "trace": hashlib.sha256(records.tobytes()).hexdigest(),
        "dropped": dropped,
        "notes": len(machine.firmware_bus.notes),
    }
    Path(outcome).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
