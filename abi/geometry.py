"""Counts that size register arrays: the reference chip's, and the most that the contract allows."""

__all__ = ["CORES", "DMA_CHANNELS", "MAXIMUM_DEPTH_LOG2", "QUEUES", "VECTORS"]

QUEUES = 16
"""User queues, each with a doorbell page and an interrupt vector."""

DMA_CHANNELS = 4
"""Channels of the DMA engine."""

CORES = 2
"""AI cores."""

VECTORS = 32
"""MSI-X vectors: 0 is the mailbox's, 1 + q is queue q's."""

MAXIMUM_DEPTH_LOG2 = 16
"""Largest ring: 65536 packets."""
