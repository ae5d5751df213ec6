"""Whose turn it is: priority bands, turns inside a band, and a share for who waits longest."""

from firmware.state import QueueState

__all__ = ["PRIORITY_BANDS", "Arbiter"]

PRIORITY_BANDS = 4
"""Band 0 goes first."""


class Arbiter:
    """Grants one resource: the first band that has a candidate, in turn inside a band. Of every
    `share` grants for which bands compete, one goes to whoever waits longest."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._contended = 0
        self._last = [-1] * PRIORITY_BANDS

    def pick(self, candidates: list[QueueState]) -> QueueState:
        """Choose among at least one candidate."""
        band = min(queue.priority for queue in candidates)
        if any(queue.priority != band for queue in candidates):
            self._contended += 1
            if self._contended % self._share == 0:
                return min(candidates, key=lambda queue: queue.since)
        last = self._last[band]
        chosen = min(
            (queue for queue in candidates if queue.priority == band),
            key=lambda queue: (queue.number <= last, queue.number),
        )
        self._last[band] = chosen.number
        return chosen
