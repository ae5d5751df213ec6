"""Footprints: against what the golden model of the pipes reads and writes."""

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from abi.command_rules import broken_rule
from abi.core import (
    COMMANDS,
    OPCODE_PIPE,
    CommandOpcode,
    Local,
    MmadType,
    MoveTarget,
    StoreOutput,
    Transpose,
)
from abi.status import Status
from abi.vector import VectorOperation
from runtime.toolchain.footprint import (
    Buffer,
    BufferOverflowError,
    Footprint,
    footprint,
    lines_in,
)
from runtime.toolchain.region import Region
from tb.models.pipes import PipesModel

BASE = 0x1_0000_0000
MEMORY_BYTES = 8192
SIZES = dict.fromkeys(Buffer, 64) | {Buffer.L0C: 64}
ARRAYS = {
    Buffer.L1: "l1",
    Buffer.L0A: "l0a",
    Buffer.L0B: "l0b",
    Buffer.L0C: "l0c",
    Buffer.BIAS: "bias",
    Buffer.UB: "ub",
}


def _bytes_of(region: Region) -> set[int]:
    return {
        region.start + plane * region.plane_stride + row * region.stride + at
        for plane in range(region.planes)
        for row in range(region.rows)
        for at in range(region.row_bytes)
    }


def test_regions() -> None:
    """Shape and overlap of small random regions, against sets of bytes."""
    seed = 3
    print("seed", seed)
    draw = random.Random(seed)
    met = 0
    for _ in range(20_000):
        regions, sets = [], []
        for _ in range(2):
            start, row_bytes = draw.randrange(120), draw.randrange(1, 6)
            rows, planes = draw.randrange(1, 6), draw.randrange(1, 4)
            stride, plane_stride = draw.randrange(-12, 13), draw.randrange(-40, 41)
            regions.append(Region.of(start, row_bytes, rows, stride, planes, plane_stride))
            sets.append(
                {
                    start + plane * plane_stride + row * stride + at
                    for plane in range(planes)
                    for row in range(rows)
                    for at in range(row_bytes)
                }
            )
        for region, exact in zip(regions, sets, strict=True):
            assert _bytes_of(region) == exact
            assert region.end == max(exact) + 1
        expected = bool(sets[0] & sets[1])
        assert regions[0].overlaps(regions[1]) == expected
        assert regions[1].overlaps(regions[0]) == expected
        met += expected
    assert 3_000 < met < 17_000


def test_large_regions() -> None:
    """Tiles of a large matrix: neighbours do not overlap, and it takes no time."""
    tiles = [
        Region.of(BASE + 4096 * row + 64 * column, 64, 64, 4096)
        for row in range(0, 512, 64)
        for column in range(64)
    ]
    for index, tile in enumerate(tiles[:40]):
        assert [other for other in tiles if tile.overlaps(other)] == [tiles[index]]
    huge = Region.of(0, 1, 65535, 65536, 65535, 3)
    assert huge.overlaps(Region.of(3 * 65534, 1))
    assert huge.overlaps(Region.of(1, 3, 65535, 65536))
    assert not Region.of(0, 1, 65535, 6).overlaps(Region.of(1, 2, 65535, 6))


def test_lines_in() -> None:
    """Ranges of a mask."""
    assert lines_in(0) == []
    assert lines_in(0b1011_0001) == [(0, 0), (4, 5), (7, 7)]
    assert lines_in((1 << 100) - (1 << 64)) == [(64, 99)]


