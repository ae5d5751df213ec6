"""Faults on purpose, in the simulated machine: the same names as the model's `FaultHooks`."""

from typing import Any

import cocotb
from cocotb.handle import Immediate

from abi.doorbell import DOORBELL_PAGE
from abi.geometry import QUEUES
from driver.bus import Region
from tb.engine.clockwork import NEVER
from tb.engine.host import Machine

__all__ = ["MachineFaults"]


class MachineFaults:
    """What can go wrong on purpose around the chip: lost writes and messages, bus errors, a
    firmware that stands still. What goes wrong inside it is asked of it by packets and registers.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def drop_doorbells(self, count: int) -> None:
        """The next `count` doorbell writes vanish on their way to the chip."""
        self._machine.bus.lose_writes(Region.BAR2, 0, QUEUES * DOORBELL_PAGE.nbytes, count)

    def drop_messages(self, vector: int, count: int) -> None:
        """The next `count` messages of a vector vanish on their way to the host."""
        self._machine.bus.lose_messages(vector, count)

    def host_slverr(self, base: int, limit: int) -> None:
        """Bus addresses from `base` up to `limit` (exclusive) answer with SLVERR; equal: none."""
        top: Any = cocotb.top
        top.fault__slverr_base.set(Immediate(base))
        top.fault__slverr_limit.set(Immediate(limit))
        top.fault__slverr_enable.set(Immediate(int(limit > base)))

    def stall_host_memory(self, level: int, seed: int = 1) -> None:
        """Every channel of host memory stalls at random in `level` of 16 cycles; 0: never."""
        top: Any = cocotb.top
        top.stall_level.set(Immediate(0))
        top.stall_seed.set(Immediate(seed))
        self._machine.actors.sleep(self._machine.bus.now() + 4)
        top.stall_level.set(Immediate(level))

    def stall_firmware(self, cycles: int | None = None) -> None:
        """The device CPU stands still for `cycles`, or until `release_firmware`."""
        now = self._machine.bus.now()
        self._machine.firmware_bus.stall(NEVER if cycles is None else now + cycles)

    def release_firmware(self) -> None:
        """End a stall."""
        self._machine.firmware_bus.resume()

    def slow_firmware(self, factor: int) -> None:
        """What the device CPU computes takes `factor` times as long."""
        self._machine.firmware_bus.slowness = factor

    def crash_firmware(self) -> None:
        """The firmware gets an exception where it stands, as after a trap."""
        self._machine.crash_firmware()

    def end(self) -> None:
        """Undo all of the above, but a crash."""
        self.host_slverr(0, 0)
        top: Any = cocotb.top
        top.stall_level.set(Immediate(0))
        self._machine.bus.end_faults()
        self.release_firmware()
        self.slow_firmware(1)
