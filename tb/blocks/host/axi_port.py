"""A cocotbext-axi AXI4-Lite master with random pauses, in 64-bit words."""

import itertools
import random
from typing import Any

from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

__all__ = ["AxiPort"]


class AxiPort:
    """Words of a 64-bit AXI4-Lite slave; `stall` is the chance of a pause on each channel."""

    def __init__(self, dut: Any, name: str, *, stall: float = 0.0) -> None:
        self.master = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, name, bus_separator="__"), dut.clk, dut.rst
        )
        self.stall = stall
        for channel in (
            self.master.write_if.aw_channel,
            self.master.write_if.w_channel,
            self.master.write_if.b_channel,
            self.master.read_if.ar_channel,
            self.master.read_if.r_channel,
        ):
            channel.set_pause_generator(random.random() < self.stall for _ in itertools.count())

    async def access_read(self, address: int) -> tuple[int, bool]:
        """Data, and whether the answer was OKAY (else it was SLVERR)."""
        answer = await self.master.read(address, 8)
        assert answer.resp in (AxiResp.OKAY, AxiResp.SLVERR)
        return int.from_bytes(answer.data, "little"), answer.resp == AxiResp.OKAY

    async def access_write(self, address: int, value: int, nbytes: int = 8) -> bool:
        """Whether the answer was OKAY (else it was SLVERR)."""
        answer = await self.master.write(address, value.to_bytes(nbytes, "little"))
        assert answer.resp in (AxiResp.OKAY, AxiResp.SLVERR)
        return bool(answer.resp == AxiResp.OKAY)

    async def read(self, address: int) -> int:
        """Read a word that must be readable."""
        value, okay = await self.access_read(address)
        assert okay, f"read of {address:#x} refused"
        return value

    async def write(self, address: int, value: int) -> None:
        """Write a word that must be writable."""
        assert await self.access_write(address, value), f"write of {address:#x} refused"
