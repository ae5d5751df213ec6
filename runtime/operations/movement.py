"""Operations that move elements."""

from runtime.kernels.movement_source import (
    gather_rows_source,
    gather_work,
    transpose_source,
    transpose_work,
)
from runtime.memory import DeviceArray
from runtime.operations.launch import Operands, run
from runtime.stream import Stream

__all__ = ["gather_rows", "transpose"]


def transpose(
    x: DeviceArray, out: DeviceArray | None = None, stream: Stream | None = None
) -> DeviceArray:
    """x (m, n), fp32 or int32, as (n, m)."""
    operands = Operands("x", x, stream)
    operands.add("x", x, ["float32", "int32"], ndim=2)
    m, n = x.shape
    result = operands.result(out, (n, m), x.dtype.name)
    run(operands, transpose_source, (x.dtype.name,), transpose_work(m, n), x, result, m, n)
    return result


def gather_rows(
    table: DeviceArray,
    numbers: DeviceArray,
    out: DeviceArray | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """table[numbers]: rows of a (rows, n) table of fp32, int32 or int8, picked by int32 (count,).

    The numbers are on the device, so they are not checked: one that is no row of the table reads
    whatever lies there, or fails with ADDRESS_FAULT.
    """
    operands = Operands("table", table, stream)
    operands.add("table", table, ["float32", "int32", "int8"], ndim=2)
    operands.add("numbers", numbers, ["int32"], ndim=1)
    (count,), n = numbers.shape, table.shape[1]
    result = operands.result(out, (count, n), table.dtype.name)
    key = (table.dtype.name,)
    run(operands, gather_rows_source, key, gather_work(count, n), table, numbers, result, count, n)
    return result
