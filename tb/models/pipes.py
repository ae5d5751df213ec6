"""Golden model of the core's pipes: executes one command at a time on numpy memories.

VECTOR commands are those of `tb.models.vector`. What a failed command wrote before its fault is
undefined, as it is in hardware.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.core import (
    CUBE_SIDE,
    CommandOpcode,
    Local,
    MmadType,
    MoveTarget,
    StoreOutput,
    Transpose,
)
from abi.status import Status

__all__ = ["AddressFaultError", "GlobalMemory", "PipesModel"]

Bytes = NDArray[np.uint8]
Fields = Mapping[str, int]


class AddressFaultError(Exception):
    """An access to global memory failed; `address` is that of the line, modulo 2**64."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.address = address % 2**64 & ~(LINE_BYTES - 1)


class _OverflowError(Exception):
    """A command leaves a buffer."""


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


class GlobalMemory:
    """Memory in regions.

    Args:
        regions: base device address (a multiple of 64) to a writable uint8 array (a multiple of
            64 bytes). All else is an ADDRESS_FAULT.
    """

    def __init__(self, regions: Mapping[int, Bytes]) -> None:
        for base, array in regions.items():
            if base % LINE_BYTES or array.nbytes % LINE_BYTES or array.dtype != np.uint8:
                raise ValueError(f"a region must be uint8 and whole lines, not one at {base!r}")
        self.regions = dict(regions)

    def _region(self, address: int) -> tuple[Bytes, int]:
        for base, array in self.regions.items():
            if base <= address < base + array.nbytes:
                return array, address - base
        raise AddressFaultError(address)

    def read(self, address: int, nbytes: int) -> Bytes:
        """Bytes, as the core reads them.

        Raises:
            AddressFaultError: there is no memory.
        """
        parts = []
        while nbytes:
            array, offset = self._region(address)
            part = array[offset : offset + nbytes]
            parts.append(part)
            address, nbytes = address + part.size, nbytes - part.size
        return np.concatenate(parts)

    def write(self, address: int, data: Bytes) -> None:
        """Write bytes, as the core writes them.

        Raises:
            AddressFaultError: there is no memory.
        """
        while data.size:
            array, offset = self._region(address)
            part = data[: array.nbytes - offset]
            array[offset : offset + part.size] = part
            address, data = address + part.size, data[part.size :]


