"""AXI4 protocol rules, checked on cocotb handles in every cycle."""

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from abi.address import PAGE_BYTES

__all__ = ["Axi4Checker"]

CHANNELS = {
    "aw": ("awid", "awaddr", "awlen", "awsize", "awburst"),
    "w": ("wdata", "wstrb", "wlast"),
    "b": ("bid", "bresp"),
    "ar": ("arid", "araddr", "arlen", "arsize", "arburst"),
    "r": ("rid", "rdata", "rresp", "rlast"),
}


class Axi4Checker:
    """Fails the test when a rule of AXI4 is broken on `{name}__awaddr`, …

    Rules: `valid` is held and its payload stable until `ready`; no burst crosses 4 KiB; WLAST is at
    the last beat of a burst and nowhere else, so is RLAST; responses answer a request; one ID.

    Attributes:
        beats: beats taken on each channel, by "aw", "w", "b", "ar", "r".
        most_reads, most_writes: the most bursts that were unanswered at a time.
        reads, writes: bursts that are unanswered now.
    """

    def __init__(self, dut: Any, name: str, *, most: int = 64) -> None:
        self._dut = dut
        self._name = name
        self._most = most
        self._handles = {
            channel: (
                getattr(dut, f"{name}__{channel}valid"),
                getattr(dut, f"{name}__{channel}ready"),
                [getattr(dut, f"{name}__{signal}") for signal in signals],
            )
            for channel, signals in CHANNELS.items()
        }
        self.beats = dict.fromkeys(CHANNELS, 0)
        self.most_reads = 0
        self.most_writes = 0
        self._write_bursts: deque[int] = deque()
        self._write_beats: deque[bool] = deque()
        self._written = 0
        self._read_bursts: deque[int] = deque()
        self._unanswered = 0
        cocotb.start_soon(self._run())

    @property
    def reads(self) -> int:
        """Read bursts whose last beat has not come."""
        return len(self._read_bursts)

    @property
    def writes(self) -> int:
        """Write bursts without a response."""
        return self._unanswered

    async def _run(self) -> None:
        edge = RisingEdge(self._dut.clk)
        waiting: dict[str, tuple[str, ...] | None] = dict.fromkeys(CHANNELS)
        while True:
            await edge
            if self._dut.rst.value:
                waiting = dict.fromkeys(CHANNELS)
                continue
            for channel, (valid, ready, signals) in self._handles.items():
                if not valid.value:
                    assert waiting[channel] is None, self._broke(channel, "valid fell before ready")
                    continue
                payload = tuple(str(signal.value) for signal in signals)
                held = waiting[channel]
                assert held is None or held == payload, self._broke(
                    channel, f"payload changed before ready: {held} to {payload}"
                )
                if ready.value:
                    waiting[channel] = None
                    self.beats[channel] += 1
                    getattr(self, f"_take_{channel}")(*payload)
                else:
                    waiting[channel] = payload
            self._pair_writes()

    def _broke(self, channel: str, rule: str) -> str:
        return f"{self._name} {channel.upper()}: {rule}"

    def _address(self, channel: str, ident: str, addr: str, length: str, size: str) -> int:
        beats = int(length, 2) + 1
        nbytes = 1 << int(size, 2)
        first = int(addr, 2)
        last = first // nbytes * nbytes + beats * nbytes - 1
        assert first // PAGE_BYTES == last // PAGE_BYTES, self._broke(
            channel, f"a burst from {first:#x} to {last:#x} crosses 4 KiB"
        )
        assert int(ident, 2) == 0, self._broke(channel, f"ID must be 0, not {ident!r}")
        return beats

    def _take_aw(self, ident: str, addr: str, length: str, size: str, burst: str) -> None:
        assert int(burst, 2) == 1, self._broke("aw", f"burst must be INCR, not {burst!r}")
        self._write_bursts.append(self._address("aw", ident, addr, length, size))
        self._unanswered += 1
        assert self._unanswered <= self._most, self._broke("aw", "too many writes outstanding")
        self.most_writes = max(self.most_writes, self._unanswered)

    def _take_w(self, _data: str, _strobe: str, last: str) -> None:
        self._write_beats.append(last == "1")

    def _pair_writes(self) -> None:
        while self._write_bursts and self._write_beats:
            beats = self._write_bursts[0]
            self._written += 1
            last = self._write_beats.popleft()
            assert last == (self._written == beats), self._broke(
                "w", f"WLAST is {last} at beat {self._written} of {beats}"
            )
            if last:
                self._write_bursts.popleft()
                self._written = 0

    def _take_b(self, _ident: str, _resp: str) -> None:
        complete = self._unanswered - len(self._write_bursts)
        assert complete > 0, self._broke("b", "a response before the last beat of a burst")
        self._unanswered -= 1

    def _take_ar(self, ident: str, addr: str, length: str, size: str, burst: str) -> None:
        assert int(burst, 2) == 1, self._broke("ar", f"burst must be INCR, not {burst!r}")
        self._read_bursts.append(self._address("ar", ident, addr, length, size))
        assert self.reads <= self._most, self._broke("ar", "too many reads outstanding")
        self.most_reads = max(self.most_reads, self.reads)

    def _take_r(self, _ident: str, _data: str, _resp: str, last: str) -> None:
        assert self._read_bursts, self._broke("r", "a beat that was not asked for")
        self._read_bursts[0] -= 1
        final = self._read_bursts[0] == 0
        assert (last == "1") == final, self._broke("r", f"RLAST is {last}, last beat: {final}")
        if final:
            self._read_bursts.popleft()
