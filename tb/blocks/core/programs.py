"""Programs for the core's tests: steps, matrix products and chains of random commands."""

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
from abi.vector import SOURCES, VectorOperation
from runtime.toolchain.assembler import Assembler

__all__ = [
    "MEMORY_BYTES",
    "SIZES",
    "Gemm",
    "Step",
    "chain",
    "emit_bases",
    "emit_steps",
    "load",
    "mmad",
    "move",
    "nop",
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

ELEMENTWISE = (
    VectorOperation.IADD,
    VectorOperation.FADD,
    VectorOperation.FMUL,
    VectorOperation.FMA,
    VectorOperation.IMAX,
    VectorOperation.SELECT,
    VectorOperation.COPY,
    VectorOperation.FILL,
)


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


def _lines(size: str, rows: int, row_lines: int) -> tuple[int, int]:
    """A first line and a pitch, with which the rows fit a buffer."""
    room = SIZES[size] - row_lines
    pitch = random.choice([0, row_lines, row_lines, row_lines + random.randrange(3)])
    if pitch * (rows - 1) > room:
        pitch = 0
    return random.randint(0, room - pitch * (rows - 1)), pitch


def _rows(nbytes: int, rows: int) -> dict[str, int]:
    """Place, stride and direction of rows in the lower part of global memory."""
    stride = random.choice([0, nbytes, nbytes + random.randrange(100), -random.randrange(200)])
    low, high = min(0, stride * (rows - 1)), max(0, stride * (rows - 1))
    first = random.randint(-low, MEMORY_BYTES * 7 // 8 - nbytes - high)
    base = random.randrange(2)
    # Base register 1 holds an address beyond the memory.
    return {"base": base, "offset": first - base * MEMORY_BYTES, "stride": stride}


def _random_load(flags: dict[str, int]) -> Step:
    rows, nbytes = random.randint(1, 12), random.choice([1, 64, random.randint(1, 300)])
    target = random.choice([Local.L1, Local.UB])
    size = "ub_lines" if target is Local.UB else "l1_lines"
    line, pitch = _lines(size, rows, _ceil(nbytes, LINE_BYTES))
    where = {"line": line, "pitch": pitch, "rows": rows, "row_bytes": nbytes}
    fill = random.choice([0, random.randrange(256)])
    return load(**flags, target=target, fill=fill, **where, **_rows(nbytes, rows))


def _random_save(flags: dict[str, int]) -> Step:
    rows, nbytes = random.randint(1, 12), random.choice([1, 64, random.randint(1, 300)])
    lines = _ceil(nbytes, LINE_BYTES)
    line, pitch = _lines("ub_lines", rows, lines)
    where = {"line": line, "pitch": pitch, "rows": rows, "row_bytes": nbytes}
    if random.randrange(2):
        first, stride = _lines("l1_lines", rows, lines)
        return save(**flags, **where, target=Local.L1, offset=first, stride=stride)
    return save(**flags, **where, **_rows(nbytes, rows))


def _random_move(flags: dict[str, int]) -> Step:
    target = random.choice(list(MoveTarget))
    buffer = {0: "l0a_lines", 1: "l0b_lines", 2: "l0c_lines", 3: "bias_lines"}[target]
    rows, row_lines = random.randint(1, 12), random.randint(1, 6)
    source, source_pitch = _lines("l1_lines", rows, row_lines)
    line, pitch = _lines(buffer, rows, row_lines)
    where = {"source": source, "source_pitch": source_pitch, "line": line, "pitch": pitch}
    return move(**flags, target=target, rows=rows, row_lines=row_lines, **where)


def _random_mmad(flags: dict[str, int]) -> Step:
    rows, k_tiles, n_tiles = (random.randint(1, 30), random.randint(1, 5), random.randint(1, 5))
    a_line, a_pitch = _lines("l0a_lines", rows, _ceil(k_tiles, 4))
    b_line, b_pitch = _lines("l0b_lines", k_tiles * 16, _ceil(n_tiles, 4))
    c_line, c_pitch = _lines("l0c_lines", rows, n_tiles)
    where = {"a_line": a_line, "a_pitch": a_pitch, "b_line": b_line, "b_pitch": b_pitch}
    sizes = {"rows": rows, "k_tiles": k_tiles, "n_tiles": n_tiles}
    more = {"c_line": c_line, "c_pitch": c_pitch, "accumulate": random.randrange(2)}
    return mmad(**flags, **where, **sizes, **more)


def _random_store(flags: dict[str, int]) -> Step:
    rows, columns = random.randint(1, 12), random.choice([16, random.randint(1, 100)])
    output = random.choice(list(StoreOutput))
    size = {StoreOutput.WORD: 4, StoreOutput.INT8: 1, StoreOutput.BF16: 2}[output]
    if random.randrange(2):
        # Whole lines, since the rest of a line of UB is undefined.
        lines = random.randint(1, 2)
        columns = lines * LINE_BYTES // size
        first, stride = _lines("ub_lines", rows, lines)
        place = {"target": int(Local.UB), "offset": first, "stride": stride}
    else:
        place = _rows(columns * size, rows)
    c_line, c_pitch = _lines("l0c_lines", rows, _ceil(columns, 16))
    bias_line = random.randint(0, SIZES["bias_lines"] - _ceil(columns, 16))
    fields = {
        **place,
        "bias": random.randrange(2) if output is StoreOutput.INT8 else 0,
        "relu": random.randrange(2),
        "output": output,
        "shift": random.choice([0, 1, 62, random.randint(0, 62), 24, 30]),
        "multiplier": random.choice([0, 1, 2**31 - 1, random.getrandbits(31)]),
        "bias_line": bias_line,
        "columns": columns,
        "rows": rows,
        "c_line": c_line,
        "c_pitch": c_pitch,
    }
    return store(**flags, **fields)


def _random_vector(flags: dict[str, int]) -> Step:
    """Sources in the lower three quarters of UB, the result in the others."""
    operation = random.choice(ELEMENTWISE)
    rows, columns = random.randint(1, 6), random.randint(1, 70)
    lines = _ceil(columns, 16)
    quarter = SIZES["ub_lines"] // 4
    fields = {"line": 3 * quarter + random.randrange(quarter - 6 * 5 + 1), "pitch": lines}
    for source in "abc"[: SOURCES[operation]]:
        fields[f"{source}_line"] = random.randrange(3 * quarter - 6 * 5 + 1)
        fields[f"{source}_pitch"] = random.choice([0, lines])
        fields[f"{source}_step"] = random.randrange(2)
    immediate = random.choice([0, 0x3F80_0000, random.getrandbits(32)])
    return vector(
        **flags, operation=operation, rows=rows, columns=columns, immediate=immediate, **fields
    )


def _random_step(wait: int, give: int) -> Step:
    flags = {"wait": wait, "set": give}
    if random.random() < 0.1:
        return nop(random.randrange(6), **flags)
    make = random.choice(
        [_random_load, _random_save, _random_move, _random_mmad, _random_store, _random_vector]
    )
    return make(flags)


def chain(commands: int) -> list[Step]:
    """Random commands of all pipes, each waiting for the one before it."""
    result = [nop(0, set=1 << 31)]
    for i in range(commands):
        result.append(_random_step(1 << (i - 1) % 32, 1 << i % 32))
    return result
