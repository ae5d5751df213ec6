"""An initiator and a target of the register bus, on cocotb handles."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from rtl.host.register_bus import REGISTER_REQUEST, REGISTER_RESPONSE
from tb.blocks.streams import StreamChecker, pack, unpack

__all__ = ["Answer", "RegisterInitiator", "RegisterTarget"]


@dataclass(frozen=True)
class Answer:
    """A response: `data`, `error`, and `cycles` from the accepted request to the response."""

    data: int
    error: int
    cycles: int


class RegisterInitiator:
    """Drives a `bus: In(RegisterPort)`; `stall` is the chance of each cycle of delay.

    Raises:
        AssertionError: an access was not answered within `patience` cycles, or a response came
            without a request or changed before it was taken.
    """

    def __init__(self, dut: Any, name: str, *, stall: float = 0.0, patience: int = 200) -> None:
        self._edge = RisingEdge(dut.clk)
        self._name = name
        self._request = {
            part: getattr(dut, f"{name}__request__{part}") for part in ("valid", "ready", "payload")
        }
        self._response = {
            part: getattr(dut, f"{name}__response__{part}")
            for part in ("valid", "ready", "payload")
        }
        self.stall = stall
        self.patience = patience
        self._request["valid"].value = 0
        self._request["payload"].value = 0
        self._response["ready"].value = 0
        StreamChecker(dut, f"{name}__response")

    async def _pause(self) -> None:
        while random.random() < self.stall:
            await self._edge

    async def access(
        self, address: int, *, write: bool, data: int = 0, strobe: int = 0xFF
    ) -> Answer:
        """One access, from request to response."""
        await self._pause()
        self._request["payload"].value = pack(
            REGISTER_REQUEST,
            {"address": address, "write": int(write), "data": data, "strobe": strobe},
        )
        self._request["valid"].value = 1
        early = random.random() >= self.stall
        self._response["ready"].value = int(early)
        for _ in range(self.patience):
            await self._edge
            assert not int(self._response["valid"].value), f"{self._name}: a response to nothing"
            if int(self._request["ready"].value):
                break
        else:
            raise AssertionError(f"{self._name}: access {address:#x} not taken")
        self._request["valid"].value = 0
        cycles = 0
        for _ in range(self.patience):
            await self._edge
            cycles += 1
            if int(self._response["valid"].value):
                break
        else:
            raise AssertionError(f"{self._name}: access {address:#x} not answered")
        if not early:
            await self._pause()
            self._response["ready"].value = 1
            await self._edge
        answer = unpack(REGISTER_RESPONSE, int(self._response["payload"].value))
        self._response["ready"].value = 0
        return Answer(answer["data"], answer["error"], cycles)

    async def access_read(self, address: int) -> tuple[int, bool]:
        """Data, and whether there was no error."""
        answer = await self.access(address, write=False)
        return answer.data, not answer.error

    async def access_write(self, address: int, value: int, nbytes: int = 8) -> bool:
        """Write `nbytes` at a byte address inside a word; whether there was no error."""
        lane = address % 8
        strobe = ((1 << nbytes) - 1) << lane
        data = value << 8 * lane
        answer = await self.access(address - lane, write=True, data=data, strobe=strobe)
        return not answer.error

    async def read(self, address: int) -> int:
        """Read a word that must be readable."""
        answer = await self.access(address, write=False)
        assert not answer.error, f"{self._name}: read of {address:#x} refused"
        return answer.data

    async def write(self, address: int, data: int, strobe: int = 0xFF) -> None:
        """Write a word that must be writable."""
        answer = await self.access(address, write=True, data=data, strobe=strobe)
        assert not answer.error, f"{self._name}: write of {address:#x} refused"


class RegisterTarget:
    """Answers a `bus: Out(RegisterPort)` from `words`; with an error where `refused(address)`.

    Attributes:
        log: accesses in order: (address, write, data, strobe).
        silent: while True, requests are taken but not answered.
    """

    def __init__(
        self,
        dut: Any,
        name: str,
        *,
        stall: float = 0.0,
        refused: Callable[[int], bool] | None = None,
    ) -> None:
        self._dut = dut
        self._name = name
        self._edge = RisingEdge(dut.clk)
        self.stall = stall
        self.refused = refused
        self.words: dict[int, int] = {}
        self.log: list[tuple[int, bool, int, int]] = []
        self.silent = False
        StreamChecker(dut, f"{name}__request")
        self._clear()
        self._task = cocotb.start_soon(self._run())

    def _clear(self) -> None:
        for part in ("request__ready", "response__valid", "response__payload"):
            getattr(self._dut, f"{self._name}__{part}").value = 0

    def reset(self) -> None:
        """Forget an access that is on its way, as a block does that is reset."""
        self._task.cancel()
        self._clear()
        self._task = cocotb.start_soon(self._run())

    def _perform(self, word: int) -> int:
        request = unpack(REGISTER_REQUEST, word)
        address, write = request["address"] & ~7, bool(request["write"])
        self.log.append((request["address"], write, request["data"], request["strobe"]))
        if self.refused is not None and self.refused(address):
            return pack(REGISTER_RESPONSE, {"data": random.getrandbits(64), "error": 1})
        old = self.words.get(address, 0)
        if not write:
            return pack(REGISTER_RESPONSE, {"data": old, "error": 0})
        mask = sum(0xFF << 8 * i for i in range(8) if request["strobe"] >> i & 1)
        self.words[address] = old & ~mask | request["data"] & mask
        return 0

    async def _run(self) -> None:
        request_valid = getattr(self._dut, f"{self._name}__request__valid")
        request_ready = getattr(self._dut, f"{self._name}__request__ready")
        response_valid = getattr(self._dut, f"{self._name}__response__valid")
        response_ready = getattr(self._dut, f"{self._name}__response__ready")
        while True:
            while random.random() < self.stall:
                await self._edge
            request_ready.value = 1
            await self._edge
            while not int(request_valid.value):
                await self._edge
            request_ready.value = 0
            answer = self._perform(int(getattr(self._dut, f"{self._name}__request__payload").value))
            while random.random() < self.stall or self.silent:
                await self._edge
            getattr(self._dut, f"{self._name}__response__payload").value = answer
            response_valid.value = 1
            await self._edge
            while not int(response_ready.value):
                await self._edge
            response_valid.value = 0
