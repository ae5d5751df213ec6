"""Many lanes of one block behind wide ports, and the agent that streams operands through them."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from amaranth import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from numpy.typing import NDArray

__all__ = ["ENABLE", "Lanes", "check_hold", "start", "stream"]

ENABLE = "enable"


class Lanes(wiring.Component):
    """`count` blocks side by side: each port is that of all blocks, `enable` is common.

    Raises:
        ValueError: count is not positive.
    """

    def __init__(self, make: Callable[[], wiring.Component], *, count: int) -> None:
        if count < 1:
            raise ValueError(f"count must be positive, not {count!r}")
        self._lanes = [make() for _ in range(count)]
        members = {}
        for name, member in self._lanes[0].signature.members.items():
            width = 1 if name == ENABLE else count * member.shape
            members[name] = member.flow(width)
        super().__init__(members)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        for index, lane in enumerate(self._lanes):
            m.submodules[f"lane{index}"] = lane
        for name, member in self._lanes[0].signature.members.items():
            ports = [getattr(lane, name) for lane in self._lanes]
            if name == ENABLE:
                m.d.comb += [port.eq(self.enable) for port in ports]
            elif member.flow is In:
                m.d.comb += Cat(*ports).eq(getattr(self, name))
            else:
                m.d.comb += getattr(self, name).eq(Cat(*ports))
        return m


def _rows(values: NDArray[Any], lanes: int) -> list[int]:
    """One integer a cycle; the last cycle is filled up with copies of the last value."""
    padded = np.concatenate([values, np.repeat(values[-1:], -len(values) % lanes)])
    rows = padded.reshape(-1, lanes)
    if rows.dtype == np.bool_:
        rows = np.packbits(rows, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def _values(rows: list[int], lanes: int, dtype: Any, count: int) -> NDArray[Any]:
    bits = 1 if dtype == np.bool_ else 8 * np.dtype(dtype).itemsize
    nbytes = (lanes * bits + 7) // 8
    data = np.frombuffer(b"".join(row.to_bytes(nbytes, "little") for row in rows), np.uint8)
    if dtype != np.bool_:
        return data.view(dtype)[:count]
    unpacked = np.unpackbits(data.reshape(-1, nbytes), axis=1, count=lanes, bitorder="little")
    return unpacked.reshape(-1)[:count].astype(np.bool_)


async def start(dut: Any, inputs: Mapping[str, Any]) -> None:
    """Start the clock, with all `inputs` 0 and the lanes enabled."""
    for name in inputs:
        getattr(dut, name).value = 0
    dut.rst.value, dut.enable.value = 0, 1
    Clock(dut.clk, 1, unit="ns").start(start_high=False)
    await RisingEdge(dut.clk)


async def stream(
    dut: Any,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, Any],
    *,
    lanes: int,
    latency: int,
) -> dict[str, NDArray[Any]]:
    """A cycle's worth of operands every cycle; the results, an array of each output.

    Args:
        inputs: arrays of one length, shape (n,); their dtypes have the ports' widths, bool 1 bit.
        outputs: dtype of each output.
        latency: cycles from operands to results.

    Raises:
        ValueError: a result has an undefined bit.
    """
    count = len(next(iter(inputs.values())))
    ports = [getattr(dut, name) for name in inputs]
    columns = [_rows(values, lanes) for values in inputs.values()]
    seen = [(getattr(dut, name), list[int]()) for name in outputs]
    edge = RisingEdge(dut.clk)
    cycles = len(columns[0])
    # Operands driven after edge i are taken at edge i + 1; after an edge one reads what was
    # there before it.
    for cycle in range(cycles + latency + 1):
        if cycle < cycles:
            for port, column in zip(ports, columns, strict=True):
                port.value = column[cycle]
        await edge
        if cycle >= latency:
            for port, rows in seen:
                rows.append(port.value.to_unsigned())
    return {
        name: _values(rows[:cycles], lanes, dtype, count)
        for (name, dtype), (_, rows) in zip(outputs.items(), seen, strict=True)
    }


async def check_hold(
    dut: Any,
    draw: Callable[[], Mapping[str, NDArray[Any]]],
    model: Callable[..., Mapping[str, NDArray[Any]]],
    *,
    latency: int,
    cycles: int = 400,
) -> None:
    """New operands every cycle, `enable` in a random half: only the operands that met it count.

    Args:
        draw: operands of one cycle, an array with an entry for each lane, by port.
        model: the results of such operands, by port; called with them as keywords.
        latency: enabled cycles from operands to results.

    Raises:
        AssertionError: a result changed without `enable`, or is wrong.
    """
    await start(dut, draw())
    lanes = len(next(iter(draw().values())))
    edge = RisingEdge(dut.clk)
    expected: list[dict[str, int]] = []
    enabled = False
    checks = 0
    for _ in range(cycles):
        operands = draw()
        for name, values in operands.items():
            getattr(dut, name).value = _rows(values, lanes)[0]
        enable = random.random() < 0.5
        dut.enable.value = int(enable)
        await edge
        # What is seen here came from the edge before this one, which took the last of `expected`.
        if len(expected) >= latency:
            for name, row in expected[-latency].items():
                assert getattr(dut, name).value.to_unsigned() == row, (name, enabled)
                checks += 1
        enabled = enable
        if enable:
            results = model(**operands)
            expected.append({name: _rows(row, lanes)[0] for name, row in results.items()})
    assert checks > cycles // 2