def _fields(opcode: CommandOpcode, draw: random.Random) -> dict[str, int]:
    """Random fields that mostly fit the small buffers."""

    def line() -> int:
        return draw.randrange(58)

    def pitch() -> int:
        return draw.randrange(6)

    few = draw.randrange(1, 5)
    match opcode:
        case CommandOpcode.LOAD | CommandOpcode.SAVE:
            to_l1 = opcode is CommandOpcode.SAVE and draw.random() < 0.5
            other = Local.L1 if opcode is CommandOpcode.LOAD else Local.MEMORY
            choice = Local.UB if opcode is CommandOpcode.LOAD else Local.L1
            return {
                "target": choice if to_l1 or draw.random() < 0.3 else other,
                "offset": draw.randrange(12, 30) if to_l1 else draw.randrange(1000, 3000),
                "line": line(),
                "pitch": pitch(),
                "row_bytes": draw.randrange(1, 200),
                "rows": few,
                "stride": draw.randrange(-4, 5) if to_l1 else draw.randrange(-300, 300),
                "planes": draw.randrange(1, 4),
                "plane_pitch": pitch(),
                "plane_stride": draw.randrange(-4, 5) if to_l1 else draw.randrange(-300, 300),
            }
        case CommandOpcode.MOVE:
            target = draw.choice(list(MoveTarget))
            flat = target in (MoveTarget.L0C, MoveTarget.BIAS)
            return {
                "target": target,
                "transpose": 0 if flat else draw.choice(list(Transpose)),
                "source": line(),
                "source_pitch": pitch(),
                "line": line() % 12,
                "pitch": draw.randrange(2) if not flat else pitch(),
                "row_lines": draw.randrange(1, 3),
                "rows": draw.choice((few, 40)),
            }
        case CommandOpcode.IMG2COL:
            width = draw.randrange(1, 9)
            return {
                "target": draw.choice((MoveTarget.L0A, MoveTarget.L0B)),
                "stride_height": draw.randrange(1, 4),
                "stride_width": draw.randrange(1, 4),
                "source": line(),
                "source_pitch": pitch(),
                "line": line(),
                "pitch": pitch(),
                "pixel_bytes": draw.randrange(1, 100),
                "rows": draw.randrange(1, 12),
                "height": draw.randrange(8),
                "width": draw.randrange(8),
                "out_width": width,
                "kernel_height": draw.randrange(1, 4),
                "kernel_width": draw.randrange(1, 4),
                "pad_top": draw.randrange(3),
                "pad_left": draw.randrange(3),
                "first_row": draw.randrange(3),
                "first_column": draw.randrange(width),
            }
        case CommandOpcode.MMAD:
            return {
                "accumulate": draw.randrange(2),
                "type": draw.choice(list(MmadType)),
                "a_line": line(),
                "a_pitch": pitch(),
                "b_line": line() % 24,
                "b_pitch": draw.randrange(2),
                "c_line": line(),
                "c_pitch": pitch(),
                "rows": few,
                "k_tiles": draw.randrange(1, 4),
                "n_tiles": draw.randrange(1, 6),
            }
        case CommandOpcode.STORE:
            to_ub = draw.random() < 0.5
            return {
                "target": Local.UB if to_ub else Local.MEMORY,
                "output": draw.choice((StoreOutput.WORD, StoreOutput.INT8)),
                "bias": draw.randrange(2),
                "offset": draw.randrange(12, 30) if to_ub else draw.randrange(1000, 3000),
                "c_line": draw.randrange(64),
                "c_pitch": pitch(),
                "columns": draw.randrange(1, 70),
                "rows": few,
                "stride": draw.randrange(-4, 5) if to_ub else draw.randrange(-300, 300),
                "bias_line": line() + 4,
                "shift": 0,
                "multiplier": 1,
            }
    operation = draw.choice(list(VectorOperation))
    steps = {f"{name}_step": draw.random() < 0.7 for name in "abc"}
    immediates = {f"{name}_immediate": draw.random() < 0.2 for name in "bc"}
    return {
        "operation": operation,
        **{name: int(value) for name, value in (steps | immediates).items()},
        "line": line(),
        "pitch": pitch(),
        **{f"{name}_line": line() for name in "abc"},
        **{f"{name}_pitch": pitch() for name in "abc"},
        "columns": draw.randrange(1, 100) if operation is not VectorOperation.TRANSPOSE else 9,
        "rows": few,
        "immediate": 3,
    }


class _Run:
    """The golden model, with random contents."""

    def __init__(self, seed: int) -> None:
        random_bytes = np.random.default_rng(seed)
        self.memory: NDArray[np.uint8] = random_bytes.integers(0, 256, MEMORY_BYTES, np.uint8)
        sizes: Any = {f"{name}_lines": SIZES[buffer] for buffer, name in ARRAYS.items()}
        self.model = PipesModel({BASE: self.memory}, **sizes)
        for name in ARRAYS.values():
            array = getattr(self.model, name)
            array[:] = random_bytes.integers(0, 256, array.shape, np.uint8)

    def array(self, buffer: Buffer) -> NDArray[np.uint8]:
        """The lines of a buffer."""
        array: NDArray[np.uint8] = getattr(self.model, ARRAYS[buffer])
        return array

    def copy_unread(self, other: "_Run", touched: Footprint) -> None:
        """Take from another run all that the command is not said to read."""
        for buffer in Buffer:
            lines = touched.reads.get(buffer, 0)
            for line in range(SIZES[buffer]):
                if not lines >> line & 1:
                    self.array(buffer)[line] = other.array(buffer)[line]
        read = {at - BASE for region in touched.memory_reads for at in _bytes_of(region)}
        keep = np.zeros(MEMORY_BYTES, bool)
        keep[sorted(read)] = True
        self.memory[~keep] = other.memory[~keep]

    def written(self, touched: Footprint) -> bytes:
        """All that the command is said to write."""
        parts = [
            self.array(buffer)[line].tobytes()
            for buffer, mask in sorted(touched.writes.items(), key=lambda each: each[0].name)
            for line in range(SIZES[buffer])
            if mask >> line & 1
        ]
        at = sorted({at - BASE for region in touched.memory_writes for at in _bytes_of(region)})
        return b"".join(parts) + self.memory[at].tobytes()


