"""The doorbell of a queue."""

from abi.status import Engine, Status
from driver import tracing
from driver.bus import BusError
from driver.errors import SubmissionError
from driver.registers import RegisterAccess

__all__ = ["Doorbell"]


class Doorbell:
    """Tells the device how far a ring is published. It only moves forward."""

    def __init__(self, queue: int, register: RegisterAccess) -> None:
        self._queue = queue
        self._write = register.write
        self.rings = 0
        """Doorbells rung so far."""

    def ring(self, write_index: int) -> None:
        """Packets before `write_index` are published; one posted 64-bit write.

        Raises:
            SubmissionError: the device refused it: the queue is disabled.
        """
        self.rings += 1
        tracing.point("doorbell", "ring", queue=self._queue, write_index=write_index)
        try:
            self._write(write_index)
        except BusError as error:
            raise SubmissionError(
                f"the doorbell was refused: {error}",
                status=Status.DOORBELL_VIOLATION,
                engine=Engine.DOORBELL,
                instance=self._queue,
                queue=self._queue,
            ) from error
