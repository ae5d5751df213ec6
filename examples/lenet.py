"""Classify handwritten digits with a convolutional network on the simulated NPU.

    glassnpu run examples/lenet.py [--images N] [--json]

Trains and quantises a network of LeNet's kind, runs held-out images through it on the device, and
compares all logits with an integer model in numpy.
"""

import argparse
import json

import numpy as np
from digits_model import accuracy, load_images
from lenet_model import SIDE, QuantisedLenet, quantise, reference_logits, train

from runtime import Device, DeviceArray, gemm
from runtime.operations.windows import conv2d, max_pool2d

IMAGES = 24
HELD_OUT = 540


class DeviceLenet:
    """The network in device memory."""

    def __init__(self, device: Device, lenet: QuantisedLenet) -> None:
        self.device = device
        self.weights = [device.array(w) for w in lenet.weights]
        self.biases = [device.array(b) for b in lenet.biases]
        self.scales = lenet.scales

    def logits(self, images: np.ndarray) -> np.ndarray:
        """The int32 logits (n, 10) of int8 images (n, 64)."""
        x = self.device.array(images.reshape(-1, SIDE, SIDE, 1))
        for layer in (0, 1):
            x = max_pool2d(self._convolved(layer, x), 2)
        flat = x.reshape(len(images), x.size // len(images))
        hidden = gemm(
            flat, self.weights[2], bias=self.biases[2], relu=True, requantise=self.scales[2]
        )
        return gemm(hidden, self.weights[3], bias=self.biases[3]).numpy()

    def _convolved(self, layer: int, x: DeviceArray) -> DeviceArray:
        return conv2d(
            x,
            self.weights[layer],
            self.biases[layer],
            padding=1,
            relu=True,
            requantise=self.scales[layer],
        )


def main() -> None:
    """Train, run, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument(
        "--images", type=int, default=IMAGES, help=f"images for the device (default {IMAGES})"
    )
    arguments = parser.parse_args()
    if not 1 <= arguments.images <= HELD_OUT:
        parser.error(f"--images must be between 1 and {HELD_OUT}, not {arguments.images!r}")

    digits = load_images(test_images=HELD_OUT)
    lenet = quantise(train(digits), digits.train_images)
    expected = reference_logits(lenet, digits.test_images)
    count = arguments.images
    with Device() as device:
        network = DeviceLenet(device, lenet)
        begun = device.bus.now()
        logits = network.logits(digits.test_images[:count])
        cycles = device.bus.now() - begun

    differing = int(np.count_nonzero(logits != expected[:count]))
    held_out = accuracy(expected, digits.test_labels)
    hits = accuracy(logits, digits.test_labels[:count])
    print(f"accuracy     {held_out:.2%} of {HELD_OUT} held-out images, by the integer model")
    print(f"on device    {hits:.2%} of {count} of them")
    print(f"logits       {differing} of {logits.size} differ from the integer model")
    print(f"cycles       {cycles}, {cycles / count:,.0f} an image")
    if arguments.json:
        result = {
            "images": count,
            "accuracy": held_out,
            "accuracy_on_device": hits,
            "differing_logits": differing,
            "cycles": cycles,
        }
        print(json.dumps(result))
    if differing:
        raise SystemExit("the device's results are wrong")


if __name__ == "__main__":
    main()
