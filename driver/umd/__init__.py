"""The user-mode half of the driver: packets, rings and the doorbell page of a queue."""
