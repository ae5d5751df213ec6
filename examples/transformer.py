"""One block of a transformer on the simulated NPU: attention, layer norm and GELU.

    glassnpu run examples/transformer.py [--sequence S] [--width W] [--heads H] [--json]

Matrix products are of bfloat16 with fp32 sums, the rest is fp32. The result is compared with a
reference in numpy that rounds at the same places: from end to end, and step by step from the
bfloat16 numbers that the device found on the way (see transformer_model.py).
"""

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np
from transformer_model import ROUNDED, Block, draw_block, reference, tolerance

from runtime import Device, DeviceArray
from runtime.operations.elements import add, gelu, scale
from runtime.operations.matrix import gemm, gemm_heads, to_bfloat16
from runtime.operations.rows import add_row, layer_norm, softmax

MATRICES = ("query", "key", "value", "output", "up", "down")


class DeviceBlock:
    """The block in device memory.

    Attributes: `rounded`, what the last call of `output` rounded to bfloat16, by name.
    """

    def __init__(self, device: Device, block: Block, heads: int) -> None:
        self.device = device
        self.heads = heads
        self.weights = {name: device.array(value) for name, value in vars(block).items()}
        for name in MATRICES:
            self.weights[name] = to_bfloat16(self.weights[name])  # Exact: the model rounded them.
        self.rounded: dict[str, DeviceArray] = {}

    def output(self, x: np.ndarray) -> np.ndarray:
        """The block's output for fp32 x (sequence, width)."""
        given = self.device.array(x)
        middle = add(given, self._attention(self._normed(given, "1")))
        return add(middle, self._mlp(self._normed(middle, "2"))).numpy()

    def _normed(self, x: DeviceArray, number: str) -> DeviceArray:
        gain, shift = self.weights["gain" + number], self.weights["shift" + number]
        return self._keep("normed" + number, to_bfloat16(layer_norm(x, gain, shift)))

    def _attention(self, x: DeviceArray) -> DeviceArray:
        query, key, value = (
            self._keep(name, gemm(x, self.weights[name], output="uint16"))
            for name in ("query", "key", "value")
        )
        sequence, width = x.shape
        # Each head has a part of the columns.
        scores = gemm_heads(query, key, self.heads, transpose_b=True)
        rows = scale(scores, (width // self.heads) ** -0.5).reshape(self.heads * sequence, sequence)
        shares = to_bfloat16(softmax(rows)).reshape(self.heads, sequence, sequence)
        self._keep("shares", shares)
        context = gemm_heads(shares, value, self.heads, side_by_side=True, output="uint16")
        return gemm(self._keep("context", context), self.weights["output"])

    def _mlp(self, x: DeviceArray) -> DeviceArray:
        up = add_row(gemm(x, self.weights["up"]), self.weights["up_bias"])
        hidden = self._keep("hidden", to_bfloat16(gelu(up)))
        return add_row(gemm(hidden, self.weights["down"]), self.weights["down_bias"])

    def _keep(self, name: str, array: DeviceArray) -> DeviceArray:
        assert name in ROUNDED
        self.rounded[name] = array
        return array


@dataclass(frozen=True)
class Comparison:
    """How an output compares with the reference.

    `error` and `tolerance` are from end to end. Step by step: `step_error` and `step_bound` of the
    output, and `outside`: of all numbers, how many are not within their bounds.
    """

    error: float
    tolerance: float
    step_error: float
    step_bound: float
    outside: int

    @property
    def is_right(self) -> bool:
        """Whether all is within its bounds."""
        return self.error <= self.tolerance and not self.outside


def compare(
    block: Block, x: np.ndarray, heads: int, output: np.ndarray, found: dict[str, np.ndarray]
) -> Comparison:
    """Compare an output, and the bfloat16 numbers on the way, with the reference."""
    whole, _ = reference(block, x, heads)
    steps, outside = reference(block, x, heads, found)
    error = np.abs(output - steps.value)
    return Comparison(
        error=float(np.abs(output - whole.value).max()),
        tolerance=tolerance(whole.value),
        step_error=float(error.max()),
        step_bound=float(steps.error.max()),
        outside=outside + int(np.count_nonzero(~(error <= steps.error))),
    )


def main() -> None:
    """Draw, run, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--sequence", type=int, default=16, help="rows (default 16)")
    parser.add_argument("--width", type=int, default=32, help="columns (default 32)")
    parser.add_argument("--heads", type=int, default=2, help="heads (default 2)")
    parser.add_argument("--draw", type=int, default=0, help="seed of the numbers (default 0)")
    arguments = parser.parse_args()
    sequence, width, heads = arguments.sequence, arguments.width, arguments.heads
    if not 1 <= sequence <= 64 or not 1 <= width <= 128:
        parser.error("--sequence must be between 1 and 64, and --width between 1 and 128")
    if heads < 1 or width % heads:
        parser.error(f"--heads must divide the width {width}, not {heads!r}")

    block = draw_block(width, 4 * width, arguments.draw)
    random = np.random.default_rng(arguments.draw + 1)
    x = random.normal(size=(sequence, width)).astype(np.float32)
    with Device() as device:
        network = DeviceBlock(device, block, heads)
        begun = device.bus.now()
        output = network.output(x)
        cycles = device.bus.now() - begun
        found = {name: array.numpy() for name, array in network.rounded.items()}

    seen = compare(block, x, heads, output, found)
    print(f"block          sequence {sequence}, width {width}, {heads} heads")
    print(f"largest error  {seen.error:.3g} from end to end, tolerance {seen.tolerance:.3g}")
    print(f"step by step   {seen.step_error:.3g}, bound {seen.step_bound:.3g}")
    print(f"               {seen.outside} numbers outside of their bounds")
    print(f"cycles         {cycles}")
    if arguments.json:
        print(json.dumps(asdict(seen) | {"cycles": cycles}))
    if not seen.is_right:
        raise SystemExit("the device's results are wrong")


if __name__ == "__main__":
    main()
