"""User queues: doorbells, the fetcher, packet SRAM."""
