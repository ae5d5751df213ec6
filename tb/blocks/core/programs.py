"""Programs for the core's tests: steps and matrix products."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from abi.address import LINE_BYTES
from abi.core import (
    CUBE_SIDE,
    OPCODE_PIPE,
    CommandOpcode,
    Local,
    MoveTarget,
    Pipe,
    StoreOutput,
)
from runtime.toolchain.assembler import Assembler

__all__ = [
    "MEMORY_BYTES",
    "SIZES",
    "Gemm",
    "Step",
    "emit_bases",
    "emit_steps",
    "img2col",
    "load",
    "mmad",
    "move",
    "nop",
    "operands",
    "program",
    "random_gemm",
    "save",
    "store",
    "vector",
]

SIZES = {
    "l1_lines": 1024,
    "l0a_lines": 512,
    "l0b_lines": 512,
    "l0c_lines": 1024,
    "bias_lines": 16,
    "ub_lines": 512,
}
"""Buffers of the core under test."""

MEMORY_BYTES = 1 << 19
"""Global memory of the tests, at HBM_BASE. Kernels lie in its last eighth."""


@dataclass(frozen=True)
class Step:
    """A command whose fields are known; `wait` and `set` are masks of flags."""

    opcode: CommandOpcode
    pipe: Pipe
    wait: int
    set: int
    fields: dict[str, int]


def _step(opcode: CommandOpcode, fields: dict[str, int], pipe: int | None = None) -> Step:
    wait, give = fields.pop("wait", 0), fields.pop("set", 0)
    return Step(opcode, OPCODE_PIPE[opcode] if pipe is None else Pipe(pipe), wait, give, fields)


def nop(pipe: int, **fields: int) -> Step:
    return _step(CommandOpcode.NOP, fields, pipe)


def load(**fields: int) -> Step:
    return _step(CommandOpcode.LOAD, {"planes": 1, **fields})


def save(**fields: int) -> Step:
    return _step(CommandOpcode.SAVE, {"planes": 1, "target": Local.MEMORY, **fields})


def move(**fields: int) -> Step:
    return _step(CommandOpcode.MOVE, fields)


def img2col(**fields: int) -> Step:
    return _step(CommandOpcode.IMG2COL, fields)


def mmad(**fields: int) -> Step:
    return _step(CommandOpcode.MMAD, fields)


def store(**fields: int) -> Step:
    return _step(CommandOpcode.STORE, {"target": Local.MEMORY, **fields})


def vector(**fields: int) -> Step:
    return _step(CommandOpcode.VECTOR, fields)


def _flags(mask: int) -> list[int]:
    return [flag for flag in range(mask.bit_length()) if mask >> flag & 1]


def emit_bases(asm: Assembler, bases: Mapping[int, int]) -> None:
    """Set base registers; uses t5 and t6."""
    for base, address in bases.items():
        asm.li("t5", address & 0xFFFF_FFFF)
        asm.li("t6", address >> 32)
        asm.emit("npu.base", base, "t5", "t6")


def emit_steps(asm: Assembler, steps: list[Step]) -> None:
    """Issue commands; uses t5 and t6."""
    for step in steps:
        asm.command(
            step.opcode,
            pipe=step.pipe,
            wait=_flags(step.wait),
            give=_flags(step.set),
            **step.fields,
        )


def program(steps: list[Step], bases: Mapping[int, int]) -> bytes:
    """A kernel that sets base registers, issues all steps and exits."""
    asm = Assembler()
    emit_bases(asm, bases)
    emit_steps(asm, steps)
    asm.emit("npu.exit")
    return asm.assemble()


L1_FULL, L1_FREE, L0_FULL, L0_FREE, C_FULL, C_FREE, BIAS = (1 << i for i in range(7))


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


@dataclass(frozen=True)
class Gemm:
    """C[m, n] = A[m, k] B[k, n] with bias, ReLU, requantisation; tiles of (tm, tk, tn).

    Every buffer is used in two halves, so that all pipes can work at the same time. The base
    registers 0 to 3 hold A, B, bias and C.
    """

    m: int
    k: int
    n: int
    tm: int
    tk: int
    tn: int
    bias: bool = False
    relu: bool = False
    scale: tuple[int, int] | None = None
    """Multiplier and shift of the requantisation."""

    def steps(self) -> list[Step]:
        result = []
        a_pitch, b_pitch = _ceil(self.tk, LINE_BYTES), _ceil(self.tn, LINE_BYTES)
        c_pitch = _ceil(self.tn, CUBE_SIDE)
        half = SIZES["l1_lines"] // 2
        bias_lines = _ceil(self.n, CUBE_SIDE)
        if self.bias:
            where = {"line": half - bias_lines, "row_bytes": 4 * self.n, "rows": 1}
            result += [
                load(base=2, set=BIAS, **where),
                move(
                    wait=BIAS,
                    set=BIAS << 1,
                    target=MoveTarget.BIAS,
                    source=half - bias_lines,
                    row_lines=bias_lines,
                    rows=1,
                ),
                nop(Pipe.FIXPIPE, wait=BIAS << 1),
            ]
        step = tile = 0
        for row in range(0, self.m, self.tm):
            for column in range(0, self.n, self.tn):
                rows, columns = min(self.tm, self.m - row), min(self.tn, self.n - column)
                c_line = tile % 2 * SIZES["l0c_lines"] // 2
                for k in range(0, self.k, self.tk):
                    depth = min(self.tk, self.k - k)
                    a_line = step % 2 * half
                    b_line = a_line + self.tm * a_pitch
                    l0a = step % 2 * SIZES["l0a_lines"] // 2
                    l0b = step % 2 * SIZES["l0b_lines"] // 2
                    last = k + self.tk >= self.k
                    result += [
                        load(
                            wait=L1_FREE if step > 1 else 0,
                            base=0,
                            offset=row * self.k + k,
                            line=a_line,
                            stride=self.k,
                            row_bytes=depth,
                            rows=rows,
                            pitch=a_pitch,
                        ),
                        load(
                            set=L1_FULL,
                            base=1,
                            offset=k * self.n + column,
                            line=b_line,
                            stride=self.n,
                            row_bytes=columns,
                            rows=depth,
                            pitch=b_pitch,
                        ),
                        move(
                            wait=L1_FULL | (L0_FREE if step > 1 else 0),
                            target=MoveTarget.L0A,
                            source=a_line,
                            line=l0a,
                            row_lines=rows * a_pitch,
                            rows=1,
                        ),
                        move(
                            set=L0_FULL | L1_FREE,
                            target=MoveTarget.L0B,
                            source=b_line,
                            line=l0b,
                            row_lines=b_pitch,
                            source_pitch=b_pitch,
                            pitch=b_pitch,
                            rows=depth,
                        ),
                        mmad(
                            wait=L0_FULL | (C_FREE if tile > 1 and k == 0 else 0),
                            set=L0_FREE | (C_FULL if last else 0),
                            accumulate=int(k > 0),
                            a_line=l0a,
                            a_pitch=a_pitch,
                            b_line=l0b,
                            b_pitch=b_pitch,
                            c_line=c_line,
                            c_pitch=c_pitch,
                            rows=rows,
                            k_tiles=_ceil(depth, CUBE_SIDE),
                            n_tiles=_ceil(columns, CUBE_SIDE),
                        ),
                    ]
                    step += 1
                size = 1 if self.scale else 4
                multiplier, shift = self.scale or (0, 0)
                result.append(
                    store(
                        wait=C_FULL,
                        set=C_FREE,
                        base=3,
                        bias=int(self.bias),
                        relu=int(self.relu),
                        output=StoreOutput.INT8 if self.scale else StoreOutput.WORD,
                        shift=shift,
                        multiplier=multiplier,
                        offset=(row * self.n + column) * size,
                        bias_line=column // CUBE_SIDE if self.bias else 0,
                        stride=self.n * size,
                        columns=columns,
                        rows=rows,
                        c_line=c_line,
                        c_pitch=c_pitch,
                    )
                )
                tile += 1
        return result

    def expected(
        self, a: NDArray[np.int8], b: NDArray[np.int8], bias: NDArray[np.int32]
    ) -> NDArray[np.generic]:
        """C by plain numpy, independent of the golden model."""
        c = a.astype(np.int64) @ b.astype(np.int64)
        if self.bias:
            c = c + bias
        c = c.astype(np.int32).astype(np.int64)
        if self.relu:
            c = np.maximum(c, 0)
        if self.scale is None:
            return c.astype(np.int32)
        multiplier, shift = self.scale
        return np.clip((c * multiplier + ((1 << shift) >> 1)) >> shift, -128, 127).astype(np.int8)


def random_gemm(largest: int = 80) -> Gemm:
    """Any shape, any tails; three of four with requantisation."""
    m, k, n = (random.choice([1, 16, random.randint(1, largest)]) for _ in range(3))
    scale = (random.getrandbits(random.randint(1, 31)), random.randint(0, 62))
    if random.random() < 0.5:
        # So that results are spread over int8.
        scale = (random.randint(1, 255), random.randint(14, 20))
    return Gemm(
        m,
        k,
        n,
        random.choice([16, 32, 7]),
        random.choice([32, 64]),
        random.choice([16, 32, 48]),
        bias=random.random() < 0.5,
        relu=random.random() < 0.5,
        scale=scale if random.random() < 0.75 else None,
    )


def operands(
    gemm: Gemm,
) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int32]]:
    """Random operands with runs of -128 and 127."""
    values = []
    for size in (gemm.m * gemm.k, gemm.k * gemm.n):
        data = np.frombuffer(random.randbytes(size), np.int8).copy()
        at = random.randrange(size)
        data[at : at + size // 3] = random.choice([-128, 127])
        values.append(data)
    bias = np.frombuffer(random.randbytes(4 * gemm.n), np.int32) >> random.choice([0, 8, 16, 20])
    return values[0].reshape(gemm.m, -1), values[1].reshape(gemm.k, -1), bias
