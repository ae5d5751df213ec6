"""Classify handwritten digits on the simulated NPU, through the runtime API.

    glassnpu run examples/digits.py [--json]

Trains and quantises a small network, runs every held-out image through it on the device, and
compares all logits with an integer model in numpy.
"""

import argparse
import json
import time

import numpy as np
from digits_model import QuantisedMlp, accuracy, load_images, quantise, reference_logits, train
from tqdm import tqdm

from abi.core import Pipe
from runtime import Device, DeviceArray, Event, Stream, gemm, padded_macs
from runtime.profiling import Counters, read_counters

BATCH = 54
LAYERS = ("host", "queue", "firmware", "DMA", "core (loads, stores)", "Cube")


class DeviceMlp:
    """The network in device memory, and one inference of a batch of images."""

    def __init__(self, device: Device, mlp: QuantisedMlp, batch: int) -> None:
        self.device = device
        self.weights1, self.bias1 = device.array(mlp.weights1), device.array(mlp.bias1)
        self.weights2, self.bias2 = device.array(mlp.weights2), device.array(mlp.bias2)
        self.requantise = (mlp.multiplier, mlp.shift)
        inputs, hidden = mlp.weights1.shape
        outputs = mlp.weights2.shape[1]
        self.images = device.empty((batch, inputs), np.int8)
        self.hidden = device.empty((batch, hidden), np.int8)
        self.logits = device.empty((batch, outputs), np.int32)
        self.host_images = device.pinned((batch, inputs), np.int8)
        self.host_logits = device.pinned((batch, outputs), np.int32)
        self.macs = padded_macs(batch, inputs, hidden) + padded_macs(batch, hidden, outputs)

    def submit(self, stream: Stream, start: Event, end: Event) -> None:
        """Queue copies and both layers with a single doorbell."""
        with stream.batch():
            start.record(stream)
            self.device.memcpy_async(self.images, self.host_images, stream)
            self._layers(stream)
            self.device.memcpy_async(self.host_logits, self.logits, stream)
            end.record(stream)

    def _layers(self, stream: Stream) -> DeviceArray:
        gemm(
            self.images,
            self.weights1,
            out=self.hidden,
            bias=self.bias1,
            relu=True,
            requantise=self.requantise,
            stream=stream,
        )
        return gemm(self.hidden, self.weights2, out=self.logits, bias=self.bias2, stream=stream)


def classify(
    device: Device, mlp: DeviceMlp, images: np.ndarray, *, quiet: bool
) -> tuple[np.ndarray, dict[str, int], Counters]:
    """Logits of all images, cycles by layer, and what the counters saw.

    The layers' cycles are those between the start of a batch's submission and its wake-up:
    the host's until the doorbell and after completion, the queue's until the firmware has the
    first packet, then the units' busy cycles, and the firmware's for what is left.
    """
    stream = device.default_stream
    start, end = device.event(), device.event()
    batch = mlp.host_images.shape[0]
    logits = []
    host = queue = span = 0
    before = read_counters(device)
    for first in tqdm(range(0, len(images), batch), unit="batch", disable=quiet):
        part = images[first : first + batch]
        mlp.host_images[: len(part)] = part
        begun = device.bus.now()
        mlp.submit(stream, start, end)
        rung = device.bus.now()
        end.synchronize()
        woken = device.bus.now()
        logits.append(np.array(mlp.host_logits[: len(part)]))
        host += rung - begun + woken - end.cycle
        queue += start.cycle - rung
        span += end.cycle - start.cycle
    counted = read_counters(device) - before
    cube = counted.pipes[Pipe.CUBE].busy
    cycles = {
        "host": host,
        "queue": queue,
        "firmware": span - counted.dma_cycles - counted.core_cycles,
        "DMA": counted.dma_cycles,
        "core (loads, stores)": counted.core_cycles - cube,
        "Cube": cube,
    }
    return np.concatenate(logits), cycles, counted


def main() -> None:
    """Train, run, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--images", type=int, default=540, help="held-out images (default 540)")
    arguments = parser.parse_args()
    if not 10 <= arguments.images <= 1500:
        parser.error(f"--images must be between 10 and 1500, not {arguments.images!r}")

    digits = load_images(test_images=arguments.images)
    quantised = quantise(train(digits), digits.train_images)
    images = digits.test_images
    begun = time.perf_counter()
    with Device() as device:
        batch = min(BATCH, len(images))
        mlp = DeviceMlp(device, quantised, batch)
        logits, layers, counted = classify(device, mlp, images, quiet=arguments.json)
        cycles = device.bus.now()
    seconds = time.perf_counter() - begun

    expected = reference_logits(quantised, images)
    mismatched = int(np.count_nonzero(logits != expected))
    hits = accuracy(logits, digits.test_labels)
    macs_expected = -(-len(images) // batch) * mlp.macs
    total = sum(layers.values())
    print(f"images       {len(images)} held out, in batches of {batch}")
    print(f"accuracy     {hits:.2%}")
    print(f"logits       {mismatched} of {logits.size} differ from the integer model")
    print(f"MACs         {counted.macs} counted, {macs_expected} by shape arithmetic")
    print(f"cycles       {cycles} from power-on, {total} in inference")
    for name in LAYERS:
        print(f"  {name:<21}{layers[name]:>9}  {layers[name] / total:6.1%}")
    print(f"simulation   {cycles / seconds:,.0f} cycles/s, {seconds:.1f} s")
    if arguments.json:
        result = {
            "images": len(images),
            "accuracy": hits,
            "mismatched_logits": mismatched,
            "macs_counted": counted.macs,
            "macs_expected": macs_expected,
            "cycles": cycles,
        }
        print(json.dumps(result))
    if mismatched or counted.macs != macs_expected:
        raise SystemExit("the device's results are wrong")


if __name__ == "__main__":
    main()
