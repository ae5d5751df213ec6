"""The privileged half of the driver: registers, firmware, memory, queues, interrupts, recovery."""