class PipesModel:
    """The buffers of a core, and what its commands do to them.

    Args:
        regions: see `GlobalMemory`.
        l1_lines, l0a_lines, l0b_lines, l0c_lines, bias_lines, ub_lines: sizes in lines of 64 bytes.

    Attributes:
        l1, l0a, l0b, l0c, bias, ub: uint8 arrays of shape (lines, 64).
        macs, read_bytes, write_bytes: counters, as CORE_MACS and so on.
    """

    def __init__(
        self,
        regions: Mapping[int, Bytes],
        *,
        l1_lines: int,
        l0a_lines: int,
        l0b_lines: int,
        l0c_lines: int,
        bias_lines: int,
        ub_lines: int,
    ) -> None:
        self.memory = GlobalMemory(regions)
        self.l1 = np.zeros((l1_lines, LINE_BYTES), np.uint8)
        self.l0a = np.zeros((l0a_lines, LINE_BYTES), np.uint8)
        self.l0b = np.zeros((l0b_lines, LINE_BYTES), np.uint8)
        self.l0c = np.zeros((l0c_lines, LINE_BYTES), np.uint8)
        self.bias = np.zeros((bias_lines, LINE_BYTES), np.uint8)
        self.ub = np.zeros((ub_lines, LINE_BYTES), np.uint8)
        self.macs = self.read_bytes = self.write_bytes = 0

    def execute(self, opcode: int, fields: Fields, base: int = 0) -> tuple[Status, int]:
        """Execute a command that the scalar unit would not refuse; status and fault address.

        Args:
            opcode: its `CommandOpcode`.
            fields: its fields, as `Record.unpack` gives them.
            base: value of its base register, below 2**48.
        """
        try:
            match CommandOpcode(opcode):
                case CommandOpcode.NOP:
                    pass
                case CommandOpcode.LOAD:
                    self._load(fields, base)
                case CommandOpcode.SAVE:
                    self._save(fields, base)
                case CommandOpcode.MOVE:
                    self._move(fields)
                case CommandOpcode.IMG2COL:
                    self._img2col(fields)
                case CommandOpcode.MMAD:
                    self._mmad(fields)
                case CommandOpcode.STORE:
                    self._store(fields, base)
                case CommandOpcode.VECTOR:
                    from tb.models.vector import execute_vector

                    return execute_vector(self.ub, dict(fields)), 0
        except AddressFaultError as fault:
            return Status.ADDRESS_FAULT, fault.address
        except _OverflowError:
            return Status.BUFFER_OVERFLOW, 0
        return Status.OK, 0

    def target(self, target: int) -> Bytes:
        """The destination buffer of a MOVE or IMG2COL."""
        return {
            MoveTarget.L0A: self.l0a,
            MoveTarget.L0B: self.l0b,
            MoveTarget.L0C: self.l0c,
            MoveTarget.BIAS: self.bias,
        }[MoveTarget(target)]

    # Rows.

    @staticmethod
    def _starts(c: Fields, first: int, row: int, plane: int) -> list[int]:
        """Where the rows of a command start, plane by plane."""
        return [
            first + p * plane + r * row for p in range(c.get("planes", 1)) for r in range(c["rows"])
        ]

    @staticmethod
    def _lines(
        buffer: Bytes, first: int, lines: int, rows: int, pitch: int, planes: int = 1, far: int = 0
    ) -> None:
        """Check that rows of lines lie in a buffer."""
        if first + (planes - 1) * far + (rows - 1) * pitch + lines > len(buffer):
            raise _OverflowError

    def _outer(self, c: Fields, base: int, row_bytes: int, inside: Bytes | None) -> list[int]:
        """Addresses of the rows outside the pipe's own buffer, or their lines `inside` another."""
        first = c["offset"] + (base if inside is None else 0)
        starts = self._starts(c, first, c["stride"], c.get("plane_stride", 0))
        low, high = min(starts), max(starts)
        if inside is not None:
            if low < 0 or high + _ceil(row_bytes, LINE_BYTES) > len(inside):
                raise _OverflowError
        elif low < 0:
            raise AddressFaultError(low)
        elif high + row_bytes > 1 << ADDRESS_BITS:
            raise AddressFaultError(high)
        return starts

    def _inner(self, c: Fields, buffer: Bytes) -> list[int]:
        """First lines of the rows of a LOAD or SAVE in the pipe's own buffer."""
        lines = _ceil(c["row_bytes"], LINE_BYTES)
        rows, planes = c["rows"], c["planes"]
        self._lines(buffer, c["line"], lines, rows, c["pitch"], planes, c["plane_pitch"])
        return self._starts(c, c["line"], c["pitch"], c["plane_pitch"])

    def _load(self, c: Fields, base: int) -> None:
        buffer = self.ub if c["target"] == Local.UB else self.l1
        nbytes = c["row_bytes"]
        lines = _ceil(nbytes, LINE_BYTES)
        inner = self._inner(c, buffer)
        for line, address in zip(inner, self._outer(c, base, nbytes, None), strict=True):
            row = np.full(lines * LINE_BYTES, c["fill"], np.uint8)
            row[:nbytes] = self.memory.read(address, nbytes)
            buffer[line : line + lines] = row.reshape(lines, LINE_BYTES)
            end = address + nbytes - 1
            self.read_bytes += (end // LINE_BYTES - address // LINE_BYTES + 1) * LINE_BYTES

    def _save(self, c: Fields, base: int) -> None:
        inside = self.l1 if c["target"] == Local.L1 else None
        nbytes = c["row_bytes"]
        lines = _ceil(nbytes, LINE_BYTES)
        inner = self._inner(c, self.ub)
        for line, start in zip(inner, self._outer(c, base, nbytes, inside), strict=True):
            row = self.ub[line : line + lines]
            if inside is None:
                self.memory.write(start, row.reshape(-1)[:nbytes])
                self.write_bytes += nbytes
            else:
                inside[start : start + lines] = row

    def _store(self, c: Fields, base: int) -> None:
        rows, columns = c["rows"], c["columns"]
        lines = _ceil(columns, CUBE_SIDE)
        self._lines(self.l0c, c["c_line"], lines, rows, c["c_pitch"])
        if c["bias"]:
            self._lines(self.bias, c["bias_line"], lines, 1, 0)
        inside = self.ub if c["target"] == Local.UB else None
        output = StoreOutput(c["output"])
        size = {StoreOutput.WORD: 4, StoreOutput.BF16: 2, StoreOutput.INT8: 1}[output]
        nbytes = columns * size
        for i, start in enumerate(self._outer(c, base, nbytes, inside)):
            first = c["c_line"] + i * c["c_pitch"]
            x = self.l0c[first : first + lines].view(np.int32).reshape(-1)
            if c["bias"]:
                bias = self.bias[c["bias_line"] : c["bias_line"] + lines]
                x = x + bias.view(np.int32).reshape(-1)
            if c["relu"]:
                x = np.maximum(x, 0)
            out = x.view(np.uint8)
            if output is StoreOutput.INT8:
                scaled = x.astype(np.int64) * c["multiplier"] + ((1 << c["shift"]) >> 1)
                out = np.clip(scaled >> c["shift"], -128, 127).astype(np.int8).view(np.uint8)
            elif output is StoreOutput.BF16:
                from tb.models.fp32 import to_bfloat16

                out = to_bfloat16(x.view(np.uint32)).view(np.uint8)
            if inside is None:
                self.memory.write(start, out[:nbytes])
                self.write_bytes += nbytes
            else:
                # The contract leaves open what is behind a row; the chip writes this.
                count = _ceil(nbytes, LINE_BYTES)
                row = np.zeros(count * LINE_BYTES, np.uint8)
                row[: out.size] = out[: row.size]
                inside[start : start + count] = row.reshape(count, LINE_BYTES)

    # MTE1.

    def _move(self, c: Fields) -> None:
        target = self.target(c["target"])
        rows, lines = c["rows"], c["row_lines"]
        self._lines(self.l1, c["source"], lines, rows, c["source_pitch"])
        if c["transpose"] != Transpose.NONE:
            self._transpose(c, target)
            return
        self._lines(target, c["line"], lines, rows, c["pitch"])
        for i in range(rows):
            source, line = c["source"] + i * c["source_pitch"], c["line"] + i * c["pitch"]
            target[line : line + lines] = self.l1[source : source + lines]

    def _transpose(self, c: Fields, target: Bytes) -> None:
        rows, lines = c["rows"], c["row_lines"]
        element = np.uint16 if c["transpose"] == Transpose.HALVES else np.uint8
        columns = lines * LINE_BYTES // np.dtype(element).itemsize
        out_lines = _ceil(rows * np.dtype(element).itemsize, LINE_BYTES)
        self._lines(target, c["line"], out_lines, columns, c["pitch"])
        at = c["source"] + np.arange(rows)[:, None] * c["source_pitch"] + np.arange(lines)
        matrix = self.l1[at].reshape(rows, -1).view(element)
        out = np.zeros((columns, out_lines * LINE_BYTES), np.uint8)
        out.view(element)[:, :rows] = matrix.T
        for i, row in enumerate(out):
            line = c["line"] + i * c["pitch"]
            target[line : line + out_lines] = row.reshape(out_lines, LINE_BYTES)

    def _img2col(self, c: Fields) -> None:
        target = self.target(c["target"])
        pixel, height, width = c["pixel_bytes"], c["height"], c["width"]
        kernel_height, kernel_width = c["kernel_height"], c["kernel_width"]
        row_bytes = kernel_height * kernel_width * pixel
        lines = _ceil(row_bytes, LINE_BYTES)
        image_lines = _ceil(width * pixel, LINE_BYTES)
        if height and width:
            self._lines(self.l1, c["source"], image_lines, height, c["source_pitch"])
        self._lines(target, c["line"], lines, c["rows"], c["pitch"])
        image = np.zeros((height, width, pixel), np.uint8)
        for y in range(height if width else 0):
            first = c["source"] + y * c["source_pitch"]
            row = self.l1[first : first + image_lines].reshape(-1)[: width * pixel]
            image[y] = row.reshape(width, pixel)
        for i in range(c["rows"]):
            down, column = divmod(c["first_column"] + i, c["out_width"])
            top = (c["first_row"] + down) * c["stride_height"] - c["pad_top"]
            left = column * c["stride_width"] - c["pad_left"]
            window = np.zeros((kernel_height, kernel_width, pixel), np.uint8)
            y0, y1 = max(top, 0), min(top + kernel_height, height)
            x0, x1 = max(left, 0), min(left + kernel_width, width)
            if y0 < y1 and x0 < x1:
                window[y0 - top : y1 - top, x0 - left : x1 - left] = image[y0:y1, x0:x1]
            row = np.zeros(lines * LINE_BYTES, np.uint8)
            row[:row_bytes] = window.reshape(-1)
            first = c["line"] + i * c["pitch"]
            target[first : first + lines] = row.reshape(lines, LINE_BYTES)

    # The Cube.

    def _mmad(self, c: Fields) -> None:
        rows, k_tiles, n_tiles = c["rows"], c["k_tiles"], c["n_tiles"]
        depth, width = k_tiles * CUBE_SIDE, n_tiles * CUBE_SIDE
        is_float = c["type"] == MmadType.BF16
        size = 2 if is_float else 1
        a_lines, b_lines = _ceil(depth * size, LINE_BYTES), _ceil(width * size, LINE_BYTES)
        self._lines(self.l0a, c["a_line"], a_lines, rows, c["a_pitch"])
        self._lines(self.l0b, c["b_line"], b_lines, depth, c["b_pitch"])
        self._lines(self.l0c, c["c_line"], n_tiles, rows, c["c_pitch"])
        a_at = c["a_line"] + np.arange(rows)[:, None] * c["a_pitch"] + np.arange(a_lines)
        b_at = c["b_line"] + np.arange(depth)[:, None] * c["b_pitch"] + np.arange(b_lines)
        c_at = c["c_line"] + np.arange(rows)[:, None] * c["c_pitch"] + np.arange(n_tiles)
        a = self.l0a[a_at].reshape(rows, -1)[:, : depth * size]
        b = self.l0b[b_at].reshape(depth, -1)[:, : width * size]
        self.macs += rows * depth * width
        sums = self.l0c.view(np.uint32)
        multiply = self._multiply_float if is_float else self._multiply_int8
        if np.unique(c_at).size == c_at.size:
            old = sums[c_at] if c["accumulate"] else np.zeros((rows, n_tiles, CUBE_SIDE), np.uint32)
            total = multiply(a, b, old.reshape(rows, width))
            sums[c_at] = total.reshape(rows, n_tiles, CUBE_SIDE)
            return
        # Rows that share lines of L0C: the order of the Cube decides.
        deep, wide = CUBE_SIDE * size, CUBE_SIDE * size
        zeros = np.zeros(CUBE_SIDE, np.uint32)
        for n in range(n_tiles):
            for k in range(k_tiles):
                tile = b[k * CUBE_SIDE : (k + 1) * CUBE_SIDE, n * wide : (n + 1) * wide]
                for m in range(rows):
                    line = c_at[m, n]
                    old = sums[line] if k or c["accumulate"] else zeros
                    row = a[m : m + 1, k * deep : (k + 1) * deep]
                    sums[line] = multiply(row, tile, old[None])[0]

    @staticmethod
    def _multiply_int8(a: Bytes, b: Bytes, old: NDArray[np.uint32]) -> NDArray[np.uint32]:
        # Exact: every partial sum is far below 2**53.
        x = np.ascontiguousarray(a).view(np.int8).astype(np.float64)
        y = np.ascontiguousarray(b).view(np.int8).astype(np.float64)
        return (x @ y).astype(np.int64).astype(np.uint32) + old

    @staticmethod
    def _multiply_float(a: Bytes, b: Bytes, old: NDArray[np.uint32]) -> NDArray[np.uint32]:
        from tb.models.fp32 import bfloat16_to_float, fma

        x = bfloat16_to_float(np.ascontiguousarray(a).view(np.uint16))
        y = bfloat16_to_float(np.ascontiguousarray(b).view(np.uint16))
        total = old
        for k in range(x.shape[1]):
            left, right = np.broadcast_arrays(x[:, k, None], y[None, k])
            total = fma(left, right, total)
        return total
