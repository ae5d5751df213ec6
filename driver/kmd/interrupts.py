"""MSI-X: the vector table, and waiting for a vector's message."""

from abi.address import MSI_BUS_ADDRESS
from driver import tracing
from driver.bus import Bus
from driver.registers import Registers

__all__ = ["Interrupts"]

TURN = 100
"""Cycles between two looks of a host thread at what another one has received."""


class Interrupts:
    """The vectors of the function.

    A message only says "look again": whoever is woken drains its source and checks once more, so
    several messages may melt into one, and one that comes too early does no harm.

    Attributes: `received`, wake-ups taken by vector.
    """

    def __init__(self, bus: Bus, registers: Registers, vectors: int) -> None:
        self._bus = bus
        self._registers = registers
        self._vectors = vectors
        self.received = [0] * vectors
        self._watched: set[int] = set()
        """Vectors for whose message a host thread waits."""

    def enable(self) -> None:
        """Program and unmask each vector: vector v sends data v."""
        bar0 = self._registers.bar0
        for vector in range(self._vectors):
            bar0.vector_address[vector].set(address=MSI_BUS_ADDRESS)
            bar0.vector_data[vector].set(data=vector, masked=0)

    def mask(self) -> None:
        """Mask each vector; messages stay pending."""
        for vector in range(self._vectors):
            self._registers.bar0.vector_data[vector].update(masked=1)

    def wait(self, vector: int, until: int, seen: int) -> bool:
        """Wait until `received[vector]` is no longer `seen`; False when device time reaches `until`
        (cycles) first.

        A message wakes every host thread that waits for its vector. One of them takes it from the
        bus; the others look at the count. So the count is to be read before the source: a message
        that another thread takes between the two is not missed.
        """
        while self.received[vector] == seen and vector in self._watched:
            now = self._bus.now()
            if now >= until:
                return False
            self._bus.wait_interrupt(0, min(until, now + TURN))
        if self.received[vector] != seen:
            return True
        self._watched.add(vector)
        try:
            taken = self._bus.wait_interrupt(1 << vector, until)
        finally:
            self._watched.discard(vector)
        if not taken:
            return False
        self.received[vector] += 1
        tracing.point("interrupt", "vector", vector=vector)
        return True

    def sent(self, vector: int) -> int:
        """Messages that the device has sent on `vector` since its reset."""
        return self._registers.bar0.vector_sent[vector].read()

    def pending(self, vector: int) -> bool:
        """Whether the device holds back a message of `vector`."""
        return bool(self._registers.bar0.vector_pending.read() >> vector & 1)