@pytest.mark.parametrize("opcode", list(OPCODE_PIPE))
def test_against_the_model(opcode: CommandOpcode) -> None:
    """Nothing else is written; nothing else changes the result; each line read changes it."""
    seed = 1
    print("seed", seed)
    draw = random.Random(f"{opcode} {seed}")
    ran = overflows = 0
    while ran < 100:
        fields = {"opcode": int(opcode), **_fields(opcode, draw)}
        command = COMMANDS[opcode].pack(fields)
        assert broken_rule(OPCODE_PIPE[opcode], command) is None
        unpacked = COMMANDS[opcode].unpack(command)
        run, before = _Run(ran), _Run(ran)
        try:
            touched = footprint(command.to_bytes(32, "little"), BASE, SIZES)
        except BufferOverflowError:
            assert run.model.execute(opcode, unpacked, BASE)[0] == Status.BUFFER_OVERFLOW, fields
            overflows += 1
            continue
        if unpacked.get("operation") == VectorOperation.GATHER:
            continue
        assert run.model.execute(opcode, unpacked, BASE)[0] == Status.OK, fields
        _check_writes(run, before, touched)
        other = _Run(ran)
        other.copy_unread(_Run(10_000 + ran), touched)
        assert other.model.execute(opcode, unpacked, BASE)[0] == Status.OK
        if opcode is not CommandOpcode.STORE or unpacked["target"] == Local.MEMORY:
            # What is left of a line that a STORE writes to UB is undefined.
            assert run.written(touched) == other.written(touched), fields
        # Of several rows, some may be written over.
        single = fields["rows"] == fields.get("planes", 1) == 1 and not fields.get("transpose")
        copies = unpacked.get("operation", VectorOperation.COPY) == VectorOperation.COPY
        sums = opcode in (CommandOpcode.MMAD, CommandOpcode.STORE)
        if single and copies and not sums and touched.reads:
            ((buffer, mask),) = touched.reads.items()
            for first, last in lines_in(mask):
                changed = _Run(ran)
                changed.array(buffer)[draw.randint(first, last)] ^= 0xFF
                assert changed.model.execute(opcode, unpacked, BASE)[0] == Status.OK
                assert changed.written(touched) != run.written(touched), fields
        ran += 1
    print(overflows, "overflows")
    assert overflows > 3


def _check_writes(run: _Run, before: _Run, touched: Footprint) -> None:
    for buffer in Buffer:
        changed = (run.array(buffer) != before.array(buffer)).any(axis=1)
        mask = sum(1 << int(line) for line in np.flatnonzero(changed))
        assert mask & ~touched.writes.get(buffer, 0) == 0, buffer
    memory = {at - BASE for region in touched.memory_writes for at in _bytes_of(region)}
    assert set(np.flatnonzero(run.memory != before.memory).tolist()) <= memory


def test_mmad() -> None:
    """The lines of a product, by hand."""
    command = COMMANDS[CommandOpcode.MMAD].pack(
        opcode=CommandOpcode.MMAD, accumulate=1, type=MmadType.BF16, a_line=3, a_pitch=4,
        b_line=0, b_pitch=2, c_line=10, c_pitch=8, rows=2, k_tiles=5, n_tiles=3,
    )  # fmt: skip
    touched = footprint(command.to_bytes(32, "little"), 0)
    assert lines_in(touched.reads[Buffer.L0A]) == [(3, 5), (7, 9)]
    assert lines_in(touched.reads[Buffer.L0B]) == [(0, 159)]
    assert lines_in(touched.writes[Buffer.L0C]) == [(10, 12), (18, 20)]
    assert touched.reads[Buffer.L0C] == touched.writes[Buffer.L0C]


def test_gather() -> None:
    """What GATHER reads of a is not in the command: the lines of its rows are taken."""
    command = COMMANDS[CommandOpcode.VECTOR].pack(
        opcode=CommandOpcode.VECTOR, operation=VectorOperation.GATHER, a_line=8, a_pitch=4,
        b_line=40, b_pitch=1, b_step=1, line=50, pitch=1, columns=16, rows=2,
    )  # fmt: skip
    touched = footprint(command.to_bytes(32, "little"), 0)
    assert lines_in(touched.reads[Buffer.UB]) == [(8, 15), (40, 41)]
    assert "GATHER" in touched.assumed


def test_overflow() -> None:
    """A command that leaves a buffer names the line and the size."""
    command = COMMANDS[CommandOpcode.LOAD].pack(
        opcode=CommandOpcode.LOAD, target=Local.L1, line=60, pitch=65535, row_bytes=65,
        rows=65535, planes=65535, plane_pitch=65535,
    )  # fmt: skip
    with pytest.raises(BufferOverflowError, match="lines of L1 must be between 0 and 65535"):
        footprint(command.to_bytes(32, "little"), 0)
