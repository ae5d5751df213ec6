"""Copies and fills: 1-D and 2-D, between device memory and pinned or pageable host memory."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abi.packet import PacketOpcode
from runtime.arguments import check_integer, refuse
from runtime.heap import Block
from runtime.memory import DeviceArray, DeviceBuffer
from runtime.operands import Operand, operand
from runtime.staging import CHUNK_BYTES
from runtime.stream import Packet, Stream

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["copy", "copy_2d", "fill"]

LARGEST_PITCH = (1 << 31) - 1
LARGEST_ROW = (1 << 32) - 1
WINDOW = 8
"""Pieces of a copy to pageable memory that are on their way at a time."""


@dataclass(frozen=True)
class _Side:
    """One side of a 2-D copy: where its first row is, and from one row to the next."""

    operand: Operand
    pitch: int


def copy(device: "Device", dst: object, src: object, stream: Stream) -> int | None:
    """Submit a copy of all bytes of `src` to `dst`; returns the timeline value of its end.

    None: a pageable side made it complete (dst) already.

    Raises:
        InvalidArgumentError: see `operand`; or sizes or dtypes differ, both sides are pageable,
            or they overlap.
    """
    target = operand("dst", dst, device, written=True)
    source = operand("src", src, device, written=False)
    if target.dtype is not None and source.dtype is not None and target.dtype != source.dtype:
        raise refuse("dst", f"have the dtype of src, {source.dtype}", target.dtype)
    if target.nbytes != source.nbytes:
        raise refuse("dst", f"have the {source.nbytes} bytes of src", target.nbytes)
    row = target.nbytes
    return _submit(device, _Side(target, row), _Side(source, row), row, 1, stream)


def copy_2d(
    device: "Device",
    dst: object,
    dst_pitch: int,
    src: object,
    src_pitch: int,
    row_bytes: int,
    rows: int,
    stream: Stream,
) -> int | None:
    """Submit a copy of `rows` rows of `row_bytes` bytes; pitches are bytes from row to row.

    Raises:
        InvalidArgumentError: as `copy`, or a row reaches outside.
    """
    target = operand("dst", dst, device, written=True)
    source = operand("src", src, device, written=False)
    check_integer("row_bytes", row_bytes, 1, LARGEST_ROW)
    check_integer("rows", rows, 1, LARGEST_ROW)
    for name, side, pitch in (("dst", target, dst_pitch), ("src", source, src_pitch)):
        check_integer(f"{name}_pitch", pitch, row_bytes, max(row_bytes, LARGEST_PITCH))
        needed = (rows - 1) * pitch + row_bytes
        if needed > side.nbytes:
            raise refuse(name, f"have at least {needed} bytes for {rows} rows", side.nbytes)
    sides = _Side(target, dst_pitch), _Side(source, src_pitch)
    return _submit(device, *sides, row_bytes, rows, stream)


def fill(device: "Device", dst: object, pattern: bytes, stream: Stream) -> int:
    """Submit a fill of device memory with a pattern of 1, 2, 4 or 8 bytes.

    Raises:
        InvalidArgumentError: `dst` is no device memory.
    """
    if not isinstance(dst, DeviceBuffer | DeviceArray):
        raise refuse("dst", "be a DeviceBuffer or a DeviceArray", dst)
    target = operand("dst", dst, device, written=True)
    assert target.address is not None
    word = int.from_bytes((pattern * 8)[:8], "little")
    packets: list[Packet] = []
    for start in range(0, target.nbytes, 1 << 31):
        size = min(1 << 31, target.nbytes - start)
        fields = {"destination": target.address + start, "row_bytes": size, "rows": 1}
        packets.append((PacketOpcode.FILL, {**fields, "pattern": word}))
    return stream.submit(packets, target.blocks)


def _submit(
    device: "Device", dst: _Side, src: _Side, row_bytes: int, rows: int, stream: Stream
) -> int | None:
    source, target = src.operand, dst.operand
    if source.address is None and target.address is None:
        raise refuse("dst or src", "lie in device or pinned memory", "both pageable")
    if source.address is not None and target.address is not None:
        _refuse_overlap(target, source)
        packet = _copy_packet(target.address, source.address, row_bytes, rows, dst.pitch, src.pitch)
        return stream.submit([packet], [*target.blocks, *source.blocks])
    if source.host is not None:
        return _upload(device, dst, src, row_bytes, rows, stream)
    _download(device, dst, src, row_bytes, rows, stream)
    return None


def _refuse_overlap(target: Operand, source: Operand) -> None:
    a, b = target.address, source.address
    assert a is not None
    assert b is not None
    if a < b + source.nbytes and b < a + target.nbytes:
        raise refuse("dst", "not overlap src", f"{a:#x} and {b:#x}")


def _copy_packet(
    destination: int, source: int, row_bytes: int, rows: int, dst_pitch: int, src_pitch: int
) -> Packet:
    fields = {
        "source": source,
        "destination": destination,
        "row_bytes": row_bytes,
        "rows": rows,
    }
    if rows > 1:
        fields |= {"source_stride": src_pitch, "destination_stride": dst_pitch}
    return PacketOpcode.COPY, fields


def _pieces(row_bytes: int, rows: int) -> list[tuple[int, int, int, int]]:
    """Cut a copy into pieces of at most CHUNK_BYTES: (row, column, bytes of a row, rows)."""
    if row_bytes > CHUNK_BYTES:
        return [
            (row, column, min(CHUNK_BYTES, row_bytes - column), 1)
            for row in range(rows)
            for column in range(0, row_bytes, CHUNK_BYTES)
        ]
    height = CHUNK_BYTES // row_bytes
    return [(row, 0, row_bytes, min(height, rows - row)) for row in range(0, rows, height)]


def _host_rows(
    side: _Side, row: int, column: int, width: int, height: int
) -> npt.NDArray[np.uint8]:
    """A uint8 view, shape (height, width), of rows of pageable memory."""
    host = side.operand.host
    assert host is not None
    start = host[row * side.pitch + column :]
    return np.lib.stride_tricks.as_strided(start, (height, width), (side.pitch, 1))


def _upload(
    device: "Device", dst: _Side, src: _Side, row_bytes: int, rows: int, stream: Stream
) -> int:
    base = dst.operand.address
    assert base is not None
    staging = device.staging  # A reset makes another, which must not get blocks of before.
    value = 0
    for row, column, width, height in _pieces(row_bytes, rows):
        block, view = staging.take(width * height)
        try:
            view.reshape(height, width)[:] = _host_rows(src, row, column, width, height)
            target = base + row * dst.pitch + column
            staged = block.allocation.device_address
            packet = _copy_packet(target, staged, width, height, dst.pitch, width)
            value = stream.submit([packet], [*dst.operand.blocks, block])
        finally:
            staging.give_back(block)
    return value


def _download(
    device: "Device", dst: _Side, src: _Side, row_bytes: int, rows: int, stream: Stream
) -> None:
    """Copies to pageable memory return when they are complete, since the host does their end."""
    base = src.operand.address
    assert base is not None
    staging = device.staging
    under_way: deque[tuple[int, Block, npt.NDArray[np.uint8], npt.NDArray[np.uint8]]] = deque()

    def land() -> None:
        value, block, view, host = under_way.popleft()
        try:
            stream.finish(value)
            stream.check()
            host[:] = view.reshape(host.shape)
        finally:
            staging.give_back(block)

    try:
        for row, column, width, height in _pieces(row_bytes, rows):
            if len(under_way) == WINDOW:
                land()
            host = _host_rows(dst, row, column, width, height)
            block, view = staging.take(width * height)
            try:
                staged = block.allocation.device_address
                source = base + row * src.pitch + column
                packet = _copy_packet(staged, source, width, height, width, src.pitch)
                value = stream.submit([packet], [*src.operand.blocks, block])
            except BaseException:
                staging.give_back(block)
                raise
            under_way.append((value, block, view, host))
        while under_way:
            land()
    finally:
        for _, block, _, _ in under_way:
            staging.give_back(block)
