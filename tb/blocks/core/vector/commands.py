"""Random VECTOR commands with a defined result, and numbers for them."""

import random

import numpy as np
from numpy.typing import NDArray

from abi.core import VECTOR_COMMAND, VECTOR_LANES
from abi.vector import VectorOperation
from tb.models.vector import Geometry, geometry

__all__ = ["SPECIAL", "command", "random_command", "random_gather", "random_words"]

V = VectorOperation

SPECIAL = (
    0x00000000,
    0x80000000,
    0x3F800000,
    0xBF800000,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0xFFC00001,
    0x7F800001,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x00800000,
    0x00000001,
    0x807FFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    0x4F000000,
    0xCF000000,
    0x4EFFFFFF,
    0x3F000000,
    0x3FC00000,
    0x0000007F,
    0x00000080,
    0xFFFFFF80,
    0xFFFFFF7F,
    0x3F808000,
    0x3F818000,
    0x7F7F8000,
)
"""Words where some operation has an edge."""


def random_words(count: int) -> NDArray[np.uint32]:
    """Words: any bits, floats of ordinary size, small integers, and special ones."""
    rng = np.random.default_rng(random.getrandbits(64))
    kinds = [
        rng.integers(0, 1 << 32, count, dtype=np.uint32),
        rng.normal(scale=100, size=count).astype(np.float32).view(np.uint32),
        rng.normal(size=count).astype(np.float32).view(np.uint32),
        rng.integers(-300, 300, count, dtype=np.int32).view(np.uint32),
        rng.choice(np.array(SPECIAL, np.uint32), count),
    ]
    chosen = rng.choice(5, count, p=(0.2, 0.3, 0.25, 0.15, 0.1))
    return np.choose(chosen, kinds).astype(np.uint32)


def command(operation: VectorOperation, **fields: int) -> dict[str, int]:
    """All fields of a command; steps are 1, counts 1 and the others 0 if not given."""
    given = dict.fromkeys(VECTOR_COMMAND.fields, 0)
    steps = {"a_step": 1, "b_step": 1, "c_step": 1, "rows": 1, "columns": 1}
    result = {**given, **steps, "operation": int(operation), **fields}
    del result["opcode"]
    return result


def _defined(fields: dict[str, int], shape: Geometry) -> bool:
    """Whether no line is read after it was written, in the order of the result."""
    operation = VectorOperation(fields["operation"])
    first, pitch, count = shape.target
    written: dict[int, int] = {}
    dense = {V.PACK_INT8: 4, V.PACK_BF16: 2}.get(operation, 1)
    group = {V.UNPACK_INT8: 4, V.UNPACK_BF16: 2}.get(operation, 1)
    lines = shape.lines
    for row in range(shape.target_rows):
        for line in range(count):
            after = min(dense * line + dense - 1, lines - 1) if count > 1 or dense > 1 else lines
            at = row * lines + (line if count == lines else after)
            written.setdefault(first + row * pitch + line, at)
    for source in shape.sources:
        if source is None:
            continue
        start, source_pitch, source_lines = source
        for row in range(shape.rows):
            for line in range(source_lines):
                place = start + row * source_pitch + line
                if place not in written:
                    continue
                if operation in (V.TRANSPOSE, V.GATHER):
                    return False
                last = lines - 1 if source_lines == 1 else min(lines, group * (line + 1)) - 1
                if written[place] < row * lines + last:
                    return False
    return True


def _pitch(lines: int) -> int:
    return random.choice([lines, lines, lines + random.randint(0, 4), random.randint(0, 3)])


def random_command(operation: VectorOperation, limit: int) -> dict[str, int]:
    """A command on lines below `limit` whose result is defined."""
    while True:
        columns = random.choice([1, 16, 17, random.randint(1, 40), random.randint(1, 200)])
        rows = random.choice([1, 2, 3, random.randint(1, 12), random.randint(1, 40)])
        lines = -(-columns // VECTOR_LANES)
        fields = command(
            operation,
            columns=columns,
            rows=rows,
            line=random.randrange(limit),
            pitch=_pitch(-(-rows // VECTOR_LANES) if operation is V.TRANSPOSE else lines),
            immediate=int(random_words(1)[0]),
        )
        for name in "abc":
            fields[f"{name}_line"] = random.randrange(limit)
            fields[f"{name}_pitch"] = _pitch(lines)
            fields[f"{name}_step"] = int(random.random() < 0.8)
        for name in "bc":
            fields[f"{name}_immediate"] = int(random.random() < 0.25)
        if random.random() < 0.25:
            source = random.choice("ab")
            fields["line"], fields["pitch"] = fields[f"{source}_line"], fields[f"{source}_pitch"]
        shape = geometry(fields)
        if shape.fits(limit) and _defined(fields, shape):
            return fields


def random_gather() -> tuple[dict[str, int], int, NDArray[np.uint8]]:
    """A GATHER from lines below 128 to lines from 192 on, and its numbers, from line 128 on."""
    while True:
        columns, rows = random.choice([1, 16, 17, random.randint(1, 60)]), random.randint(1, 8)
        lines = -(-columns // VECTOR_LANES)
        fields = command(
            V.GATHER,
            columns=columns,
            rows=rows,
            line=192 + random.randrange(8),
            pitch=lines + random.randrange(2),
            a_line=random.randrange(100),
            a_pitch=random.choice([0, 1, 3]),
            a_step=int(random.random() < 0.8),
            b_line=128,
            b_pitch=random.choice([0, lines, lines + 1]),
            b_step=int(random.random() < 0.8),
            b_immediate=int(random.random() < 0.1),
            immediate=random.randrange(256),
        )
        numbers = np.zeros((64, VECTOR_LANES), np.int32)
        for line in range(64):
            row = min(line // fields["b_pitch"], rows - 1) if fields["b_pitch"] else 0
            first = 16 * (fields["a_line"] + row * fields["a_pitch"])
            numbers[line] = [random.randrange(-first, 2048 - first) for _ in range(16)]
        if random.random() < 0.5:
            place = random.randrange(lines * rows), random.randrange(VECTOR_LANES)
            far = [-(2**31), 2**31 - 1, 16 * 256, -16 * 129, 16 * 65536, random.randint(0, 9000)]
            numbers[place] = random.choice(far)
        if _gather_defined(fields, numbers) and geometry(fields).fits(248):
            return fields, 128, numbers.view(np.uint8)


def _gather_defined(fields: dict[str, int], numbers: NDArray[np.int32]) -> bool:
    """Whether no element comes from a line of the result."""
    rows = np.arange(fields["rows"])
    places = (fields["a_line"] + rows * fields["a_pitch"])[:, None] + (numbers.reshape(-1) >> 4)
    return not ((places >= 128) & (places < 256)).any()
